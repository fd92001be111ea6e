"""Pairing the operators of two networks by the module they run in, and in each module by their order and kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from sgsdump.comparison.naming.network import Node, Nodes

NodePair = tuple[Node, Node]


def pairs_by_module(sample: Nodes, benchmark: Nodes) -> list[NodePair]:
    """Modules with modules of their path, the k-th call with the k-th; operators with operators of their kind in the
    module, an operator that only one side has being passed over."""
    pairs: list[NodePair] = []
    calls = [_by_module(node for node in side if node.is_module) for side in (sample, benchmark)]
    for path, modules in calls[0].items():
        pairs += zip(modules, calls[1].get(path, ()))
    paired = {node for pair in pairs for node in pair}
    left, right = (_by_module(node for node in side.inner if node not in paired) for side in (sample, benchmark))
    for path, nodes in left.items():
        pairs += in_order(nodes, right.get(path, ()))
    return pairs


def renamed_modules(sample: Nodes, benchmark: Nodes, pairs: Iterable[NodePair]) -> Iterator[NodePair]:
    """Modules whose paths differ, and all of whose operators that ``pairs`` has are paired with those of one module."""
    pairs = list(pairs)
    paired = {node for pair in pairs for node in pair}
    calls = [_by_module(node for node in side if node.is_outer and node not in paired) for side in (sample, benchmark)]
    others: defaultdict[str, set[str]] = defaultdict(set)
    for mine, theirs in pairs:
        path, other = mine.module, theirs.module
        while path and other:
            others[path].add(other)
            path, other = path.rpartition(".")[0], other.rpartition(".")[0]
    for path, modules in calls[0].items():
        (same, *more) = others.get(path) or [""]
        if not more and len(modules) == len(calls[1].get(same, ())):
            yield from zip(modules, calls[1][same])


def in_order(sample: Sequence[Node], benchmark: Sequence[Node]) -> Iterator[NodePair]:
    """What has the same kinds in the same order; the longest such stretches first."""
    left, right = ([node.kind for node in side] for side in (sample, benchmark))
    for first, second, count in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from zip(sample[first : first + count], benchmark[second : second + count])


def _by_module(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    groups: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[node.module].append(node)
    return dict(groups)
