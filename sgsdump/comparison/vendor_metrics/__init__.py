"""Metrics of other tools exactly as those tools print them, one module per vendor.

These figures allow digit-by-digit comparison with a vendor's report. They keep what the vendor hides (a benchmark of
zeros, the sign of Inf, imaginary parts). ``metrics.py`` contains sgsdump's own figures.
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

# figures that a tool prints if only statistics were dumped; tools not listed here print none
VENDOR_STATISTICS = Registry(
    "vendor's statistics",
    {"msprobe": "sgsdump.comparison.vendor_metrics.msprobe:printed_statistics"},
)


@dataclass(frozen=True)
class Printed:
    """Printed values by column in the vendor's order, and the vendor's message ("" for none)."""

    values: Mapping[str, str]
    message: str = ""


VendorMetrics = Callable[[np.ndarray, np.ndarray], Printed]
VendorStatistics = Callable[[Statistics, Statistics, bool], Printed]  # last argument: whether the tensors are boolean
