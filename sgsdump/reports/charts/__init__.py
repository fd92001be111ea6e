"""Charts of a comparison as image files, by name (``CHARTS``).

A chart is a function of a ``Report`` and an existing folder. It writes its files to the folder and returns their paths,
() if there is nothing to draw; it raises OSError. Pillow draws histograms and sheets of histograms, because it is
faster; matplotlib draws the other static figures (``figure_png.py``).
"""

from functools import partial

from sgsdump.plugins import further
from sgsdump.registry import Registry

CHARTS = Registry(
    "chart",
    {"error": "sgsdump.reports.charts.depth:save", "histograms": "sgsdump.reports.charts.pair_sheets:save"},
    partial(further, "charts"),
)
