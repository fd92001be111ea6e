"""Sums with numpy only: the reference for tests of the compiled kernel, and its fallback."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from sgsdump.comparison.sums.tiles import CHUNK, COUNTS, LANES, SUMS, Part, Table, ToSum, are_wide
from sgsdump.files.mapped import in_memory

_LOCAL = threading.local()


@dataclass(frozen=True, eq=False)
class Totals:
    """Totals per lane, and the counts."""

    lanes: np.ndarray = field(default_factory=lambda: np.zeros((SUMS, LANES)))
    odd: np.ndarray = field(default_factory=lambda: np.zeros(COUNTS, np.int64))


def part_sums(pair: ToSum, part: list[Table]) -> Part:
    """Return the sums of a part of a pair; no values are picked up."""
    totals = Totals()
    for table in part:
        _add(totals, pair, table)
    with np.errstate(all="ignore"):
        sums: list[float] = np.add.accumulate(totals.lanes, axis=1)[:, -1].tolist()
    return sums, totals.odd.tolist()


def _add(totals: Totals, pair: ToSum, table: Table) -> None:
    sample, benchmark = pair.sample, pair.benchmark
    wide = are_wide(sample, benchmark)
    p, q, r, _, _ = _workspace()
    with np.errstate(all="ignore"):
        for a, b in table.tiles():
            a, b = in_memory(a).reshape(-1), in_memory(b).reshape(-1)
            x, y, d = p[: a.size], q[: a.size], r[: a.size]
            x[:] = a if sample.to_real is None else sample.to_real(a)
            y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
            _add_chunk(totals, x, y, difference(a, b, wide, x, y, d))


def difference(a: np.ndarray, b: np.ndarray, wide: bool, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return x - y in ``out``; for 64-bit integers a - b, which is exact before one rounding."""
    if not wide:
        return np.subtract(x, y, out=out)
    # modulo 2**64, larger minus smaller is the true distance
    larger, u, v = a >= b, a.astype(np.uint64), b.astype(np.uint64)
    out[:] = np.where(larger, u - v, v - u)
    return np.negative(out, out=out, where=~larger)


def _add_chunk(totals: Totals, x: np.ndarray, y: np.ndarray, d: np.ndarray) -> None:
    *_, products, lanes = _workspace()
    products = products[: x.size]
    for lane, factors in zip(lanes, ((x, x), (y, y), (x, y), (d, d))):
        _fold(np.multiply(*factors, out=products), lane)
    for lane, values in zip(lanes[4:], (d, y)):
        _fold(np.absolute(values, out=products), lane)
    if not np.isfinite(lanes[:2].sum()):
        np.add(totals.odd, _not_finite(x, y), out=totals.odd)
    np.add(totals.lanes, lanes, out=totals.lanes)


def _fold(values: np.ndarray, lanes: np.ndarray) -> None:
    """Sum each lane row by row; an incomplete last row belongs to the first lanes."""
    rest = values.size % LANES
    np.add.reduce(values[: values.size - rest].reshape(-1, LANES), axis=0, out=lanes)
    lanes[:rest] += values[values.size - rest :]


def _not_finite(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    nan, inf, minus = ([test(side) for side in (x, y)] for test in (np.isnan, np.isinf, np.isneginf))
    same = (x == y) | (nan[0] & nan[1])
    apart = (nan[0] | nan[1] | inf[0] | inf[1]) & ~same
    return np.array([np.count_nonzero(m) for m in (nan[0], inf[0], nan[1], inf[1], *minus, apart)])


def _workspace() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return four buffers of CHUNK values and the lanes, kept per thread: fresh memory pages cost a fifth more time.

    They are aligned to cache lines, because wide vector loads are slow across a line boundary.
    """
    if not hasattr(_LOCAL, "buffers"):
        block = np.empty(4 * CHUNK + SUMS * LANES + 8)
        start = -block.ctypes.data % 64 // 8
        buffers, lanes = np.split(block[start : start + 4 * CHUNK + SUMS * LANES], [4 * CHUNK])
        _LOCAL.buffers = *buffers.reshape(4, CHUNK), lanes.reshape(SUMS, LANES)
    workspace: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray] = _LOCAL.buffers
    return workspace
