"""msaccucmp's AccumulatedRelativeError, honest: Σ|a/b - 1|, which is Σ |a-b|/|b|.

It grows with the size of the tensor. Values whose benchmark alone is 0 are left out and counted; NaN when nothing is
left (msaccucmp: 0).
"""

from __future__ import annotations

from sgsdump.comparison.metrics.base import Metric
from sgsdump.comparison.metrics.tallies import RelativeErrors


def accumulated_relative_error(tally: RelativeErrors) -> float:
    return tally.total if tally.count else float("nan")


ACCUMULATED_RELATIVE_ERROR = Metric(
    "AccumulatedRelativeError", "Σ |d|/|b|", 0.0, False, accumulated_relative_error, RelativeErrors
)
