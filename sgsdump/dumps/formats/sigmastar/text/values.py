"""The values of a record of a string dump, read a piece of text at a time (the grammar: ``text.py``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sgsdump.dumps.formats.sigmastar.record import FLOAT32, stored_dtype
from sgsdump.dumps.formats.sigmastar.record_header import Buffer
from sgsdump.dumps.formats.sigmastar.text import fixed_point
from sgsdump.dumps.formats.sigmastar.text.records import Place
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.mapped import let_bytes_go
from sgsdump.tensors.dtypes import is_integer

PIECE = 1 << 18  # so that its arrays stay in a core's own cache
_BLANK = b", \n"
_EMPTY_PLACE = re.compile(rb",\s*,|^\s*,|,\s*$")
_INT64 = np.dtype(np.int64)


class LeftOut(ValuesError):
    """The values are not in the file: the simulators leave int32 parameters out of string dumps."""


def floats(data: Buffer, place: Place, path: Path) -> np.ndarray:
    values = _values(data, place, path, FLOAT32)
    if place.size not in (None, values.nbytes):
        raise FormatError(
            f"{path}: tensor {place.header.name!r} at byte {place.offset} has {values.size} values, its header says "
            f"{place.size} bytes; the file is damaged, dump it again"
        )
    return values


def integers(data: Buffer, place: Place, path: Path) -> np.ndarray:
    dtype = stored_dtype(place.header, is_float=False)
    printed = _values(data, place, path, np.dtype(np.uint8))
    if not printed.size and place.header.shape is not None and not math.prod(place.header.shape):
        return np.empty(0, dtype)
    if not printed.size:
        raise LeftOut(
            f"{path}: the values of {place.header.name!r} are left out by the string dump; dump without dumpasstring"
        )
    if printed.size % dtype.itemsize:
        raise _no_bytes(place, path)
    return printed.view(dtype)


def _no_bytes(place: Place, path: Path) -> FormatError:
    return FormatError(
        f"{path}: tensor {place.header.name!r} at byte {place.offset} is not printed as the bytes of "
        f"{stored_dtype(place.header, is_float=False)}; the file is damaged, dump it again"
    )


def _values(data: Buffer, place: Place, path: Path, dtype: np.dtype) -> np.ndarray:
    """The printed values: float32, or bytes."""
    end = _end(data, place)
    if end == place.start:
        return np.empty(0, dtype)
    values = np.empty(1 + sum(text.count(b",") for text in _windows(data, place.start, end)), dtype)
    done = 0
    quick = fixed_point.bytes_of if is_integer(dtype) else fixed_point.floats
    for text in _pieces(data, place.start, end):
        part = _numbers(text, quick, _INT64 if is_integer(dtype) else dtype)
        if part is None:
            raise FormatError(
                f"{path}: the values of {place.header.name!r} at byte {place.start} are not all numbers; "
                f"the file is damaged, dump it again"
            )
        if part.dtype == _INT64 and (part.min() < 0 or part.max() > 255):
            raise _no_bytes(place, path)
        values[done : done + part.size] = part
        done += part.size
    return values


def _end(data: Buffer, place: Place) -> int:
    """Where the last value ends."""
    end = place.end
    while end > place.start:
        text = data[max(place.start, end - PIECE) : end]
        end -= len(text) - len(text.rstrip(_BLANK))
        if text.strip(_BLANK):
            break
    return end


def _windows(data: Buffer, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, PIECE):
        yield data[at : min(at + PIECE, end)]
        let_bytes_go(data, at, min(at + PIECE, end))


def _pieces(data: Buffer, start: int, end: int) -> Iterator[bytes]:
    """What stands between some of the commas, as if there were one, and a space, before the first value."""
    before = b" "
    while start < end:
        text = data[start : min(start + PIECE, end)]
        cut = len(text) if start + len(text) == end else text.rfind(b",")
        yield before + text[:cut] if cut >= 0 else b""  # nothing is as long as a piece
        cut = max(cut, 0)
        let_bytes_go(data, start, start + cut)
        start += cut + 1
        before = b""


def _numbers(text: bytes, quick: Callable[[bytes], np.ndarray | None], dtype: np.dtype) -> np.ndarray | None:
    """The values of a piece of text; None where something is no number."""
    values = quick(text)
    if values is not None:
        return values
    try:
        values = np.fromstring(text.decode("ascii"), dtype, sep=",")
        # numpy before 2.3 only warns where it stops, and then gives the last place a value all the same
        (int if is_integer(dtype) else float)(text.rpartition(b",")[2].replace(b"_", b"x"))
    except (ValueError, DeprecationWarning):
        return None
    # numpy reads an empty place between commas as -1
    if values.size != text.count(b",") + 1 or _EMPTY_PLACE.search(text):
        return None
    if b"-nan" in text:
        values[[b"-nan" in printed for printed in text.split(b",")]] = -np.nan
    return values
