"""Pairing by mapping files of operators, whose outputs are what is paired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from sgsdump.comparison.naming.link import Key, Link, Output, operator_keys
from sgsdump.comparison.naming.unsettled import Unsettled
from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.dumps.dump import Record
from sgsdump.errors import ConfigError

_Operators = Callable[[Output], list[Record]]


def pairs_by_links(state: Unsettled, links: Sequence[Link], pipelines: tuple[bool, bool]) -> None:
    """Pair by operators; ``pipelines``: whether sample and benchmark are a pipeline's folder.

    Files that fit only the other way round (the framework's run is the sample) are read so.
    """
    of_sample, of_benchmark = _by_operator(state.sample, pipelines[0]), _by_operator(state.benchmark, pipelines[1])
    pairs, reasons = _linked(links, of_sample, of_benchmark)
    if not pairs:
        pairs, other_reasons = _linked([link.swapped() for link in links], of_sample, of_benchmark)
        reasons = other_reasons if pairs else reasons
    if not pairs and not reasons:
        first = links[0]
        raise ConfigError(
            f"the {first.rule} names no operator of the two dumps (it begins with {first.sample} and "
            f"{first.benchmark}): is it of another model?"
        )
    state.reasons |= reasons
    state.take(pairs)


def _linked(
    links: Sequence[Link], of_sample: _Operators, of_benchmark: _Operators
) -> tuple[list[Pair], dict[int, str]]:
    """The pairs of links both of whose ends are there; for ends that stand alone, why."""
    pairs: list[Pair] = []
    reasons: dict[int, str] = {}
    for link in links:
        left, right = of_sample(link.sample), of_benchmark(link.benchmark)
        if link.unknown:
            reasons |= {id(record): link.unknown for record in left}
        elif left and right:
            pairs += _each(left, right, link.rule)
        else:
            for records, other, side in ((left, link.benchmark, "benchmark"), (right, link.sample, "sample")):
                reasons |= {
                    id(r): f"the {link.rule} pairs it with {other}, which the {side} does not have" for r in records
                }
    return pairs, reasons


def _each(left: list[Record], right: list[Record], rule: str) -> list[Pair]:
    """k-th with k-th where either side has one name, else all with all, which is ambiguous."""
    if len({r.name for r in left}) == len({r.name for r in right}) == 1:
        return [Pair(a, b, rule) for a, b in zip(left, right)]
    return [Pair(a, b, rule) for a in left for b in right]


def _by_operator(records: Iterable[Record], is_pipeline: bool) -> _Operators:
    """A way to the output records of an operator. In a pipeline's folder op_type is the node's name."""
    outputs: defaultdict[Key, dict[int, Record]] = defaultdict(dict)
    for record in records:
        if record.io == "in":
            continue
        keys = operator_keys(record.name, record.slot)
        if is_pipeline and record.op_type:
            keys |= operator_keys(record.op_type, record.slot)
        for key in keys:
            outputs[key][id(record)] = record

    def of(output: Output) -> list[Record]:
        records: dict[int, Record] = {}
        for key in output.keys():  # noqa: SIM118 (no mapping)
            records |= outputs.get(key, {})
        return [*records.values()]

    return of
