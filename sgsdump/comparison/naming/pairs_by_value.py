"""Pair tensors of two float runs by value, ignoring names; used only on request.

Two runs of the same weights agree up to rounding: an error of at most ``CLOSE`` = 1e-3 of the benchmark's norm, |a-b|
<= 1e-3 |b|, hence a COS above 1 - 1e-6. Such an error limits the differences of norm, mean and extremes of two tensors,
whatever the order of their values. Candidates within these limits that also agree at 64 probed positions in some layout
are compared in full.

Several tensors may hold the same values (copies from a reshape or flatten). Tensors that agree as well as the best are
then paired one to one: equal names first, then equal shapes, then execution order; the pair's note says so. Tensors
with fewer than four values, with a single distinct value, or with NaN or Inf cannot be identified by value. They are
paired by name, as are all tensors without an equal.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from sgsdump.comparison.alignment import Pair, compared, ids_of
from sgsdump.comparison.layout_match import measure
from sgsdump.comparison.naming.sides import Settled, Sides
from sgsdump.comparison.same_values import AS_GOOD, PROBES, probe_all
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import SgsdumpError, ValuesError
from sgsdump.files.mapped import in_memory
from sgsdump.files.names import normalised
from sgsdump.tensors.statistics import Statistics, summarise
from sgsdump.tensors.tensor import Values, values_of

CLOSE = 1e-3
PROBED_CLOSE = 0.1  # relative to the root mean square; 100 times CLOSE, because a few values may hold most of the error
SMALLEST = 4
ROUNDING = 1e-7


@dataclass(frozen=True)
class Held:
    """Record with its position among the compared records, its values and their statistics."""

    place: int
    record: Record
    values: Values
    stats: Statistics


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair tensors that hold the same values."""
    unclear: dict[int, str] = {}
    sample_groups = _held(sides.sample, sides.inputs, settled, "benchmark", unclear)
    benchmark_groups = _held(sides.benchmark, sides.inputs, settled, "sample", unclear)
    sizes = sample_groups.keys() & benchmark_groups.keys()
    tried = [(a, b) for size in sorted(sizes) for a, b in _candidates(sample_groups[size], benchmark_groups[size])]
    errors = sides.run(lambda pair: _error(pair[0].values, pair[1].values), tried)
    equal = {(a.place, b.place): (error, a, b) for (a, b), error in zip(tried, errors) if error <= CLOSE}
    pairs = list(_assigned(equal))
    paired = ids_of(pairs)
    holders: dict[int, Record] = {}  # id -> first record of the other side with the same values
    for _, a, b in equal.values():
        holders.setdefault(id(a.record), b.record)
        holders.setdefault(id(b.record), a.record)
    reasons, expected = {**settled.reasons, **unclear}, set(settled.expected)
    for held, side in ((sample_groups, "benchmark"), (benchmark_groups, "sample")):
        for item in (item for group in held.values() for item in group):
            if id(item.record) not in paired:
                holder = holders.get(id(item.record))
                reasons[id(item.record)] = _why(item.record, holder, side)
                if holder is not None:  # its values were compared
                    expected.add(id(item.record))
    every = (*settled.pairs, *pairs)
    return replace(settled, pairs=every, reasons=reasons, expected=frozenset(expected), is_told=True)


def _held(dump: Dump, inputs: bool, settled: Settled, side: str, unclear: dict[int, str]) -> dict[int, list[Held]]:
    """Return size -> tensors that can be identified by value; the others go to ``unclear`` with the reason."""
    settled_ids = settled.ids
    free = [(record, values) for record, values in _readable(dump, inputs) if id(record) not in settled_ids]
    groups: dict[int, list[Held]] = defaultdict(list)
    for number, ((record, values), stats) in enumerate(zip(free, (_summary(values) for _, values in free))):
        size = values.array.size
        if size < SMALLEST:
            why = "it has too few values to be identified by them"
        elif stats.finite < size:
            why = "its values contain NaN or Inf, so they cannot identify it"
        elif stats.min == stats.max:
            why = "all its values are equal, so they cannot identify it"
        else:
            groups[size].append(Held(number, record, values, stats))
            continue
        unclear[id(record)] = f"no {record.io}put of this name in the {side}, and {why}"
    return groups


def _readable(dump: Dump, inputs: bool) -> Iterator[tuple[Record, Values]]:
    for record in compared(dump, inputs):
        with suppress(SgsdumpError):
            yield record, values_of(record.tensor.logical())


def _summary(values: Values) -> Statistics:
    array = in_memory(values.array)
    return summarise(array if values.to_real is None else values.to_real(array))


def _candidates(sample: list[Held], benchmark: list[Held]) -> Iterator[tuple[Held, Held]]:
    """Yield the pairs whose statistics and probed values are close enough for equal values."""
    a, b = (
        np.array([[s.l2norm, (s.mean or 0.0) * math.sqrt(s.finite), *s.span] for s in (item.stats for item in group)])
        for group in (sample, benchmark)
    )
    share = CLOSE * (1 + ROUNDING)
    limit = share * b[:, 0]
    # preselect tensors of nearly the same norm, with a margin that the exact test removes
    order = np.argsort(b[:, 0], kind="stable")
    first = np.searchsorted(b[order, 0], a[:, 0] / (1 + share) * (1 - ROUNDING))
    last = np.searchsorted(b[order, 0], a[:, 0] / (1 - share) * (1 + ROUNDING), "right")
    owners, rows = probe_all(item.values for item in sample)
    benchmark_owners, benchmark_rows = probe_all(item.values for item in benchmark)
    own_starts = np.searchsorted(owners, np.arange(len(sample) + 1))
    starts = np.searchsorted(benchmark_owners, np.arange(len(benchmark) + 1))
    norms = (benchmark_rows**2).sum(1)
    for i, item in enumerate(sample):
        around = np.sort(order[first[i] : last[i]])
        near = around[np.all(np.abs(a[i] - b[around]) <= limit[around, None], axis=1)]
        if near.size:
            item_rows = rows[own_starts[i] : own_starts[i + 1]]
            counts = starts[near + 1] - starts[near]
            begins = np.cumsum(counts) - counts
            others = np.repeat(starts[near] - begins, counts) + np.arange(counts.sum())
            # |p - q|² by one matrix product; rounding is far below the limit
            squares = np.min(
                (item_rows**2).sum(1)[:, None] + norms[others] - 2 * item_rows @ benchmark_rows[others].T, axis=0
            )
            distances = np.minimum.reduceat(squares, begins) / PROBES
            near = near[distances <= PROBED_CLOSE**2 * b[near, 0] ** 2 / item.stats.finite]
        yield from ((item, benchmark[j]) for j in near)


def _error(sample: Values, benchmark: Values) -> float:
    """Return |a-b| / |b| in the better layout; infinite if the shapes do not fit."""
    try:
        sums = measure(sample, benchmark).sums
    except ValuesError:
        return math.inf
    return math.sqrt(sums.dd / sums.bb)


def _assigned(equal: dict[tuple[int, int], tuple[float, Held, Held]]) -> Iterator[Pair]:
    """Yield one-to-one pairs among the pairs that agree as well as the best of either tensor."""
    best_of_sample: dict[int, float] = {}
    best_of_benchmark: dict[int, float] = {}
    for (i, j), (error, _, _) in equal.items():
        best_of_sample[i] = min(error, best_of_sample.get(i, math.inf))
        best_of_benchmark[j] = min(error, best_of_benchmark.get(j, math.inf))
    good = [
        (a, b)
        for (i, j), (error, a, b) in equal.items()
        if error <= AS_GOOD * min(best_of_sample[i], best_of_benchmark[j]) + ROUNDING
    ]
    in_sample, in_benchmark = Counter(b.place for _, b in good), Counter(a.place for a, _ in good)
    named = Counter((a.record.name, b.record.name) for a, b in good)
    taken: tuple[set[int], set[int]] = (set(), set())
    for a, b in sorted(good, key=_preference):
        if a.place in taken[0] or b.place in taken[1]:
            continue
        taken[0].add(a.place)
        taken[1].add(b.place)
        how, copies = _rule(a.record, b.record), (in_sample[b.place], in_benchmark[a.place])
        note = (
            f"one of {copies[0]} equal tensors in the sample and {copies[1]} in the benchmark: "
            f"chosen by shape and execution order"
        )
        if max(copies) == 1 or (how == "name" and named[a.record.name, b.record.name] == 1):
            note = ""
        yield Pair(a.record, b.record, how, note)


def _preference(pair: tuple[Held, Held]) -> tuple[int, bool, int, int]:
    a, b = pair
    rank = ("name", "normalised name", "value").index(_rule(a.record, b.record))
    return rank, a.record.tensor.info.shape != b.record.tensor.info.shape, b.place, a.place


def _rule(sample: Record, benchmark: Record) -> str:
    if (sample.io, sample.name) == (benchmark.io, benchmark.name):
        return "name"
    return "normalised name" if normalised(sample.name) == normalised(benchmark.name) else "value"


def _why(record: Record, holder: Record | None, side: str) -> str:
    """Return why a tensor that could be identified by value has no partner; ``holder`` has the same values."""
    if holder is not None:
        return f"this tensor has the same values as {holder.name!r} of the {side}, but that tensor has another partner"
    return f"the {side} has no {record.io}put of this name and no tensor with the same values"
