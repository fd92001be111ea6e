"""How the elements of each type lie in the payload of an Ascend dump, and what they become in memory.

Multi-byte elements are little-endian. 4-bit ones lie two to a byte, the first in the low half; uint1 eight to a byte,
the first in the highest bit (as the vendor's tools unpack them); 6-bit ones take a byte each. Types that neither numpy
nor ml_dtypes has become the float32 they mean: hifloat8, float4_e1m2 and, where ml_dtypes is old, complex32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.formats.ascend.types import hifloat8
from sgsdump.errors import FormatError
from sgsdump.files.mapped import map_file, view
from sgsdump.tensors.dtypes import KNOWN, unpacked

Decode = Callable[[np.ndarray, int], np.ndarray]


class Coding(NamedTuple):
    """``dtype`` in memory; ``bits`` of an element in the payload; ``decode`` (payload bytes as flat uint8, count) ->
    flat array of dtype, None where the payload's bytes are the array's."""

    dtype: np.dtype
    bits: int
    decode: Decode | None = None

    def size(self, count: int) -> int:
        """Bytes that ``count`` elements take in a payload."""
        return -(-count * self.bits // 8)

    def fit(self, size: int) -> int:
        """How many elements lie in ``size`` bytes."""
        return size * 8 // self.bits


def loader(path: Path, coding: Coding, count: int, offset: int) -> Callable[[], np.ndarray]:
    """The ``load`` of a Tensor: ``count`` elements at byte ``offset`` of a file that is mapped only when asked, so that
    a folder of thousands of files keeps none of them open."""
    return partial(_load, path, coding, count, offset)


def _load(path: Path, coding: Coding, count: int, offset: int) -> np.ndarray:
    if not count:
        return np.empty(0, coding.dtype)
    data = map_file(path)
    if offset + coding.size(count) > len(data):
        raise FormatError(f"{path} has become shorter since it was opened; open the dump again")
    if coding.decode is None:
        return view(data, coding.dtype, count, offset)
    return coding.decode(view(data, np.dtype(np.uint8), coding.size(count), offset), count)


def _looked_up(table: np.ndarray, codes: np.ndarray, count: int) -> np.ndarray:
    return table[codes[:count]]


def _nibbles(table: np.ndarray, data: np.ndarray, count: int) -> np.ndarray:
    halves = np.stack([data & 0x0F, data >> 4], axis=-1)
    return table[halves.reshape(-1)[:count]]


def _packed(dtype: np.dtype, data: np.ndarray, count: int) -> np.ndarray:
    return unpacked(data.data, dtype, count)


def _bits(dtype: np.dtype, data: np.ndarray, count: int) -> np.ndarray:
    return np.unpackbits(data, count=count).astype(dtype, copy=False)


def _halves(data: np.ndarray, count: int) -> np.ndarray:
    return data.view("<f2").astype(np.float32).view(np.complex64)


def _codings() -> dict[str, Coding]:
    plain = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bfloat16 "
        "complex32 float8_e5m2 float8_e4m3fn float8_e8m0fnu float6_e3m2fn float6_e2m3fn"
    ).split()
    codings = {name: Coding(KNOWN[name], KNOWN[name].itemsize * 8) for name in plain if name in KNOWN}
    for name in ("int4", "float4_e2m1fn"):
        if name in KNOWN:
            codings[name] = Coding(KNOWN[name], 4, partial(_packed, KNOWN[name]))
    bit = KNOWN.get("uint1", np.dtype(np.uint8))
    codings["uint1"] = Coding(bit, 1, partial(_bits, bit))
    codings["hifloat8"] = Coding(np.dtype(np.float32), 8, partial(_looked_up, hifloat8.VALUES))
    quarters = np.arange(8, dtype=np.float32) / 4
    codings["float4_e1m2"] = Coding(quarters.dtype, 4, partial(_nibbles, np.concatenate([quarters, -quarters])))
    codings.setdefault("complex32", Coding(np.dtype(np.complex64), 32, _halves))
    return codings


RAW = Coding(np.dtype(np.uint8), 8)
CODINGS = MappingProxyType(_codings())
