"""A histogram as SVG."""

from __future__ import annotations

import math

import numpy as np

from sgsdump.reports.notebook.base import paragraph
from sgsdump.reports.shown import number

WIDTH, HEIGHT = 480, 90
FEWEST_BINS = 16


def histogram(counts: np.ndarray, low: float, high: float, limits: tuple[float, float] | None = None) -> str:
    """Bars of equal width over [low, high], their height by the logarithm of the counts; ``limits`` as dashed lines.
    The axis reaches to the limits too."""
    first, last = (min(low, limits[0]), max(high, limits[1])) if limits else (low, high)
    if not math.isfinite(last - first) or not counts.any():
        return ""
    counts = _coarse(counts)
    width = last - first or 1.0
    tops = np.log1p(counts) / math.log1p(counts.max()) * HEIGHT
    edges = (np.linspace(low, high, len(counts) + 1) - first) / width * WIDTH if high > low else (0.0, WIDTH)
    if high == low:
        tops, edges = np.array([float(HEIGHT)]), np.array([WIDTH * 0.49, WIDTH * 0.51])
    steps = "".join(f"H{x:.1f}V{HEIGHT - top:.1f}H{after:.1f}" for x, after, top in zip(edges, edges[1:], tops))
    lines = "".join(
        f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y2="{HEIGHT}"/>'
        for x in ((limit - first) / width * WIDTH for limit in limits or ())
    )
    bars = f'<path class="values" d="M{edges[0]:.1f} {HEIGHT}{steps}V{HEIGHT}Z"/>'
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    title = f"histogram from {number(first)} to {number(last)}"
    axis = paragraph(f"{number(first)} … {number(last)}, counts on a logarithmic scale", small=True)
    return f'<svg {box} role="img" aria-label="{title}">{bars}{lines}</svg>{axis}'


def _coarse(counts: np.ndarray) -> np.ndarray:
    """Fewer bins where few values would be a comb in many."""
    most = max(FEWEST_BINS, 2 * math.sqrt(counts.sum()))
    while len(counts) > most and len(counts) % 2 == 0:
        counts = counts.reshape(-1, 2).sum(axis=1)
    return counts
