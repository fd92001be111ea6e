"""Find the tensor that a misnamed one really is, by its values.

Two dumps of one network may give one name to different tensors (a BatchNormalization folded into its convolution on
one side keeps the convolution's name, though its values are those after it). For a pair that disagrees, tensors of
the same size are distinguished by their probes, one matrix operation for all; only the few nearest are compared in
full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.comparison.layout_match import measure
from sgsdump.comparison.metrics.cos import cos
from sgsdump.comparison.metrics.rmse import rmse
from sgsdump.comparison.misnaming.match_by_value import Mapper
from sgsdump.comparison.misnaming.nearest_rows import nearest_rows
from sgsdump.comparison.misnaming.value_probes import WORTH, Probes, stacked
from sgsdump.comparison.real_values import real_values
from sgsdump.dumps.dump import Record
from sgsdump.errors import ValuesError

SMALLEST = 16  # fewer values than this agree by chance


@dataclass(frozen=True)
class Match:
    """The record whose values agree, and how well."""

    record: Record
    cos: float
    rmse: float


@dataclass(frozen=True)
class Agreement:
    """What counts as the same values: at least ``cos``, at most ``rmse``, and ``better`` times the pair's own RMSE."""

    cos: float
    rmse: float
    better: float = 0.1


def find_matches(
    targets: Mapping[int, tuple[Record, float]],
    pool: Iterable[Record],
    agreement: Agreement,
    probes: Probes | None = None,
    run: Mapper = map,
) -> dict[int, Match]:
    """For each target (record, the RMSE of its own pair) the best agreeing tensor of the pool, where there is one;
    ``run`` may spread those of large tensors over threads."""
    probes = probes or Probes()
    wanted: dict[int, list[tuple[int, np.ndarray]]] = defaultdict(list)
    for key, (record, _) in targets.items():
        rows = probes.of(record)
        if rows is not None and (size := probes.size(record)) >= SMALLEST:
            wanted[size].append((key, rows))
    groups: dict[int, list[tuple[Record, np.ndarray]]] = defaultdict(list)
    for record in pool:
        if (size := probes.size(record)) in wanted and (rows := probes.of(record)) is not None:
            groups[size].append((record, rows))
    matches: dict[int, Match] = {}
    for size, group in groups.items():
        keys, own_rows = zip(*wanted[size])
        pool_probes = stacked([rows for _, rows in group])
        # turning one side is enough where every tensor that could be turned is on that side
        turned = any(len(rows) == 1 for _, rows in group)
        target_probes = stacked(own_rows if turned else [rows[:1] for rows in own_rows])
        own = [targets[key][1] for key in keys]
        near = zip(keys, nearest_rows(target_probes, pool_probes, own))
        tried = [(key, [group[number][0] for number in numbers]) for key, numbers in near if numbers]
        bests = (run if size >= WORTH else map)(lambda one: _best(*targets[one[0]], one[1], agreement), tried)
        matches |= {key: best for (key, _), best in zip(tried, bests) if best is not None}
    return matches


def _best(record: Record, own: float, candidates: list[Record], agreement: Agreement) -> Match | None:
    values = real_values(record)
    limit = min(agreement.rmse, own * agreement.better)
    best: Match | None = None
    for candidate in candidates:
        try:
            sums = measure(values, real_values(candidate)).sums
        except ValuesError:
            continue
        match = Match(candidate, cos(sums), rmse(sums))
        if match.cos >= agreement.cos and match.rmse <= limit and (best is None or match.rmse < best.rmse):
            best = match
    return best
