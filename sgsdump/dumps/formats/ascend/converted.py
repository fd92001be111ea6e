"""Reader of operator dumps that msaccucmp converted to ``.bin``: raw values, described by the file name.

::

    {dump file's name}.{input|output}.{number}.{shape}.{type}.{format}.bin
    Add.net_add.3.7.1700000000123456.output.0.1_3_8_8.float32.NCHW.bin

``msaccucmp convert -t bin`` writes one file for each input and output of a dump file (``file_names.py``). The sizes of
the shape are joined with ``_``; the type is numpy's name; the format is one of ``shared/ascend_types.py``. The payload
holds the values, little-endian, in C order.

A file, or a folder of such files, is a dump. Tensor names match the dump file: ``net_add:output:0``. If an operator has
several dump files, the names begin with the dump file's full name. Files with other names in a folder are skipped with
a note; this includes buffers and work spaces, whose names contain no type.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.dumps.formats.ascend.file_names import parse
from sgsdump.dumps.formats.shared.ascend_types import Coding, layout_fits, loader
from sgsdump.errors import FormatError
from sgsdump.files.folder import files_below, has_file, in_order
from sgsdump.tensors.dtypes import KNOWN, bits, name_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDING = ".bin"
_NAME = re.compile(
    r"(?P<dump>.+)\.(?P<side>input|output)\.(?P<slot>\d{1,9})\.(?P<shape>(?:\d{1,12}(?:_\d{1,12})*)?)"
    r"\.(?P<dtype>[a-z0-9_]{3,20})\.(?P<format>[A-Za-z0-9_]{2,30})\.bin",
    re.ASCII,
)


class Named(NamedTuple):
    """Facts in a file name."""

    dump: str
    side: str
    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype
    format: str


def recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return has_file(path, ENDING, lambda file: file.parent == path and named(file.name) is not None)
    return named(path.name) is not None


def read(path: Path) -> Dump:
    """Read a file or folder; values are loaded on request. Raises FormatError."""
    notes: list[str] = []
    names = [name for name in files_below(path, ENDING, notes) if "/" not in name] if path.is_dir() else [path.name]
    known = {name: facts for name in sorted(names, key=in_order) if (facts := named(name)) is not None}
    others = sorted(set(names) - known.keys())
    if others:
        notes.append(f"left out: {len(others)} files without a type in their names: {', '.join(others[:3])}")
    operators = _operators(list(dict.fromkeys(facts.dump for facts in known.values())))
    records: list[Record] = []
    for name, facts in known.items():
        file = path / name if path.is_dir() else path
        try:
            records.append(_record(file, facts, *operators[facts.dump]))
        except FormatError as error:
            if not path.is_dir():
                raise
            notes.append(Damage.left_out(error))
    if not records:
        raise FormatError(f"no file of {path} can be read" + (f" ({notes[-1]})" if notes else ""))
    records.sort(key=lambda record: (record.op_index, record.io == "out", record.slot))
    return Dump(records, FORMAT.name, None, path, notes)


def named(name: str) -> Named | None:
    """Return the facts in a file name; None for any other name."""
    match = _NAME.fullmatch(name) if len(name) <= 255 else None
    if match is None or match["dtype"] not in KNOWN or parse(match["dump"]) is None:
        return None
    dtype = KNOWN[match["dtype"]]
    if bits(dtype) != 8 * dtype.itemsize:
        return None
    shape = tuple(map(int, match["shape"].split("_"))) if match["shape"] else ()
    return Named(match["dump"], match["side"], int(match["slot"]), shape, dtype, match["format"])


def _operators(dumps: list[str]) -> dict[str, tuple[int, str, str]]:
    """Return number, type and name of each dump file's operator, in order of time and task."""
    parsed = {dump: facts for dump in dumps if (facts := parse(dump)) is not None}
    in_time = sorted(parsed, key=lambda dump: (parsed[dump].time, parsed[dump].task, dump))
    names = {dump: facts.name_of(facts.op_name) for dump, facts in parsed.items()}
    often = Counter(names.values())
    return {
        dump: (index, parsed[dump].op_type, names[dump] if often[names[dump]] == 1 else dump)
        for index, dump in enumerate(in_time)
    }


def _record(file: Path, facts: Named, index: int, op_type: str, operator: str) -> Record:
    shape, size = checked_shape(facts.shape), file.stat().st_size
    count = math.prod(shape)
    if size != count * facts.dtype.itemsize:
        raise FormatError(
            f"{file} has {size} bytes, which do not fit the shape {list(shape)} and type "
            f"{name_of(facts.dtype)} in its name"
        )
    layout = facts.format if layout_fits(facts.format, len(shape)) else None
    info = TensorInfo(f"{operator}:{facts.side}:{facts.slot}", shape, facts.dtype, layout, op_type=op_type)
    load = loader(file, Coding(facts.dtype, 8 * facts.dtype.itemsize), count, 0)
    return Record("in" if facts.side == "input" else "out", facts.slot, index, op_type, Tensor(info, load))


FORMAT = Format("msaccucmp_bin", recognises, read, looks_for="….float32.ND.bin of msaccucmp")
