"""What is in a dump as a table to read: a line per tensor, and below it what must be said of some."""

from __future__ import annotations

from collections.abc import Sequence

from sgsdump.inventory import Item
from sgsdump.terminal import shown

_COLUMNS = "# io name shape dtype layout scale zero op min max mean l2norm NaN +Inf -Inf".split()
_LEFT = frozenset("io name shape dtype layout scale op".split())
_MARKS = {"stored": "s", "padded": "p", "dump": "d"}
_LEGEND = {
    "stored": "s: figures of the stored integers, whose true scale the dump does not tell",
    "padded": "p: figures with the padding of a device's layout, whose original shape the dump does not tell",
    "dump": "d: figures as the run dumped them, without values",
}


def render(items: Sequence[Item]) -> str:
    rows = [_COLUMNS, *map(_cells, items)]
    kept = [i for i, title in enumerate(_COLUMNS) if title in ("#", "name") or any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    lines = ["  ".join(_padded(row[i], widths[i], _COLUMNS[i]) for i in kept).rstrip() for row in rows]
    lines += [text for of, text in _LEGEND.items() if any(item.of == of for item in items)]
    lines += [f"{shown(item.name)}: {item.reason}" for item in items if not item.of]
    return "\n".join(lines) + "\n"


def _padded(cell: str, width: int, title: str) -> str:
    return cell.ljust(width) if title in _LEFT else cell.rjust(width)


def _cells(item: Item) -> list[str]:
    figures = item.figures
    numbers = [_number(value) for value in (figures.min, figures.max, figures.mean, figures.l2norm)]
    mark = _MARKS.get(item.of, "")
    counts = (figures.nan, figures.positive_inf, figures.negative_inf)
    return [
        f"{item.number}{mark}",
        "const" if item.constant else item.io,
        shown(item.name),
        "" if item.shape is None else "x".join(map(str, item.shape)) or "scalar",
        f"{item.dtype} ({item.quantised})" if item.quantised not in ("", item.dtype) else item.dtype,
        f"{item.layout} of {item.origin}" if item.origin else item.layout,
        item.scale,
        "" if item.zero_point is None else str(item.zero_point),
        item.op,
        *numbers,
        *("" if not count else f"{count}" for count in counts),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
