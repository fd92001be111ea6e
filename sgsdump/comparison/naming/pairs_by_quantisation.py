"""Pair a model quantised with another tool with its float model, or with another quantised copy, using its graph.

A float tensor is paired once, with the tensor that holds its quantised values: the output of the DequantizeLinear after
it, or the integer output of an integer operator. Groups of equivalent tensors (``dumps/quantised_graph.py``) are
matched by a shared name, else by their operator and its inputs, else by the name suffixes of quantisers. A quantiser
may remove a Relu or Clip because the quantised range begins at 0 anyway. The output of the operator before it then
stands for the output of the activation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

import ml_dtypes

from sgsdump.comparison.alignment import QUANTISED_VALUES, Pair
from sgsdump.comparison.naming.sides import Settled, Sides
from sgsdump.dumps.dump import Record
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.dumps.quantised_graph import Group, Node, QuantisedGraph, float_kind, is_passed, on_integers
from sgsdump.tensors.dtypes import is_integer

ACTIVATIONS = frozenset(("Relu", "Clip"))
# Suffixes that onnxruntime and tools based on it append to tensor names.
REAL_ENDINGS = ("_DequantizeLinear_Output", "_dequantized")
ENDINGS = (*REAL_ENDINGS, "_QuantizeLinear_Output", "_QuantizeLinear_Input", "_quantized")


_INSIDE = "an intermediate step of the quantised arithmetic"


@dataclass(frozen=True)
class TakenAway:
    """Activation that the quantised network lacks: its type and the name of its output."""

    kind: str
    output: str


@dataclass(frozen=True)
class Twins:
    """Matching groups of a quantised graph and the float graph.

    roots       root in the float graph -> root in the quantised graph.
    taken_away  input name of an activation that the quantised graph lacks -> the activation.
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    taken_away: Mapping[str, TakenAway] = field(default_factory=dict)


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair tensors of a quantised network with the tensors of its float network that hold the same values."""
    records = sides.remaining(settled)
    graphs = tuple(
        known.quantised if isinstance(known, OnnxNetwork) else QuantisedGraph(()) for known in sides.networks
    )
    if not any(graph.is_quantised for graph in graphs):
        found = () if graphs[0].nodes else tuple(_by_endings(*records))
        return replace(settled, pairs=(*settled.pairs, *found), is_told=True) if found else settled
    if not all(graph.nodes for graph in graphs):
        graphs = tuple(graph if graph.nodes else _without_graph(side) for graph, side in zip(graphs, records))
    twins = twins_of(*graphs)
    of_sample, of_benchmark = ({record.name: record for record in reversed(side)} for side in records)
    pairs = []
    for root, own in twins.roots.items():
        groups = graphs[0].groups[own], graphs[1].groups[root]
        held, wanted = of_sample.get(groups[0].holder), of_benchmark.get(groups[1].holder)
        if held is not None and wanted is not None and any(group.is_quantised for group in groups):
            pairs.append(Pair(held, wanted, QUANTISED_VALUES))
    if not any(graphs[1].has_inner(pair.benchmark.name) for pair in pairs):
        return replace(settled, pairs=(*settled.pairs, *pairs))  # no common names or operators: positions decide
    paired = {id(record) for pair in pairs for record in pair.records}
    unmatched = {
        id(record): why
        for graph, side, matched in zip(graphs, records, ({*twins.roots.values()}, twins.roots.keys()))
        for record in side
        if id(record) not in paired and (why := _why_unpaired(record.name, graph, matched))
    }
    for name, activation in twins.taken_away.items():
        if name in of_benchmark and id(of_benchmark[name]) not in paired:
            unmatched[id(of_benchmark[name])] = f"the quantised model omits the {activation.kind}; compared after it"
    return replace(
        settled,
        pairs=(*settled.pairs, *pairs),
        unmatched={**settled.unmatched, **unmatched},
        expected=settled.expected | unmatched.keys(),
        is_told=True,
    )


def _without_graph(records: Iterable[Record]) -> QuantisedGraph:
    """Return a graph of unconnected tensors for a dump without a known graph."""
    return QuantisedGraph((record.op_type, "", [], [record.name], "", {}) for record in records)


def _by_endings(sample: Iterable[Record], benchmark: Iterable[Record]) -> Iterator[Pair]:
    """Yield pairs by the suffixes of quantisers, for dumps without known graphs."""
    named = {record.name: record for record in sample}
    for record in benchmark:
        held = next((named[record.name + ending] for ending in REAL_ENDINGS if record.name + ending in named), None)
        codes = named.get(f"{record.name}_quantized")
        if held is None and codes is not None and (codes.tensor.info.quant or not is_integer(codes.tensor.dtype)):
            held = codes
        if held is not None:
            yield Pair(held, record, QUANTISED_VALUES, "by the suffix of its name")


def _why_unpaired(name: str, graph: QuantisedGraph, matched: Set[str]) -> str:
    """Return why a tensor of a quantised graph has no partner, or "" if names may pair it; ``matched`` are roots."""
    group = graph.group_of.get(name)
    if group is None or not graph.is_quantised:
        return ""
    maker = graph.makers.get(group.root)
    if maker is None:
        return "a weight or an input in the quantised model" if name != group.root else ""
    if not group.is_quantised:
        is_inside = group.root not in matched and (on_integers(maker[1]) or name in graph.steps)
        return _INSIDE if is_inside else ""
    if name == group.holder:
        return ""
    if name == group.root and name not in group.codes:
        return "values before quantisation; the quantised values are compared"
    return "has the same values as another tensor, which is compared"


def twins_of(quantised: QuantisedGraph, benchmark: QuantisedGraph) -> Twins:
    """Match the groups of a quantised graph with those of the float graph."""
    matching = _Matching(quantised, benchmark)
    matching.by_name()
    matching.by_structure()
    matching.by_endings()
    return Twins({root: own for own, root in matching.roots.items()}, matching.taken_away())


class _Matching:
    """Matching in progress; ``roots``: root of the quantised graph -> root of the float graph."""

    def __init__(self, quantised: QuantisedGraph, benchmark: QuantisedGraph):
        self.quantised, self.benchmark = quantised, benchmark
        self.roots: dict[str, str] = {}
        self.taken: set[str] = set()

    def by_name(self) -> None:
        """Match groups that share a name.

        A match of equal operator kinds is preferred, then the name of the tensor that holds the values: a converter
        that numbers equal names may give one of them to another operator.
        """
        for root, group in self.quantised.groups.items():
            others = [self.benchmark.group_of.get(name) for name in (group.holder, *group.members)]
            named = [other.root for other in others if other is not None and self._is_made(root, other.root)]
            kind = _kind(self.quantised, root)
            for other in [name for name in named if _kind(self.benchmark, name) == kind] or named[:1]:
                self._take(root, other)
                break
        for root in [*self.roots]:
            self._through_activation(root)

    def _is_made(self, root: str, other: str) -> bool:
        """Return whether both are produced by operators, or both are inputs of the network."""
        return (root in self.quantised.makers) == (other in self.benchmark.makers)

    def by_structure(self) -> None:
        """Match the outputs of operators with equal kinds and inputs, if there is only one candidate."""
        for node in self.quantised.nodes:
            if is_passed(node) or "Integer" in node[1]:
                continue
            for slot, name in enumerate(node[3]):
                root = self.quantised.root(name)
                if name and root not in self.roots:
                    candidates = list(self._alike(node, slot))
                    if len(candidates) > 1:
                        stems = {_stem(member) for member in self.quantised.groups[root].members}
                        candidates = [name for name in candidates if name in stems]
                    if len(candidates) == 1:
                        self._take(root, candidates[0])
                        self._through_activation(root)

    def _alike(self, node: Node, slot: int) -> Iterator[str]:
        read = [self.roots.get(self.quantised.root(name)) for name in node[2] if name]
        fed = [root for root in read if root in self.benchmark.readers]
        for other in self.benchmark.readers.get(fed[0], ()) if fed else ():
            roots = {self.benchmark.root(name) for name in other[2]}
            if float_kind(other[1]) != float_kind(node[1]) or not roots.issuperset(fed) or slot >= len(other[3]):
                continue
            root = self.benchmark.root(other[3][slot])
            if root and root not in self.taken:
                yield root

    def by_endings(self) -> None:
        for root, group in self.quantised.groups.items():
            if root in self.roots:
                continue
            for name in (group.holder, *group.members):
                other = self.benchmark.group_of.get(_stem(name))
                if other is not None and other.root not in self.taken:
                    self._take(root, other.root)
                    self._through_activation(root)
                    break

    def _through_activation(self, own: str) -> None:
        """Match a group with the output of the activation after its match, if the quantised graph lacks the activation.

        The activation must be the only reader of the match.
        """
        group, root = self.quantised.groups[own], self.roots[own]
        if not group.is_quantised or any(node[1] in ACTIVATIONS for node in self.quantised.readers.get(own, ())):
            return
        after = self._activation_of(root)
        if after is None or self.benchmark.root(after[3][0]) in self.taken or not self._begins_at_zero(group):
            return
        self.taken.discard(root)
        self._take(own, self.benchmark.root(after[3][0]))

    def _activation_of(self, root: str) -> Node | None:
        readers = self.benchmark.readers.get(root, [])
        is_one = len(readers) == 1 and readers[0][1] in ACTIVATIONS and bool(readers[0][3]) and root in readers[0][2]
        return readers[0] if is_one else None

    def _begins_at_zero(self, group: Group) -> bool:
        """Return whether the lowest code represents 0.0, as far as known."""
        quant = self.quantised.quants.get(group.holder)
        if quant is None or quant.dtype is None or not is_integer(quant.dtype):
            return quant is None
        return bool(quant.zero_point == int(ml_dtypes.iinfo(quant.dtype).min))

    def taken_away(self) -> dict[str, TakenAway]:
        """Return activations whose output has a match but whose input has none."""
        found: dict[str, TakenAway] = {}
        for own, root in self.roots.items():
            node, maker = self.benchmark.makers.get(root), self.quantised.makers.get(own)
            if node is None or maker is None or node[1] not in ACTIVATIONS or float_kind(maker[1]) in ACTIVATIONS:
                continue
            before = self.benchmark.root(node[2][0])
            if before not in self.taken:
                found[before] = TakenAway(node[1], root)
        return found

    def _take(self, own: str, root: str) -> None:
        if root not in self.taken:
            self.roots[own] = root
            self.taken.add(root)


def _kind(graph: QuantisedGraph, root: str) -> str:
    """Return the type of the float operator that produces a tensor, or ""."""
    return float_kind(graph.makers[root][1]) if root in graph.makers else ""


def _stem(name: str) -> str:
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)
