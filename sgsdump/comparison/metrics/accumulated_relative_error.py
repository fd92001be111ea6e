"""msaccucmp's AccumulatedRelativeError, honest: Σ|a/b - 1|, which is Σ |a-b|/|b|.

It grows with the size of the tensor. Values whose benchmark alone is 0 are left out and counted; NaN when nothing is
left (msaccucmp: 0).
"""

from __future__ import annotations

from sgsdump.comparison.metrics.accumulators import RelativeErrors
from sgsdump.comparison.metrics.base import Metric


def accumulated_relative_error(accumulator: RelativeErrors) -> float:
    return accumulator.total if accumulator.count else float("nan")


ACCUMULATED_RELATIVE_ERROR = Metric(
    "AccumulatedRelativeError", "Σ |d|/|b|", 0.0, False, accumulated_relative_error, RelativeErrors, sum
)
