"""Find the tensor that a misnamed one really is, by probing values.

Two dumps of one network may give one name to different tensors (a BatchNormalization folded into its convolution on
one side keeps the convolution's name, though its values are those after it). For a pair that disagrees, tensors of
the same size are distinguished by 64 probed values in both layouts, one matrix operation for all; only the few nearest
are compared in full. Among thousands of tensors of one size the nearest are looked for in buckets only, so that the
work grows with their number and not with its square: probes of equal tensors fall on the same sides of random planes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sgsdump.comparison.layout_match import measure
from sgsdump.comparison.metrics.cos import cos
from sgsdump.comparison.metrics.rmse import rmse
from sgsdump.dumps.dump import Record
from sgsdump.errors import ValuesError
from sgsdump.files.mapped import let_go
from sgsdump.tensors.layout import to_nchw, to_nhwc
from sgsdump.tensors.real_view import Values

PROBES = 64
EXACT = 1 << 20  # as many distances between probes are all computed; beyond, those within buckets
TABLES, CANDIDATES = 8, 32
NEAREST = 4
SMALLEST = 16  # fewer values than this agree by chance
# By the id of its record, the rows of a tensor.
Probed = dict[int, np.ndarray]


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
    targets: Mapping[int, tuple[Record, Values, float]],
    pool: Iterable[tuple[Record, Values]],
    agreement: Agreement,
    probed: Probed | None = None,
) -> dict[int, Match]:
    """For each target (record, values, the RMSE of its own pair) the best agreeing tensor of the pool, where there is
    one. ``probed`` holds what was probed already; what is probed here is added."""
    probed = {} if probed is None else probed
    sizes: dict[int, list[int]] = defaultdict(list)
    for key, (_, values, _) in targets.items():
        if values.array.size >= SMALLEST:
            sizes[values.array.size].append(key)
    groups: dict[int, list[tuple[Record, Values]]] = defaultdict(list)
    for record, values in pool:
        if values.array.size in sizes:
            groups[values.array.size].append((record, values))
    matches: dict[int, Match] = {}
    for size, group in groups.items():
        keys = sizes[size]
        pool_probes = _stacked([_probed_once(record, values, probed) for record, values in group])
        own_rows = [_probed_once(*targets[key][:2], probed) for key in keys]
        # turning one side is enough where every tensor that could be turned is on that side
        turned = any(values.array.ndim != 4 for _, values in group)
        target_probes = _stacked(own_rows if turned else [rows[:1] for rows in own_rows])
        own = [targets[key][2] for key in keys]
        exact = len(target_probes[1]) * len(pool_probes[1]) <= EXACT
        near = (_nearest if exact else _nearest_in_buckets)(target_probes, pool_probes, own)
        for key, numbers in zip(keys, near):
            best = _best(targets[key][1], [group[number] for number in numbers], targets[key][2], agreement)
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
        let_go(other.array)
        if match.cos >= agreement.cos and match.rmse <= limit and (best is None or match.rmse < best.rmse):
            best = match
    let_go(values.array)
    return best


def probe(values: Values) -> np.ndarray:
    """A row of PROBES values as float64: as stored and, of a 4-D tensor, in the other layouts. Not of an empty one."""
    array = values.array
    places = _places(array.shape)
    flat = array.flags.c_contiguous
    picked = array.reshape(-1)[places] if flat else array[np.unravel_index(places, array.shape)]
    return np.asarray(picked if values.to_real is None else values.to_real(picked), np.float64)


def probe_all(tensors: Iterable[Values]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all tensors, behind the number of the tensor each row is of, ascending."""
    return _stacked([_probe_and_let_go(values) for values in tensors])


@lru_cache(maxsize=1024)
def _places(shape: tuple[int, ...]) -> np.ndarray:
    """Where tensors of a shape are probed: for each layout the same places, as indices into the values as stored."""
    places = np.random.default_rng(math.prod(shape)).integers(0, math.prod(shape), PROBES)
    if len(shape) != 4:
        return places[None]
    stored = np.empty(shape, np.uint8)  # of which nothing is read but the strides
    views = stored, to_nchw(stored), to_nhwc(stored)
    return np.stack([np.dot(view.strides, np.unravel_index(places, view.shape)) for view in views])


def _probed_once(record: Record, values: Values, probed: Probed) -> np.ndarray:
    if id(record) not in probed:
        probed[id(record)] = _probe_and_let_go(values)
    return probed[id(record)]


def _probe_and_let_go(values: Values) -> np.ndarray:
    rows = probe(values)
    let_go(values.array)
    return rows


def _stacked(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(len(rows)), [len(own) for own in rows]), np.concatenate(rows)


def _nearest(
    targets: tuple[np.ndarray, np.ndarray], pool: tuple[np.ndarray, np.ndarray], own: list[float]
) -> Iterator[list[int]]:
    """For each target the numbers of the pool's tensors whose probes are nearest, none that is off by more than half
    of what the target's namesake is off by (and none by more than half)."""
    pool_owners, pool_rows = pool
    rows = targets[1]
    borders = np.searchsorted(targets[0], np.arange(len(own)))
    limits = (0.5 * np.minimum(1.0, own)) ** 2
    with np.errstate(all="ignore"):
        pool_norms, norms = (pool_rows**2).sum(1), (rows**2).sum(1)
        # |p - t|² by one matrix product for all rows; its rounding is far below the limit
        squares = (pool_norms[:, None] + norms - 2 * (pool_rows @ rows.T)) / norms
        distances = np.fmin.reduceat(squares, borders, axis=1)
        near: np.ndarray = distances <= limits
    some = set(np.flatnonzero(near.any(axis=0)).tolist())
    for number in range(len(own)):
        places = np.flatnonzero(near[:, number]) if number in some else np.empty(0, int)
        order = places[np.argsort(distances[places, number], kind="stable")]
        yield list(dict.fromkeys(pool_owners[order].tolist()))[:NEAREST]


def _nearest_in_buckets(
    targets: tuple[np.ndarray, np.ndarray], pool: tuple[np.ndarray, np.ndarray], own: list[float]
) -> Iterator[list[int]]:
    """What ``_nearest`` gives, among the tensors of the pool that share a bucket with a target; at most ``CANDIDATES``
    of each bucket, since a bucket may hold thousands of copies.

    A tensor within the documented thresholds (COS 0.99) misses all ``TABLES`` buckets about once in a thousand times,
    one that is equal but for rounding never.
    """
    pool_owners, pool_rows = pool
    rng = np.random.default_rng(PROBES)
    bits = max(4, int(np.log2(len(pool_rows))) - 3)
    planes = rng.standard_normal((PROBES, TABLES * bits))
    weights = 1 << np.arange(bits)
    with np.errstate(all="ignore"):
        of_pool, of_targets = _directions(pool_rows) @ planes, _directions(targets[1]) @ planes
        middle = np.median(of_pool, axis=0)
        codes, asked = (
            ((side > middle).reshape(len(side), TABLES, bits) * weights).sum(2) for side in (of_pool, of_targets)
        )
    orders = [np.argsort(codes[:, table], kind="stable") for table in range(TABLES)]
    found = []
    for table, order in enumerate(orders):
        ranked = codes[order, table]
        found.append([np.searchsorted(ranked, asked[:, table], side) for side in ("left", "right")])
    borders = np.searchsorted(targets[0], np.arange(len(own) + 1))
    for number, (first, last) in enumerate(pairwise(borders)):
        picked = [
            orders[table][found[table][0][row] : min(found[table][1][row], found[table][0][row] + CANDIDATES)]
            for table in range(TABLES)
            for row in range(first, last)
        ]
        places = np.unique(np.concatenate(picked))
        rows = targets[1][first:last]
        part = pool_owners[places], pool_rows[places]
        yield from _nearest((np.zeros(len(rows), int), rows), part, [own[number]])


def _directions(rows: np.ndarray) -> np.ndarray:
    """The rows as vectors of length 1; those that have no direction as 0."""
    return np.nan_to_num(rows / np.linalg.norm(rows, axis=1, keepdims=True), nan=0.0, posinf=0.0, neginf=0.0)
