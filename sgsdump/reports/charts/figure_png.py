"""PNG encoding of matplotlib figures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100


def png_of(draw: Callable[[], Figure]) -> bytes:
    """Return the figure of ``draw`` as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    with warnings.catch_warnings():
        # matplotlib warns of an axis with a single value, and of letters that its font lacks
        warnings.simplefilter("ignore", UserWarning)
        FigureCanvasAgg(draw()).print_png(file)  # savefig draws twice
    return file.getvalue()
