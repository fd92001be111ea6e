"""A dump kept in a file without a name while two runs are compared.

Only values are written, each tensor's once: the input of a consumer is the output of that name. Constants stay where
they are. The file goes when the dump and all arrays of it are gone; ``Dump.close`` lets go of the dump's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import OutputError
from sgsdump.files.mapped import MappedFile, loader, map_open, write_array
from sgsdump.tensors.tensor import Tensor

_ALIGNED = 64


def spooled(records: Iterable[Record], folder: Path) -> Dump:
    """The dump of these records, their values in a file in ``folder``; each is written before the next one is made.

    Raises OutputError when the file cannot be written.
    """
    offsets: dict[tuple[str, tuple[int, ...] | None, np.dtype], int] = {}
    kept: list[tuple[Record, int]] = []
    try:
        with TemporaryFile(dir=folder) as file:
            for record in records:
                if record.constant:
                    kept.append((record, 0))
                    continue
                info = record.tensor.info
                key = record.name, info.shape, info.dtype
                if key not in offsets:
                    array = record.tensor.stored_view()
                    info = replace(info, shape=array.shape, dtype=array.dtype)
                    key = record.name, info.shape, info.dtype
                    if key not in offsets:
                        offsets[key] = file.seek(-file.tell() % _ALIGNED, 1)
                        write_array(file, array)
                # the array itself must not be kept
                kept.append((replace(record, tensor=Tensor(info, _nothing)), offsets[key]))
            file.flush()
            data = map_open(file.fileno()) if file.tell() else None
    except OSError as error:
        raise OutputError(f"cannot write the values of a run into {folder}: {error.strerror or error}") from error
    return Dump([record if record.constant else _read(record, data, offset) for record, offset in kept])


def _read(record: Record, data: MappedFile | None, offset: int) -> Record:
    info = record.tensor.info
    count = math.prod(info.shape or ())
    if data is None or not count:  # an empty file cannot be mapped, nor does a last tensor without values lie in it
        return replace(record, tensor=Tensor(info, lambda: np.zeros(info.shape or (), info.dtype)))
    return replace(record, tensor=Tensor(info, loader(data, info.dtype, count, offset)))


def _nothing() -> np.ndarray:
    raise AssertionError("the values are read from the file")
