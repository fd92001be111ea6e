r"""Parser and formatter of the header lines of a SigmaStar dump record; works on bytes, not on files.

::

    line0 := "//" io " " slot " s: " %f " z: " int " type: " WORD " name: " NAME " bConstant:" 0|1 [shape] "\n"
    shape := " shape:[" d0 ", " d1 … "] dims:" K                                          (newer SDK only)
    line1 := "op_" io "[" op_index "] " OP_TYPE " = {\n"         ("input[i] " in the ONNX dumper's layer files)
    size  := "//buffer data size: " N "\n"                       (absent in the old simulators' string dumps)

The old SDK writer formats line0 and line1 into 255 bytes. It cuts longer text, and no newline follows the cut. A name
may contain anything except a newline, so it extends to the *last* ``" bConstant:"``. Bytes that are not UTF-8 become
surrogate escapes and are written back unchanged.
"""

from __future__ import annotations

import mmap
import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sgsdump.errors import OutputError

Buffer = bytes | mmap.mmap
CUT_BYTES = 255
HEAD = re.compile(rb"isFloat: ([01])\n")
END_SHORT = b"\n};\n"
END_TFLITE = b"};\n"
END_NONE = b""

_FACTS = rb"//(in|out) (\d{1,9}) s: (\S{1,400}) z: (-?\d{1,19}) type: (\S{0,64}) name: "
_CONSTANT = rb" bConstant:([01])"
_LINE0 = re.compile(_FACTS + rb"([^\n]*)" + _CONSTANT + rb"(?: shape:\[([\d, ]{0,1500})\] dims:(\d{1,9}))?\n")
_LINES = re.compile(
    _LINE0.pattern + rb"(op_in|op_out|input)\[(\d{1,9})\] ([^\n]*) = \{\n" + rb"(?://buffer data size: (-?\d{1,20})\n)?"
)
# Header lines exactly as format_header prints them; such a header need not be compared when a file is read.
_INT = rb"(?:0|[1-9]\d{0,8})"
_PLAIN = re.compile(
    rb"//(in|out) (" + _INT + rb") s: (" + _INT + rb"\.\d{6}) z: (0|-?[1-9]\d{0,18}) type: (\S{1,64}) name: ([^\n]*)"
    rb" bConstant:([01])(?: shape:\[((?:" + _INT + rb"(?:, " + _INT + rb")*)?)\] dims:(" + _INT + rb"))?\n"
    rb"(op_\1)\[(" + _INT + rb")\] ([^\n]*) = \{\n"
    rb"(?://buffer data size: (0|[1-9]\d{0,18})\n)?"
)
_CUT_LINE0 = re.compile(_FACTS + rb"([^\n]*)")
_CUT_LINE1 = re.compile(rb"(?:op_in|op_out)\[(\d{1,9})\] ([^\n]*)\n?")
_SIZE = re.compile(rb"//buffer data size: (-?\d{1,20})\n")
_WORD = re.compile(rb"\S{0,64}")
_ENDING = re.compile(rb"\n\};\n(?://buffer data size: (\d{1,20})\n)?|\};\n|(?=//out )|\Z")
_VALUE = re.compile(rb"\n? *-?(?:\d{1,60}(?:\.\d{6})?|nan|inf), ")
_NO_VALUE = re.compile(rb"\n{0,2}\};?\n")

_WORDS_OF_LINES = {word.encode(): word for word in ("in", "out", "op_in", "op_out", "input")}
_WORDS: dict[str, np.dtype] = {
    "float": np.dtype("<f4"),
    "SGS_U8": np.dtype(np.uint8),
    "SGS_S8": np.dtype(np.int8),
    "SGS_U16": np.dtype("<u2"),
    "SGS_S16": np.dtype("<i2"),
    "SGS_S32": np.dtype("<i4"),
    "SGS_S64": np.dtype("<i8"),
    "SGS_BOOL": np.dtype(np.bool_),
}
_DTYPES: dict[np.dtype, str] = {dtype: word for word, dtype in _WORDS.items()}


class Header(NamedTuple):
    """Facts of line0 and line1; ``op_index`` is None if it was cut off, ``op`` is the first word of line1."""

    io: str
    slot: int
    scale: float
    zero_point: int
    type: str
    name: str
    constant: bool
    shape: tuple[int, ...] | None
    op: str
    op_index: int | None
    op_type: str
    cut: bool = False


class Found(NamedTuple):
    """A header found in a file.

    size   N of the size line (may be negative); None without a size line.
    end    offset after header and size line.
    plain  True if format_header certainly reproduces the bytes.
    """

    header: Header
    size: int | None
    end: int
    plain: bool = False


def dtype_of(word: str) -> np.dtype | None:
    """Return the numpy type of a type word (``SGS_S16`` -> int16); None for an unknown word."""
    return _WORDS.get(word)


def word_of(dtype: np.dtype) -> str | None:
    """Return the type code of a numpy type; None if the format has no such type (uint32, float16 …)."""
    return _DTYPES.get(np.dtype(dtype))


def parse_header(data: Buffer, start: int = 0) -> Found | None:
    """Return the header at ``start`` of a bytes-like object; None if there is none.

    If the full lines do not match but 255 bytes with the facts of line0 do, the header counts as cut. The caller must
    check the bytes after a cut header.
    """
    plain = _PLAIN.match(data, start)
    match = plain or _LINES.match(data, start)
    if match is None:
        return _parse_cut(data, start)
    io, slot, scale, zero_point, word, name, constant, shape, dims, op, op_index, op_type, size = match.groups()
    try:
        sizes = None if shape is None else _shape(shape)
        header = Header(
            _WORDS_OF_LINES[io],
            int(slot),
            *_numbers(scale, zero_point, word),
            name.decode("utf-8", "surrogateescape"),
            constant == b"1",
            sizes,
            _WORDS_OF_LINES[op],
            int(op_index),
            _decode(op_type),
        )
    except ValueError:
        return None
    is_plain = plain is not None and (sizes is None or len(sizes) == int(dims))
    return Found(header, None if size is None else int(size), match.end(), is_plain)


def format_header(header: Header) -> bytes:
    """Return line0 and line1, cut to 255 bytes if the header is marked so. Raises OutputError for unsuitable names."""
    if "\n" in header.name or "\n" in header.op_type:
        raise OutputError(f"cannot write tensor {header.name!r}: its name or operator has a newline. Rename it")
    shape = ""
    if header.shape is not None:
        shape = f" shape:[{', '.join(map(str, header.shape))}] dims:{len(header.shape)}"
    text = (
        f"//{header.io} {header.slot} s: {header.scale:f} z: {header.zero_point} type: {header.type} "
        f"name: {header.name} bConstant:{int(header.constant)}{shape}\n"
        f"{header.op}[{header.op_index or 0}] {header.op_type} = {{\n"
    )
    try:
        lines = text.encode("utf-8", "surrogateescape")
        word = header.type.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise OutputError(
            f"cannot write tensor {header.name!r}: its name is not valid Unicode. Rename the tensor"
        ) from None
    if _WORD.fullmatch(word) is None:
        raise OutputError(
            f"cannot write tensor {header.name!r}: its type {header.type!r} must be one word of at most 64 bytes"
        )
    return lines[:CUT_BYTES] if header.cut else lines


def format_size(size: int) -> bytes:
    return b"//buffer data size: %d\n" % size


def holds_text(data: Buffer) -> bool:
    """Return whether the values of a dump are printed as text, judged by its first tensor.

    Text files of the framework dumpers also have a size line, so the size decides: in a binary file, a valid record
    ending follows exactly N bytes later. In a text file, this position is still inside the printed rows.
    """
    head = HEAD.match(data)
    start = head.end() if head else 0
    while (found := parse_header(data, start)) is not None:
        size, end = found.size, found.end
        if size is None:
            return starts_rows(data, end)
        ending = binary_ending(data, end + size, size) if 0 <= size <= len(data) - end else None
        if ending is None:
            return starts_rows(data, end, empty=not size)
        if size:
            return False
        start = end + len(ending)
    return False


def starts_rows(data: Buffer, start: int, empty: bool = True) -> bool:
    """Return whether printed values begin at ``start`` or, if ``empty``, the end of a record without values."""
    return bool(_VALUE.match(data, start) or (empty and _NO_VALUE.match(data, start)))


def binary_ending(data: Buffer, end: int, size: int) -> bytes | None:
    """Return the bytes between a binary payload that ends at ``end`` and the next record; None if they are invalid."""
    match = _ENDING.match(data, end)
    if match is None:
        return None
    ending: bytes = match[0]
    return ending if match[1] is None or match[1] == b"%d" % size else END_SHORT


def _parse_cut(data: Buffer, start: int) -> Found | None:
    chunk = bytes(data[start : start + CUT_BYTES])
    facts = _CUT_LINE0.match(chunk)
    if len(chunk) < CUT_BYTES or facts is None:
        return None
    io, slot, scale, zero_point, word, name = facts.groups()
    constant, op_index, op_type = b"0", None, b""
    whole = _LINE0.match(chunk)
    if whole is not None:
        name, constant = whole[6], whole[7]
        line1 = _CUT_LINE1.fullmatch(chunk, whole.end())
        if line1 is not None:
            op_index, op_type = int(line1[1]), _without_start_of(b" = {\n", line1[2])
    elif facts.end() < len(chunk):
        return None
    else:
        flag = re.fullmatch(rb"(.*)" + _CONSTANT, name)
        name, constant = flag.groups() if flag else (_without_start_of(b" bConstant:", name), b"0")
    try:
        scale_value = float(scale)
    except ValueError:
        return None
    header = Header(
        io.decode(),
        int(slot),
        scale_value,
        int(zero_point),
        _decode(word),
        _decode(name),
        constant == b"1",
        None,
        "op_" + io.decode(),
        op_index,
        _decode(op_type),
        cut=True,
    )
    end = start + CUT_BYTES
    size = _SIZE.match(data, end)
    return Found(header, int(size[1]), size.end()) if size else Found(header, None, end)


def _without_start_of(mark: bytes, text: bytes) -> bytes:
    """Remove the longest prefix of ``mark`` from the end of ``text``."""
    for length in range(len(mark), 0, -1):
        if text.endswith(mark[:length]):
            return text[:-length]
    return text


@lru_cache(maxsize=4096)
def _shape(text: bytes) -> tuple[int, ...]:
    return tuple(int(size) for size in text.replace(b",", b" ").split())


@lru_cache(maxsize=4096)
def _numbers(scale: bytes, zero_point: bytes, word: bytes) -> tuple[float, int, str]:
    return float(scale), int(zero_point), _decode(word)


@lru_cache(maxsize=4096)
def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
