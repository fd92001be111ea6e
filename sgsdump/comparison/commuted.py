"""Swapped operands of commutative operators: two programs may write ``x += r`` and ``x = r + x``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sgsdump.comparison.alignment import Alignment, Pair
from sgsdump.comparison.naming.network import plain
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Failed, Row, differs, is_rounding
from sgsdump.dumps.dump import Network, Operator

COMMUTATIVE = frozenset(
    "add mul maximum minimum fmax fmin eq ne logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor and"
    " or xor logaddexp hypot gcd lcm".split()
)
_LESS = 0.1  # share of the error that may remain in the swapped order
_PLAIN = frozenset(
    (None, "1", "1.0")
)  # values of ``alpha``, the factor of the second operand, that keep the operator commutative


def with_commuted(
    aligned: Alignment, results: Sequence[Row | Failed], networks: tuple[Network, Network], measures: Measures
) -> tuple[Alignment, list[Row | Failed]]:
    """Return the pairs and results, with the operands of commutative operators paired crosswise if they agree that way.

    Only operands that cannot be compared in their order, or that differ by more than rounding, are tried.
    """
    pairs, changed = list(aligned.pairs), list(results)
    for first, second in _operands(pairs, networks):
        if not (_is_open(changed[first]) and _is_open(changed[second])):
            continue
        crossed = _crossed(pairs[first], pairs[second])
        found = [measures.result(pair) for pair in crossed]
        if _are_nearer(found, [changed[first], changed[second]]):
            for place, pair, result in zip((first, second), crossed, found):
                pairs[place], changed[place] = pair, result
    return replace(aligned, pairs=tuple(pairs)), changed


def _crossed(first: Pair, second: Pair) -> tuple[Pair, Pair]:
    note = "compared with swapped operands"
    return (
        replace(first, sample=second.sample, note="; ".join(filter(None, (first.note, note)))),
        replace(second, sample=first.sample, note="; ".join(filter(None, (second.note, note)))),
    )


def _operands(pairs: Sequence[Pair], networks: tuple[Network, Network]) -> Iterator[tuple[int, int]]:
    """Yield the indices of both operand pairs of each matching commutative operator."""
    of_operators: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        if pair.sample.io == pair.benchmark.io == "in" and pair.sample.slot == pair.benchmark.slot:
            of_operators[pair.sample.op_index, pair.benchmark.op_index].append(place)
    for (mine, theirs), places in of_operators.items():
        operators = networks[0].get(mine), networks[1].get(theirs)
        if len(places) == 2 and None not in operators and _commute(*operators):  # type: ignore[arg-type]
            yield places[0], places[1]


def _commute(sample: Operator, benchmark: Operator) -> bool:
    kind = plain(sample.kind)
    are_plain = all(operator.arguments.get("alpha") in _PLAIN for operator in (sample, benchmark))
    return kind in COMMUTATIVE and plain(benchmark.kind) == kind and are_plain


def _is_open(result: Row | Failed) -> bool:
    return isinstance(result, Failed) or (differs(result) and not is_rounding(result))


def _are_nearer(crossed: Sequence[Row | Failed], straight: Sequence[Row | Failed]) -> bool:
    if any(isinstance(result, Failed) for result in crossed):
        return False
    errors = [[result.error for result in side if isinstance(result, Row)] for side in (crossed, straight)]
    return len(errors[1]) < 2 or max(errors[0]) <= _LESS * max(errors[1])
