"""The order in which the sums of a pair are added up, and the way to do it with numpy alone.

A chunk of CHUNK values is seen as rows of LANES values: value i belongs to lane i % LANES. Each lane is summed row by
row, and then added to the lane's total; at the end the lanes are added up, the first one first. All of it is float64.
So the digits depend on nothing but the values: not on the processor, the number of threads, or whether the compiled
kernel is there, which does the same. (Dot products, as fast as they are, have another order on every processor.)
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

LANES = 256
CHUNK = 1 << 15
_SUMS = 6
_COUNTS = 7
_LOCAL = threading.local()


@dataclass(frozen=True)
class Totals:
    """The lanes of Σa², Σb², Σab, Σd², Σ|d| and Σ|b|, and the counts of ``Sums`` from ``sample_nan`` on."""

    lanes: np.ndarray = field(default_factory=lambda: np.zeros((_SUMS, LANES)))
    odd: np.ndarray = field(default_factory=lambda: np.zeros(_COUNTS, np.int64))

    def sums(self) -> list[float]:
        with np.errstate(all="ignore"):
            totals: list[float] = np.add.accumulate(self.lanes, axis=1)[:, -1].tolist()
        return totals

    def counts(self) -> list[int]:
        counts: list[int] = self.odd.tolist()
        return counts


def add_chunk(totals: Totals, x: np.ndarray, y: np.ndarray, d: np.ndarray) -> None:
    """Add a chunk: float64 values of sample and benchmark, and their difference."""
    lanes, products = _workspace()
    products = products[: x.size]
    for lane, factors in zip(lanes, ((x, x), (y, y), (x, y), (d, d))):
        _fold(np.multiply(*factors, out=products), lane)
    for lane, values in zip(lanes[4:], (d, y)):
        _fold(np.absolute(values, out=products), lane)
    if not np.isfinite(lanes[:2].sum()):
        np.add(totals.odd, _not_finite(x, y), out=totals.odd)
    np.add(totals.lanes, lanes, out=totals.lanes)


def _fold(values: np.ndarray, lanes: np.ndarray) -> None:
    """Sum each lane row by row; what is left of a row belongs to the first lanes."""
    rest = values.size % LANES
    np.add.reduce(values[: values.size - rest].reshape(-1, LANES), axis=0, out=lanes)
    lanes[:rest] += values[values.size - rest :]


def _not_finite(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    nan, inf, minus = ([test(side) for side in (x, y)] for test in (np.isnan, np.isinf, np.isneginf))
    same = (x == y) | (nan[0] & nan[1])
    apart = (nan[0] | nan[1] | inf[0] | inf[1]) & ~same
    return np.array([np.count_nonzero(m) for m in (nan[0], inf[0], nan[1], inf[1], *minus, apart)])


def _workspace() -> tuple[np.ndarray, np.ndarray]:
    """The thread's own lanes and CHUNK products, kept: fresh pages cost a fifth more."""
    if not hasattr(_LOCAL, "buffers"):
        _LOCAL.buffers = np.empty((_SUMS, LANES)), np.empty(CHUNK)
    return _LOCAL.buffers
