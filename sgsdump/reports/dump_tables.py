"""Tables of dumps and models as text, CSV and JSON.

They list the tensors of a dump, the runs of a tree, the operators of a model's graphs, the plan of a fixed model, and
the changes that a watcher recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sgsdump.dumps.inventory import Content, Item, Storage
from sgsdump.dumps.runs import Run
from sgsdump.dumps.watched_changes import Change, WatchedChanges
from sgsdump.errors import ConfigError, hint
from sgsdump.files.escaping import shown
from sgsdump.files.json_yaml import json_text
from sgsdump.reports.text import aligned, counted, csv_text, shortened
from sgsdump.sidecars.ge_proto import Graph, GraphOperator
from sgsdump.tensors.statistics import Statistics

if TYPE_CHECKING:
    from sgsdump.models.fixed_facts import FixedFacts

CSV_COLUMNS = [
    *"number name io constant shape dtype layout origin quantised scale zero_point op_index op".split(),
    *"of reason damaged saturated".split(),
    *(field.name for field in fields(Statistics) if field.name != "digits"),
]
LONGEST = 100  # characters of a cell in the table of operators
_COLUMNS = "# layer io name shape dtype layout scale zero op min max mean l2norm l1norm std NaN +Inf -Inf".split()
_LEFT = frozenset("io name shape dtype layout scale op".split())
_MARKS = {"stored": "s", "padded": "p", "dump": "d"}
_LEGEND = {
    "stored": "s: statistics of the stored integers; the dump does not contain their scale",
    "padded": "p: statistics including the padding of a device layout; the dump does not contain the original shape",
    "dump": "d: statistics recorded by the run; the dump has no values",
}
_NAME, _OP, _LAYER = (_COLUMNS.index(title) for title in ("name", "op", "layer"))
_SHORTEST = 20
_MOST_SATURATED = 3
_FITTED = "shortened to fit; #0 selects the first tensor, --csv writes all columns"


def inventory_table(items: Sequence[Item], width: int | None = None) -> str:
    """Return a table with one line per tensor, and notes below it.

    If the table is wider than a terminal of ``width`` columns, it has no operator types and original shapes, four
    digits, and shortened names.
    """
    rows, gap = [_COLUMNS, *(_cells(item, 6) for item in items)], "  "
    kept = [i for i, title in enumerate(_COLUMNS) if title in ("#", "name") or any(row[i] for row in rows[1:])]
    fits = width is None or _table_width(rows, kept, gap) <= width
    if width is not None and not fits:
        gap, kept = " ", [i for i in kept if i not in (_OP, _LAYER)]
        rows = [_COLUMNS, *(_cells(replace(item, storage=replace(item.storage, origin="")), 4) for item in items)]
        room = max(_SHORTEST, width - _table_width(rows, kept, gap) + max(len(row[_NAME]) for row in rows))
        rows = [[*row[:_NAME], shortened(row[_NAME], room), *row[_NAME + 1 :]] for row in rows]
    right = [column for column, i in enumerate(kept) if _COLUMNS[i] not in _LEFT]
    lines = aligned([[row[i] for i in kept] for row in rows], right, gap)
    lines += [] if fits else [_FITTED]
    lines += [text for of, text in _LEGEND.items() if any(item.content.of == of for item in items)]
    lines += _saturated([item.name for item in items if item.content.saturated])
    lines += [f"{shown(item.name)}: {item.content.reason}" for item in items if not item.content.of]
    return "\n".join(lines) + "\n"


def inventory_csv(items: Sequence[Item]) -> str:
    """Return a line per tensor in full precision; unknown statistics are empty cells, and shapes are ``1x2x3``."""
    rows = []
    for item in items:
        row = _flat(item)
        row |= _figures(row.pop("statistics"))
        row["shape"] = "" if row["shape"] is None else "x".join(map(str, row["shape"]))
        rows.append(row | {name: "yes" if row[name] else "no" for name in ("constant", "damaged", "saturated")})
    return csv_text(CSV_COLUMNS, rows)


def inventory_json(items: Sequence[Item], notes: Sequence[str] = ()) -> str:
    """Return ``tensors``, one object per tensor with its statistics (``figures``), and the dump's ``notes``."""
    tensors = []
    for item in items:
        row = {"figures" if name == "statistics" else name: value for name, value in _flat(item).items()}
        tensors.append(row | {"figures": _figures(item.content.statistics)})
    return json_text({"format": "sgsdump dump", "version": 1, "tensors": tensors, "notes": list(notes)})


def runs_table(runs: Sequence[Run]) -> str:
    """Return a line per run: step, rank, graph, and the folder below the tree."""
    rows = [("step", "rank", "graph", "folder")]
    for run in runs:
        step, rank = ("-" if number is None else str(number) for number in (run.step, run.rank))
        rows.append((step, rank, shown(run.graph) or "-", shown(run.place)))
    return "".join(f"{line}\n" for line in aligned(rows))


def selected_operators(graphs: Sequence[Graph], patterns: Sequence[str]) -> list[Graph]:
    """Return the graphs, limited to operators that match a pattern. Raise ConfigError if a pattern matches none."""
    names = [operator.name for graph in graphs for operator in graph.operators]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"no operator matches {pattern!r}{hint(pattern, names)}")
    if not patterns:
        return list(graphs)

    def fits(operator: GraphOperator) -> bool:
        return any(fnmatchcase(operator.name, pattern) for pattern in patterns)

    return [replace(graph, operators=tuple(filter(fits, graph.operators))) for graph in graphs]


def operators_table(graphs: Sequence[Graph]) -> str:
    """Return a line per operator, under the name of its graph."""
    parts = []
    for graph in graphs:
        rows = [("name", "type", "inputs", "attributes"), *map(_operator_cells, graph.operators)]
        parts += [f"graph {shown(graph.name)}, {counted(len(graph.operators), 'operator')}", *aligned(rows), ""]
    return "\n".join(parts)


def operators_json(graphs: Sequence[Graph]) -> str:
    listed = [
        {
            "graph": graph.name,
            "operators": [
                {"name": op.name, "type": op.op_type, "inputs": op.inputs, "attributes": dict(op.attributes)}
                for op in graph.operators
            ],
        }
        for graph in graphs
    ]
    return json_text({"format": "sgsdump operators", "version": 1, "graphs": listed}, indent=1)


@dataclass(frozen=True)
class PlannedTensor:
    """Tensor of a fixed model: its stored type, scale and zero point, and what decided the type."""

    name: str
    dtype: str
    scale: float
    zero_point: int
    decided: str


def planned(facts: FixedFacts, patterns: Sequence[str]) -> list[PlannedTensor]:
    """Return the stored tensors that match a pattern, or all. Raise ConfigError if a pattern matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in facts.tensors):
            raise ConfigError(f"no tensor matches {pattern!r}{hint(pattern, list(facts.tensors))}")
    decided = facts.origin.decided if facts.origin is not None else {}
    return [
        PlannedTensor(name, str(tensor.dtype), tensor.scale, tensor.zero_point, decided.get(name, ""))
        for name, tensor in facts.tensors.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def plan_table(rows: Sequence[PlannedTensor]) -> str:
    """Return a line per tensor."""
    cells = [(shown(r.name), r.dtype, f"{r.scale:.9g}", str(r.zero_point), shown(r.decided)) for r in rows]
    lines = aligned([("name", "type", "scale", "zero point", "decided by"), *cells], right=(2, 3))
    return "".join(f"{line}\n" for line in lines)


def plan_csv(rows: Sequence[PlannedTensor]) -> str:
    return csv_text([field.name for field in fields(PlannedTensor)], map(asdict, rows))


def plan_json(rows: Sequence[PlannedTensor]) -> str:
    tensors = [asdict(row) for row in rows]
    return json_text({"format": "sgsdump plan", "version": 1, "tensors": tensors}, indent=1)


def watched_lines(watched: WatchedChanges) -> str:
    """Return a line per change of a watched output, then a summary."""
    lines = [_change_line(change) for change in watched.changes]
    numbers = f"{counted(watched.outputs, 'output')} watched, checked {counted(watched.looks, 'time')}"
    if watched.first is None:
        return f"No listed operator changed a watched output ({numbers}).\n"
    lines.append(f"Watched outputs were changed {counted(len(lines), 'time')} ({numbers}).")
    lines.append(f"First change: {shown(watched.first.operator)} changed {shown(watched.first.name)}.")
    return "".join(f"{line}\n" for line in lines)


def _flat(item: Item) -> dict[str, Any]:
    """Return all fields of an item and its parts in one dict, in order."""
    row: dict[str, Any] = {}
    for name, value in vars(item).items():
        row |= vars(value) if isinstance(value, Storage | Content) else {name: value}
    return row


def _figures(statistics: Statistics) -> dict[str, Any]:
    """Return the statistics by name, without the precision of their text."""
    return {name: value for name, value in asdict(statistics).items() if name != "digits"}


def _cells(item: Item, digits: int) -> list[str]:
    storage, statistics = item.storage, item.content.statistics
    numbers = [getattr(statistics, name) for name in ("min", "max", "mean", "l2norm", "l1norm", "std")]
    counts = (statistics.nan, statistics.positive_inf, statistics.negative_inf)
    return [
        f"{item.number}{_MARKS.get(item.content.of, '')}",
        str(item.op_index),
        "const" if item.constant else item.io,
        shown(item.name),
        "" if storage.shape is None else "x".join(map(str, storage.shape)) or "scalar",
        f"{storage.dtype} ({storage.quantised})" if storage.quantised not in ("", storage.dtype) else storage.dtype,
        f"{storage.layout} of {storage.origin}" if storage.origin else storage.layout,
        storage.scale,
        "" if storage.zero_point is None else str(storage.zero_point),
        item.op,
        *("" if value is None else f"{value:.{digits}g}" for value in numbers),
        *("" if not count else f"{count}" for count in counts),
    ]


def _table_width(rows: Sequence[Sequence[str]], kept: Sequence[int], gap: str) -> int:
    return sum(max(len(row[i]) for row in rows) for i in kept) + len(gap) * (len(kept) - 1)


def _saturated(names: Sequence[str]) -> list[str]:
    """Return a line on the float16 tensors that contain the largest float16 value."""
    if not names:
        return []
    more = f", … ({len(names)})" if len(names) > _MOST_SATURATED else ""
    first = ", ".join(map(shown, names[:_MOST_SATURATED]))
    return [f"probably saturated (values at ±65504, the largest float16): {first}{more}"]


def _operator_cells(operator: GraphOperator) -> tuple[str, ...]:
    attributes = " ".join(f"{name}={_attribute(value)}" for name, value in operator.attributes)
    cells = map(shown, (operator.name, operator.op_type, ", ".join(operator.inputs), attributes))
    return tuple(cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 1]}…" for cell in cells)


def _attribute(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _change_line(change: Change) -> str:
    how = "its statistics differ"
    if change.total:
        largest = "" if change.largest is None else f", largest difference {change.largest:.6g}"
        how = f"{change.values} of {change.total} values differ{largest}"
    who = f"{shown(change.operator)} ({shown(change.op_type)})"
    return (
        f"output {shown(change.name)} changed between the end of operator {shown(change.unchanged)} "
        f"and the end of operator {who}: {how}"
    )
