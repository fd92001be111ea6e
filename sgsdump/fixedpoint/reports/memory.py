"""Working memory of a fixed model as tab-separated text and as a chart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.sim.memory import Memory
from sgsdump.reports.charts.figure_png import DPI, png_of
from sgsdump.reports.text import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST = 24
_MOST_NAMED = 60
_COLOURS = 20
_MOST_DRAWN = 2000
_LEAST_INCHES, _MOST_INCHES = 6.0, 40.0


def by_tensor(memory: Memory) -> str:
    """Return a line for each tensor: its addresses, and the first and last operator that needs it."""
    head = ("id", "name", "type", "shape", "begin", "end", "bytes", "first_op", "last_op")
    rows = (
        (
            each.id,
            shown(each.tensor.name),
            str(each.tensor.dtype).upper(),
            "x".join(map(str, each.tensor.shape)),
            *each.tensor.memory,
            each.size,
            each.first,
            each.last,
        )
        for each in memory.allocations
    )
    return _lines(head, rows)


def by_operator(memory: Memory) -> str:
    """Return a line for each operator: the IDs and bytes of the tensors in memory while it runs."""
    head = ("op", "type", "output", "bytes", "end", "ids")
    rows = []
    for number, (kind, output) in enumerate(memory.operators):
        live = memory.live(number)
        end = max((each.tensor.memory[1] for each in live), default=0)
        ids = " ".join(str(each.id) for each in live)
        rows.append((number, kind, shown(output), sum(each.size for each in live), end, ids))
    return _lines(head, rows)


def _lines(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in (head, *rows))


def memory_png(memory: Memory, unit: str) -> bytes:
    """Return a chart of the memory as PNG.

    ``unit`` "op" draws a rectangle for each tensor: its bytes, along the operators that need it. "tensor" draws a
    column for each tensor.
    """
    return png_of(lambda: _figure(memory, unit))


def _figure(memory: Memory, unit: str) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    count = len(memory.operators) if unit == "op" else len(memory.allocations)
    width = min(max(_LEAST_INCHES, count / 3), _MOST_INCHES)
    figure = Figure(figsize=(width, 5), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    colours = colormaps["tab20"]
    largest = sorted(enumerate(memory.allocations), key=lambda pair: -pair[1].size)[:_MOST_DRAWN]
    for place, each in largest:
        left, span = (each.first, each.last - each.first + 1) if unit == "op" else (place, 1)
        begin = each.tensor.memory[0]
        axes.bar(left, each.size, span, begin, align="edge", color=colours(place % _COLOURS), edgecolor="black")
        if len(memory.allocations) <= _MOST_NAMED:
            label = f"{each.id} {shown(each.tensor.name)[:_LONGEST]}"
            axes.text(
                left + span / 2,
                begin + each.size / 2,
                label,
                ha="center",
                va="center",
                rotation=90,
                fontsize=7,
                parse_math=False,
            )
    axes.set_xlim(0, max(count, 1))
    axes.set_xlabel("operator" if unit == "op" else "tensor, by ID")
    axes.set_ylabel("address in working memory (bytes)")
    axes.set_title(f"{memory.bytes:,} bytes of working memory", loc="left", fontsize=10)
    return figure
