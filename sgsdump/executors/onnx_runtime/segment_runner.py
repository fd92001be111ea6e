"""Runner that yields every tensor of a model from onnxruntime, segment by segment, without holding all tensors.

The values are bit for bit those of one run with all outputs marked. Each segment of about a dozen nodes is its own
session with graph optimisation off. A segment reads the live values of earlier segments without a copy. All its outputs
are marked, and each value is freed after its last reader.

A graph is not cut between float16 nodes: within a session, onnxruntime passes unrounded float32 values from one node to
the next. A half-precision model therefore needs memory for all its tensors.
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
from sgsdump.executors.onnx_runtime.session import (
    CPU,
    PLAIN_TYPES,
    REFUSALS,
    ModelFile,
    Values,
    from_array,
    header,
    message_of,
    providers,
    shape_of,
    share_initializers,
    to_array,
    type_proto,
    unoptimised,
    use_shared_arena,
    why_not,
)
from sgsdump.executors.runner import Layer, Skip
from sgsdump.files.mapped import identity
from sgsdump.models.graph import bodies, called, infer_types, inner_tensors, needs, sorted_nodes, weights_of
from sgsdump.models.model import Model, fitted, graph_inputs
from sgsdump.models.passes.segment import (
    Segment,
    cut,
    max_nodes_of,
    segment,
    sub_model,
    tensor_bytes,
    unrounded,
    without_reading,
)
from sgsdump.progress import Advance, unwatched

Reads = Mapping[str, tuple[str, list[int] | None]]
"""Type (onnxruntime's name) and shape of each tensor that a segment reads."""


class Ready(NamedTuple):
    """A session, the tensors that it ``reads``, the types of the tensors that it ``makes``, and its shared weights."""

    reads: Reads
    makes: tuple[str, ...]
    session: ort.InferenceSession
    shared: Values


class Live(NamedTuple):
    """A value, and onnxruntime's name of its type."""

    value: ort.OrtValue
    type: str


Outcome = Live | Skip
"""A tensor's value, or the reason why there is none."""


class SegmentRunner:
    """Runner of a model, one feed after another.

    model           model from ``open_model``, or built in memory.
    keep_sessions   True keeps every segment's session for the next feed: fast for many feeds, holds all weights.
                    False creates each session in turn and frees it: little memory, for one feed.
    keep_last       keep only the newest session with weights, until the next is created: for several feeds that move
                    from layer to layer together.
    provider        execution provider, as in ``providers``.
    threads         threads per feed; 0 is every core.
    keep_going      True continues after a node that fails: its outputs and all dependent tensors are skipped as failed.
    skipped         tensors that cannot be returned as arrays, by name, with the reason.

    Several threads may run feeds at the same time. While the caller reads the tensors of one segment, the next one
    runs.

    Raises ModelError if the graph cannot be sorted, has inputs that are not tensors, or needs a newer onnxruntime;
    ConfigError if the provider is not available.
    """

    def __init__(
        self,
        model: Model,
        keep_sessions: bool = False,
        keep_going: bool = False,
        provider: str = CPU,
        threads: int = 0,
        keep_last: bool = False,
    ):
        self.model = model
        self.inputs = graph_inputs(model.proto)
        self.skipped: dict[str, Skip] = {}
        sessions = SegmentSessions(model, providers(provider), threads, keep_sessions, keep_last)
        self._outputs = SegmentOutputs(model, sessions, keep_going)
        self._threads, self._keep = threads, keep_sessions
        self._nodes = self._outputs.nodes
        self._fed_types = {info.name: info.type for info in model.proto.graph.input}
        self._segments: list[Segment] | None = None
        self._narrowed: tuple[Collection[str], list[Segment]] | None = None
        self._cutting = Lock()
        self._skip_inner_tensors()

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, advance: Advance = unwatched
    ) -> Iterator[Layer]:
        """Yield every node output in topological order; see ``runner.Runner``."""
        feed = fitted(feed, self.inputs)
        with self._cutting:
            segments = self._segments = self._segments or self._cut(feed)
            if only is not None:
                if self._narrowed is None or self._narrowed[0] is not only:
                    self._narrowed = only, _narrowed(segments, only)
                segments = self._narrowed[1]
        return self._run(segments, feed, only, advance)

    def _cut(self, feed: Mapping[str, np.ndarray]) -> list[Segment]:
        types = infer_types(self.model.proto, {name: array.shape for name, array in feed.items()})
        # Each kept session adds a little time per run. A temporary session needs much memory if it has many nodes.
        max_nodes = len(self._nodes) if self._keep else max_nodes_of(self._nodes, types)
        weights, uncut = self._outputs.weights, unrounded(self._nodes, types)
        return cut(self._nodes, weights, tensor_bytes(types), max_nodes, uncut=uncut)

    def _run(
        self, segments: list[Segment], feed: Mapping[str, np.ndarray], only: Collection[str] | None, advance: Advance
    ) -> Iterator[Layer]:
        done = 0
        for part, outcomes in self._ahead(segments, self._fed(feed)):
            for node in part.nodes:
                for name in filter(None, node.output):
                    value = outcomes.pop(name, None)
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

    def _ahead(self, segments: list[Segment], fed: Mapping[str, Live]) -> Iterator[tuple[Segment, dict[str, Outcome]]]:
        """Yield each segment and its outcomes, which the caller empties while the next segment runs."""
        last_reader = {name: index for index, part in enumerate(segments) for name in part.reads}
        live = dict(fed)
        # A feed with a single thread must not start a second one.
        with nullcontext() if self._threads == 1 else ThreadPoolExecutor(1) as pool:

            def start(part: Segment) -> Callable[[], dict[str, Outcome]]:
                call = partial(self._outputs.of, part, live, fed)
                return pool.submit(call).result if pool else call

            result = start(segments[0]) if segments else dict
            for index, part in enumerate(segments):
                outcomes = result()
                live = {n: v for n, v in _live({**live, **outcomes}).items() if last_reader.get(n, -1) > index}
                result = start(segments[index + 1]) if index + 1 < len(segments) else dict
                yield part, outcomes

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


class SegmentOutputs:
    """Outputs of a model's segments; if a segment fails, the failing node and the reason.

    model       model whose segments run, with sorted nodes.
    sessions    sessions that run the segments.
    keep_going  continue after a node that fails: its outputs and all dependent tensors are skipped as failed.

    Raises ModelError if the graph cannot be sorted.
    """

    def __init__(self, model: Model, sessions: SegmentSessions, keep_going: bool):
        self.nodes = sorted_nodes(model.proto.graph)
        self.weights = set(sessions.weights)
        self._path, self._sessions, self._keep_going = model.path, sessions, keep_going

    def of(self, part: Segment, live: Mapping[str, Live], fed: Mapping[str, Live]) -> dict[str, Outcome]:
        """Return the outputs of a segment. A segment that fails runs again node by node, to find the failing node."""
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
            outputs = self._with_ancestors(part, fed)
            if outputs:
                return dict(outputs)
            why = f"{called(part.nodes[0])} cannot run: {message_of(error)}"
            if self._keep_going:
                return _lost(part, why)
            raise ModelError(f"{self._path}: {why}") from error

    def _ran(self, part: Segment, live: Mapping[str, Live]) -> dict[str, Live]:
        """Return the outputs of a segment whose inputs are all available. Raises one of REFUSALS."""
        ready = self._sessions.of(part, {n: (live[n].type, shape_of(live[n].value)) for n in part.reads})
        values = ready.session.run_with_ort_values(part.makes, {name: live[name].value for name in part.reads})
        return {name: Live(value, kind) for name, kind, value in zip(part.makes, ready.makes, values)}

    def _single(self, part: Segment, live: Mapping[str, Live], fed: Mapping[str, Live]) -> dict[str, Outcome]:
        """Return the outputs of a segment's nodes, run one node at a time."""
        outcomes: dict[str, Outcome] = {}
        for node in part.nodes:
            outcomes |= self.of(segment([node], self.weights), {**live, **_live(outcomes)}, fed)
        return outcomes

    def _with_ancestors(self, part: Segment, fed: Mapping[str, Live]) -> dict[str, Live]:
        """Return the outputs of a node with bodies (Scan, Loop, If) that only runs within its graph; {} if that fails.

        onnxruntime needs the shapes of a body's outputs, and infers some of them from constants far before the node.
        """
        if not any(bodies(part.nodes[0])):
            return {}
        needed, cone = set(part.makes), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                cone.append(node)
                needed |= needs(node)
        whole = replace(segment(cone[::-1], self.weights), makes=part.makes)
        try:
            return self._ran(whole, fed)
        except REFUSALS:
            return {}


class SegmentSessions:
    """Sessions that run a model's segments; each is created on request, then kept or freed.

    providers  names of onnxruntime's execution providers.
    threads    threads per session; 0 is every core.
    keep       keep every session and its weights for the next time. Otherwise a session is freed with its last user or,
               with ``keep_last``, when another session with weights is created.
    weights    the model's initializers by name.

    Raises ModelError if the model needs a newer onnxruntime.
    """

    def __init__(self, model: Model, providers: Sequence[str], threads: int, keep: bool, keep_last: bool = False):
        self._header = header(model.proto)
        self.weights = weights_of(model.proto.graph)
        self._folder = model.folder
        self._file = _file_with_weights(model)
        self._providers, self._threads, self._keep = list(providers), threads, keep
        self._keep_last = keep_last
        self._kept: dict[tuple[str, ...], Ready] = {}
        self._lock = Lock()

    def of(self, part: Segment, reads: Reads) -> Ready:
        """Return a session that runs the segment on inputs of these types. Raises ModelError, and one of REFUSALS."""
        if not (self._keep or self._keep_last):
            return self._new(part, reads)
        with self._lock:
            kept = self._kept.get(part.makes)
            if not kept or kept.reads != reads:
                if self._keep_last and part.weights:
                    self._kept = {makes: ready for makes, ready in self._kept.items() if not ready.shared}
                    del kept
                kept = self._kept[part.makes] = self._new(part, reads)
            return kept

    def _new(self, part: Segment, reads: Reads) -> Ready:
        options = unoptimised(self._folder)
        use_shared_arena(options)
        options.intra_op_num_threads = self._threads
        # Idle threads that spin would take cores from those that create the next session or write the last tensors.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        weights = {name: self.weights[name] for name in part.weights}
        stubs, shared = share_initializers(options, weights, self._file)
        data = sub_model(self._header, part, stubs, {name: type_proto(*kind) for name, kind in reads.items()})
        session = ort.InferenceSession(data, options, providers=self._providers)
        types = {info.name: info.type for info in session.get_outputs()}
        return Ready(reads, tuple(types[name] for name in part.makes), session, shared)


def _narrowed(segments: Sequence[Segment], only: Collection[str]) -> list[Segment]:
    """Return the segments with only those outputs that are requested or read by a later segment."""
    needed = {*only, *(name for part in segments for name in part.reads)}
    return [replace(part, makes=tuple(name for name in part.makes if name in needed)) for part in segments]


def _live(outcomes: Mapping[str, Outcome]) -> dict[str, Live]:
    """Return the outcomes that are values."""
    return {name: value for name, value in outcomes.items() if isinstance(value, Live)}


def _lost(part: Segment, reason: str) -> dict[str, Outcome]:
    return {name: Skip(name, part.nodes[0].op_type, reason, failed=True) for name in part.makes}


def _file_with_weights(model: Model) -> ModelFile | None:
    """Return the model's file if its folder is that of the external data: the file may then hold large weights."""
    file = model.path.resolve()
    return ModelFile(file, identity(file.stat())) if model.folder == file.parent and file.is_file() else None
