"""The nearest rows of numbers: of each target those of a pool, by all distances or by those within buckets.

Among thousands of rows the nearest are looked for in buckets only, so that the work grows with their number and not
with its square: nearly equal rows fall on the same sides of random planes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

Rows = tuple[np.ndarray, np.ndarray]
"""Rows, behind the number of the tensor each is of, ascending."""

EXACT = 1 << 20  # as many distances are all computed; beyond, those within buckets
TABLES, CANDIDATES = 8, 32
NEAREST = 4
_SEED = 64


def nearest_rows(targets: Rows, pool: Rows, own: list[float]) -> Iterator[list[int]]:
    """For each target the numbers of the pool's tensors whose rows are nearest, none that is off by more than half
    of what the target's namesake is off by, ``own`` (and none by more than half)."""
    exact = len(targets[1]) * len(pool[1]) <= EXACT
    return (_nearest if exact else _nearest_in_buckets)(targets, pool, own)


def _nearest(targets: Rows, pool: Rows, own: list[float]) -> Iterator[list[int]]:
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
    for number, is_near in enumerate(np.logical_or.reduce(near, axis=0).tolist()):
        if not is_near:
            yield []
            continue
        places = np.flatnonzero(near[:, number])
        order = places[np.argsort(distances[places, number], kind="stable")]
        yield list(dict.fromkeys(pool_owners[order].tolist()))[:NEAREST]


def _nearest_in_buckets(targets: Rows, pool: Rows, own: list[float]) -> Iterator[list[int]]:
    """What ``_nearest`` gives, among the tensors of the pool that share a bucket with a target; at most ``CANDIDATES``
    of each bucket, since a bucket may hold thousands of copies.

    A tensor within the documented thresholds (COS 0.99) misses all ``TABLES`` buckets about once in a thousand times,
    one that is equal but for rounding never.
    """
    pool_owners, pool_rows = pool
    rng = np.random.default_rng(_SEED)
    bits = max(4, int(np.log2(len(pool_rows))) - 3)
    planes = rng.standard_normal((pool_rows.shape[1], TABLES * bits))
    weights = 1 << np.arange(bits)
    with np.errstate(all="ignore"):
        of_pool, of_targets = _directions(pool_rows) @ planes, _directions(targets[1]) @ planes
        middle = np.median(of_pool, axis=0)
        codes, asked = (
            ((side > middle).reshape(len(side), TABLES, bits) * weights).sum(2) for side in (of_pool, of_targets)
        )
    orders = [np.argsort(codes[:, table], kind="stable") for table in range(TABLES)]
    bounds = []
    for table, order in enumerate(orders):
        ranked = codes[order, table]
        bounds.append([np.searchsorted(ranked, asked[:, table], side) for side in ("left", "right")])
    borders = np.searchsorted(targets[0], np.arange(len(own) + 1))
    for number, (first, last) in enumerate(pairwise(borders)):
        picked = [
            orders[table][bounds[table][0][row] : min(bounds[table][1][row], bounds[table][0][row] + CANDIDATES)]
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
