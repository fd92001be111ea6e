"""A comparison as pictures. ``CHARTS`` names them: each is a function of a ``Report`` and an existing folder that
writes its files there and returns their paths, none where there is nothing to draw; it raises OSError.

Histograms and sheets of them are drawn by Pillow, for speed; other static figures by matplotlib (``figure_png.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.plugins import further
from sgsdump.registry import Registry

if TYPE_CHECKING:
    from sgsdump.reports.report import Report

CHARTS = Registry(
    "chart",
    {"error": "sgsdump.reports.charts.depth:save", "histograms": "sgsdump.reports.charts.pair_sheets:save"},
    partial(further, "charts"),
)


def save_plots(report: Report, folder: Path) -> Sequence[Path]:
    """Write every chart of ``CHARTS`` into an existing folder; none of a report without layers. Raises OSError."""
    return [path for save in CHARTS.values() for path in save(report, folder)] if report.layers else []
