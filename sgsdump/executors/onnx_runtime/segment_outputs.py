"""What one segment makes, and where it fails: at which node, with what reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import onnxruntime as ort

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.ort_value import shape_of, type_proto
from sgsdump.executors.onnx_runtime.refusals import REFUSALS, plain
from sgsdump.executors.onnx_runtime.segment_sessions import SegmentSessions
from sgsdump.executors.runner import Skip
from sgsdump.models.graph import bodies, needs
from sgsdump.models.model import Model, weight_names
from sgsdump.models.passes.segment import Segment, segment, without_reading
from sgsdump.models.passes.topology import called, sorted_nodes


class Live(NamedTuple):
    """A value, and onnxruntime's word for its type."""

    value: ort.OrtValue
    type: str


Made = Live | Skip
"""What became of a tensor."""


def there(made: Mapping[str, Made]) -> dict[str, Live]:
    """Without those that are lost."""
    return {name: value for name, value in made.items() if isinstance(value, Live)}


def _lost(part: Segment, reason: str) -> dict[str, Made]:
    return {name: Skip(name, part.nodes[0].op_type, reason, failed=True) for name in part.makes}


class SegmentOutputs:
    """model     whose segments run, its nodes sorted.
    sessions    that run them.
    keep_going  after a node that fails: its outputs and what depends on them are skipped as failed.

    Raises ModelError when the graph cannot be sorted.
    """

    def __init__(self, model: Model, sessions: SegmentSessions, keep_going: bool):
        self.nodes = sorted_nodes(model.proto.graph)
        self._weights = weight_names(model.proto.graph)
        self._path, self._sessions, self._keep_going = model.path, sessions, keep_going

    def of(self, part: Segment, live: Mapping[str, Live], fed: Mapping[str, Live]) -> dict[str, Made]:
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
            raise ModelError(f"{self._path}: {why}") from error

    def _ran(self, part: Segment, live: Mapping[str, Live]) -> dict[str, Live]:
        """Outputs of a segment whose reads are all there. Raises one of REFUSALS."""
        ready = self._sessions.of(part, {n: (live[n].type, shape_of(live[n].value)) for n in part.reads})
        values = ready.session.run_with_ort_values(part.makes, {name: live[name].value for name in part.reads})
        return {name: Live(value, kind) for name, kind, value in zip(part.makes, ready.makes, values)}

    def _single(self, part: Segment, live: Mapping[str, Live], fed: Mapping[str, Live]) -> dict[str, Made]:
        """Outputs of a segment's nodes, one node at a time."""
        made: dict[str, Made] = {}
        for node in part.nodes:
            made |= self.of(segment([node], self._weights), {**live, **there(made)}, fed)
        return made

    def _with_ancestors(self, part: Segment, fed: Mapping[str, Live]) -> dict[str, Live]:
        """Outputs of a node with bodies (Scan, Loop, If) that runs in its graph only; {} when it does not there either.

        onnxruntime wants the shapes of a body's outputs, and infers some from constants far before the node.
        """
        if not any(bodies(part.nodes[0])):
            return {}
        wanted, cone = set(part.makes), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                cone.append(node)
                wanted |= needs(node)
        whole = replace(segment(cone[::-1], self._weights), makes=part.makes)
        try:
            return self._ran(whole, fed)
        except REFUSALS:
            return {}
