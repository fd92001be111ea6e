"""Shape and element type of a file without a header, from its name or from a list beside it.

Names::

    conv1_1x64x56x56_float32.bin       shape and type, in either order, after ``_``, ``.`` or ``-``
    conv1_00064_00057x00056_float.bin  TI's form: channels, width and height in five digits each (NCHW)
    conv1_1x64x56x56.bin               only the shape; a list or the user must give the type

Lists are files of any name in the folder (``shape_lists.py``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.format import MOST_ELEMENTS, MOST_RANK
from sgsdump.tensors.dtypes import KNOWN, bits

_WORDS = {
    "float32": "float fp32 f32 flt32",
    "float64": "double fp64 f64",
    "float16": "half fp16 f16",
    "bfloat16": "bf16",
    "uint8": "u8 ufixedpoint8",
    "int8": "i8 s8 sint8 sfixedpoint8",
    "uint16": "u16 ufixedpoint16",
    "int16": "i16 s16 sfixedpoint16",
    "uint32": "u32 ufixedpoint32",
    "int32": "i32 s32 sfixedpoint32",
    "uint64": "u64",
    "int64": "i64 s64",
    "bool": "bool8",
}
TYPES = {word: name for name, words in _WORDS.items() for word in (name, *words.split())}
# numpy's codes, such as ``<f4``
_CODES = {np.dtype(name).str: name for name in _WORDS if name != "bfloat16"}
_PREFIX = re.compile(r"^(?:torch|np|numpy|tf)\.|^(?:qnn_datatype|snpe_datatype|dt|tensorproto\.)_?", re.IGNORECASE)
_TYPE = "|".join(sorted(TYPES, key=len, reverse=True))
_SIZES = r"[0-9]{1,10}(?:[x,][0-9]{1,10})+"
# Lazy names: a number before the shape belongs to the shape only if ``x`` joins them.
_NAMED = (
    re.compile(rf"(?P<name>.+?)(?P<ti>(?:_[0-9]{{5}})+x[0-9]{{5}})(?:_(?P<dtype>{_TYPE}))?", re.IGNORECASE | re.DOTALL),
    re.compile(rf"(?P<name>.+?)[_.-](?P<shape>{_SIZES})(?:[_.-](?P<dtype>{_TYPE}))?", re.IGNORECASE | re.DOTALL),
    re.compile(rf"(?P<name>.+?)[_.-](?P<dtype>{_TYPE})[_.-](?P<shape>{_SIZES})", re.IGNORECASE | re.DOTALL),
)
_LONGEST = 255
_IMAGE_RANK = 4


class Facts(NamedTuple):
    """Name of a tensor, and its shape and element type; None if unknown."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: np.dtype | None = None

    def fits(self, size: int) -> bool:
        """Return whether a file of ``size`` bytes holds exactly these values."""
        if self.shape is None or self.dtype is None:
            return False
        return math.prod(self.shape) * self.dtype.itemsize == size

    def __str__(self) -> str:
        return f"{'values' if self.dtype is None else self.dtype.name} {list(self.shape or ())}"


def type_of(text: str) -> np.dtype | None:
    """Return the element type for a word: ``fp16``, ``torch.float32``, ``QNN_DATATYPE_UFIXED_POINT_8``, ``<f4``.

    Returns None for any other word, and for types of less than a byte.
    """
    word = _PREFIX.sub("", text.strip()).lower()
    name = _CODES.get(word) or TYPES.get(word) or TYPES.get(word.replace("_", "")) or word
    dtype = KNOWN.get(name)
    return dtype if dtype is not None and bits(dtype) == 8 * dtype.itemsize and dtype.kind != "c" else None


def shape_of(sizes: list[int]) -> tuple[int, ...] | None:
    """Return the sizes as a shape; None if numpy cannot hold the shape."""
    if len(sizes) > MOST_RANK or any(size < 0 for size in sizes):
        return None
    return tuple(sizes) if math.prod(filter(None, sizes)) <= MOST_ELEMENTS else None


def named(stem: str) -> Iterator[Facts]:
    """Yield possible meanings of a file name without its ending; the most specific meaning comes first."""
    folder, slash, last = stem.rpartition("/")
    if len(last) > _LONGEST:
        return
    for pattern in _NAMED:
        match = pattern.fullmatch(last)
        if match is None:
            continue
        parts, name = match.groupdict(), f"{folder}{slash}{match['name']}"
        dtype = KNOWN[TYPES[parts["dtype"].lower()]] if parts["dtype"] else None
        groups = [int(size) for size in re.findall(r"[0-9]+", parts.get("ti") or parts["shape"])]
        if parts.get("ti"):
            *before, width, height = groups
            padded = [1] * (_IMAGE_RANK - len(groups)) + [*before, height, width]
            yield Facts(name, shape_of(padded), dtype)
        elif shape_of(groups) is not None:
            yield Facts(name, shape_of(groups), dtype)


def fitting(stem: str, size: int) -> Facts | None:
    """Return the meaning of a file name that fits the size of the file; None if there is none."""
    return next((facts for facts in named(stem) if facts.fits(size)), None)
