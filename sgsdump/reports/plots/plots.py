"""All pictures of a comparison, in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.reports.html.of_comparison import layers_of, limits_of, verdict
from sgsdump.reports.plots.depth_png import render
from sgsdump.reports.plots.pair_sheets import save_pair_sheets
from sgsdump.tensors.types import Range

NONE: Mapping[str, Range] = {}


def save_plots(
    comparison: Comparison,
    folder: Path,
    thresholds: Thresholds = DOCUMENTED,
    *,
    title: str = "Comparison",
    ranges: Mapping[str, Range] = NONE,
) -> Sequence[Path]:
    """Write ``error.png``, and ``histograms.png`` where the comparison has details, into an existing folder.

    ranges  calibrated ranges by tensor name. Raises OSError.
    """
    layers = layers_of(comparison, thresholds, ranges)
    if not layers:
        return ()
    path = folder / "error.png"
    path.write_bytes(render(layers, limits_of(thresholds), title, verdict(comparison, thresholds)))
    return (path, *save_pair_sheets(layers, folder, title, list(map(trouble, comparison.rows))))


def trouble(row: Row) -> str:
    """NaN and Inf of either side, in a few words: ``sample 5 NaN, benchmark 2 Inf``; "" for none."""
    counts = (
        ("sample", row.sample_nan, row.sample_inf),
        ("benchmark", row.benchmark_nan, row.benchmark_inf),
    )
    sides = []
    for side, nan, inf in counts:
        kinds = [f"{count:,} {kind}" for count, kind in ((nan, "NaN"), (inf, "Inf")) if count]
        sides += [f"{side} {' '.join(kinds)}"] if kinds else []
    if not sides and not row.count:
        return "no values"
    return ", ".join(sides)
