"""Data of the drawing of a network on the page: operators, groups of operators, links and positions.

Numbers identify nodes: compared layers come first, by their place in the report, then operators that were not compared
(``parts``), then groups. The positions in a group hold for groups in it that are closed; the page moves nodes apart if
a reader opens a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sgsdump.reports.graph.groups import Group, groups_of, path_of
from sgsdump.reports.graph.layered import layered
from sgsdump.reports.graph.parts import Part
from sgsdump.reports.text import shown

FEWEST = 2  # layers of a drawing


class _Nodes:
    """Nodes of the drawing, and what each of them reads."""

    def __init__(self, names: Sequence[str], parts: Mapping[str, Sequence[Part]]):
        self.number = {name: place for place, name in reversed(list(enumerate(names)))}
        self.parts = [part for name in names for part in parts.get(name, ())]
        for number, part in enumerate(self.parts, len(names)):
            self.number.setdefault(part.name, number)
        self.reads: dict[int, list[int]] = {}

    def read(self, number: int, names: Sequence[str]) -> None:
        """Record what a node reads, as far as the drawing has it."""
        known = dict.fromkeys(self.number[name] for name in names if name in self.number)
        self.reads[number] = [source for source in known if source != number]


def drawing_of(
    names: Sequence[str],
    modules: Sequence[str],
    sources: Sequence[Sequence[str]],
    parts: Mapping[str, Sequence[Part]],
    direct: Mapping[str, Sequence[str]],
    by_flow: bool = True,
) -> dict[str, Any] | None:
    """Return the data of the drawing; None for fewer than two layers.

    Parameters
    ----------
    names : sequence of str
        Names of the layers, in execution order.
    modules : sequence of str
        Path of the module of each layer, such as ``layers.0.attn``; "" takes the path from the name.
    sources : sequence of sequence of str
        Names of the nearest layers that feed each layer.
    parts : mapping of str to sequence of Part
        Operators inside each layer that were not compared.
    direct : mapping of str to sequence of str
        Names that the operator of a layer with parts reads itself.
    by_flow : bool
        Whether the dataflow is known. Without it, each layer is linked to the next.
    """
    if len(names) < FEWEST:
        return None
    nodes = _Nodes(names, parts)
    for place, name in enumerate(names):
        after = [names[place - 1]] if place else []
        nodes.read(
            place, (direct.get(name, sources[place]) if parts.get(name) else sources[place]) if by_flow else after
        )
    for number, part in enumerate(nodes.parts, len(names)):
        nodes.read(number, part.reads)
    paths = [tuple(module.split(".")) if module else path_of(name) for name, module in zip(names, modules)]
    root = groups_of(paths, [name.rstrip("/.:").split("/")[-1] for name in names])
    groups = _Groups(nodes, names, parts)
    groups.add(root)
    with_parts = {place for place, name in enumerate(names) if parts.get(name)}
    inner = {str(n): reads for n, reads in nodes.reads.items() if not by_flow or n >= len(names) or n in with_parts}
    return {
        "inOrder": not by_flow,
        "parts": [[shown(part.name), shown(part.op_type)] for part in nodes.parts],
        "reads": inner,
        "groups": groups.data,
    }


class _Groups:
    """Groups with the positions of their children; an enclosing group comes after the groups in it."""

    def __init__(self, nodes: _Nodes, names: Sequence[str], parts: Mapping[str, Sequence[Part]]):
        self.nodes, self.names, self.of_layer = nodes, names, parts
        self.first = len(names) + len(nodes.parts)
        self.data: list[dict[str, Any]] = []
        self.inside: dict[int, set[int]] = {}  # operators of each node

    def add(self, group: Group) -> int:
        """Add a group after the groups in it, and return its number."""
        children = [self.add(child) if isinstance(child, Group) else self._layer(child) for child in group.children]
        return self._placed({"name": shown(group.name)}, children)

    def _layer(self, place: int) -> int:
        """Return the number of a layer; a layer with parts is a group of its operators."""
        parts = self.of_layer.get(self.names[place], ())
        numbers = [self.nodes.number[part.name] for part in parts]
        for number in (*numbers, place):
            self.inside[number] = {number}
        return self._placed({"layer": place}, [*numbers, place]) if numbers else place

    def _placed(self, data: dict[str, Any], children: list[int]) -> int:
        child_of = {operator: at for at, child in enumerate(children) for operator in self.inside[child]}
        links = sorted(
            {
                (child_of[source], at)
                for operator, at in child_of.items()
                for source in self.nodes.reads.get(operator, ())
                if child_of.get(source, at) != at
            }
        )
        layout = layered(len(children), links)
        data |= {
            "children": children,
            "rows": list(layout.rows),
            "x": [round(x, 2) for x in layout.x],
            "links": [[*link, *(round(x, 2) for x in bends)] for link, bends in zip(links, layout.bends)],
            "width": round(layout.width, 2),
        }
        number = self.first + len(self.data)
        self.data.append(data)
        self.inside[number] = set(child_of)
        return number
