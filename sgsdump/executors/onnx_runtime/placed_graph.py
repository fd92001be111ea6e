"""Segments whose tensors have fixed offsets in one piece of memory.

For many feeds in a row: no memory is asked for and given back, the few megabytes of a segment still lie in the
processor's cache when the caller reads them, and nothing is planned again. Bit for bit what ``SegmentRunner`` gives.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort

from sgsdump.executors.onnx_runtime.ort_value import ALIGNMENT, PLAIN, aligned_memory
from sgsdump.executors.onnx_runtime.segment_runner import Ready, SegmentSessions
from sgsdump.executors.onnx_runtime.session import CPU
from sgsdump.models.graph import infer_types, sorted_nodes, weight_names
from sgsdump.models.input_spec import check_feed
from sgsdump.models.model import Model, graph_inputs
from sgsdump.models.passes.segment import Segment, cut, tensor_bytes, unrounded

# Of a segment's tensors. A core's own cache holds half as much or less, but smaller segments take longer to enter than
# they save.
SEGMENT_BYTES = 3 << 20

Shape = tuple[np.dtype, tuple[int, ...]]


class PlacedGraph:
    """A model made ready for feeds shaped as ``feed``, each on one thread; threads share it.

    wanted  names of the float tensors to be given; what no later segment reads either is never kept.

    Raises InputError for a feed that does not fit, Unplaceable where a tensor's type or shape is not known beforehand,
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
            raise Unplaceable("an input of another type than the model's")
        steps = (feed, *(part.makes for part in self.segments))
        produced = [{name: sizes[name] for name in names} for names in steps]
        self.offsets, self.size = plan_memory(produced, [(), *(part.reads for part in self.segments)])
        words = {n: (f"tensor({_word(types[n])})", list(shape)) for n, (_, shape) in self.shapes.items()}
        sessions = SegmentSessions(model, [CPU], threads=1, keep=True)
        self.ready = [sessions.of(part, {name: words[name] for name in part.reads}) for part in self.segments]

    def takes(self, feed: Mapping[str, np.ndarray]) -> bool:
        """Whether a feed has the shapes and types of the first one."""
        return {name: (array.dtype, array.shape) for name, array in feed.items()} == self.feed


class Unplaceable(Exception):
    """The tensors of a model cannot be given offsets before it runs."""


class PlacedRun:
    """One thread's runs of a graph.

    made  arrays of what there is at each step: the inputs, then what each segment makes. They are the same objects at
          each run; their values hold until the next step.
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
        """The number of each step when it is over; ``feed`` is one that the graph takes. Raises one of REFUSALS."""
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
    """Raises Unplaceable."""
    tensor = types[name].tensor_type if name in types else onnx.TypeProto.Tensor()
    sizes = tuple(d.dim_value for d in tensor.shape.dim)
    if tensor.elem_type not in PLAIN or not tensor.HasField("shape") or not all(sizes):
        raise Unplaceable(f"the type of {name!r} is not known")
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), sizes


def _word(kind: onnx.TypeProto) -> str:
    return onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()


def _array(memory: np.ndarray, dtype: np.dtype, sizes: tuple[int, ...]) -> np.ndarray:
    """At the beginning of the memory."""
    return memory[: dtype.itemsize * math.prod(sizes)].view(dtype).reshape(sizes)


def plan_memory(made: Sequence[Mapping[str, int]], read: Sequence[Collection[str]]) -> tuple[dict[str, int], int]:
    """The first byte of each tensor, and the bytes of all the memory. A tensor keeps its bytes until the last step that
    reads it is over. What one step makes and one step reads last lies together, in the first gap that is large enough.

    made  bytes by name of what each step makes; the first one's are the inputs.
    read  names of what each step reads, of what is made before it.
    """
    last = {name: step for step, names in enumerate(read) for name in names}
    offsets: dict[str, int] = {}
    # Of those in use, by offset: first byte, the byte after, the last step that reads.
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
    """The first byte of the first gap between the blocks that is large enough, or of the one after them all."""
    offset = 0
    for start, stop, _ in blocks:
        if offset + size <= start:
            break
        offset = stop
    return offset


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
