"""What is in a dump as a table to read: a line per tensor, and below it notes on some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgsdump.dumps.inventory import Item
from sgsdump.files.escaping import shown

_COLUMNS = "# io name shape dtype layout scale zero op min max mean l2norm NaN +Inf -Inf".split()
_LEFT = frozenset("io name shape dtype layout scale op".split())
_MARKS = {"stored": "s", "padded": "p", "dump": "d"}
_LEGEND = {
    "stored": "s: statistics of the stored integers, whose true scale the dump does not tell",
    "padded": "p: statistics with the padding of a device's layout, whose original shape the dump does not tell",
    "dump": "d: statistics as the run dumped them, without values",
}
_NAME, _OP = _COLUMNS.index("name"), _COLUMNS.index("op")
_SHORTEST = 20
_NAMED = 3
_FITTED = "made to fit: #0 will do for the first name, --csv has all of every line"


def render(items: Sequence[Item], width: int | None = None) -> str:
    """The table. On a terminal of fewer columns than it needs, ``width``, it has no operator types and original shapes,
    statistics of four digits, and names without their middles."""
    rows, gap = _table(items, 6), "  "
    kept = [i for i, title in enumerate(_COLUMNS) if title in ("#", "name") or any(row[i] for row in rows[1:])]
    fits = width is None or _wide(rows, kept, gap) <= width
    if width is not None and not fits:
        gap, kept = " ", [i for i in kept if i != _OP]
        rows = _table([replace(item, origin="") for item in items], 4)
        room = max(_SHORTEST, width - _wide(rows, kept, gap) + max(len(row[_NAME]) for row in rows))
        rows = [[*row[:_NAME], _shortened(row[_NAME], room), *row[_NAME + 1 :]] for row in rows]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    lines = [gap.join(_padded(row[i], widths[i], _COLUMNS[i]) for i in kept).rstrip() for row in rows]
    lines += [] if fits else [_FITTED]
    lines += [text for of, text in _LEGEND.items() if any(item.of == of for item in items)]
    lines += _saturated([item.name for item in items if item.saturated])
    lines += [f"{shown(item.name)}: {item.reason}" for item in items if not item.of]
    return "\n".join(lines) + "\n"


def _saturated(names: Sequence[str]) -> list[str]:
    """A line on the float16 tensors that reach the end of what the type holds."""
    if not names:
        return []
    more = f", … ({len(names)})" if len(names) > _NAMED else ""
    return [f"at ±65504, the largest float16, so probably saturated: {', '.join(map(shown, names[:_NAMED]))}{more}"]


def _table(items: Sequence[Item], digits: int) -> list[list[str]]:
    return [_COLUMNS, *(_cells(item, digits) for item in items)]


def _wide(rows: Sequence[Sequence[str]], kept: Sequence[int], gap: str) -> int:
    return sum(max(len(row[i]) for row in rows) for i in kept) + len(gap) * (len(kept) - 1)


def _shortened(name: str, room: int) -> str:
    """A name without its middle; its end, which tells most names apart, is the larger part of what is left."""
    if len(name) <= room:
        return name
    head = room // 3
    return f"{name[:head]}…{name[len(name) - (room - head - 1) :]}"


def _padded(cell: str, width: int, title: str) -> str:
    return cell.ljust(width) if title in _LEFT else cell.rjust(width)


def _cells(item: Item, digits: int) -> list[str]:
    statistics = item.statistics
    numbers = [_number(value, digits) for value in (statistics.min, statistics.max, statistics.mean, statistics.l2norm)]
    mark = _MARKS.get(item.of, "")
    counts = (statistics.nan, statistics.positive_inf, statistics.negative_inf)
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


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}g}"
