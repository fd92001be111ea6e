"""Reader of Ascend's operation_tensors / kernel_tensors CSV: types and shapes of each operation's inputs and outputs.

21 columns are separated by ``|``, several values in a cell by ``;``, dims by ``,``. Cells may be padded with blanks::

    CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|OutShape|DataGenType|
    DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|SocVersion|ExpectedError
    1|c|LinearOperation_1_1|{"transposeB":true}|2|float16;float16|nd;nd|8,64;32,64|1|float16|nd|8,32|…

Type names are either the names of this CSV (float32, bfloat16) or the names of statistic.csv (float, bf16).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.formats.shared.ascend_types import acl_type_named
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.tensors.dtypes import KNOWN

COLUMNS = (
    "CaseNum CaseName OpName OpParam InNum InDType InFormat InShape OutNum OutDType OutFormat OutShape DataGenType "
    "DataGenRange InTensorFile OutTensorFile TestType TestLevel FromModel SocVersion ExpectedError"
).split()
_NEEDED = "OpName InDType InShape OutDType OutShape".split()
_MOST_BYTES = 256 << 20
_MOST_RANK = 32

Facts = tuple[np.dtype | None, tuple[int, ...] | None]


class Tensors(NamedTuple):
    """Type and shape of each input and output of an operation; None if the file does not give them."""

    inputs: tuple[Facts, ...]
    outputs: tuple[Facts, ...]


def read(path: Path | str, notes: list[str]) -> dict[str, Tensors]:
    """Return the tensors by operation; the first of several rows counts. Irregularities get a line in ``notes``.

    Raises FormatError if the header is not that of this CSV, and ConfigError if the file cannot be read.
    """
    path = Path(path)
    lines = decode(read_bytes(path, _MOST_BYTES), path).removeprefix("\ufeff").splitlines()
    columns = [cell.strip() for cell in lines[0].split("|")] if lines else []
    missing = [column for column in _NEEDED if column not in columns]
    if missing:
        raise FormatError(f"{path} is not an operation CSV: its first line lacks {', '.join(missing)}")
    by_operation: dict[str, Tensors] = {}
    odd = changed = 0
    for line in lines[1:]:
        row = _row(line, columns)
        if not line.strip():
            continue
        if row is None:
            odd += 1
            continue
        tensors = Tensors(_facts(row["InDType"], row["InShape"]), _facts(row["OutDType"], row["OutShape"]))
        changed += by_operation.setdefault(row["OpName"], tensors) != tensors
    if odd:
        notes.append(f"{path.name}: skipped {odd} rows whose columns differ from the header")
    if changed:
        notes.append(f"{path.name}: skipped {changed} rows whose shapes differ from the operation's first row")
    return by_operation


def _row(line: str, columns: list[str]) -> Mapping[str, str] | None:
    """Return the cells by column; a ``|`` in OpParam, the only free text, splits a cell, which is joined again."""
    cells = line.split("|")
    surplus = len(cells) - len(columns)
    if surplus > 0 and "OpParam" in columns:
        start = columns.index("OpParam")
        cells[start : start + surplus + 1] = ["|".join(cells[start : start + surplus + 1])]
    if len(cells) != len(columns):
        return None
    return {column: cell.strip() for column, cell in zip(columns, cells)}


def _facts(types: str, shapes: str) -> tuple[Facts, ...]:
    """Combine a cell of types and a cell of shapes; () if their numbers of tensors differ."""
    names = [name.strip() for name in types.split(";")] if types else []
    dims = [dim.strip() for dim in shapes.split(";")] if shapes or names else []
    return tuple(zip(map(_dtype, names), map(_shape, dims))) if len(names) == len(dims) else ()


def _dtype(name: str) -> np.dtype | None:
    kind = acl_type_named(name)
    coding = kind.coding if kind else None
    return np.dtype(coding.dtype) if coding else KNOWN.get(name)


def _shape(text: str) -> tuple[int, ...] | None:
    parts = [part.strip() for part in text.split(",")] if text else []
    if len(parts) > _MOST_RANK or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        return None
    return tuple(map(int, parts))
