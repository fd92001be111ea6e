"""Pairing the operators of two networks by their place in the dataflow: what computes the same of the same.

Where modules are not known (a traced program, a compiled graph), an operator is that of the other side which is of its
kind and reads what that one reads, through operators that only one side has. What is still alone then pairs in order
between its paired neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from sgsdump.comparison.naming.network import Node, Nodes, plain
from sgsdump.comparison.naming.pairs_by_module import NodePair, in_order

MOST = 2000  # alone on a side, beyond which only the order counts: each is held against many
TRIED = 8  # of a kind, those that run next
_NORMALISATIONS = ("batch_norm",)
_FOLDED = (*_NORMALISATIONS, "add", "mul", "identity")


def pairs_by_place(sample: Nodes, benchmark: Nodes, pairs: Iterable[NodePair]) -> list[NodePair]:
    """The pairs of the operators that are not in ``pairs``."""
    state = _State(sample, benchmark, pairs)
    made: list[NodePair] = []
    left = [[node for node in side.inner if node not in state.number] for side in (sample, benchmark)]
    if max(map(len, left)) <= MOST:
        made += _by_flow(state, *left)
    made += _in_gaps(state)
    return made


def tail(nodes: Nodes, node: Node, others: Nodes, partner: Node, paired: Iterable[Node]) -> Node:
    """The operator whose output the other side has for this one's, where it folded what follows into it: a convolution
    with the normalisation behind it, a product with its bias. Where one library ran both and calls them alike, only a
    normalisation is that."""
    alike = plain(node.word) == plain(partner.word) and len(node.inputs) == len(partner.inputs)
    folded = _NORMALISATIONS if nodes.format == others.format and alike else _FOLDED
    taken = set(paired)
    while True:
        behind = nodes.readers.get(node.place, [])
        if len(behind) != 1 or behind[0] in taken or behind[0].kind not in folded:
            return node
        makers = {maker for maker in nodes.feeding[behind[0].place] if maker is not None}
        if makers != {node} or not behind[0].outputs:
            return node
        node = behind[0]


class _State:
    """Who is paired: a number for each pair, the same on both sides."""

    def __init__(self, sample: Nodes, benchmark: Nodes, pairs: Iterable[NodePair]):
        self.sample, self.benchmark = sample, benchmark
        self.number: dict[Node, int] = {}
        self.partner: dict[Node, Node] = {}
        for mine, theirs in pairs:
            self.take(mine, theirs)

    def take(self, sample: Node, benchmark: Node) -> None:
        self.number[sample] = self.number[benchmark] = len(self.number)
        self.partner[benchmark] = sample

    def reads(self, nodes: Nodes, node: Node) -> tuple[int, ...]:
        return tuple(self.number[one] for one in nodes.nearest(node, self.number.__contains__))


def _by_flow(state: _State, sample: list[Node], benchmark: list[Node]) -> Iterator[NodePair]:
    candidates: defaultdict[str, list[Node]] = defaultdict(list)
    for node in sample:
        candidates[node.kind].append(node)
    for wanted in benchmark:
        if not state.benchmark.feeding.get(wanted.place):
            continue
        reads = state.reads(state.benchmark, wanted)
        nearest = candidates[wanted.kind][:TRIED]
        alike = (one for one in nearest if state.reads(state.sample, one) == reads)
        partner = next(alike, None)
        if partner is not None:
            candidates[wanted.kind].remove(partner)
            state.take(partner, wanted)
            yield partner, wanted


def _in_gaps(state: _State) -> Iterator[NodePair]:
    """Between two pairs that follow one another on both sides, what has the same kinds in the same order."""
    sample, inner = state.sample.inner, state.benchmark.inner
    places = {node: place for place, node in enumerate(sample)}
    begin, gap = 0, list[Node]()
    for node_there in [*inner, None]:
        if node_there is not None and node_there not in state.partner:
            gap.append(node_there)
            continue
        if node_there is not None and state.partner[node_there] not in places:
            continue  # a module, which has its operators in the sample
        end = len(sample) if node_there is None else places[state.partner[node_there]]
        if gap:
            waiting = [node for node in sample[begin:end] if node not in state.number]
            for pair in [*in_order(waiting, gap)]:
                state.take(*pair)
                yield pair
        begin, gap = max(begin, end + 1), []
