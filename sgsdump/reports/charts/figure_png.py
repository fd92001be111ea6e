"""A matplotlib figure as PNG, for every chart that matplotlib draws."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100


def png_of(draw: Callable[[], Figure]) -> bytes:
    """The PNG of the figure that ``draw`` makes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    with warnings.catch_warnings():
        # matplotlib has no axis for a single value, and its font lacks letters of some names
        warnings.simplefilter("ignore", UserWarning)
        FigureCanvasAgg(draw()).print_png(file)  # savefig draws twice
    return file.getvalue()
