"""``runs.json``, the index of a tree of runs, written when all of them are there::

    {"sgsdump_runs": 1, "complete": true, "notes": [text …],
     "runs": [{"place": "0_4711/net/0/3.bin", "step": 3, "rank": 0, "graph": "net/0", "notes": [text …],
               "outputs": [{"name": "prob", "equal": false, "max_abs": 3e-8, "relative": 1e-7}],
               "tensors": [["conv1", "Conv", "float32", [1, 8, 32, 32]] …]}],
     "graphs": {"net/0": [["conv1", "Conv", ["data", "conv1.weight"], ["conv1"], "layer1.0"] …]}}

``place`` is a dump of any format, below the index's folder; of a run without one, ``tensors`` tells what there was.
``outputs`` holds the run's outputs against the program's own. ``graphs`` has each model's nodes: name, type, the names
of what they read and make, and the module they stand in where the model says so besides their names (older ones: not).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from sgsdump.dumps.runs.run import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import read_all
from sgsdump.files.json_yaml import json_of

NAME = "runs.json"
MARK = "sgsdump_runs"
MOST_BYTES = 256 << 20
Node = tuple[str, str, list[str], list[str], str]


@dataclass(frozen=True)
class Entry:
    """One run. ``tensors``: name, op type, dtype and shape of each, where there is no dump of it."""

    run: Run
    notes: tuple[str, ...] = ()
    outputs: tuple[Mapping[str, Any], ...] = ()
    tensors: tuple[tuple[str, str, str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Index:
    """``complete``: the program came to its end, and every run of it that was asked for is here."""

    entries: tuple[Entry, ...]
    complete: bool = True
    notes: tuple[str, ...] = ()
    graphs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict, hash=False)


def text_of(index: Index) -> str:
    runs = [
        {
            **{"place": entry.run.place, "step": entry.run.step, "rank": entry.run.rank, "graph": entry.run.graph},
            **{"notes": entry.notes, "outputs": entry.outputs},
            **({"tensors": entry.tensors} if entry.tensors else {}),
        }
        for entry in index.entries
    ]
    document = {MARK: 1, "complete": index.complete, "notes": index.notes, "runs": runs, "graphs": index.graphs}
    return json.dumps(document, indent=1) + "\n"


def read_index(path: Path) -> Index:
    """Raises FormatError for what ``text_of`` did not write."""
    data = read_all(path, MOST_BYTES, "an index of runs")
    try:
        document = json_of(data.decode("utf-8"), path)
        if document[MARK] != 1:
            raise FormatError(f"{path} is of a newer sgsdump; update it")
        entries = tuple(_entry(each) for each in document["runs"])
        graphs = {_text(name): tuple(map(_node, nodes)) for name, nodes in dict(document.get("graphs", {})).items()}
        return Index(entries, document["complete"] is True, _texts(document["notes"]), graphs)
    except (UnicodeDecodeError, LookupError, TypeError, ValueError):
        raise FormatError(f"{path} is damaged: it is no index of runs") from None


def _entry(each: Mapping[str, Any]) -> Entry:
    place = PurePosixPath(_text(each["place"]))
    if place.is_absolute() or ".." in place.parts:
        raise ValueError(place)
    step, rank = (None if each[name] is None else int(each[name]) for name in ("step", "rank"))
    tensors = tuple(
        (_text(name), _text(kind), _text(dtype), tuple(map(int, shape)))
        for name, kind, dtype, shape in each.get("tensors", ())
    )
    outputs = tuple(dict(output) for output in each["outputs"])
    return Entry(Run(str(place), rank, step, _text(each["graph"])), _texts(each["notes"]), outputs, tensors)


def _node(node: Sequence[Any]) -> Node:
    name, kind, reads, makes, *module = node
    return _text(name), _text(kind), list(_texts(reads)), list(_texts(makes)), _text(module[0]) if module else ""


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
