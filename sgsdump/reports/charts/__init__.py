"""A comparison as pictures. ``CHARTS`` names them: each is a function of a ``Report`` and an existing folder that
writes its files there and returns their paths, none where there is nothing to draw; it raises OSError.

Histograms and sheets of them are drawn by Pillow, for speed; other static figures by matplotlib (``figure_png.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.registry import Registry

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.tensors.types import Range

CHARTS = Registry(
    "chart",
    {"error": "sgsdump.reports.charts.depth:save", "histograms": "sgsdump.reports.charts.pair_sheets:save"},
)
NONE: Mapping[str, Range] = MappingProxyType({})


def save_plots(
    comparison: Comparison,
    folder: Path,
    thresholds: Thresholds = DOCUMENTED,
    *,
    title: str = "Comparison",
    ranges: Mapping[str, Range] = NONE,
) -> Sequence[Path]:
    """Write every chart of ``CHARTS`` into an existing folder; none of a comparison without rows. Raises OSError.

    ranges  calibrated ranges by tensor name.
    """
    from sgsdump.reports.report import Context, report_of  # here, since single charts are drawn without one

    report = report_of(comparison, thresholds, Context(title, ranges=ranges))
    return [path for save in CHARTS.values() for path in save(report, folder)] if report.layers else []
