"""msaccucmp's MaxRelativeError, honest: the largest |a-b|/|b|.

Values whose benchmark alone is 0 are left out and counted; NaN when nothing is left (msaccucmp: 0).
"""

from __future__ import annotations

from sgsdump.comparison.metrics.accumulators import RelativeErrors
from sgsdump.comparison.metrics.base import Metric, largest


def max_relative_error(accumulator: RelativeErrors) -> float:
    return accumulator.largest


MAX_RELATIVE_ERROR = Metric("MaxRelativeError", "max |d|/|b|", 0.0, False, max_relative_error, RelativeErrors, largest)
