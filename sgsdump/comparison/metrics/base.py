"""The contract of a metric; this folder holds the family, one file each.

A metric is a number made of the ``Sums`` of one pair of tensors, or of an ``Accumulator`` that saw every value; either
way any number of metrics costs one pass over the values. To add one: write ``metrics/NAME.py`` with a module-level
``Metric`` and list it in ``metrics/__init__.py``; if it needs another sum, give it an accumulator (``accumulators.py``
holds those that several metrics share).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgsdump.errors import ConfigError


@dataclass(frozen=True)
class Sums:
    """What one pass over a pair gives, a the sample and b the benchmark, accumulated in float64.

    aa, bb, ab   Σa², Σb², Σab
    dd, d1, b1   Σ(a-b)², Σ|a-b|, Σ|b|; the differences of 64-bit integers are exact
    *_nan, *_inf NaN and infinite values on either side; nothing is filtered, so they show in the sums too.
    *_minus_inf  those of the infinite values that are negative.
    odd_apart    how often one side is NaN, +Inf or -Inf where the other is not the same.
    """

    count: int
    aa: float
    bb: float
    ab: float
    dd: float
    d1: float
    b1: float
    sample_nan: int = 0
    sample_inf: int = 0
    benchmark_nan: int = 0
    benchmark_inf: int = 0
    sample_minus_inf: int = 0
    benchmark_minus_inf: int = 0
    odd_apart: int = 0


@dataclass(frozen=True)
class Settings:
    """What some metrics take from the user.

    th1         diff3: a benchmark value above it (in magnitude) is compared relatively, the others absolutely.
    rtol, atol  all_close: the relative and absolute tolerance; None is th1.

    Raises ConfigError for one that is negative or NaN.
    """

    th1: float = 1e-6
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name in ("th1", "rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} is 0 or more, so {value:g} cannot be one")


class Accumulator:
    """What looks at every value of a pair, chunk by chunk, for the metrics that name its class.

    left_out  how many values its metrics leave out because they are undefined there.
    """

    left_out = 0

    def __init__(self, settings: Settings):
        self.settings = settings

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        """Take a chunk: flat float64 values of sample and benchmark and d = a - b (exact for integers of 64 bits).

        The arrays are the caller's and may hold NaN and Inf: they are neither written to nor kept.
        """
        raise NotImplementedError

    def wants_again(self) -> bool:
        """Asked after each pass: True to be fed all chunks once more."""
        return False


def mean(values: Sequence[float]) -> float:
    """NaN where one is."""
    return float(np.mean(values))


def largest(values: Sequence[float]) -> float:
    """NaN where one is."""
    return float(np.max(values))


@dataclass(frozen=True)
class Metric:
    """One number about a pair: its formula in a (sample), b (benchmark) and d = a-b, and its best value.

    of     the number, of the ``Sums``; of the accumulator where the metric has one.
    accumulator  the class of the Accumulator it needs; metrics that name the same class share one.
    merged  the number of several runs from the numbers of each, where there is an accumulator: their mean, unless said
            otherwise. A metric made of ``Sums`` is made again of all runs' sums.
    """

    name: str
    formula: str
    ideal: float
    higher_is_better: bool
    of: Callable[[Any], float]
    accumulator: type[Accumulator] | None = None
    merged: Callable[[Sequence[float]], float] = mean


def ratio(numerator: float, denominator: float) -> float:
    """A quotient as IEEE 754 has it: x/0 is infinite and 0/0 is NaN, honestly shown, never an exception."""
    if denominator:
        return numerator / denominator
    return float("nan") if not numerator or numerator != numerator else float("inf") * numerator


def decibels(power: float) -> float:
    """10 log10 of a ratio of powers; -Inf for 0."""
    return 10 * math.log10(power) if power else -math.inf
