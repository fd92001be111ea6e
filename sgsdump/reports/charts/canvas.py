"""Drawing of histograms on a Pillow picture: canvas, fonts, axis ticks, columns of counts, the limits of a range.

Drawn with Pillow and not with matplotlib: there one figure with its artists updated in place still takes about 90 ms a
picture, most of it the text, whose layout is redone for every label. The font is the one matplotlib brings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

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

# A column is at least so wide, so that a lone value can be seen.
_THINNEST = 2
# The triangle that marks a limit below the axis, where no column hides it.
_MARK = 4

# Of the highest column: what is below it can hardly be seen on a linear axis.
_HARDLY_SEEN = 0.02
# Fewer values than this in the highest column read well on a linear axis, whatever the others.
_FEW = 50


@dataclass(frozen=True)
class Panel:
    """The plot area in pixels, and what it shows: values ``low`` to ``high`` across, counts 0 to ``peak`` upwards.

    least  where the logarithmic axis begins; at half a value, so that one value can be seen.
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
        """The pixel column of a value; values beyond the panel give its border."""
        return int(self.columns(np.array([value], np.float64))[0])

    def row(self, count: float) -> int:
        """The pixel row of a count."""
        return int(self.rows(np.array([count]))[0])

    def columns(self, values: np.ndarray) -> np.ndarray:
        """The pixel columns of values; values beyond the panel give its border."""
        shares = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        return self.left + np.rint(shares * (self.right - self.left)).astype(int)

    def rows(self, counts: np.ndarray) -> np.ndarray:
        """The pixel rows of counts."""
        top = max(self.peak, 1)
        if self.log:
            shares = np.log(np.maximum(counts, self.least) / self.least) / math.log(top * 1.4 / self.least)
        else:
            shares = counts / (top * 1.05)
        return self.bottom - np.rint(np.clip(shares, 0.0, 1.0) * (self.bottom - self.top)).astype(int)


def view(*ends: float) -> tuple[float, float]:
    """The part of the value axis that shows all finite ``ends`` and a margin; around a single value, a little more."""
    ends = tuple(min(max(end, -1e300), 1e300) for end in ends if math.isfinite(end))
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = (high - low) * 0.04 or abs(high) * 0.1 or 0.5
    return low - margin, high + margin


def peaky(counts: np.ndarray) -> bool:
    """True when a linear axis would show a few columns and hide the rest, so that a logarithmic one reads better."""
    used = np.count_nonzero(counts)
    visible = np.count_nonzero(counts > counts.max() * _HARDLY_SEEN)
    return bool(counts.max() >= _FEW and visible < used and (visible < used / 2 or visible < len(counts) / 4))


def blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A white picture and its pen. Text must be BLACK or GREY and lie on white.

    One byte a pixel, which makes writing the PNG four times faster than RGB: the palette is a ramp of greys, so that
    smooth text blends by index, but for the darkest greys, which nothing uses and which are the colours.
    """
    image = Image.new("P", (width, height), 255)
    palette = [level for grey in range(256) for level in (grey, grey, grey)]
    for index, colour in enumerate((BLUE, RED, ORANGE, PURPLE, SHADE, PALE)):
        palette[3 * index : 3 * index + 3] = colour
    image.putpalette(palette)
    draw = ImageDraw.Draw(image)
    draw.fontmode = "L"
    return image, draw


def draw_counts(
    draw: ImageDraw.ImageDraw, panel: Panel, counts: np.ndarray, low: float, high: float, colour: Colour = BLUE
) -> None:
    """Columns of a visible width and height, for counts in bins of equal width over [low, high]."""
    used = np.flatnonzero(counts)
    if not used.size:
        return
    lefts, rights, tops = _outline(panel, counts, low, high)
    for left, right, top in zip(lefts[used].tolist(), rights[used].tolist(), tops[used].tolist()):
        draw.rectangle((left, top, right - 1, panel.bottom - 1), fill=colour)


def draw_outline(
    draw: ImageDraw.ImageDraw, panel: Panel, counts: np.ndarray, low: float, high: float, colour: Colour
) -> None:
    """The upper border of the columns that ``draw_counts`` would draw, through which what lies below shows."""
    if not counts.any():
        return
    lefts, rights, tops = _outline(panel, counts, low, high)
    tops = np.where(counts > 0, tops, panel.bottom - 1)
    points = [(int(lefts[0]), panel.bottom - 1)]
    for left, right, top in zip(lefts.tolist(), rights.tolist(), tops.tolist()):
        points += [(left, top), (right, top)]
    draw.line([*points, (int(rights[-1]), panel.bottom - 1)], fill=colour)


def _outline(panel: Panel, counts: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left, right and top pixel of each column."""
    edges = panel.columns(np.linspace(low, high, len(counts) + 1))
    tops = np.minimum(panel.rows(counts), panel.bottom - 1)
    return edges[:-1], np.maximum(edges[1:], edges[:-1] + _THINNEST), tops


def draw_limits(draw: ImageDraw.ImageDraw, panel: Panel, limits: tuple[float, float], dash: int, width: int) -> None:
    """Red dashed vertical lines, ``width`` pixels wide, at both limits, and a triangle below each.

    To be drawn before the columns, which they must not hide; the triangles stay where a column hides the line.
    """
    for limit in limits:
        middle = panel.column(limit)
        left = middle - (width - 1) // 2
        for top in range(panel.top, panel.bottom, 2 * dash):
            draw.rectangle((left, top, left + width - 1, min(top + dash, panel.bottom) - 1), fill=RED)
        base = panel.bottom + _MARK + 1
        draw.polygon([(middle, panel.bottom + 1), (middle - _MARK, base), (middle + _MARK, base)], fill=RED)


def ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Round values of [low, high], some ``about`` of them, with labels of just enough digits."""
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
    """Counts to label on the upright axis: round numbers, or the powers of ten of a logarithmic axis."""
    if not panel.peak:
        return []
    if panel.log:
        counts = [10**power for power in range(math.floor(math.log10(panel.peak)) + 1)]
    else:
        counts = [round(count) for count, _ in ticks(0, panel.peak * 1.05, 5) if count == round(count)]
    return [(count, f"{count:,}") for count in counts]


def short(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Printable text of at most ``width`` pixels; a longer one loses its middle, since both ends tell names apart."""
    text = "".join(c if c.isprintable() else "?" for c in text[:2000])
    if font.getlength(text) <= width:
        return text
    keep = len(text)
    while keep > 2 and font.getlength(f"{text[: keep // 2]}…{text[-(keep // 2) :]}") > width:
        keep = min(keep - 2, int(keep * 0.95))
    return f"{text[: keep // 2]}…{text[-(keep // 2) :]}"


def number(value: float, digits: int = 4) -> str:
    """A value in four digits, as titles show it."""
    return f"{value:.{digits}g}".replace("-", "−")


def span(low: float, high: float, digits: int = 4) -> str:
    """``−4.53 … 4.39``, in ``digits`` digits, or as many more as tell the two apart."""
    width = high - low
    if 0 < width < math.inf:
        spare = math.floor(math.log10(max(abs(low), abs(high))) - math.log10(width))
        digits += min(max(spare, 0), 8)
    return f"{number(low, digits)} … {number(high, digits)}"


def percent(part: int, whole: int) -> str:
    """A share for people: never 0 when there is something, never 100 when something is missing."""
    share = 100 * part / whole if whole else 0.0
    if part and share < 0.01:
        return "under 0.01 %"
    if part < whole and share > 99.9:
        return "over 99.9 %"
    return f"{share:.3g} %"


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans in pixels, from matplotlib's own files; Pillow's built-in font where they are missing."""
    spec = find_spec("matplotlib")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder, "mpl-data", "fonts", "ttf", "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")
        if file.is_file():
            return ImageFont.truetype(str(file), size, layout_engine=ImageFont.Layout.BASIC)
    return ImageFont.load_default(size)  # type: ignore[return-value]
