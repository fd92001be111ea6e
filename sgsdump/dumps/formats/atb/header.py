"""The text header of an ATB tensor file (``.bin``): bytes -> ``Header``; and the header to write. No file is touched.

::

    $Version=1.0                     these three lines may be missing
    $Object.Count=<objects>          (not relied on)
    $Object.Length=<bytes of all objects>
    <attribute>=<value>              format, dtype, dims (4,4; nothing for a scalar); or data=…, max=…
    $Object.<name>=<offset>,<length> counted from the first byte behind the header
    $End=1                           $END in an old fork
    <payload>

Lines end in LF. As in the vendor's C++ reader, at most 8000 lines are read, each splits at ``=`` into two parts that
are not empty (``dims`` may be), and an attribute, object or length that comes twice is an error; other ``$`` names are
noted only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sgsdump.errors import FormatError

MOST_LINES = 8000
MOST_BYTES = 2**20
DATA = "data"
_MOST_RANK, _MOST_ELEMENTS = 32, 2**48
_MOST_NOTES = 3
_OBJECT = "$Object."
_COUNTED = re.compile(r"[0-9]{1,19}")
_SLICE = re.compile(r"([0-9]{1,19}),([0-9]{1,19})")
_FIRST_LINE = re.compile(rb"\$(Version|Object\.[^=\n]{1,64}|End|END)=[^=\n]+\n|[A-Za-z_][\w.]{0,63}=[^=\n]*\n")
_KNOWN = re.compile(rb"(?:^|\n)(?:\$Version|\$Object\.\w+|dtype|dims)=")
_ENDING = re.compile(rb"(?:^|\n)\$(?:End|END)=1(?:\n|$)")


@dataclass(frozen=True)
class Header:
    """What a header says, its texts unread: attributes, objects as (offset, length) behind ``end``, the byte where the
    payload begins; ``length`` is None without ``$Object.Length``; ``notes`` are oddities that hinder nothing."""

    attributes: Mapping[str, str]
    objects: Mapping[str, tuple[int, int]]
    length: int | None
    end: int
    notes: tuple[str, ...] = field(default=())


def begins(head: bytes, whole: bool) -> bool:
    """Whether bytes look like the beginning of an ATB file: lines NAME=VALUE up to the ending, among them one that
    other files have not. ``whole`` says that they are the whole file, which must then have an ending or a version."""
    if not _FIRST_LINE.match(head):
        return False
    ending = _ENDING.search(head)
    if ending is None and whole and not head.startswith(b"$Version="):
        return False
    return _KNOWN.search(head, 0, ending.start() if ending else len(head)) is not None


def parse(data: bytes) -> Header:
    """The header at the beginning of ``data``, which is the whole file or its first MOST_BYTES.

    Raises FormatError: the end of a sentence that begins with the file's name.
    """
    attributes: dict[str, str] = {}
    objects: dict[str, tuple[int, int]] = {}
    length: int | None = None
    notes: list[str] = []
    position = 0
    for number in range(1, MOST_LINES + 1):
        stop = data.find(b"\n", position)
        text = _decoded(data[position:] if stop < 0 else data[position:stop], number)
        if stop < 0 and text not in ("$End=1", "$END=1"):
            raise FormatError(f"is cut off in its header, line {number}: there is no $End=1")
        name, value = _halves(text, number)
        position = len(data) if stop < 0 else stop + 1
        if name in ("$End", "$END"):
            if value != "1":
                raise FormatError(f"has {text[:40]!r} in line {number} of its header, not $End=1")
            return Header(attributes, objects, length, position, tuple(notes))
        if name == f"{_OBJECT}Length":
            if length is not None:
                raise FormatError(f"gives $Object.Length twice, again in line {number} of its header")
            length = _counted(value, text, number)
        elif name.startswith(_OBJECT) and name != f"{_OBJECT}Count":
            _once(objects, name[len(_OBJECT) :], "object", number)[name[len(_OBJECT) :]] = _slice(value, text, number)
        elif not name.startswith("$"):
            _once(attributes, name, "attribute", number)[name] = value
        elif name not in ("$Version", f"{_OBJECT}Count") and len(notes) < _MOST_NOTES:
            notes.append(f"says {text[:60]!r}, which is not known")
    raise FormatError(f"has no $End=1 in the first {MOST_LINES} lines")


def dims_of(header: Header) -> tuple[int, ...]:
    """The shape, () for an empty text. Raises FormatError when there is none, or it is impossible."""
    text = header.attributes.get("dims")
    if text is None:
        raise FormatError("has no dims in its header")
    parts = text.split(",") if text else []
    if len(parts) > _MOST_RANK or not all(map(_COUNTED.fullmatch, parts)):
        raise FormatError(f"has dims={text[:60]!r}, which is no shape")
    dims = tuple(map(int, parts))
    if math.prod(size or 1 for size in dims) > _MOST_ELEMENTS:
        raise FormatError(f"has dims={text[:60]!r}, a shape beyond any memory")
    return dims


def number_in(header: Header, name: str) -> int | None:
    """The attribute ``format`` or ``dtype``, None when it is not given. Raises FormatError when it is no number."""
    text = header.attributes.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise FormatError(f"has {name}={text[:40]!r}, which is no number")
    return int(text)


def header_bytes(format: int, dtype: int, dims: Sequence[int], size: int) -> bytes:
    """The header of one tensor whose payload has ``size`` bytes, byte for byte as the vendor's probe writes it."""
    return _lines(
        "$Version=1.0",
        "$Object.Count=1",
        f"$Object.Length={size}",
        f"format={format}",
        f"dtype={dtype}",
        f"dims={_joined(dims)}",
        f"$Object.data=0,{size}",
        "$End=1",
    )


def statistics_bytes(format: int, dtype: int | None, dims: Sequence[int], statistics: Mapping[str, float]) -> bytes:
    """The whole file of a tensor with only statistics: no object, no payload."""
    return _lines(
        "$Version=1.0",
        "$Object.Count=0",
        "$Object.Length=0",
        f"format={format}",
        *([] if dtype is None else [f"dtype={dtype}"]),
        f"dims={_joined(dims)}",
        *(f"{name}={value!r}" for name, value in statistics.items()),
        "$End=1",
    )


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _joined(dims: Sequence[int]) -> str:
    return ",".join(map(str, dims))


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"has bytes that are no text in line {number} of its header") from None


def _halves(text: str, number: int) -> tuple[str, str]:
    parts = text.split("=")
    if len(parts) != 2 or not parts[0] or not (parts[1] or parts[0] == "dims"):
        raise FormatError(f"has {text[:40]!r} in line {number} of its header, which is not NAME=VALUE")
    return parts[0], parts[1]


def _once(taken: dict, name: str, what: str, number: int) -> dict:
    if name in taken:
        raise FormatError(f"gives the {what} {name[:40]!r} twice, again in line {number} of its header")
    return taken


def _counted(value: str, text: str, number: int) -> int:
    if not _COUNTED.fullmatch(value):
        raise FormatError(f"has {text[:60]!r} in line {number} of its header, which is no number of bytes")
    return int(value)


def _slice(value: str, text: str, number: int) -> tuple[int, int]:
    match = _SLICE.fullmatch(value)
    if not match:
        raise FormatError(f"has {text[:60]!r} in line {number} of its header, which is not OFFSET,LENGTH")
    return int(match[1]), int(match[2])
