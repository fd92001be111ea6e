"""A comparison as pictures. ``CHARTS`` names them: each is a function of a ``Report`` and an existing folder that
writes its files there and returns their paths, none where there is nothing to draw; it raises OSError.

Histograms and sheets of them are drawn by Pillow, for speed; other static figures by matplotlib (``figure_png.py``).
"""

from functools import partial

from sgsdump.plugins import further
from sgsdump.registry import Registry

CHARTS = Registry(
    "chart",
    {"error": "sgsdump.reports.charts.depth:save", "histograms": "sgsdump.reports.charts.pair_sheets:save"},
    partial(further, "charts"),
)
