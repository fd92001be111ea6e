"""Results in a notebook (``_repr_html_``), in the look of the HTML report; ``sgsdump/__init__.py`` names the
functions ``show_…``. No script, nothing fetched, every text escaped, of bounded size: a notebook keeps its outputs."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, ImageDraw

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.dumps.tables import ShortTable
from sgsdump.errors import SgsdumpError, listed
from sgsdump.files.atomic_write import replace_text
from sgsdump.fixedpoint.reports.advice_reports import advice_cells
from sgsdump.fixedpoint.reports.cause_sentences import conv_config
from sgsdump.fixedpoint.reports.pareto_reports import ending_lines, pareto_cells
from sgsdump.fixedpoint.reports.worst_picture import WorstPicture
from sgsdump.fixedpoint.tuning.advice import Advice
from sgsdump.fixedpoint.tuning.pareto import Pareto
from sgsdump.reports.charts.bins import joined
from sgsdump.reports.charts.canvas import Panel, draw_counts, draw_limits, view
from sgsdump.reports.charts.depth import COLOURS
from sgsdump.reports.charts.layer_histogram import remark
from sgsdump.reports.layers.table import Entry, Listing, bar_shares, figure_names, table_of, title_of
from sgsdump.reports.remarks import by_reason, left_out_title
from sgsdump.reports.report import Report
from sgsdump.reports.text import middle_cut, number, shown
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.statistics import Statistics, histogram, summarise
from sgsdump.tensors.tensor import Tensor

LONGEST, LONGEST_NAME, LONGEST_SENTENCE = 160, 64, 800
WORST = 20  # rows of a comparison
NAMED, REASONS = 5, 5  # names under a reason why layers were not compared
MOST_VALUES = 1 << 22  # of a tensor that is read
BINS = 128
HISTOGRAM, DEPTH = (480, 90), (600, 80)  # pixels of the pictures
SHARP = 2  # pixels of a picture for each that it takes, for fine screens
BARS = 240
_RANKS = {"pass": 0, "warn": 1, "fail": 2}


class Advised(Protocol):
    """What ``advise`` gives, of ``verbs``."""

    @property
    def advice(self) -> tuple[Advice, ...]: ...
    @property
    def first(self) -> tuple[str, ...]: ...
    @property
    def verdict(self) -> list[str]: ...
    @property
    def to_copy(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


_STYLE = """
.sgsdump { font: 13px/1.45 system-ui, sans-serif; color: var(--text); background: var(--card); padding: .7rem .9rem;
  border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; text-align: left; }
.sgsdump p { margin: 0 0 .4rem; overflow-wrap: anywhere; }
.sgsdump small, .sgsdump dt { color: var(--dim); }
.sgsdump dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem .9rem; margin: 0; }
.sgsdump dd { margin: 0; overflow-wrap: anywhere; }
.sgsdump table { border-collapse: collapse; margin: .3rem 0; border: 0; }
.sgsdump th, .sgsdump td { text-align: left; padding: .15rem .6rem .15rem 0; border: 0; background: none; }
.sgsdump th { color: var(--dim); font-weight: 500; border-bottom: 1px solid var(--line); }
.sgsdump td:last-child:not(.n) { min-width: 22rem; }
.sgsdump .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.sgsdump .fail { color: var(--fail); }
.sgsdump .warn { color: var(--warn); }
.sgsdump .pass { color: var(--pass); }
.sgsdump .pixelated { image-rendering: pixelated; }
.sgsdump img { display: block; margin: .3rem 0; max-width: 100%; }
"""


def show_comparison(comparison: Comparison) -> str:
    """Its verdict, the error over depth, the worst layers, and what was not compared."""
    layers = table_of(comparison)
    entries = layers.compared
    worst = Listing("worst", WORST).listed(entries)
    more = len(entries) > len(worst)
    return _card(
        *map(_paragraph, layers.verdict),
        _depth(entries) if entries else "",
        _worst(worst) if worst else "",
        _paragraph(f"the {WORST} worst of {len(entries)} layers; to_pandas() has all", small=True) if more else "",
        *_left_out(layers.left_out),
    )


def show_diagnosed(found: tuple[Report, Comparison]) -> str:
    """What was found, what to do, the error over depth and the worst layers."""
    report, comparison = found
    entries = table_of(comparison).compared
    steps = [
        _paragraph(step.text) + (f"<pre>{html.escape(step.copy)}</pre>" if step.copy else "")
        for step in report.next_steps
    ]
    return _card(
        *map(_paragraph, report.verdict),
        *steps,
        _said(report.view.worst) if report.view.worst is not None else "",
        _depth(entries) if entries else "",
        _worst(Listing("worst", WORST).listed(entries)) if entries else "",
    )


def _said(worst: WorstPicture) -> str:
    """The input that is furthest off, small where it is a picture, and both models' largest values."""
    image = ""
    if worst.image is not None:
        size = f'width="{worst.image.width}" height="{worst.image.height}"'
        alt = f"The picture {_text(worst.label)}"
        kind = ' class="pixelated"' if worst.image.pixelated else ""
        image = f'<img{kind} {size} alt="{alt}" src="{worst.image.source}">'
    rows = [[_text(one.output), _text(one.place), number(one.benchmark), number(one.sample)] for one in worst.said]
    head = ["output", "place", "float model", f"{worst.kind} model"]
    what = "picture" if worst.image is not None else "input"
    return _paragraph(f"The {what} that is furthest off: {worst.label}") + image + _table(head, rows, range(1, 4))


def show_advised(found: Advised) -> str:
    """What to raise, and the convolutions that speak most for it."""
    head, *rows = advice_cells(found.advice)
    named = [[_name(cell) if head[index] in ("convolution", "input") else _text(cell) for index, cell in enumerate(row)]
             for row in rows[:WORST]]  # fmt: skip
    more = len(rows) > WORST
    return _card(
        *map(_paragraph, [*found.first, *found.verdict]),
        f"<pre>{html.escape(found.to_copy)}</pre>" if found.to_copy else "",
        *map(_paragraph, found.notes),
        _table(head, named, range(4, len(head) - 1)),
        _paragraph(f"{WORST} of {len(rows)} convolutions; to_pandas() has all", small=True) if more else "",
    )


def show_plans(result: Pareto) -> str:
    """How the search ended, the plan to take, and every plan of the table."""
    head, *rows = pareto_cells(result)
    copy = conv_config(result.taken.tensors) if result.taken.tensors else ""
    return _card(
        *map(_paragraph, ending_lines(result)),
        f"<pre>{html.escape(copy)}</pre>" if copy else "",
        _table(head, ([_text(cell) for cell in row] for row in rows), range(2, len(head))),
    )


def save_card(result: Any, path: Path) -> None:
    """What a notebook shows, as a page of its own. Raises OutputError."""
    title = html.escape(type(result).__name__)
    replace_text(path, f'<!doctype html><meta charset="utf-8"><title>{title}</title>{result._repr_html_()}\n')


def show_table(short: ShortTable) -> str:
    """The first lines of a dump's table."""
    lines = _table(short.columns, ([_text(cell) for cell in row] for row in short.rows)) if short.rows else ""
    return _card(_paragraph(short.title), lines, _paragraph(f"… {short.more} more", small=True) if short.more else "")


def show_tensor(tensor: Tensor) -> str:
    """Its facts and, where it is not too large to be read for a look, how its real values lie."""
    facts, chart = _values(tensor)
    return _card(_paragraph(f"Tensor {tensor.name}"), _facts([*_tensor_facts(tensor), *facts]), chart)


def show_distribution(layer: Distribution) -> str:
    """A layer's values against its range: the histogram, the range as dashed lines, and what is wrong with it."""
    stats = layer.stats
    facts = [("operator", layer.op_type), ("shape", "unknown" if layer.shape is None else list(layer.shape))]
    facts.append(("values", f"{stats.count:,}, of which {stats.nan or 0:,} NaN and {stats.inf:,} Inf"))
    facts.append(("99 % of them in", _span(layer.central)))
    if layer.limits:
        facts.append(("range", f"{_span(layer.limits)}, {layer.outside:,} values outside"))
    if layer.levels is not None:
        facts.append(("levels used", f"{layer.levels} of {LEVELS}"))
    trouble = [name for name in ("broken", "clipped", "wasteful") if getattr(layer, name)]
    chart = _histogram(layer.counts, *stats.span, layer.limits) if stats.finite else ""
    verdict = [_paragraph(f"This layer is {' and '.join(trouble)}.")] if trouble else []
    return _card(_paragraph(f"Distribution of {layer.name}"), *verdict, _facts(facts), chart)


def show_distributions(layers: Sequence[Distribution]) -> str:
    """A line for each layer: those that need a look first, then as the network has them, at most ``WORST``."""
    first = sorted(layers, key=lambda layer: not layer.troubled)
    rows = [
        [
            _text(layer.index),
            _name(layer.name),
            _text(layer.op_type),
            _text(_span(layer.stats.span) if layer.stats.finite else "none finite"),
            _text(_span(layer.limits) if layer.limits else "unknown"),
            _text(remark(layer)),
        ]
        for layer in first[:WORST]
    ]
    troubled = sum(layer.troubled for layer in layers)
    return _card(
        _paragraph(f"{len(layers)} layers, {troubled} of them need a look"),
        _table(["#", "layer", "type", "values", "calibrated range", "remark"], rows) if rows else "",
        _paragraph(f"{WORST} of {len(layers)} layers; to_pandas() has all", small=True) if len(layers) > WORST else "",
    )


def _worst(entries: Sequence[Entry]) -> str:
    figures = figure_names(entries)
    head = ["#", "verdict", "layer", "type", *map(title_of, figures), "remark"]
    rows = [
        [
            _text(entry.number),
            f'<span class="{entry.verdict}">{entry.verdict}</span>',
            _name(entry.name),
            _text(entry.op_type),
            *(_text(entry.text(figure)) for figure in figures),
            _text(entry.remark),
        ]
        for entry in entries
    ]
    return _table(head, rows, range(4, 4 + len(figures)))


def _depth(entries: Sequence[Entry]) -> str:
    """A bar for each layer, at most ``BARS``: of neighbours the worst is drawn. Logarithmic, as in the report."""
    shares = bar_shares([entry.error for entry in entries])
    step = -(-len(entries) // BARS)
    starts = range(0, len(entries), step)
    image, draw = _blank(*DEPTH)
    width = image.width / len(starts)
    for bar, start in enumerate(starts):
        verdict = max((entry.verdict for entry in entries[start : start + step]), key=_RANKS.__getitem__)
        height = round(max(shares[start : start + step]) * image.height)
        if height:
            left, right = round(bar * width), max(round((bar + 0.8) * width) - 1, round(bar * width))
            draw.rectangle((left, image.height - height, right, image.height), fill=COLOURS[verdict])
    return _picture(image, label := "error of each layer in the network's order, on a logarithmic scale") + _paragraph(
        label, small=True
    )


def _left_out(entries: Sequence[Entry]) -> Iterator[str]:
    """Some of the names under each reason."""
    reasons = by_reason((entry.name, entry.remark) for entry in entries)
    if entries:
        expected = sum(entry.expected for entry in entries)
        yield _paragraph(left_out_title(len(entries) - expected, expected))
    for reason, names in list(reasons.items())[:REASONS]:
        yield f"<p><small>{_text(reason)}: {listed(names, NAMED, _name)}</small></p>"
    if len(reasons) > REASONS:
        yield _paragraph(f"and {len(reasons) - REASONS} further reasons", small=True)


def _tensor_facts(tensor: Tensor) -> Iterator[tuple[str, object]]:
    info = tensor.info
    yield "shape", "unknown" if info.shape is None else list(info.shape)
    yield "dtype", name_of(info.dtype)
    yield from ((term, value) for term, value in (("layout", info.layout), ("operator", info.op_type)) if value)
    if info.quant is not None:
        scale = info.quant.scale
        yield "scale", f"{scale:.6g}" if np.ndim(scale) == 0 else f"{np.size(scale)} scales"
        yield "zero point", info.quant.zero_point


def _values(tensor: Tensor) -> tuple[list[tuple[str, object]], str]:
    """The statistics, and the histogram or why there is none."""
    if tensor.statistics is not None:
        return list(_numbers(tensor.statistics)), ""
    try:
        count = math.prod(tensor.shape) if tensor.shape is not None else tensor.raw().size
        if count > MOST_VALUES:
            return [("count", f"{count:,}")], _paragraph("too many values to read for a look", small=True)
        values = tensor.real()
    except SgsdumpError as error:
        return [], _paragraph(str(error), small=True)
    statistics = summarise(values)
    span = statistics.span
    chart = _histogram(histogram(values, *span, BINS), *span) if statistics.finite else ""
    return list(_numbers(statistics)), chart


def _numbers(statistics: Statistics) -> Iterator[tuple[str, object]]:
    """Those that are known; NaN and Inf only where there are any."""
    for name in ("count", "min", "max", "mean", "l2norm", "nan", "inf"):
        value = getattr(statistics, name)
        if value is not None and (value or name not in ("nan", "inf")):
            yield name, number(value) if isinstance(value, float) else f"{value:,}"


def _histogram(counts: np.ndarray, low: float, high: float, limits: tuple[float, float] | None = None) -> str:
    """Counts in bins of equal width over [low, high], logarithmic, and ``limits`` as dashed lines; the axis reaches to
    the limits too."""
    first, last = (min(low, limits[0]), max(high, limits[1])) if limits else (low, high)
    if not math.isfinite(last - first) or not counts.any():
        return ""
    counts = joined(counts, BINS)
    image, draw = _blank(*HISTOGRAM)
    axis = (first, last) if last > first else view(first)
    panel = Panel(0, 0, image.width, image.height, *axis, int(counts.max()), log=True)
    draw_counts(draw, panel, counts, low, high)
    if limits:
        draw_limits(draw, panel, limits, dash=5 * SHARP, width=SHARP)
    ends = f"{number(first)} … {number(last)}"
    return _picture(image, f"histogram from {ends}") + _paragraph(f"{ends}, counts on a logarithmic scale", small=True)


def _blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A picture without a ground, so that it fits a dark notebook, and its pen."""
    image = Image.new("RGBA", (width * SHARP, height * SHARP))
    return image, ImageDraw.Draw(image)


def _picture(image: Image.Image, label: str) -> str:
    """The picture inside the page, with a text for who cannot see it."""
    file = io.BytesIO()
    image.quantize(16).save(file, "PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    size = f'width="{image.width // SHARP}" height="{image.height // SHARP}"'
    return f'<img {size} alt="{label}" src="data:image/png;base64,{data}">'


def _card(*parts: str) -> str:
    """The whole output, of parts that are HTML already."""
    return f'<div class="sgsdump"><style>{_style()}</style>{"".join(parts)}</div>'


def _text(words: object, longest: int = LONGEST) -> str:
    """Any text, escaped, invisible characters shown, the middle of a long one left out."""
    return html.escape(middle_cut(shown(str(words)), longest))


def _name(words: str) -> str:
    """A layer's name in a cell; a long one as a whole when pointed at."""
    return f'<bdi title="{_text(words, LONGEST_SENTENCE)}">{_text(words, LONGEST_NAME)}</bdi>'


def _paragraph(words: str, small: bool = False) -> str:
    words = _text(words, LONGEST_SENTENCE)
    return f"<p><small>{words}</small></p>" if small else f"<p>{words}</p>"


def _facts(pairs: Iterable[tuple[str, object]]) -> str:
    """A list of terms and values."""
    lines = (f"<dt>{_text(term)}</dt><dd>{_text(value)}</dd>" for term, value in pairs)
    return f"<dl>{''.join(lines)}</dl>"


def _span(span: tuple[float, float]) -> str:
    return f"{number(span[0])} to {number(span[1])}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: range = range(0)) -> str:
    """A table; the columns of ``numbers`` are flush right. The cells are HTML already."""
    kinds = [' class="n"' if column in numbers else "" for column in range(len(head))]
    titles = "".join(f"<th{kind}>{_text(title)}</th>" for kind, title in zip(kinds, head))
    lines = ("".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


@cache
def _style() -> str:
    """The report's palette, for this card alone, and for the dark themes of notebooks."""
    palette = (files("sgsdump.reports.html") / "palette.css").read_text(encoding="utf-8")
    dark = '[data-jp-theme-light="false"] .sgsdump, .vscode-dark .sgsdump, .sgsdump[data-theme="dark"]'
    palette = palette.replace(':root[data-theme="dark"]', dark)
    return palette.replace(":root", ".sgsdump") + _STYLE
