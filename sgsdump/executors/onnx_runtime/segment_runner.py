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

import numpy as np
import onnx
import onnxruntime as ort

from sgsdump.executors.onnx_runtime.ort_value import PLAIN_TYPES, from_array, to_array, why_not
from sgsdump.executors.onnx_runtime.providers import CPU, providers
from sgsdump.executors.onnx_runtime.segment_outputs import Live, Made, SegmentOutputs, there
from sgsdump.executors.onnx_runtime.segment_sessions import SegmentSessions
from sgsdump.executors.runner import Layer, Skip
from sgsdump.models.feed_check import bfloat16_inputs, fitted
from sgsdump.models.model import Model, graph_inputs, weight_names
from sgsdump.models.passes.segment import MAX_NODES, Segment, cut, tensor_bytes, unrounded
from sgsdump.models.passes.topology import called, inner_tensors
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
        sessions = SegmentSessions(model, providers(provider), threads, keep_sessions)
        self._outputs = SegmentOutputs(model, sessions, keep_going)
        self._bfloat16 = bfloat16_inputs(model.proto)
        self._threads, self._keep = threads, keep_sessions
        self._nodes = self._outputs.nodes
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
                    if not isinstance(value, Live):
                        continue
                    layer = self._layer(node, name, *value) if only is None or name in only else None
                    del value
                    if layer:
                        yield layer
                    del layer
                done += 1
                advance(done, len(self._nodes))

    def _ahead(self, segments: list[Segment], fed: Mapping[str, Live]) -> Iterator[tuple[Segment, dict[str, Made]]]:
        """Each segment and what it made, which is the caller's to empty; the next one runs meanwhile."""
        last_reader = {name: index for index, part in enumerate(segments) for name in part.reads}
        live = dict(fed)
        # A feed that has one thread to itself runs on no second one.
        with nullcontext() if self._threads == 1 else ThreadPoolExecutor(1) as pool:

            def start(part: Segment) -> Callable[[], dict[str, Made]]:
                call = partial(self._outputs.of, part, live, fed)
                return pool.submit(call).result if pool else call

            result = start(segments[0]) if segments else dict
            for index, part in enumerate(segments):
                made = result()
                live = {n: v for n, v in there({**live, **made}).items() if last_reader.get(n, -1) > index}
                result = start(segments[index + 1]) if index + 1 < len(segments) else dict
                yield part, made

    def _fed(self, feed: Mapping[str, np.ndarray]) -> dict[str, Live]:
        values = {n: from_array(array, self._fed_types[n].tensor_type.elem_type) for n, array in feed.items()}
        return {name: Live(value, value.data_type()) for name, value in values.items()}

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
