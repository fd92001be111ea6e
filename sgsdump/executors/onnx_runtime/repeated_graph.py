"""onnxruntime for trying many quant plans: the graph never changes, the inputs do, only chosen outputs are given.

``WholeGraph`` is one session for the whole graph. ``StagedGraph`` is one session a stage: plans that differ late in the
graph enter it half-way, where an earlier run left its values. Several threads may run either.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.ort_value import type_proto
from sgsdump.executors.onnx_runtime.session import (
    CPU,
    REFUSALS,
    fake_quantised,
    for_one_run,
    header,
    loadable,
    message_of,
    shrinking,
    use_shared_arena,
)
from sgsdump.models.graph import weights_of
from sgsdump.models.passes.segment import Segment, segment, sub_model

if TYPE_CHECKING:
    from onnx import ModelProto


class WholeGraph:
    """A session over a model whose weights are in it. What a run needs beside its outputs is given back after it.
    Raises ModelError when onnxruntime will not load it.

    once  it runs one time: its nodes as they are, which loads in half the time.
    """

    def __init__(self, proto: ModelProto, threads: int = 0, once: bool = False):
        self._session = _session(loadable(proto), for_one_run() if once else fake_quantised(threads), "the graph")
        self._how = None if once else shrinking()

    def run(self, feed: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """The outputs by name; values of ``feed`` are arrays, or what ``hold`` gave."""
        return {name: value.numpy() for name, value in zip(outputs, self.values(feed, outputs))}

    def values(self, feed: Mapping[str, Any], outputs: Sequence[str]) -> list[ort.OrtValue]:
        """The outputs as onnxruntime has them, of any type."""
        held = {name: value if isinstance(value, ort.OrtValue) else self.hold(value) for name, value in feed.items()}
        return self._session.run_with_ort_values(list(outputs), held, self._how)

    @staticmethod
    def hold(array: np.ndarray) -> ort.OrtValue:
        """An array kept where onnxruntime reads it, for inputs that are fed many times."""
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


class Entry:
    """The values a stage read when it ran last, which onnxruntime need not be handed again, and those it made, which it
    overwrites when it runs again."""

    def __init__(self, binding: ort.IOBinding):
        self.binding = binding
        self.bound: dict[str, Any] = {}
        self.made: dict[str, Any] = {}


class StagedGraph:
    """The stages of a model whose nodes are sorted.

    cuts     numbers of the nodes that begin a new stage, rising, without 0.
    fed      names that every run feeds: the graph's inputs, also those that have an initializer.
    outputs  names of the tensors wanted, any of the graph's.
    reads    for each stage the names of ``fed`` it reads.
    carries  for each stage the names of tensors of earlier stages that it or a later one reads, or that are wanted.

    Raises ModelError when onnxruntime will not load a stage, or needs to be newer.
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
            # Pictures run side by side in threads of their own, which shares processors better than layers do. With an
            # arena for each session a search would take half as much memory again.
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
        """Into each stage, for one thread."""
        return [Entry(session.io_binding()) for session in self._sessions]

    def run(self, stage: int, live: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
        """The outputs, valid until the stage is entered again; ``live`` holds all values it reads, as of ``hold``.
        Raises ModelError where onnxruntime cannot run it."""
        part = self._parts[stage]
        if not part.makes:
            return {}
        for name in part.reads:
            if entry.bound.get(name) is not live[name]:
                entry.binding.bind_ortvalue_input(name, live[name])
                entry.bound[name] = live[name]
        session = self._sessions[stage]
        if entry.made:
            with suppress(*REFUSALS):  # as where a size depends on values: then it makes them anew
                session.run_with_iobinding(entry.binding)
                return entry.made
        entry.made = {}
        for name in part.makes:
            entry.binding.bind_output(name)
        try:
            session.run_with_iobinding(entry.binding)
        except REFUSALS as error:
            raise ModelError(f"the network with its plans cannot run: {message_of(error)}") from None
        entry.made = dict(zip(part.makes, entry.binding.get_outputs()))
        for name, value in entry.made.items():
            entry.binding.bind_ortvalue_output(name, value)
        return entry.made

    def arrays(self, live: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """Copies of the wanted outputs, or of some of them, when the last stage has run."""
        return {name: np.array(live[name].numpy()) for name in (self._outputs if names is None else names)}

    @staticmethod
    def bytes_of(values: Iterable[Any]) -> int:
        """The memory of what ``run`` gave, each value counted once, at four bytes an element."""
        return sum(4 * math.prod(value.shape()) for value in {id(value): value for value in values}.values())

    @staticmethod
    def hold(array: np.ndarray | np.generic) -> Any:
        """An array where onnxruntime reads it, without a copy."""
        return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def _session(model: bytes, options: ort.SessionOptions, what: str) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(model, options, providers=[CPU])
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {what}: {str(error).splitlines()[0]}") from error
