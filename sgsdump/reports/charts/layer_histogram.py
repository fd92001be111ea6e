"""Histograms of a model's layers: one PNG per layer, and an overview.

The counts of a layer's values are blue. Red dashed lines mark its calibration range. The shaded band is the narrowest
range with 99 % of the values. The count axis is logarithmic if a linear axis would flatten most columns. The text above
the plot shows the name, operator, extremes, range, NaN and Inf, and how the values use the range.

The overview has small histograms in a grid. Suspicious layers come first, with a coloured frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.files.names import Taken
from sgsdump.files.process import cores
from sgsdump.reports.charts import canvas
from sgsdump.reports.charts.bins import also_of, joined
from sgsdump.reports.charts.canvas import Panel, font, number, percent, short, span
from sgsdump.reports.charts.sheet import (
    MOST_BINS,
    Legend,
    Scale,
    Sheet,
    copies_note,
    draw_frame,
    draw_lines,
    save_sheets,
    with_copies,
)

SIZE = (800, 480)
MARGIN = 16
PLOT = (84, 108, 784, 424)  # left, top, right, bottom
NAME_BYTES = 150
LAYER_BINS = 256
_UNSAFE = re.compile(r'[/\\:*?<>|"\x00-\x1f\x7f\x80-\x9f\ud800-\udfff]')


def save_histogram(layer: Distribution, path: Path) -> Path:
    """Write the image of a layer. Raise OSError."""
    draw_histogram(layer).save(path, "PNG", compress_level=1)
    return path


@contextmanager
def drawing_beside(draw: Callable[..., Any]) -> Iterator[Callable[..., None]]:
    """Yield a function that calls ``draw`` in the background, in one thread per core.

    The block ends when everything is drawn, and raises the first exception of ``draw``. Threads are used instead of
    processes: numpy, PNG compression and text drawing release Python's lock. The remaining two milliseconds per image
    are less than the start of processes, up to some hundred images.
    """
    futures: list[Future[Any]] = []
    pool = ThreadPoolExecutor(cores())
    try:
        yield lambda *args: futures.append(pool.submit(draw, *args))
        for future in futures:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def file_name(layer: Distribution, taken: Taken) -> str:
    """Return ``12.block_dw.png``, number and name: valid on every file system, and unique."""
    safe = _UNSAFE.sub("_", layer.name).encode()[:NAME_BYTES].decode(errors="ignore")
    return taken.free(f"{layer.index}.{safe}", ".png")


def draw_histogram(layer: Distribution) -> Image.Image:
    """Return the image of a layer, of size SIZE."""
    image, draw = canvas.blank(*SIZE)
    _draw_title(draw, layer)
    counts = joined(layer.counts, LAYER_BINS)
    panel = _panel(layer, counts)
    _draw_band(draw, panel, layer)
    _draw_axes(image, draw, panel)
    if layer.limits:
        canvas.draw_limits(draw, panel, layer.limits, dash=6, width=2)
        _label_limits(draw, panel, layer.limits)
    canvas.draw_counts(draw, panel, counts, *layer.stats.span)
    message = "no values" if not layer.stats.count else "no finite value" if not layer.stats.finite else ""
    draw.text(((PLOT[0] + PLOT[2]) // 2, (PLOT[1] + PLOT[3]) // 2), message, canvas.BLACK, font(24), anchor="mm")
    return image


def plot_panel(layer: Distribution) -> Panel:
    """Return the plot area of a layer, with the scales of its values and counts."""
    return _panel(layer, joined(layer.counts, LAYER_BINS))


def _panel(layer: Distribution, counts: np.ndarray) -> Panel:
    low, high = canvas.view(*layer.stats.span, *(layer.limits or ()))
    return Panel(*PLOT, low, high, int(counts.max()), canvas.peaky(counts))


def _draw_title(draw: ImageDraw.ImageDraw, layer: Distribution) -> None:
    operator = layer.op_type + (f"  {list(layer.shape)}" if layer.shape is not None else "")
    operator = short(operator, font(13), 300)
    draw.text((SIZE[0] - MARGIN, 28), operator, canvas.GREY, font(13), anchor="rs")
    room = SIZE[0] - 3 * MARGIN - int(font(13).getlength(operator))
    name = short(f"{layer.index}. {layer.name}", font(17, True), room)
    draw.text((MARGIN, 28), name, canvas.BLACK, font(17, True), anchor="ls")
    draw.text((MARGIN, 52), _facts(layer), canvas.BLACK, font(13), anchor="ls")
    left = MARGIN
    for text, colour in _uses(layer):
        if colour:
            draw.rectangle((left, 64, left + 9, 73), fill=colour)
            left += 15
        draw.text((left, 74), text, canvas.BLACK, font(13), anchor="ls")
        left += int(font(13).getlength(text)) + 24


def _facts(layer: Distribution) -> str:
    stats = layer.stats
    if not stats.finite:
        values = f"{stats.count:,} values, none finite" if stats.count else "no values"
    elif stats.min == stats.max:
        values = f"{stats.finite:,} values, all {number(stats.span[0])}"
    else:
        values = f"{stats.finite:,} values {span(*stats.span)}"
    if layer.limits is None:
        return f"{values}   ·   no calibration range"
    return f"{values}   ·   calibration range {span(*layer.limits)}, {number(layer.width)} wide"


def _uses(layer: Distribution) -> Iterator[tuple[str, canvas.Colour | None]]:
    """Yield texts on how the values use the range, with a colour for suspicious facts."""
    stats = layer.stats
    yield (f"{stats.nan:,} NaN, {stats.inf:,} Inf", canvas.RED) if stats.nan or stats.inf else ("no NaN or Inf", None)
    if not stats.finite or layer.limits is None:
        return
    if layer.outside:
        share = f"{layer.outside:,} ({percent(layer.outside, stats.finite)}) outside the range"
        yield share, canvas.ORANGE if layer.clipped else None
    else:
        yield "none outside the range", None
    if layer.levels is not None:
        text = f"99 % of the values (shaded) use {layer.levels} of {LEVELS} levels"
        yield text, canvas.PURPLE if layer.wasteful else None


def _draw_band(draw: ImageDraw.ImageDraw, panel: Panel, layer: Distribution) -> None:
    if layer.stats.finite:
        left, right = map(panel.column, layer.central)
        draw.rectangle((left, panel.top, right, panel.bottom), fill=canvas.SHADE)


def _draw_axes(image: Image.Image, draw: ImageDraw.ImageDraw, panel: Panel) -> None:
    small = font(12)
    labels = canvas.count_ticks(panel)
    rows = panel.rows(np.array([count for count, _ in labels])).tolist()
    for row, (_, label) in zip(rows, labels):
        draw.line((panel.left, row, panel.right, row), fill=canvas.GRID)
        draw.text((panel.left - 7, row), label, canvas.GREY, small, anchor="rm")
    for value, label in canvas.ticks(panel.low, panel.high, 8):
        column = panel.column(value)
        draw.line((column, panel.bottom, column, panel.bottom + 5), fill=canvas.GREY)
        draw.text((column, panel.bottom + 10), label, canvas.GREY, small, anchor="mt")
    draw.rectangle((panel.left, panel.top, panel.right, panel.bottom), outline=canvas.GREY)
    draw.text(((panel.left + panel.right) // 2, SIZE[1] - 12), "value", canvas.BLACK, font(13), anchor="ms")
    title = _upright("count, logarithmic" if panel.log else "count")
    image.paste(title, (4, (panel.top + panel.bottom - title.height) // 2))


@lru_cache(maxsize=2)
def _upright(text: str) -> Image.Image:
    """Return an image of text rotated by 90°, for the label of the vertical axis."""
    image, draw = canvas.blank(int(font(13).getlength(text)) + 2, 18)
    draw.text((1, 14), text, canvas.BLACK, font(13), anchor="ls")
    return image.transpose(Image.Transpose.ROTATE_90)


def _label_limits(draw: ImageDraw.ImageDraw, panel: Panel, limits: tuple[float, float]) -> None:
    """Draw min and max above their lines; side by side if the lines are too close."""
    left, right = map(panel.column, limits)
    low, high = f"min {number(limits[0])}", f"max {number(limits[1])}"
    close = right - left < 110
    draw.text((left, panel.top - 6), low, canvas.BLACK, font(12), anchor="rs" if close and left > 180 else "ms")
    anchor = "ls" if close else "rs" if right > SIZE[0] - 60 else "ms"
    draw.text((right, panel.top - 6), high, canvas.BLACK, font(12), anchor=anchor)


NONE: Mapping[int, int] = MappingProxyType({})

FRAMES = {
    "broken": ("NaN, Inf or empty", canvas.RED),
    "clipped": ("clipped: values outside the range", canvas.ORANGE),
    "wasteful": ("99 % in few levels of a wide range", canvas.PURPLE),
}
LEGENDS = (
    Legend("values", canvas.BLUE),
    Legend("calibration range", canvas.RED),
    *(Legend(text, colour, 3) for text, colour in FRAMES.values()),
)


def save_contact_sheets(layers: Sequence[Distribution], folder: Path, copies: Mapping[int, int] = NONE) -> list[Path]:
    """Write ``overview.png`` to an existing folder; ``overview_2.png`` … for more than 150 layers. Raise OSError.

    copies  index in ``layers`` -> index of the layer with the same values, which names the copy.
    """
    also = also_of(copies)
    cells = [
        (layer, with_copies(f"{layer.index}. {layer.name}", [layers[copy].index for copy in also.get(index, ())]))
        for index, layer in enumerate(layers)
        if index not in copies
    ]
    scale = Scale.of([layer.stats.finite for layer in layers])
    title = f"{len(layers)} layers{copies_note(len(copies))}"
    headings = ("Suspicious layers", "Other layers")
    sheet = Sheet(title, LEGENDS, scale, headings, partial(_draw_cell, scale))
    first = [cell for cell in cells if cell[0].troubled]
    return save_sheets(folder / "overview.png", sheet, first, [cell for cell in cells if not cell[0].troubled])


def _draw_cell(scale: Scale, draw: ImageDraw.ImageDraw, cell: tuple[Distribution, str], left: int, top: int) -> None:
    layer, name = cell
    colour = next((colour for kind, (_, colour) in FRAMES.items() if getattr(layer, kind)), None)
    draw_frame(draw, left, top, name, remark(layer), colour)
    low, high = canvas.view(*layer.stats.span, *(layer.limits or ()))
    panel = scale.panel(left, top, low, high, layer.stats.finite)
    draw_lines(draw, panel, scale, layer.limits or (layer.stats.span if layer.stats.finite else None))
    if layer.limits:
        canvas.draw_limits(draw, panel, layer.limits, dash=4, width=1)
    canvas.draw_counts(draw, panel, joined(layer.counts, MOST_BINS), *layer.stats.span)


def remark(layer: Distribution) -> str:
    """Return the most important fact on a layer, in a few words."""
    stats = layer.stats
    if not stats.count:
        return "no values"
    if layer.broken:
        return f"{stats.nan:,} NaN, {stats.inf:,} Inf of {stats.count:,}"
    if layer.limits is None:
        return f"{span(*stats.span, 3)}, no range"
    if layer.outside and not (layer.wasteful and not layer.clipped):
        return f"{percent(layer.outside, stats.finite)} outside {span(*layer.limits, 3)}"
    if layer.wasteful:
        return f"{layer.levels} of {LEVELS} levels, {number(layer.width)} wide"
    if layer.levels is None:
        return f"{span(*stats.span, 3)}, range of width 0"
    return f"{span(*layer.limits, 3)}, {layer.levels} of {LEVELS}"
