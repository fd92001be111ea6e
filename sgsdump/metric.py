"""The contract of a metric; ``metrics/`` holds the family, one file each.

A metric is a pure function of the ``Sums`` of one pair of tensors, so that any number of metrics costs one pass over
the values. To add one: write ``metrics/NAME.py`` with a module-level ``Metric``, list it in ``metrics/__init__.py``;
if it needs another sum, add it to ``Sums`` and to ``sgsdump/sums.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sgsdump.family import Family


@dataclass(frozen=True)
class Sums:
    """What one pass over a pair gives, a the sample and b the benchmark, accumulated in float64.

    aa, bb, ab   Σa², Σb², Σab
    dd, d1, b1   Σ(a-b)², Σ|a-b|, Σ|b|
    *_nan, *_inf NaN and infinite values on either side; nothing is filtered, so they show in the sums too.
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


@dataclass(frozen=True)
class Metric:
    """One number about a pair: ``of(sums)``, its formula in a (sample) and b (benchmark), and its best value."""

    name: str
    formula: str
    ideal: float
    higher_is_better: bool
    of: Callable[[Sums], float]


def metrics() -> Family:
    """The table of metrics, in the order in which reports print them."""
    from sgsdump.metrics import METRICS

    return METRICS


def ratio(numerator: float, denominator: float) -> float:
    """A quotient as IEEE 754 has it: x/0 is infinite and 0/0 is NaN, honestly shown, never an exception."""
    if denominator:
        return numerator / denominator
    return float("nan") if not numerator or numerator != numerator else float("inf") * numerator
