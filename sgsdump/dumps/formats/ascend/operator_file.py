"""Writing an operator dump file, the one that ``ascend_dump.py`` specifies, with the fields that a device's files have.

A scalar is one element (shape ``[1]``), as devices write it. A file's name that is too long for the disk is replaced,
and listed in ``mapping.csv``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.dumps.formats.ascend import dump_proto
from sgsdump.dumps.formats.ascend.file_names import MAPPING
from sgsdump.dumps.formats.ascend.operator_dump import LENGTH
from sgsdump.dumps.formats.ascend.types.ge_types import numbers

VERSION = b"2.0"
ND = 2
MOST_NAME = 220
_NUMBERS = numbers()


@dataclass(frozen=True)
class Payload:
    """One input or output.

    dtype    its elements' type by the name that ``sgsdump.tensors.dtypes`` gives it; any other is written as bytes.
    data     the elements, little-endian, in C order.
    address  where it lies in the memory of the program: two tensors of one address share it.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview
    address: int = 0


def has_type(dtype: str) -> bool:
    """Whether operator dumps have a number for this type; one without is written as its bytes."""
    return dtype in _NUMBERS


def write_operator(
    path: Path, op_name: str, inputs: Sequence[Payload | None], outputs: Sequence[Payload | None], time: int
) -> Path:
    """Write a dump file beside its place and rename it, so that it is there whole or not at all.

    path    in a folder that is there, named by ``file_names.file_name``.
    inputs  by their numbers; None leaves one out and keeps its number. So with ``outputs``.
    time    in microseconds since 1970.

    Returns where it is: another name in the same folder where that of ``path`` is too long. Raises OSError.
    """
    dump = dump_proto.messages()["DumpData"](version=VERSION, dump_time=time, op_name=op_name.encode())
    for payload in inputs:
        _describe(dump.input.add(), payload)
    for payload in outputs:
        _describe(dump.output.add(), payload)
    header = dump.SerializeToString()
    return write_whole(path, [LENGTH.pack(len(header)), header, *(one.data for one in (*inputs, *outputs) if one)])


def write_whole(path: Path, parts: Sequence[bytes | memoryview]) -> Path:
    """Write the bytes beside a file's place and rename it. Returns as ``write_operator`` does. Raises OSError."""
    path = _fitting(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            for part in parts:
                file.write(part)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def _describe(message: Any, payload: Payload | None) -> None:
    if payload is None:
        return
    shape = payload.shape or (1,)
    if payload.dtype in _NUMBERS:
        message.data_type = _NUMBERS[payload.dtype]
    else:
        shape = (len(payload.data),)
    message.format = ND
    message.shape.dim.extend(shape)
    message.original_shape.dim.extend(shape)
    message.size, message.address = len(payload.data), payload.address


def _fitting(path: Path) -> Path:
    """The path, or one whose name is short enough and stands for it in the folder's ``mapping.csv``."""
    name = os.fsencode(path.name)
    if len(name) <= MOST_NAME:
        return path
    number = int(hashlib.sha256(name).hexdigest()[:15], 16)
    short = path.with_name(f"{number}{path.suffix if path.suffix == '.csv' else ''}")
    with open(path.with_name(MAPPING), "a", encoding="utf-8") as file:
        file.write(f"{short.name},{path.name}\n")
    return short
