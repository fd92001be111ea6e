"""msaccucmp's MeanAbsoluteError: (1/n) Σ|a-b|, in units of the tensor."""

from __future__ import annotations

from dataclasses import replace

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def mean_absolute_error(sums: Sums) -> float:
    """(1/n) Σ|a-b|, NaN for an empty tensor."""
    return ratio(sums.d1, sums.count)


MEAN_ABSOLUTE_ERROR = Metric("MeanAbsoluteError", "(1/n) Σ|d|", 0.0, False, mean_absolute_error)
MAE = replace(MEAN_ABSOLUTE_ERROR, name="mae")  # the name of the SDAA dump tools
