"""Whether the largest values stand at the same places, as for a classifier's scores: the whole tensor taken flat.

top1 is 1 when the largest values of both have one index, else 0; top5 is the share of the benchmark's five largest
whose index is among the sample's five largest. Of equal values the first counts.
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings

K = 5


class Largest(Accumulator):
    """The indices of the ``K`` largest values of either side."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.sides = [(np.empty(0), np.empty(0, np.int64)) for _ in range(2)]
        self.count = 0
        self.finite = True

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        places = np.arange(self.count, self.count + a.size)
        self.count += a.size
        self.finite = self.finite and bool(np.isfinite(a).all() and np.isfinite(b).all())
        self.sides = [_largest(kept, chunk, places) for kept, chunk in zip(self.sides, (a, b))]

    def shared(self, k: int) -> float:
        """The share of the benchmark's k largest that are the sample's too.

        NaN for an empty tensor and where NaN or Inf is among the values.
        """
        (_, in_sample), (_, in_benchmark) = self.sides
        if not self.count or not self.finite:
            return math.nan
        wanted = in_benchmark[:k]
        return float(np.isin(wanted, in_sample[:k]).sum() / len(wanted))


def _largest(
    kept: tuple[np.ndarray, np.ndarray], chunk: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The largest of those kept and of a chunk, largest first."""
    values, indices = np.concatenate([kept[0], chunk]), np.concatenate([kept[1], places])
    order = np.argsort(-values, kind="stable")[:K]
    return values[order], indices[order]


def top1(accumulator: Largest) -> float:
    return accumulator.shared(1)


def top5(accumulator: Largest) -> float:
    return accumulator.shared(K)


TOP1 = Metric("top1", "argmax a = argmax b", 1.0, True, top1, Largest)
TOP5 = Metric("top5", "shared indices of the five largest", 1.0, True, top5, Largest)
