"""onnxruntime graphs that run many times with changing inputs and return chosen outputs only.

``WholeGraph`` is one session for the whole graph. ``StagedGraph`` has one session per stage: plans that differ late in
the graph enter it half-way, at the values of an earlier run. ``PlacedGraph`` is for many feeds of one shape: its
tensors have fixed offsets in one block of memory. Nothing is allocated, freed or planned again, and a segment's few
megabytes are still in the processor's cache when the caller reads them. Its values equal those of ``SegmentRunner`` bit
for bit. Several threads may share any of the three.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.segment_runner import Ready, SegmentSessions
from sgsdump.executors.onnx_runtime.session import (
    ALIGNMENT,
    CPU,
    PLAIN,
    REFUSALS,
    aligned_memory,
    fake_quantised,
    for_one_run,
    header,
    loadable,
    message_of,
    only_requested,
    type_proto,
    use_shared_arena,
)
from sgsdump.models.graph import infer_types, sorted_nodes, weight_names, weights_of
from sgsdump.models.model import Model, check_feed, graph_inputs
from sgsdump.models.passes.segment import Segment, cut, segment, sub_model, tensor_bytes, unrounded

# Bytes of a segment's tensors. A core's own cache holds at most half as much, but entering smaller segments costs more
# time than they save.
SEGMENT_BYTES = 3 << 20
Shape = tuple[np.dtype, tuple[int, ...]]


class WholeGraph:
    """A session for a whole model with its weights.

    once  True for a single run: the session is not optimised, which halves the loading time. If False, the pool of the
          process keeps the memory of each run for the next one, until ``release_unused``.

    Raises ModelError if onnxruntime cannot load the model.
    """

    def __init__(self, proto: ModelProto, threads: int = 0, once: bool = False):
        options = for_one_run() if once else fake_quantised(threads)
        if not once:
            use_shared_arena(options)
        self._session = _session(loadable(proto), options, "the graph")
        self._how = None if once else only_requested()

    def run(self, feed: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the outputs by name; values of ``feed`` are arrays, or results of ``hold``."""
        return {name: value.numpy() for name, value in zip(outputs, self.values(feed, outputs))}

    def values(self, feed: Mapping[str, Any], outputs: Sequence[str]) -> list[ort.OrtValue]:
        """Return the outputs as OrtValues, of any type."""
        held = {name: value if isinstance(value, ort.OrtValue) else self.hold(value) for name, value in feed.items()}
        return self._session.run_with_ort_values(list(outputs), held, self._how)

    @staticmethod
    def hold(array: np.ndarray) -> ort.OrtValue:
        """Keep an array where onnxruntime reads it, for inputs that are fed many times."""
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


class Entry:
    """Bindings of a stage in one thread.

    ``bound`` holds the values of its last run, which need not be bound again. ``made`` holds its outputs, which the
    next run overwrites.
    """

    def __init__(self, binding: ort.IOBinding):
        self.binding = binding
        self.bound: dict[str, Any] = {}
        self.made: dict[str, Any] = {}


class StagedGraph:
    """Stages of a model with sorted nodes.

    cuts     indices of the nodes that begin a new stage, ascending, without 0.
    fed      names that every run feeds: the graph's inputs, also those with an initializer.
    outputs  names of the requested tensors, any of the graph's.
    reads    names of ``fed`` that each stage reads.
    carries  for each stage, names of earlier stages' tensors that the stage or a later one reads, or that are
    requested.

    Raises ModelError if onnxruntime cannot load a stage, or the model needs a newer onnxruntime.
    """

    def __init__(self, proto: ModelProto, cuts: Sequence[int], fed: Collection[str], outputs: Sequence[str]):
        nodes, bounds = list(proto.graph.node), [0, *cuts, len(proto.graph.node)]
        weights = {name: tensor for name, tensor in weights_of(proto.graph).items() if name not in fed}
        types = {i.name: i.type for i in proto.graph.input if i.name in fed}
        whole = [segment(nodes[start:stop], set(weights)) for start, stop in pairwise(bounds)]
        self._outputs = list(outputs)
        self._sessions: list[ort.InferenceSession] = []
        self._parts: list[Segment] = []
        self.carries: list[frozenset[str]] = []
        made: set[str] = set()
        versions = header(proto)
        for index, part in enumerate(whole):
            later = {*outputs, *(name for after in whole[index + 1 :] for name in after.reads)}
            self.carries.append(frozenset(made & {*later, *part.reads}))
            part = replace(part, makes=tuple(name for name in part.makes if name in later))
            # Images run in parallel, one thread each, which uses the processors better than threads within a layer. One
            # arena per session would need half as much memory again.
            options = fake_quantised(threads=1)
            use_shared_arena(options)
            model = sub_model(versions, part, {name: weights[name] for name in part.weights}, types)
            session = _session(model, options, "a stage of the graph")
            types |= {info.name: type_proto(info.type, None) for info in session.get_outputs()}
            made.update(part.makes)
            self._parts.append(part)
            self._sessions.append(session)
        self.reads = [tuple(name for name in part.reads if name in fed) for part in self._parts]

    def entries(self) -> list[Entry]:
        """Return the entries into all stages, for one thread."""
        return [Entry(session.io_binding()) for session in self._sessions]

    def run(self, stage: int, live: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
        """Return the outputs of a stage, valid until the stage runs again.

        ``live`` holds all values that the stage reads, as results of ``hold``. Raises ModelError if onnxruntime cannot
        run it.
        """
        part = self._parts[stage]
        if not part.makes:
            return {}
        for name in part.reads:
            if entry.bound.get(name) is not live[name]:
                entry.binding.bind_ortvalue_input(name, live[name])
                entry.bound[name] = live[name]
        session = self._sessions[stage]
        if entry.made:
            with suppress(*REFUSALS):  # a size that depends on values may have changed: allocate outputs again
                session.run_with_iobinding(entry.binding)
                return entry.made
        entry.made = {}
        for name in part.makes:
            entry.binding.bind_output(name)
        try:
            session.run_with_iobinding(entry.binding)
        except REFUSALS as error:
            raise ModelError(f"onnxruntime cannot run the model with INT16 plans: {message_of(error)}") from None
        entry.made = dict(zip(part.makes, entry.binding.get_outputs()))
        for name, value in entry.made.items():
            entry.binding.bind_ortvalue_output(name, value)
        return entry.made

    def arrays(self, live: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """Return copies of the requested outputs, or of ``names``, after the last stage has run."""
        return {name: np.array(live[name].numpy()) for name in (self._outputs if names is None else names)}

    @staticmethod
    def bytes_of(values: Iterable[Any]) -> int:
        """Return the memory of the results of ``run``, each value counted once, at four bytes per element."""
        return sum(4 * math.prod(value.shape()) for value in {id(value): value for value in values}.values())

    @staticmethod
    def hold(array: np.ndarray | np.generic) -> Any:
        """Keep an array where onnxruntime reads it, without a copy."""
        return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def _session(model: bytes, options: ort.SessionOptions, what: str) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(model, options, providers=[CPU])
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {what}: {str(error).splitlines()[0]}") from error


class PlacedGraph:
    """A model prepared for feeds of the shapes of ``feed``, each on one thread; threads share the graph.

    wanted  names of the float tensors to return; tensors that no later segment reads either are never stored.

    Raises InputError for a feed that does not match, Unplaceable if a tensor's type or shape is not known in advance,
    and one of REFUSALS.
    """

    def __init__(self, model: Model, feed: Mapping[str, np.ndarray], wanted: Collection[str]):
        check_feed(feed, graph_inputs(model.proto))
        graph, weights = model.proto.graph, weight_names(model.proto.graph)
        types = infer_types(model.proto, {name: array.shape for name, array in feed.items()})
        nodes = sorted_nodes(graph)
        sizes = {name: size for name, size in tensor_bytes(types).items() if name not in weights}
        parts = cut(nodes, weights, sizes, len(nodes), SEGMENT_BYTES, unrounded(nodes, types))
        handed_on = {name for part in parts for name in part.reads}
        parts = [replace(p, makes=tuple(n for n in p.makes if n in handed_on or n in wanted)) for p in parts]
        self.segments = [part for part in parts if part.makes]
        self.feed: dict[str, Shape] = {name: (array.dtype, array.shape) for name, array in feed.items()}
        kept = {*feed, *(name for part in self.segments for name in part.makes)}
        self.shapes = {name: _shape(name, types) for name in kept}
        if any(self.shapes[name] != self.feed[name] for name in feed):
            raise Unplaceable("an input has another type or shape than the model declares")
        steps = (feed, *(part.makes for part in self.segments))
        produced = [{name: sizes[name] for name in names} for names in steps]
        self.offsets, self.size = plan_memory(produced, [(), *(part.reads for part in self.segments)])
        words = {n: (f"tensor({_word(types[n])})", list(shape)) for n, (_, shape) in self.shapes.items()}
        sessions = SegmentSessions(model, [CPU], threads=1, keep=True)
        self.ready = [sessions.of(part, {name: words[name] for name in part.reads}) for part in self.segments]

    def takes(self, feed: Mapping[str, np.ndarray]) -> bool:
        """Return whether a feed has the shapes and types of the first feed."""
        return {name: (array.dtype, array.shape) for name, array in feed.items()} == self.feed


class Unplaceable(Exception):
    """Error: the tensors of a model cannot get offsets before it runs."""


class PlacedRun:
    """Runs of a graph in one thread.

    made  arrays available at each step: first the inputs, then the outputs of each segment. The array objects are the
    same
          at each run; their values hold until the next step.
    """

    def __init__(self, graph: PlacedGraph):
        memory = aligned_memory(graph.size)
        arrays = {name: _array(memory[offset:], *graph.shapes[name]) for name, offset in graph.offsets.items()}
        self._inputs = {name: arrays[name] for name in graph.feed}
        self.made = [self._inputs, *({name: arrays[name] for name in part.makes} for part in graph.segments)]
        values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
        bindings = (_bound(ready, part, values) for ready, part in zip(graph.ready, graph.segments))
        self._sessions = [(ready.session, binding) for ready, binding in zip(graph.ready, bindings)]

    def steps(self, feed: Mapping[str, np.ndarray]) -> Iterator[int]:
        """Yield the number of each step when it is done; the graph must accept ``feed``. Raises one of REFUSALS."""
        for name, array in self._inputs.items():
            np.copyto(array, feed[name])
        yield 0
        for step, (session, binding) in enumerate(self._sessions, 1):
            session.run_with_iobinding(binding)
            yield step


def _bound(ready: Ready, part: Segment, values: Mapping[str, ort.OrtValue]) -> ort.IOBinding:
    binding = ready.session.io_binding()
    for name in part.reads:
        binding.bind_ortvalue_input(name, values[name])
    for name in part.makes:
        binding.bind_ortvalue_output(name, values[name])
    return binding


def _shape(name: str, types: Mapping[str, onnx.TypeProto]) -> Shape:
    """Return dtype and shape of a tensor. Raises Unplaceable."""
    tensor = types[name].tensor_type if name in types else onnx.TypeProto.Tensor()
    sizes = tuple(d.dim_value for d in tensor.shape.dim)
    if tensor.elem_type not in PLAIN or not tensor.HasField("shape") or not all(sizes):
        raise Unplaceable(f"the type or shape of {name!r} is unknown")
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), sizes


def _word(kind: onnx.TypeProto) -> str:
    return onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()


def _array(memory: np.ndarray, dtype: np.dtype, sizes: tuple[int, ...]) -> np.ndarray:
    """Return the array at the beginning of the memory."""
    return memory[: dtype.itemsize * math.prod(sizes)].view(dtype).reshape(sizes)


def plan_memory(made: Sequence[Mapping[str, int]], read: Sequence[Collection[str]]) -> tuple[dict[str, int], int]:
    """Return the first byte of each tensor, and the size of the memory.

    A tensor keeps its bytes until its last reader is done. Tensors made in one step with the same last reader lie
    together, in the first gap that is large enough.

    made  bytes by name of each step's outputs; the first step's are the inputs.
    read  names that each step reads from earlier steps.
    """
    last = {name: step for step, names in enumerate(read) for name in names}
    offsets: dict[str, int] = {}
    # Blocks in use, by offset: first byte, byte after the end, last step that reads the block.
    blocks: list[tuple[int, int, int]] = []
    top = 0
    for step, sizes in enumerate(made):
        blocks = [block for block in blocks if block[2] >= step]
        together: dict[int, list[str]] = {}
        for name in sizes:
            together.setdefault(last.get(name, step), []).append(name)
        for until, names in together.items():
            start = stop = _gap(blocks, sum(_aligned(sizes[name]) for name in names))
            for name in names:
                offsets[name] = stop
                stop += _aligned(sizes[name])
            blocks = sorted([*blocks, (start, stop, until)])
            top = max(top, stop)
    return offsets, top


def _gap(blocks: Sequence[tuple[int, int, int]], size: int) -> int:
    """Return the first byte of the first gap between the blocks that is large enough, or the byte after all blocks."""
    offset = 0
    for start, stop, _ in blocks:
        if offset + size <= start:
            break
        offset = stop
    return offset


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
