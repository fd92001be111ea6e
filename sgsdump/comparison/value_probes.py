"""Find the tensor that a misnamed one really is, by probing values.

Two dumps of one network may give one name to different tensors (a BatchNormalization folded into its convolution on
one side keeps the convolution's name, though its values are those after it). For a pair that disagrees, tensors of
the same size are distinguished by 64 probed values in both layouts, one matrix operation for all; only the few nearest
are compared in full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sgsdump.comparison.layout_match import measure
from sgsdump.comparison.metrics.cos import cos
from sgsdump.comparison.metrics.rmse import rmse
from sgsdump.dumps.dump import Record
from sgsdump.errors import ValuesError
from sgsdump.tensors.layout import to_nchw, to_nhwc
from sgsdump.tensors.real_view import Values

PROBES = 64
NEAREST = 4
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
    targets: Mapping[int, tuple[Values, float]],
    pool: Iterable[tuple[Record, Values]],
    agreement: Agreement,
) -> dict[int, Match]:
    """For each target (values, the RMSE of its own pair) the best agreeing tensor of the pool, where there is one."""
    sizes: dict[int, list[int]] = defaultdict(list)
    for key, (values, _) in targets.items():
        if values.array.size >= SMALLEST:
            sizes[values.array.size].append(key)
    groups: dict[int, list[tuple[Record, Values]]] = defaultdict(list)
    for record, values in pool:
        if values.array.size in sizes:
            groups[values.array.size].append((record, values))
    matches: dict[int, Match] = {}
    for size, group in groups.items():
        places = np.random.default_rng(size).integers(0, size, PROBES)
        keys = sizes[size]
        pool_probes = probe_all([values for _, values in group], places)
        # turning one side is enough where every tensor that could be turned is on that side
        turned = any(values.array.ndim != 4 for _, values in group)
        target_probes = probe_all([targets[key][0] for key in keys], places, turned)
        near = _nearest(target_probes, pool_probes, [targets[key][1] for key in keys])
        for key, numbers in zip(keys, near):
            values, own = targets[key]
            best = _best(values, [group[number] for number in numbers], own, agreement)
            if best is not None:
                matches[key] = best
    return matches


def _best(values: Values, candidates: list[tuple[Record, Values]], own: float, agreement: Agreement) -> Match | None:
    limit = min(agreement.rmse, own * agreement.better)
    best: Match | None = None
    for record, other in candidates:
        try:
            sums = measure(values, other).sums
        except ValuesError:
            continue
        match = Match(record, cos(sums), rmse(sums))
        if match.cos >= agreement.cos and match.rmse <= limit and (best is None or match.rmse < best.rmse):
            best = match
    return best


def probe_all(tensors: list[Values], places: np.ndarray, turned: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """One row of probed values for each tensor as stored and, with ``turned``, in the other layouts when it is 4-D;
    returned behind the number of the tensor each row is of, ascending."""
    owners, rows = [], []
    for number, values in enumerate(tensors):
        array = values.array
        for view in (array, to_nchw(array), to_nhwc(array)) if turned and array.ndim == 4 else (array,):
            picked = view[np.unravel_index(places, view.shape)]
            owners.append(number)
            rows.append(np.asarray(picked if values.to_real is None else values.to_real(picked), np.float64))
    return np.array(owners), np.stack(rows)


def _nearest(
    targets: tuple[np.ndarray, np.ndarray], pool: tuple[np.ndarray, np.ndarray], own: list[float]
) -> Iterator[list[int]]:
    """For each target the numbers of the pool's tensors whose probes are nearest, none that is off by more than half
    of what the target's namesake is off by (and none by more than half)."""
    pool_owners, pool_rows = pool
    pool_norms = (pool_rows**2).sum(1)
    borders = np.searchsorted(targets[0], np.arange(len(own) + 1))
    for number, (first, last) in enumerate(pairwise(borders)):
        rows = targets[1][first:last]
        with np.errstate(all="ignore"):
            norms = (rows**2).sum(1)
            # |p - t|² by one matrix product for all rows; its rounding is far below the limit
            squares = (pool_norms[:, None] + norms - 2 * (pool_rows @ rows.T)) / norms
            distance = np.fmin.reduce(squares, axis=1)
            near = np.flatnonzero(distance <= (0.5 * min(1.0, own[number])) ** 2)
        order = near[np.argsort(distance[near], kind="stable")]
        yield list(dict.fromkeys(pool_owners[order].tolist()))[:NEAREST]
