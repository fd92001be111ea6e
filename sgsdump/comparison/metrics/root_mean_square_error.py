"""msaccucmp's RootMeanSquareError: sqrt((1/n) Σ(a-b)²). Not what the SDK calls RMSE."""

from __future__ import annotations

import math

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def root_mean_square_error(sums: Sums) -> float:
    """sqrt((1/n) Σ(a-b)²), NaN for an empty tensor."""
    return math.sqrt(ratio(sums.dd, sums.count))


ROOT_MEAN_SQUARE_ERROR = Metric("RootMeanSquareError", "sqrt((1/n) Σd²)", 0.0, False, root_mean_square_error)
