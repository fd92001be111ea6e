"""msaccucmp's MeanRelativeError, honest: the mean |a-b|/|b|.

Values whose benchmark alone is 0 are left out of the mean and counted (msaccucmp: they count as 0); NaN when nothing is
left.
"""

from __future__ import annotations

from sgsdump.comparison.metrics.accumulators import RelativeErrors
from sgsdump.comparison.metrics.base import Metric, ratio


def mean_relative_error(accumulator: RelativeErrors) -> float:
    return ratio(accumulator.total, accumulator.count)


MEAN_RELATIVE_ERROR = Metric("MeanRelativeError", "mean |d|/|b|", 0.0, False, mean_relative_error, RelativeErrors)
