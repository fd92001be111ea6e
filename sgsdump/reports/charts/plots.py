"""Every chart of a report. Apart: what a chart shares with the others does not know reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgsdump.reports.charts import CHARTS
from sgsdump.reports.report import Report


def save_plots(report: Report, folder: Path) -> Sequence[Path]:
    """Write every chart of ``CHARTS`` into an existing folder; none of a report without layers. Raises OSError."""
    return [path for save in CHARTS.values() for path in save(report, folder)] if report.layers else []
