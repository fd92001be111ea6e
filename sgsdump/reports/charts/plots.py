"""All charts of a report, written to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgsdump.reports.charts import CHARTS
from sgsdump.reports.report import Report


def save_plots(report: Report, folder: Path) -> Sequence[Path]:
    """Write all charts of ``CHARTS`` to an existing folder; none if the report has no layers. Raise OSError."""
    return [path for save in CHARTS.values() for path in save(report, folder)] if report.layers else []
