"""Programs of which one side is compiled: only inputs and outputs of compiled graphs are comparable.

A compiled graph is recorded in the module in which it ran, beside the same graph run operator by operator. If the other
side runs that module operator by operator, everything inside the module corresponds to the graph. The module's own
inputs and outputs are compared. For the outermost module, which is not an operator of the dump, these are the tensors
that the module took and returned.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import replace

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import Node, Nodes
from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump, Network, Record

HOW = "input or output of the outermost module"
COMPILED_GRAPH, EAGER_GRAPH = "compiled.graph", "eager.graph"
_ADVICE = "capture that program again with sgsdump exec --inside eager to compare its inner tensors"


def inside_graphs(networks: tuple[Nodes, Nodes], paired: Collection[Node] | None = None) -> dict[Node, str]:
    """Return the operators that are not comparable because a compiled graph of one side contains them, with the reason.

    Without ``paired``, these are all operators inside a module of which the other side has only graphs, and graphs
    without a counterpart. With ``paired``, unpaired operators inside a module that runs operators beside a graph are
    added.
    """
    found: dict[Node, str] = {}
    homes = [_homes(side) for side in networks]
    alike = {home for home in homes[0].keys() & homes[1].keys() if _are_cut_alike(networks, home)}
    for side, own, others, other in zip(networks, homes, homes[::-1], ("benchmark", "sample")):
        for node in side:
            if node.word in (COMPILED_GRAPH, EAGER_GRAPH):
                if node.module not in others:
                    found[node] = f"a compiled graph; the {other} runs its operators separately"
                elif node.module not in alike:
                    found[node] = f"the {other} is split into different compiled graphs here; {_ADVICE}"
            elif any(_is_inside(node, home) for home, whole in others.items() if home not in own and whole) or (
                paired is not None
                and node not in paired
                and any(_is_inside(node, home) for home in others.keys() - own.keys())
            ):
                found[node] = f"inside a compiled graph of the {other}; {_ADVICE}"
    return found


def _homes(side: Nodes) -> dict[str, bool]:
    """Return the modules in which compiled graphs ran, and whether nothing else was dumped inside them."""
    homes = {node.module for node in side if node.word == COMPILED_GRAPH}
    others = [node for node in side if node.word not in (COMPILED_GRAPH, EAGER_GRAPH)]
    return {home: not any(_is_inside(node, home) for node in others) for home in homes}


def ends(dumps: tuple[Dump, Dump], networks: tuple[Network, Network]) -> Iterator[Pair]:
    """Pair the inputs and outputs of the outermost modules if class and number of tensors are equal."""
    sample, benchmark = (dump.outermost() for dump in dumps)
    if not sample.name or sample.name != benchmark.name:
        return
    known = [_by_value(dump, network) for dump, network in zip(dumps, networks)]
    for io, mine, theirs in (("in", sample.inputs, benchmark.inputs), ("out", sample.outputs, benchmark.outputs)):
        if len(mine) != len(theirs):
            continue
        for values in dict.fromkeys(zip(mine, theirs)):
            records = [of_side.get((io, value)) for of_side, value in zip(known, values)]
            if records[0] is not None and records[1] is not None:
                yield Pair(records[0], records[1], HOW)


def of_outermost(findings: Iterable[Finding], rows: Iterable[Row]) -> Iterator[Finding]:
    """Yield the findings.

    Causes at the output of an outermost module are marked, because its operators are in a graph.
    """
    names = {row.name for row in rows if row.paired == HOW and row.io == "out"}
    for finding in findings:
        is_of_graph = finding.kind == "cause" and finding.layer in names
        yield replace(finding, facts={**finding.facts, "compiled": "yes"}) if is_of_graph else finding


def _are_cut_alike(networks: tuple[Nodes, Nodes], home: str) -> bool:
    """Return whether both sides ran equally many graphs in a module, each with equally many inputs and outputs."""
    sample, benchmark = (
        [(len(node.inputs), len(node.outputs)) for node in side if node.word == COMPILED_GRAPH and node.module == home]
        for side in networks
    )
    return sample == benchmark


def _is_inside(node: Node, home: str) -> bool:
    """Return whether a node is inside the module and not the module itself."""
    if not home:
        return True
    return f"{node.module}.".startswith(f"{home}.") and not (node.is_module and node.module == home)


def _by_value(dump: Dump, network: Network) -> dict[tuple[str, Hashable], Record]:
    """Return the first input and the last output of each value: those of a module rather than of its last operator."""
    known: dict[tuple[str, Hashable], Record] = {}
    for record in dump.records:
        operator = network.get(record.op_index)
        value = None if operator is None else operator.values.get((record.io, record.slot))
        if value is not None and (record.io == "out" or ("in", value) not in known):
            known[record.io, value] = record
    return known
