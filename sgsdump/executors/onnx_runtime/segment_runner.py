"""onnxruntime, segment by segment: every tensor of the model, bit for bit what one run with all outputs marked gives,
without ever holding them all.

Each segment of about a dozen nodes is its own session with graph optimisation off. It is fed with the live values of
earlier segments (no copy), all its outputs are marked, and each value is let go when no later node needs it.

A graph is not cut between float16 nodes: onnxruntime hands unrounded float32 values from one to the next within a
session, so a half-precision model takes the memory of all its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.ort_value import PLAIN_TYPES, from_array, shape_of, to_array, type_proto, why_not
from sgsdump.executors.onnx_runtime.providers import CPU, providers
from sgsdump.executors.onnx_runtime.refusals import REFUSALS, plain
from sgsdump.executors.onnx_runtime.segment_sessions import SegmentSessions
from sgsdump.executors.runner import Layer, Skip
from sgsdump.models.feed_check import bfloat16_inputs, fitted
from sgsdump.models.graph import bodies, needs
from sgsdump.models.model import Model, graph_inputs, weight_names
from sgsdump.models.passes.segment import MAX_NODES, Segment, cut, segment, tensor_bytes, unrounded, without_reading
from sgsdump.models.passes.topology import called, inner_tensors, sorted_nodes
from sgsdump.models.shape_inference import infer_types
from sgsdump.progress import Advance, unwatched


class SegmentRunner:
    """Runs a model on one feed after another.

    model           from ``open_model`` or made in memory.
    keep_sessions   True keeps every segment's session for the next feed: fast for many feeds, holds all weights.
                    False makes each session when its turn comes and lets it go: little memory, for one feed.
    provider        the execution provider, as ``providers`` takes it.
    threads         that one feed runs on; 0 is every core.
    keep_going      True goes on after a node that fails: its outputs and what depends on them are skipped as failed.
    skipped         the tensors that cannot be given as arrays, by name, with the reason.

    Several threads may run feeds side by side. While the caller looks at the tensors of one segment, the next one runs.

    Raises ModelError when the graph cannot be sorted, has inputs that are no tensors, or needs a newer onnxruntime;
    ConfigError for a provider that is not there.
    """

    def __init__(
        self,
        model: Model,
        keep_sessions: bool = False,
        keep_going: bool = False,
        provider: str = CPU,
        threads: int = 0,
    ):
        graph = model.proto.graph
        self.model = model
        self.inputs = graph_inputs(model.proto)
        self.skipped: dict[str, Skip] = {}
        self._sessions = SegmentSessions(model, providers(provider), threads, keep_sessions)
        self._bfloat16 = bfloat16_inputs(model.proto)
        self._threads, self._keep = threads, keep_sessions
        self._keep_going = keep_going
        self._nodes = sorted_nodes(graph)
        self._weights = weight_names(graph)
        self._fed_types = {info.name: info.type for info in graph.input}
        self._segments: list[Segment] | None = None
        self._making: tuple[Collection[str], list[Segment]] | None = None
        self._cutting = Lock()
        self._skip_inner_tensors()

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, advance: Advance = unwatched
    ) -> Iterator[Layer]:
        """Every node output in topological order; see ``runner.Runner``."""
        feed = fitted(feed, self.inputs, self._bfloat16)
        with self._cutting:
            segments = self._segments = self._segments or self._cut(feed)
            if only is not None:
                if self._making is None or self._making[0] is not only:
                    self._making = only, _making(segments, only)
                segments = self._making[1]
        return self._run(segments, feed, only, advance)

    def _cut(self, feed: Mapping[str, np.ndarray]) -> list[Segment]:
        types = infer_types(self.model.proto, {name: array.shape for name, array in feed.items()})
        # Sessions that stay cost a little at every run, those that go a lot of memory for many nodes at once.
        most = len(self._nodes) if self._keep else MAX_NODES
        return cut(self._nodes, self._weights, tensor_bytes(types), most, uncut=unrounded(self._nodes, types))

    def _run(
        self,
        segments: list[Segment],
        feed: Mapping[str, np.ndarray],
        only: Collection[str] | None,
        advance: Advance,
    ) -> Iterator[Layer]:
        done = 0
        for part, made in self._ahead(segments, self._fed(feed)):
            for node in part.nodes:
                for name in filter(None, node.output):
                    value = made.pop(name, None)
                    if isinstance(value, Skip):
                        self.skipped[name] = value
                    if not isinstance(value, _Live):
                        continue
                    layer = self._layer(node, name, *value) if only is None or name in only else None
                    del value
                    if layer:
                        yield layer
                    del layer
                done += 1
                advance(done, len(self._nodes))

    def _ahead(self, segments: list[Segment], fed: Mapping[str, _Live]) -> Iterator[tuple[Segment, dict[str, _Made]]]:
        """Each segment and what it made, which is the caller's to empty; the next one runs meanwhile."""
        last_reader = {name: index for index, part in enumerate(segments) for name in part.reads}
        live = dict(fed)
        # A feed that has one thread to itself runs on no second one.
        with nullcontext() if self._threads == 1 else ThreadPoolExecutor(1) as pool:

            def start(part: Segment) -> Callable[[], dict[str, _Made]]:
                call = partial(self._made, part, live, fed)
                return pool.submit(call).result if pool else call

            result = start(segments[0]) if segments else dict
            for index, part in enumerate(segments):
                made = result()
                live = {n: v for n, v in _there({**live, **made}).items() if last_reader.get(n, -1) > index}
                result = start(segments[index + 1]) if index + 1 < len(segments) else dict
                yield part, made

    def _fed(self, feed: Mapping[str, np.ndarray]) -> dict[str, _Live]:
        values = {n: from_array(array, self._fed_types[n].tensor_type.elem_type) for n, array in feed.items()}
        return {name: _Live(value, value.data_type()) for name, value in values.items()}

    def _made(self, part: Segment, live: Mapping[str, _Live], fed: Mapping[str, _Live]) -> dict[str, _Made]:
        """Outputs of a segment. One that fails runs again node by node, so that the node at fault has a name."""
        if not part.makes:
            return {}
        lost = [name for name in part.reads if name not in live]
        if lost and len(part.nodes) > 1:
            return self._single(part, live, fed)
        if lost:
            return _lost(part, f"needs {lost[0]!r}, which failed")
        absent = {n: type_proto(live[n].type, None) for n in part.reads if not live[n].value.has_value()}
        whole = without_reading(part, absent)
        try:
            return dict(self._ran(whole, live))
        except REFUSALS as error:
            if len(part.nodes) > 1:
                return self._single(part, live, fed)
            made = self._with_ancestors(part, fed)
            if made:
                return dict(made)
            why = f"{called(part.nodes[0])} cannot run: {plain(error)}"
            if self._keep_going:
                return _lost(part, why)
            raise ModelError(f"{self.model.path}: {why}") from error

    def _ran(self, part: Segment, live: Mapping[str, _Live]) -> dict[str, _Live]:
        """Outputs of a segment whose reads are all there. Raises one of REFUSALS."""
        ready = self._sessions.of(part, {n: (live[n].type, shape_of(live[n].value)) for n in part.reads})
        values = ready.session.run_with_ort_values(part.makes, {name: live[name].value for name in part.reads})
        return {name: _Live(value, kind) for name, kind, value in zip(part.makes, ready.makes, values)}

    def _single(self, part: Segment, live: Mapping[str, _Live], fed: Mapping[str, _Live]) -> dict[str, _Made]:
        """Outputs of a segment's nodes, one node at a time."""
        made: dict[str, _Made] = {}
        for node in part.nodes:
            made |= self._made(segment([node], self._weights), {**live, **_there(made)}, fed)
        return made

    def _with_ancestors(self, part: Segment, fed: Mapping[str, _Live]) -> dict[str, _Live]:
        """Outputs of a node with bodies (Scan, Loop, If) that runs in its graph only; {} when it does not there either.

        onnxruntime wants the shapes of a body's outputs, and infers some from constants far before the node.
        """
        if not any(bodies(part.nodes[0])):
            return {}
        wanted, cone = set(part.makes), []
        for node in reversed(self._nodes):
            if wanted & set(node.output):
                cone.append(node)
                wanted |= needs(node)
        whole = replace(segment(cone[::-1], self._weights), makes=part.makes)
        try:
            return self._ran(whole, fed)
        except REFUSALS:
            return {}

    def _skip_inner_tensors(self) -> None:
        functions = {(function.domain, function.name) for function in self.model.proto.functions}
        for node in self._nodes:
            for name in inner_tensors(node):
                self.skipped[name] = Skip(name, node.op_type, f"inside a body of {called(node)}")
            if (node.domain, node.op_type) in functions:
                name = f"tensors inside {called(node)}"
                self.skipped[name] = Skip(name, node.op_type, "they belong to a function of the model")

    def _layer(self, node: onnx.NodeProto, name: str, value: ort.OrtValue, kind: str) -> Layer | None:
        if kind in PLAIN_TYPES:
            return Layer(name, node.name, node.op_type, value.numpy())
        reason = why_not(value)
        if reason:
            self.skipped[name] = Skip(name, node.op_type, reason)
            return None
        return Layer(name, node.name, node.op_type, to_array(value))


def _making(segments: Sequence[Segment], only: Collection[str]) -> list[Segment]:
    """The segments making nothing but what is asked for or read by a later one: the rest need not be kept."""
    needed = {*only, *(name for part in segments for name in part.reads)}
    return [replace(part, makes=tuple(name for name in part.makes if name in needed)) for part in segments]


class _Live(NamedTuple):
    """``type`` is onnxruntime's word for it."""

    value: ort.OrtValue
    type: str


_Made = _Live | Skip
"""What became of a tensor."""


def _there(made: Mapping[str, _Made]) -> dict[str, _Live]:
    """Without those that are lost."""
    return {name: value for name, value in made.items() if isinstance(value, _Live)}


def _lost(part: Segment, reason: str) -> dict[str, _Made]:
    return {name: Skip(name, part.nodes[0].op_type, reason, failed=True) for name in part.makes}
