"""Reader of a tensor in a text file: numbers in lines, separated by spaces, commas, semicolons or tabs.

::

    # shape: (1, 8, 6, 6)      optional; other comments are ignored
    0.25 -1.5e-3 nan           one value a line, or rows
    --------                   a line of signs ends a channel

``numpy.savetxt``, ``print``, spreadsheets and ncnn's ``pretty_print`` write such files. Values are float32, unless a
comment ``# dtype: int64`` or the name of the file gives another type. The shape is that of the comment or of the name,
else (rows, columns), or (channels, rows, columns) if lines of signs separate equal channels; one value a line is flat,
without a shape. A first row of column names is skipped, and with it the column of row numbers that pandas writes under
an empty name.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.formats.shared.raw_facts import Facts, named, shape_of, type_of
from sgsdump.errors import FormatError, NotATensor
from sgsdump.files.bounded_read import TEXT_LIMIT, open_file, reading
from sgsdump.files.mapped import Source, source_of
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

_HEAD = 4096
_COMMENT = re.compile(rb"#[^\n]*")
_SHAPE = re.compile(r"shape\D{0,12}?([0-9][0-9,x ]*)", re.IGNORECASE)
_DTYPE = re.compile(r"d?type\W{0,8}([\w.<]+)", re.IGNORECASE)
_NUMBER = re.compile(
    rb"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|nan|inf(?:inity)?)", re.I
)
_SIGNS = b"0123456789+-.eEnaifNAIFtyTY \n"
_SPACES = bytes.maketrans(b",;\t\r", b"    ")
_LINE = re.compile(rb"(?m)^ *[^ \n]")
_RULE = re.compile(rb"(?m)^ *(?:-{3,}|={3,}|\*{3,}) *$")
_PIECE = 1 << 18


@dataclass(frozen=True)
class _Form:
    """Form of a text: bytes of the header row, whether rows begin with their number, columns of the first row."""

    header: int
    numbered: bool
    columns: int


def holds_numbers(path: Path) -> bool:
    """Return whether a file begins with numbers, perhaps after comments and a row of column names."""
    try:
        with open_file(path) as file:
            head = file.read(_HEAD)
            return _form(head, os.fstat(file.fileno()).st_size > len(head)) is not None
    except OSError:
        return False


def read_tensor(path: Path, stem: str, facts_of_list: Callable[[], Facts | None]) -> Tensor:
    """Return the tensor of a text file; ``stem`` is its path below the folder, without ending.

    The text is read once to count its numbers, and again when the values are loaded. Raises FormatError.
    """
    source = source_of(path)
    with reading(path), open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size > TEXT_LIMIT:
        raise FormatError(f"{path} has more than {TEXT_LIMIT >> 20} MiB of text. Save the tensor as .npy")
    text = source.read(0, size).tobytes()
    form = _form(text[:_HEAD], size > _HEAD)
    told, body = _told(text[:_HEAD]), b"" if form is None else _body(text, form)
    channels = 1 if form is None else _channels(text, form)
    del text
    if form is None or body.translate(None, _SIGNS):
        raise NotATensor(
            f"{path} holds text other than numbers. Remove the lines with other text, or begin these lines with '#'"
        )
    count = _count(body)
    rows = sum(1 for _ in _LINE.finditer(body))
    if form.numbered:
        count -= rows
    facts = next((facts for facts in named(stem) if facts.shape and math.prod(facts.shape) == count), Facts(stem))
    if told.shape is None and facts.shape is None:
        of_list = facts_of_list()
        if of_list is not None and of_list.shape is not None and math.prod(of_list.shape) == count:
            facts = of_list._replace(name=stem)
    shape, dtype = told.shape or facts.shape, told.dtype or facts.dtype or np.dtype(np.float32)
    if told.shape is not None and math.prod(told.shape) != count:
        raise FormatError(f"{path} holds {count} values, but its comment gives shape {list(told.shape)}")
    if shape is None and form.columns > 1 and rows * form.columns == count:
        shape = (rows, form.columns) if channels == 1 else (channels, rows // channels, form.columns)
    info = TensorInfo(facts.name, shape, dtype)
    return Tensor(info, partial(_load, source, size, form, info, count))


def _load(source: Source, size: int, form: _Form, info: TensorInfo, count: int) -> np.ndarray:
    body = _body(source.read(0, size).tobytes(), form)
    whole = info.dtype.kind in "iu"
    words = _count(body)
    try:
        values = np.fromstring(body, np.int64 if whole else np.float64, sep=" ")
    except (DeprecationWarning, ValueError):
        values = np.empty(0)
    # numpy stops at the first word that is no number, with a warning that is usually hidden.
    if values.size != words or (form.numbered and words % (form.columns + 1)):
        place = f"word {values.size + 1}" if values.size else "a word"
        raise FormatError(f"{source.path}: {place} is not a number of type {name_of(info.dtype)}")
    if form.numbered:
        values = values.reshape(-1, form.columns + 1)[:, 1:]
    if values.size != count:
        raise FormatError(
            f"{source.path} holds {values.size} values now, but {count} when the file was opened. Open the file again"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        typed = values.astype(info.dtype)
    return typed.reshape(-1 if info.shape is None else info.shape)


def _form(head: bytes, more: bool) -> _Form | None:
    """Return the form of a text by its first lines; None if they are not numbers. ``more``: the last line is cut."""
    if b"\0" in head or not head.strip():
        return None
    start = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    lines = head[start:].splitlines(keepends=True)
    if more and len(lines) > 1:
        lines.pop()
    place, header, first = start, 0, None
    for line in lines:
        words = _COMMENT.sub(b"", line).translate(_SPACES).split()
        place += len(line)
        if not words:
            continue
        cut = more and len(lines) == 1
        if all(map(_NUMBER.fullmatch, words[:-1] if cut else words)):
            numbered = first is not None and first[:1] in (b",", b";", b"\t") and len(words) > 1
            if first is not None and len(re.split(rb"[,;\t]", first.strip(b"\r\n"))) != len(words):
                return None
            return _Form(header, numbered, len(words) - numbered)
        if first is not None or not re.search(rb"[,;\t]", line):
            return None
        first, header = line, place
    return None


def _body(text: bytes, form: _Form) -> bytes:
    """Return the numbers of a text, separated by spaces and line ends."""
    start = max(form.header, 3 if text.startswith(b"\xef\xbb\xbf") else 0)
    body = text[start:] if start else text
    if b"#" in body:
        body = _COMMENT.sub(b"", body)
    body = body.translate(_SPACES)
    return _RULE.sub(b"", body) if _has_rules(body) else body


def _has_rules(text: bytes) -> bool:
    return any(sign * 3 in text for sign in (b"-", b"=", b"*"))


def _channels(text: bytes, form: _Form) -> int:
    """Return the number of channels that lines of signs separate; 1 if the channels have different numbers of rows."""
    body = text[form.header :].translate(_SPACES)
    if not _has_rules(body):
        return 1
    rows = [sum(1 for _ in _LINE.finditer(part)) for part in _RULE.split(_COMMENT.sub(b"", body))]
    counts = [count for count in rows if count]
    return len(counts) if counts and min(counts) == max(counts) else 1


def _count(body: bytes) -> int:
    """Return the number of words."""
    count, before = 0, False
    for start in range(0, len(body), _PIECE):
        inside = np.frombuffer(body, np.uint8, min(_PIECE, len(body) - start), start) > ord(" ")
        count += int(np.count_nonzero(inside[1:] & ~inside[:-1])) + bool(inside[0] and not before)
        before = bool(inside[-1])
    return count


def _told(head: bytes) -> Facts:
    """Return shape and type of the comments at the beginning of a text."""
    shape = dtype = None
    for comment in _COMMENT.findall(head):
        text = comment.decode("utf-8", "replace")
        sizes = _SHAPE.search(text)
        if sizes is not None and shape is None:
            shape = shape_of([int(size) for size in re.findall("[0-9]{1,15}", sizes[1])])
        type_word = _DTYPE.search(text)
        if type_word is not None and dtype is None:
            dtype = type_of(type_word[1])
    return Facts("", shape, dtype)
