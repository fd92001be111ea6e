"""``index.jsonl`` of a run that sgsdump itself dumped: whether all of it is there, and what was not dumped.

The first line is ``{"event": "begin", …}``, then a line for each tensor and for each ``{"event": "note", "text": …}``;
``{"complete": true}`` is last. Devices leave no such file.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.network import Operator
from sgsdump.files.bounded_read import open_file
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.tensor import Tensor, TensorInfo

INDEX = "index.jsonl"
CUT_OFF = "the run was cut off, or is still going on: this step is not complete"
MOST_LINE = 1 << 20
DATA = "Data"
NOT_WRITTEN = "it is memory to which nothing had been written yet"
_MOST_SIZE, _MOST_AXES = 1 << 48, 64
_TENSOR = re.compile(r":(?:in|out)put:\d+$")


def notes_of(folder: Path) -> list[str]:
    """What the index of a folder has to say, a line each; nothing without one."""
    notes: list[str] = []
    complete = True
    for line in _lines(folder):
        if line.get("event") == "begin":
            complete = False
        elif line.get("event") == "note":
            notes.append(str(line.get("text", "")))
        complete = complete or line.get("complete") is True
    return notes if complete else [*notes, CUT_OFF]


def unwritten_of(folder: Path) -> dict[str, list[Record]]:
    """The inputs and outputs that were memory to which nothing had been written yet, by their operator's name; their
    op_index is 0."""
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for line in _lines(folder):
        record = _unwritten(line) if line.get("unwritten") is True else None
        if record is not None:
            found[str(line.get("name"))].append(record)
    return dict(found)


def _unwritten(line: Mapping[str, Any]) -> Record | None:
    """None where the line is not what sgsdump writes."""
    side, slot, shape = line.get("side"), line.get("slot"), line.get("shape")
    if side not in ("in", "out") or not isinstance(slot, int) or not isinstance(shape, list):
        return None
    if not all(isinstance(size, int) and 0 <= size < _MOST_SIZE for size in shape) or len(shape) > _MOST_AXES:
        return None
    dtype = KNOWN.get(str(line.get("dtype")), np.dtype(np.uint8))
    op_type = str(line.get("op_type", ""))
    info = TensorInfo(
        f"{line.get('name')}:{side}put:{slot}", tuple(shape), dtype, op_type=op_type if side == "out" else ""
    )
    return Record(side, slot, 0, op_type, Tensor.without_values(info, NOT_WRITTEN), unwritten=True)


def network_of(folder: Path, records: Iterable[Record]) -> dict[int, Operator]:
    """Where the operators of a run stand, by its index; none without one. Weights and inputs are no operators."""
    lines = {str(line["name"]): line for line in _lines(folder) if "name" in line}
    operators: dict[int, Operator] = {}
    for record in records:
        line = lines.get(_TENSOR.sub("", record.name), {})
        kind, module = line.get("op_type"), line.get("module")
        if isinstance(kind, str) and isinstance(module, str) and kind != DATA:
            operators[record.op_index] = Operator(module, kind)
    return operators


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    try:
        with open_file(folder / INDEX) as file:
            while data := file.readline(MOST_LINE):
                yield _line(data)
    except OSError:
        return


def _line(data: bytes) -> dict[str, Any]:
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}
