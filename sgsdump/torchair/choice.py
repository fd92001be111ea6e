"""Which operators of a graph are dumped."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sgsdump.capture.control import DumpControl
from sgsdump.registry import hint
from sgsdump.torchair.log import logger
from sgsdump.torchair.operators import Operator


class Names:
    """The operators that are asked for by name, in one graph after another; those of none are told in the end."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        self._known: dict[str, None] = {}

    def find(self, operators: Sequence[Operator], names: Sequence[str], option: str) -> frozenset[str]:
        """The nodes of these names; ``option`` is where they were named."""
        self._asked |= {name: option for name in names if name not in self._known}
        for operator in operators:
            self._known |= dict.fromkeys((operator.name, *operator.aliases))
        return frozenset(operator.node for operator in operators if any(map(operator.answers_to, names)))

    def tell(self) -> None:
        """A line for each name that is no operator's in any graph so far, with the nearest ones; once."""
        for name, option in self._asked.items():
            if name not in self._known:
                logger.warning("%s: no graph has an operator %r%s", option, name, hint(name, list(self._known)))
        self._asked.clear()


def chosen(
    operators: Sequence[Operator], control: DumpControl, graphs: Collection[str], names: Names
) -> frozenset[str]:
    """The nodes that are dumped: those named and those in a with-block, with the Data nodes that they read; all where
    none is named. ``graphs`` are the names by which a model of the configuration may mean this graph."""
    nodes = {operator.node for operator in operators if operator.marked}
    if not (control.names or control.models or nodes):
        return frozenset(operator.node for operator in operators)
    nodes |= names.find(operators, control.names, "dump_layer")
    for model, layers in control.models:
        if not model or model in graphs:
            nodes |= names.find(operators, layers, "layer") if layers else {one.node for one in operators}
    data = {operator.node for operator in operators if operator.is_data}
    along = {read for operator in operators if operator.node in nodes for read in operator.reads if read in data}
    return frozenset(nodes | along)
