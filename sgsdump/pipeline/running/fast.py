"""The fast way: every node runs once, in segments of about a dozen that hand arrays to each other.

A segment outputs the wanted tensors and those that later segments read. One that fails is run again node by node, so
that the node at fault has a name and only what depends on it is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sgsdump.models.graph import infer_types
from sgsdump.models.passes.segment import cut, tensor_bytes, unrounded
from sgsdump.pipeline.running.lineage import Lineage
from sgsdump.pipeline.running.steps import Step


def fast_steps(lineage: Lineage, wanted: Collection[str], shapes: Mapping[str, Sequence[int]]) -> list[Step]:
    """The segments that the wanted tensors need; ``shapes`` are those of the inputs."""
    cone = lineage.cone(wanted)
    types = infer_types(lineage.proto, shapes)
    segments = cut(lineage.nodes, lineage.weights, tensor_bytes(types), uncut=unrounded(lineage.nodes, types))
    last_reader: dict[str, int] = {}
    ends: list[int] = []
    for number, part in enumerate(segments):
        start = ends[-1] if ends else 0
        ends.append(start + len(part.nodes))
        for index in cone.intersection(range(start, ends[-1])):
            last_reader.update(dict.fromkeys(lineage.needs[index], number))
    steps = []
    for number, part in enumerate(segments):
        asks = tuple(name for name in part.makes if name in wanted or last_reader.get(name, -1) > number)
        asks = tuple(n for n in asks if n in wanted or not lineage.is_constant[lineage.maker[n]])
        if asks:
            steps.append(Step(asks, 1, alone=False))
    return steps
