"""Which operators of a graph are dumped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sgsdump.capture.control import DumpControl
from sgsdump.registry import hint
from sgsdump.torchair.log import logger
from sgsdump.torchair.operators import Operator


class Names:
    """The operators that are asked for, in one graph after another; what matches none is reported at the end."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], str] = {}
        self._known: dict[str, dict[str, None]] = {}

    def find(self, operators: Sequence[Operator], names: Sequence[str], option: str) -> frozenset[str]:
        """The nodes of these names; ``option`` is where they were named."""
        self._ask(option, names, "an operator", (word for one in operators for word in (one.name, *one.aliases)))
        return frozenset(operator.node for operator in operators if any(map(operator.answers_to, names)))

    def find_type(self, operators: Sequence[Operator], types: Sequence[str], option: str) -> frozenset[str]:
        """The nodes of these types."""
        self._ask(option, types, "an operator of type", (one.op_type for one in operators))
        return frozenset(operator.node for operator in operators if operator.op_type in types)

    def _ask(self, option: str, names: Sequence[str], what: str, words: Iterable[str]) -> None:
        known = self._known.setdefault(option, {})
        self._asked |= {(option, name): what for name in names if name not in known}
        known |= dict.fromkeys(words)

    def tell(self) -> None:
        """A line for each that is in no graph so far, with the nearest ones; once."""
        for (option, name), what in self._asked.items():
            known = self._known[option]
            if name not in known:
                logger.warning("%s: no graph has %s %r%s", option, what, name, hint(name, list(known)))
        self._asked.clear()


def chosen(
    operators: Sequence[Operator],
    control: DumpControl,
    ranges: Sequence[tuple[str, str, str]],
    graphs: Collection[str],
    names: Names,
) -> frozenset[str]:
    """The nodes that are dumped: those named, those in a range (graph, first, last) and those in a with-block, with the
    Data nodes that they read; all where none is named. ``graphs`` are the names by which a model of the configuration
    may mean this graph."""
    nodes = {operator.node for operator in operators if operator.marked}
    if not (control.names or control.models or ranges or nodes):
        return frozenset(operator.node for operator in operators)
    nodes |= names.find(operators, control.names, "dump_layer")
    for model, layers in control.models:
        if not model or model in graphs:
            nodes |= names.find(operators, layers, "layer") if layers else {one.node for one in operators}
    for model, first, last in ranges:
        if model in graphs:
            nodes |= _between(operators, first, last, names)
    data = {operator.node for operator in operators if operator.is_data}
    along = {read for operator in operators if operator.node in nodes for read in operator.reads if read in data}
    return frozenset(nodes | along)


def _between(operators: Sequence[Operator], first: str, last: str, names: Names) -> set[str]:
    """The nodes from the operator ``first`` to ``last``, both counted, in the order in which they run."""
    ends = [names.find(operators, [name], "opname_range") for name in (first, last)]
    places = [[place for place, one in enumerate(operators) if one.node in nodes] for nodes in ends]
    if not all(places):
        return set()
    begin, end = places[0][0], places[1][0]
    if begin > end:
        logger.warning("opname_range: %r runs before %r, so that nothing is between them", last, first)
    return {operator.node for operator in operators[begin : end + 1] if not operator.is_data}
