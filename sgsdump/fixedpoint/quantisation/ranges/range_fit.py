"""Fit a UINT8 tensor's range to its distribution: four kinds of proposals.

The error of a range is the expected squared difference between a value and what UINT8 with that range makes of it
(clipped and rounded as the fixed model does), over the histogram of all values that calibration saw. Proposals:

min_max     what was seen.
percentile  without the outermost 0.001 %, 0.01 % and 0.1 % at each end.
entropy     the clipping whose 255 steps keep the distribution best (Kullback-Leibler divergence, as TensorRT's
            calibrator: clipped values count at the ends, each step's count is spread over its filled bins).
mse         the smallest error of a search over both ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.fixedpoint.quantisation.ranges.statistics import ValueHistogram

STEPS = 255
PERCENTILES = (1e-5, 1e-4, 1e-3)
# Clipping to less than this part of the range is never worth it for 255 steps of values that reach beyond.
DEEPEST = 0.2
GRID = np.linspace(1.0, DEEPEST, 81)
# Ranges whose errors are summed up together, at most some MB of values.
TOGETHER = 128
MIN_MAX, PERCENTILE, ENTROPY, MSE = "min_max", "percentile", "entropy", "mse"


@dataclass(frozen=True)
class Proposal:
    """A range, what proposed it, and its expected squared error as a share of the values' mean square."""

    low: float
    high: float
    kind: str
    error: float


def proposals(histogram: ValueHistogram, low: float, high: float, worth: float = math.inf) -> list[Proposal]:
    """The best of each kind for values within [low, high], min_max first. The range is taken to include 0.

    worth  of an error above this part of min_max's only those two are given: the others' is not smaller.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    values, counts = histogram.filled()
    counts = counts.astype(np.float64)
    energy = float(counts @ values**2)
    if not energy or high - low <= 2 * histogram.width:
        return [Proposal(low, high, MIN_MAX, 0.0)]

    def proposal(kind: str, ends: tuple[float, float]) -> Proposal:
        low, high = map(float, ends)
        return Proposal(low, high, kind, squared_error(values, counts, low, high) / energy)

    plain, least = proposal(MIN_MAX, (low, high)), proposal(MSE, _least_error(values, counts, low, high))
    if least.error > worth * plain.error:
        return [plain, least]
    tails = [proposal(PERCENTILE, ends) for ends in _percentiles(values, counts, histogram.zeros, low, high)]
    return [
        plain,
        min(tails, key=lambda candidate: candidate.error),
        proposal(ENTROPY, _least_divergent(histogram, low, high)),
        least,
    ]


def squared_error(values: np.ndarray, counts: np.ndarray, low: float, high: float) -> float:
    """Sum of the squared differences that UINT8 makes; zeros cost nothing."""
    return squared_errors(values, counts, [(low, high)])[0]


def squared_errors(values: np.ndarray, counts: np.ndarray, ends: Sequence[tuple[float, float]]) -> list[float]:
    """Of each (low, high): some hundred are tried for each tensor, a few at a time."""
    errors: list[float] = []
    for start in range(0, len(ends), TOGETHER):
        lows, highs = (np.array(side, np.float64)[:, None] for side in zip(*ends[start : start + TOGETHER]))
        scales = (highs - lows) / STEPS
        some = scales[:, 0] > 0
        with np.errstate(divide="ignore", invalid="ignore"):  # of an empty range, which rounds nothing
            zeros, stored = np.rint(-lows / scales), values / scales
        np.rint(stored, out=stored)
        np.maximum(stored, -zeros, out=stored)
        np.minimum(stored, STEPS - zeros, out=stored)
        stored *= scales
        stored -= values
        stored[~some] = values
        errors += [float(counts @ row) for row in np.square(stored, out=stored)]
    return errors


def _percentiles(
    values: np.ndarray, counts: np.ndarray, zeros: int, low: float, high: float
) -> Iterator[tuple[float, float]]:
    at = int(np.searchsorted(values, 0.0))
    whole, all_counts = np.insert(values, at, 0.0), np.insert(counts, at, zeros)
    below = np.cumsum(all_counts)
    for share in PERCENTILES:
        outside = share * below[-1]
        first = int(np.searchsorted(below, outside, side="right"))
        last = int(np.searchsorted(below, below[-1] - outside, side="left"))
        yield max(low, min(whole[first], 0.0)), min(high, max(whole[last], 0.0))


def _least_error(values: np.ndarray, counts: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Both ends drawn in together, then each for itself, as long as that helps. Ends that come again, which are half of
    those of values of one sign, are not tried again."""
    errors: dict[tuple[float, float], float] = {}

    def best(ends: list[tuple[float, float]]) -> tuple[float, float]:
        untried = [each for each in ends if each not in errors]
        errors.update(zip(untried, squared_errors(values, counts, untried)))
        return min(ends, key=errors.__getitem__)

    least = best([(low * part, high * part) for part in GRID])
    for _ in range(2):
        before = least
        least = best([least, *((low * part, least[1]) for part in GRID)]) if low else least
        least = best([least, *((least[0], high * part) for part in GRID)]) if high else least
        if least == before:
            break
    return least


def _least_divergent(histogram: ValueHistogram, low: float, high: float) -> tuple[float, float]:
    at = np.arange(histogram.counts.size)
    middles = (at - histogram.counts.size // 2 + 0.5) * histogram.width
    filled = np.flatnonzero(histogram.counts)
    divergences = []
    for part in GRID[::2]:
        inside = filled[(middles[filled] >= low * part) & (middles[filled] <= high * part)]
        if inside.size < 2:
            break
        divergences.append((_divergence(histogram.counts, middles, inside, low * part, high * part), part))
    part = min(divergences)[1] if divergences else 1.0
    return low * part, high * part


def _divergence(counts: np.ndarray, middles: np.ndarray, inside: np.ndarray, low: float, high: float) -> float:
    """Kullback-Leibler divergence of what the steps keep from the clipped distribution; zeros are exact in both."""
    kept = counts[inside].astype(np.float64)
    clipped = kept.copy()
    clipped[0] += counts[: inside[0]].sum()
    clipped[-1] += counts[inside[-1] + 1 :].sum()
    scale = (high - low) / STEPS
    step = np.round((middles[inside] - low) / scale).astype(np.int64)
    spread = (np.bincount(step, kept) / np.maximum(np.bincount(step), 1))[step]
    p, q = clipped / clipped.sum(), spread / spread.sum()
    return float(p @ np.log(p / q))
