"""One tensor's values as text to hold side by side: its name, then 16 to a row, as dump_debug.py prints them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.files.atomic_write import replacing
from sgsdump.registry import hint
from sgsdump.tensors.stages import last_stage

PER_ROW = 16
CHUNK = 4096 * PER_ROW


def write_values(record: Record, path: Path) -> None:
    """Write ``NAME``, then rows of ``%.6f`` and two blanks. Raises ValuesError for integers of unknown scale."""
    values = record.tensor.real().reshape(-1)
    with replacing(path) as file:
        file.write(f"{record.name}\n".encode("utf-8", "surrogateescape"))
        for start in range(0, values.size, CHUNK):
            file.write(rows(values[start : start + CHUNK], PER_ROW).encode())


def rows(values: np.ndarray, per_row: int) -> str:
    """``%.6f`` and two blanks each, ``per_row`` to a line; the last line may be shorter."""
    full, rest = divmod(values.size, per_row)
    form = "%.6f  "
    return ((form * per_row + "\n") * full + (form * rest + "\n" if rest else "")) % tuple(values.tolist())


def find(dump: Dump, name: str) -> Record:
    """The first output of this name, else the network's input; a Caffe blob that no tensor is called is its last stage.

    Raises ConfigError, with near misses, for none.
    """
    variables = [record for record in dump.records if not record.constant]
    known = list(dict.fromkeys(record.name for record in variables))
    wanted = name if name in known else last_stage(name, known)
    for io in ("out", "in"):
        for record in variables:
            if (record.io, record.name) == (io, wanted):
                return record
    raise ConfigError(f"no tensor {name!r} in {dump.path or 'the dump'}{hint(name, known)}")


def write_pair(name: str, *places: tuple[Dump, Path]) -> Sequence[Dump]:
    """Write the tensor ``name`` of each dump to the path beside it; returns dumps of that one tensor."""
    records = [(dump, find(dump, name), path) for dump, path in places]
    for _, record, path in records:
        write_values(record, path)
    return [Dump([record], dump.format, dump.variant, dump.path) for dump, record, _ in records]
