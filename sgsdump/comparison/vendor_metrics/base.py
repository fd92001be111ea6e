"""The contract of a vendor's set of metrics, printed as that vendor prints it; ``vendor_metrics/`` holds the family.

Such numbers are for holding our results against a vendor's report, digit by digit. They keep what the vendor hides (a
benchmark of zeros, the sign of Inf, imaginary parts); the honest numbers are those of ``metrics/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.tensors.statistics import Statistics


@dataclass(frozen=True)
class Printed:
    """The printed values by column, in the vendor's order, and what the vendor says beside them ("" for nothing)."""

    values: Mapping[str, str]
    message: str = ""


VendorMetrics = Callable[[np.ndarray, np.ndarray], Printed]
VendorStatistics = Callable[[Statistics, Statistics], Printed]
