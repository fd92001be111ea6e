"""Pair operators of two networks by data flow, and by order between paired neighbours.

An operator is paired with an operator of its kind that reads the same paired tensors, directly or through operators
that have no partner. If several operators qualify, the one with the fewest operators in between is taken. Branches that
begin alike (two convolutions of one tensor) are told apart by their values, as far as these agree, else by order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np

from sgsdump.comparison.naming.composed_operators import MOVING
from sgsdump.comparison.naming.network import Node, Nodes, plain
from sgsdump.comparison.same_values import Probes

MOST = 2000  # unpaired operators on a side above which only the order counts, because each is compared with many
TRIED = 8  # candidates of a kind to try, in execution order
NORMALISATIONS = ("batch_norm",)
_FOLDED = (*NORMALISATIONS, "add", "mul", "identity")
_FOLDING = ("conv", "matmul")
_NEAR = 0.3  # relative distance below which values of two operators identify them

Couple = tuple[Node, Node]  # sample and benchmark


def pairs_by_place(
    sample: Nodes,
    benchmark: Nodes,
    pairs: Iterable[Couple],
    skipped: Collection[Node] = (),
    modules: Collection[str] = (),
) -> list[Couple]:
    """Return pairs of operators that are neither in ``pairs`` nor ``skipped``.

    Operators in two different ``modules`` are never paired.
    """
    state = _State(sample, benchmark, pairs, modules)
    couples: list[Couple] = []
    unpaired = [
        [node for node in side.inner if node not in state.number and node not in skipped]
        for side in (sample, benchmark)
    ]
    if max(map(len, unpaired)) <= MOST:
        couples += _by_flow(state, *unpaired)
    couples += _in_gaps(state, skipped)
    return couples


def tail(nodes: Nodes, node: Node, others: Nodes, partner: Node, paired: Iterable[Node]) -> Node:
    """Return the operator whose output equals the partner's, if the partner folds operators after ``node``.

    Examples are a convolution with its normalisation, a product with its bias, and either with its activation. If one
    library ran both and the operators have the same name, only a normalisation counts.
    """
    alike = plain(node.word) == plain(partner.word) and len(node.inputs) == len(partner.inputs)
    folded = NORMALISATIONS if nodes.format == others.format and alike else _FOLDED
    taken = set(paired)
    if partner.activation and not node.activation:
        folded = (*folded, partner.activation)
    if not nodes.has_flow:
        following = next((one for one in nodes.inner if one.place > node.place and one not in nodes.fixed), None)
        is_folded = following is not None and following.kind in NORMALISATIONS and following not in taken
        return following if is_folded and following is not None and node.kind in _FOLDING else node
    while True:
        readers = nodes.readers.get(node.place, [])
        if len(readers) != 1 or readers[0] in taken or readers[0].kind not in folded:
            return node
        makers = {maker for maker in nodes.feeding[readers[0].place] if maker is not None}
        if makers - nodes.fixed != {node} or not readers[0].outputs:
            return node
        if readers[0].kind not in NORMALISATIONS and _are_apart(node, readers[0], nodes.modules & others.modules):
            return node
        node = readers[0]


def after_folding(modules: Nodes, operators: Nodes, module: Node, last: Node) -> Node:
    """Return the module whose output equals that of ``last``: the normalisation after ``module`` if ``last`` folds it.

    A normalisation without operators on the other side is recognised by its type, else by its values.
    """
    following = next((node for node in modules[module.place + 1 :] if not node.is_outer), None)
    if following is None or last.kind not in _FOLDING or following.module in operators.modules:
        return module
    if following.kind in NORMALISATIONS:
        return following
    probes = Probes()
    is_folded = _distance(following, last, probes) <= _NEAR < _distance(module, last, probes)
    return following if is_folded else module


def _are_apart(one: Node, other: Node, modules: Collection[str]) -> bool:
    """Return whether two operators are in two different modules that both sides have."""
    return one.module != other.module and one.module in modules and other.module in modules


class _State:
    """Paired operators: a number for each pair, equal on both sides."""

    def __init__(self, sample: Nodes, benchmark: Nodes, pairs: Iterable[Couple], modules: Collection[str]):
        self.sample, self.benchmark, self.modules = sample, benchmark, modules
        self.number: dict[Node, int] = {}
        self.partner: dict[Node, Node] = {}
        for mine, theirs in pairs:
            self.take(mine, theirs)

    def take(self, sample: Node, benchmark: Node) -> None:
        self.number[sample] = self.number[benchmark] = len(self.number)
        self.partner[benchmark] = sample

    def reads(self, nodes: Nodes, node: Node) -> tuple[int, ...]:
        return tuple(self.number[one] for one in nodes.nearest(node, self.number.__contains__))

    def between(self, nodes: Nodes, node: Node) -> list[Node]:
        """Return the operators that compute between the paired operators and ``node``."""
        passed: dict[Node, None] = {}
        waiting = [*nodes.feeding.get(node.place, ())]
        while waiting:
            one = waiting.pop()
            if one is None or one in self.number or one in passed:
                continue
            passed[one] = None
            waiting += nodes.feeding.get(one.place, ())
        return [one for one in passed if one.kind not in (*MOVING, "identity") and one not in nodes.fixed]

    @cached_property
    def probes(self) -> Probes:
        return Probes()

    def distance(self, sample: Node, benchmark: Node) -> float:
        """Return the relative distance of the outputs at a few positions, in the best layout; inf if unknown."""
        ends = (
            tail(self.sample, sample, self.benchmark, benchmark, self.number),
            tail(self.benchmark, benchmark, self.sample, sample, self.number),
        )
        return _distance(*ends, self.probes)


def _distance(sample: Node, benchmark: Node, probes: Probes) -> float:
    records = [next(iter(node.outputs.values()), None) for node in (sample, benchmark)]
    mine, theirs = (None if record is None else probes.of(record) for record in records)
    if mine is None or theirs is None or len({probes.size(record) for record in records if record}) > 1:
        return np.inf
    with np.errstate(all="ignore"):
        apart = np.linalg.norm(np.subtract(mine[:, None], theirs[None], dtype=np.float64), axis=2)
        found = np.min(apart / np.linalg.norm(theirs, axis=1))
    return float(found) if np.isfinite(found) else np.inf


def _by_flow(state: _State, sample: list[Node], benchmark: list[Node]) -> Iterator[Couple]:
    candidates: defaultdict[str, list[Node]] = defaultdict(list)
    for node in sample:
        candidates[node.kind].append(node)
    wanting: defaultdict[str, list[Node]] = defaultdict(list)
    for node in benchmark:
        wanting[node.kind].append(node)
    for wanted in benchmark:
        wanting[wanted.kind].remove(wanted)
        if not state.benchmark.feeding.get(wanted.place):
            continue
        reads = state.reads(state.benchmark, wanted)
        nearest = candidates[wanted.kind][:TRIED]
        nearest = [one for one in nearest if not _are_apart(one, wanted, state.modules)]
        alike = [one for one in nearest if state.reads(state.sample, one) == reads]
        rivals = [one for one in wanting[wanted.kind][:TRIED] if state.reads(state.benchmark, one) == reads]
        partner = _chosen(state, wanted, _direct(state, wanted, alike, wanting), rivals) if alike else None
        if partner is not None:
            candidates[wanted.kind].remove(partner)
            state.take(partner, wanted)
            yield partner, wanted


def _direct(
    state: _State, wanted: Node, alike: Sequence[Node], waiting: Mapping[str, Sequence[Node]]
) -> Sequence[Node]:
    """Return the candidates with the fewest operators between them and the paired ones.

    If ``wanted`` follows paired operators directly, a candidate must not follow an operator whose partner may still
    come (``waiting``, by kind).
    """
    between = {one: state.between(state.sample, one) for one in alike}
    if not state.between(state.benchmark, wanted):
        alike = [one for one in alike if not any(waiting.get(passed.kind) for passed in between[one])]
    fewest = min((len(between[one]) for one in alike), default=0)
    return [one for one in alike if len(between[one]) == fewest]


def _chosen(state: _State, wanted: Node, alike: Sequence[Node], rivals: Sequence[Node]) -> Node | None:
    """Return the candidate whose values agree with ``wanted``, else the first that is not a rival's."""
    if len(alike) < 2 or not rivals:
        return alike[0] if alike else None
    distances = {one: state.distance(one, wanted) for one in alike}
    best = min(alike, key=distances.__getitem__)
    if distances[best] <= _NEAR:
        return best
    of_rivals = {one for one in alike if any(state.distance(one, rival) <= _NEAR for rival in rivals)}
    return next((one for one in alike if one not in of_rivals), alike[0])


def _in_gaps(state: _State, skipped: Collection[Node]) -> Iterator[Couple]:
    """Yield pairs of equal kinds and order between two pairs that are adjacent on both sides."""
    sample, inner = state.sample.inner, state.benchmark.inner
    places = {node: place for place, node in enumerate(sample)}
    begin, gap = 0, list[Node]()
    for node_there in [*inner, None]:
        if node_there is not None and node_there not in state.partner:
            gap += [] if node_there in skipped else [node_there]
            continue
        if node_there is not None and state.partner[node_there] not in places:
            continue  # a module whose operators are in the sample
        end = len(sample) if node_there is None else places[state.partner[node_there]]
        if gap:
            waiting = [node for node in sample[begin:end] if node not in state.number and node not in skipped]
            for pair in [pair for pair in in_order(waiting, gap) if not _are_apart(*pair, state.modules)]:
                state.take(*pair)
                yield pair
        begin, gap = max(begin, end + 1), []


def in_order(sample: Sequence[Node], benchmark: Sequence[Node]) -> Iterator[Couple]:
    """Pair operators of the same kinds in the same order, longest matching sequences first."""
    sample_kinds, benchmark_kinds = ([node.kind for node in side] for side in (sample, benchmark))
    for first, second, count in SequenceMatcher(
        None, sample_kinds, benchmark_kinds, autojunk=False
    ).get_matching_blocks():
        yield from zip(sample[first : first + count], benchmark[second : second + count])
