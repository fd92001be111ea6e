"""Drawing of histograms with Pillow: canvas, fonts, axis ticks, columns of counts, limits of a range.

matplotlib is not used here: a figure whose artists are updated in place still takes about 90 ms per image, mostly for
the layout of text. The font is matplotlib's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
BLUE = (31, 119, 180)
RED = (214, 39, 40)
ORANGE = (217, 108, 0)
PURPLE = (125, 60, 160)
BLACK = (25, 25, 25)
WHITE = (255, 255, 255)
GREY = (110, 110, 110)
GRID = (228, 228, 228)
SHADE = (235, 242, 250)
PALE = (160, 196, 232)

# Minimum width of a column in pixels, so that a single value is visible.
_THINNEST = 2
# Size of the triangle that marks a limit below the axis, where no column hides it.
_MARK = 4

# Share of the highest column below which a column is hardly visible on a linear axis.
_HARDLY_SEEN = 0.02
# Height of the highest column below which a linear axis is always readable.
_FEW = 50


@dataclass(frozen=True)
class Panel:
    """Plot area in pixels, with the scales: values ``low`` to ``high`` (horizontal), counts 0 to ``peak`` (vertical).

    least  start of the logarithmic axis; half a value, so that a single value is visible.
    """

    left: int
    top: int
    right: int
    bottom: int
    low: float
    high: float
    peak: int
    log: bool = False
    least: float = 0.5

    def column(self, value: float) -> int:
        """Return the pixel column of a value; values beyond the panel are at its border."""
        share = (value - self.low) / (self.high - self.low)
        return self.left + round(min(max(share, 0.0), 1.0) * (self.right - self.left))

    def columns(self, values: np.ndarray) -> np.ndarray:
        """Return the pixel columns of values; values beyond the panel are at its border."""
        shares = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        return self.left + np.rint(shares * (self.right - self.left)).astype(int)

    def rows(self, counts: np.ndarray) -> np.ndarray:
        """Return the pixel rows of counts."""
        top = max(self.peak, 1)
        if self.log:
            shares = np.log(np.maximum(counts, self.least) / self.least) / math.log(top * 1.4 / self.least)
        else:
            shares = counts / (top * 1.05)
        return self.bottom - np.rint(np.clip(shares, 0.0, 1.0) * (self.bottom - self.top)).astype(int)


def view(*ends: float) -> tuple[float, float]:
    """Return the range of the value axis: all finite ``ends`` with a margin, which is larger for a single value."""
    ends = tuple(min(max(end, -1e300), 1e300) for end in ends if math.isfinite(end))
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = (high - low) * 0.04 or abs(high) * 0.1 or 0.5
    return low - margin, high + margin


def peaky(counts: np.ndarray) -> bool:
    """Return whether a linear axis would show only a few columns, so that a logarithmic axis is better."""
    used = np.count_nonzero(counts)
    visible = np.count_nonzero(counts > counts.max() * _HARDLY_SEEN)
    return bool(counts.max() >= _FEW and visible < used and (visible < used / 2 or visible < len(counts) / 4))


def blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return a white image and its pen. Text must be BLACK or GREY on white.

    The image has one byte per pixel, so the PNG is written four times faster than in RGB. The palette is a ramp of
    greys, so that antialiased text blends by index. The colours replace the darkest greys, which are unused.
    """
    image = Image.new("P", (width, height), 255)
    image.putpalette(_palette())
    draw = ImageDraw.Draw(image)
    draw.fontmode = "L"
    return image, draw


@cache
def _palette() -> bytes:
    colours = [*(BLUE, RED, ORANGE, PURPLE, SHADE, PALE), *((grey, grey, grey) for grey in range(6, 256))]
    return bytes(level for colour in colours for level in colour)


def draw_counts(
    draw: ImageDraw.ImageDraw, panel: Panel, counts: np.ndarray, low: float, high: float, colour: Colour = BLUE
) -> None:
    """Draw columns of visible width and height, for counts in bins of equal width over [low, high]."""
    used = np.flatnonzero(counts)
    if not used.size:
        return
    lefts, rights, tops = (each[used] for each in _outline(panel, counts, low, high))
    left, top = int(lefts[0]), int(tops.min())
    # Columns may overlap by a pixel; the highest one is visible there.
    widths = rights - lefts
    pixels = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths - lefts + left, widths)
    highest = np.full(int(rights.max()) - left, panel.bottom)
    np.minimum.at(highest, pixels, np.repeat(tops, widths))
    # 16 bits are enough for a row, and are compared seven times faster than 64.
    mask = np.arange(top, panel.bottom, dtype=np.int16)[:, None] >= highest.astype(np.int16)
    draw.bitmap((left, top), Image.fromarray(mask.astype(np.uint8) * 255), fill=colour)


def draw_outline(
    draw: ImageDraw.ImageDraw, panel: Panel, counts: np.ndarray, low: float, high: float, colour: Colour
) -> None:
    """Draw the upper border of the columns of ``draw_counts``, so that columns behind it stay visible."""
    if not counts.any():
        return
    lefts, rights, tops = _outline(panel, counts, low, high)
    tops = np.where(counts > 0, tops, panel.bottom - 1)
    points = [(int(lefts[0]), panel.bottom - 1)]
    for left, right, top in zip(lefts.tolist(), rights.tolist(), tops.tolist()):
        points += [(left, top), (right, top)]
    draw.line([*points, (int(rights[-1]), panel.bottom - 1)], fill=colour)


def _outline(panel: Panel, counts: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the left, right and top pixel of each column."""
    edges = panel.columns(np.linspace(low, high, len(counts) + 1))
    tops = np.minimum(panel.rows(counts), panel.bottom - 1)
    return edges[:-1], np.maximum(edges[1:], edges[:-1] + _THINNEST), tops


def draw_limits(draw: ImageDraw.ImageDraw, panel: Panel, limits: tuple[float, float], dash: int, width: int) -> None:
    """Draw red dashed vertical lines, ``width`` pixels wide, at both limits, with a triangle below each.

    Draw the limits before the columns, so that they hide no column. The triangles stay visible if a column hides a
    line.
    """
    dashes = _dashes(panel.bottom - panel.top, dash, width)
    for limit in limits:
        middle = panel.column(limit)
        draw.bitmap((middle - (width - 1) // 2, panel.top), dashes, fill=RED)
        base = panel.bottom + _MARK + 1
        draw.polygon([(middle, panel.bottom + 1), (middle - _MARK, base), (middle + _MARK, base)], fill=RED)


@lru_cache(maxsize=8)
def _dashes(height: int, dash: int, width: int) -> Image.Image:
    """Return a dashed vertical line as a mask."""
    column = np.arange(height) % (2 * dash) < dash
    return Image.fromarray(np.repeat(column[:, None], width, axis=1).astype(np.uint8) * 255)


def ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Return about ``about`` round values in [low, high], with labels of as many digits as needed."""
    rough = (high - low) / about
    power = math.floor(math.log10(rough))
    factor = next(factor for factor in (1, 2, 2.5, 5, 10) if factor * 10.0**power >= rough * 0.999)
    step = factor * 10.0**power
    values = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    largest = max(abs(low), abs(high))
    if step > 1e-5 and largest < 1e6:
        decimals = max(0, (factor == 2.5) - power - (factor == 10))
        return [(value, f"{value:.{decimals}f}".replace("-", "−")) for value in values]
    digits = max(0, math.floor(math.log10(largest)) - power) + (factor == 2.5) + 1
    return [(value, f"{value:.{digits}g}".replace("-", "−")) for value in values]


def count_ticks(panel: Panel) -> list[tuple[int, str]]:
    """Return counts to label on the vertical axis: round numbers, or powers of ten on a logarithmic axis."""
    if not panel.peak:
        return []
    if panel.log:
        counts = [10**power for power in range(math.floor(math.log10(panel.peak)) + 1)]
    else:
        counts = [round(count) for count, _ in ticks(0, panel.peak * 1.05, 5) if count == round(count)]
    return [(count, f"{count:,}") for count in counts]


def short(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Return printable text of at most ``width`` pixels; longer text loses its middle, as names differ at the ends."""
    text = "".join(c if c.isprintable() else "?" for c in text[:2000])
    if font.getlength(text) <= width:
        return text
    keep = len(text)
    while keep > 2 and font.getlength(f"{text[: keep // 2]}…{text[-(keep // 2) :]}") > width:
        keep = min(keep - 2, int(keep * 0.95))
    return f"{text[: keep // 2]}…{text[-(keep // 2) :]}"


def number(value: float, digits: int = 4) -> str:
    """Return a value in four digits, as in titles."""
    return f"{value:.{digits}g}".replace("-", "−")


def span(low: float, high: float, digits: int = 4) -> str:
    """Return ``−4.53 … 4.39`` in ``digits`` digits, with more digits if both ends would look equal."""
    width = high - low
    if 0 < width < math.inf:
        spare = math.floor(math.log10(max(abs(low), abs(high))) - math.log10(width))
        digits += min(max(spare, 0), 8)
    return f"{number(low, digits)} … {number(high, digits)}"


def percent(part: int, whole: int) -> str:
    """Return a share in percent; never 0 for a non-empty part, never 100 for an incomplete part."""
    share = 100 * part / whole if whole else 0.0
    if part and share < 0.01:
        return "under 0.01 %"
    if part < whole and share > 99.9:
        return "over 99.9 %"
    return f"{share:.3g} %"


class _Font(ImageFont.FreeTypeFont):
    """A font that keeps its latest drawn and measured texts: most labels of a chart are also on the next chart."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._drawn = lru_cache(maxsize=512)(super().getmask2)
        self._measured = lru_cache(maxsize=512)(super().getlength)

    def getmask2(self, *args: Any, **options: Any) -> Any:
        if isinstance(options.get("start"), list):  # Pillow 10.0, and a list cannot be a key
            options["start"] = tuple(options["start"])
        return self._drawn(*args, **options)

    def getlength(self, *args: Any, **options: Any) -> float:
        return self._measured(*args, **options)


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans of a size in pixels from matplotlib's files; Pillow's built-in font if they are missing."""
    spec = find_spec("matplotlib")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder, "mpl-data", "fonts", "ttf", "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")
        if file.is_file():
            return _Font(str(file), size, layout_engine=ImageFont.Layout.BASIC)
    return ImageFont.load_default(size)  # type: ignore[return-value]
