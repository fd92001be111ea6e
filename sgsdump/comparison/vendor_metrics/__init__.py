"""The metrics of other tools as those print them, one file each.

The contract of a vendor's set of metrics, printed as that vendor prints it; ``vendor_metrics/`` holds the family.

Such numbers are for holding our results against a vendor's report, digit by digit. They keep what the vendor hides (a
benchmark of zeros, the sign of Inf, imaginary parts); the honest numbers are those of ``metrics/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.registry import Registry
from sgsdump.tensors.statistics import Statistics

VENDOR_METRICS = Registry(
    "vendor's metrics",
    {
        "msaccucmp": "sgsdump.comparison.vendor_metrics.msaccucmp:printed",
        "msprobe": "sgsdump.comparison.vendor_metrics.msprobe:printed",
    },
)

# what the tool prints where only statistics were dumped; tools that are not here print nothing there
VENDOR_STATISTICS = Registry(
    "vendor's statistics",
    {"msprobe": "sgsdump.comparison.vendor_metrics.msprobe:printed_statistics"},
)


@dataclass(frozen=True)
class Printed:
    """The printed values by column, in the vendor's order, and what the vendor says beside them ("" for nothing)."""

    values: Mapping[str, str]
    message: str = ""


VendorMetrics = Callable[[np.ndarray, np.ndarray], Printed]
VendorStatistics = Callable[[Statistics, Statistics, bool], Printed]  # of booleans?
