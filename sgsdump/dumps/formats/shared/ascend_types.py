"""Element types and tensor formats (layouts) of Ascend dumps: their numbers and the encoding of their elements.

Element types have two numberings. Operator dumps use ``OutputDataType`` of the public protobuf schema (GE_TYPES). ACL
files (ATB tensors, nano dumps) use ACL_TYPES. Formats have the same numbers in both (``OutputFormat``).

Elements are little-endian. A byte holds two 4-bit elements, the first in the low half, or eight uint1 elements, the
first in the highest bit (as the vendor's tools unpack them). A 6-bit element takes a whole byte. Types that neither
numpy nor ml_dtypes supports are decoded to float32: hifloat8 and float4_e1m2. If ml_dtypes has no complex32, it becomes
complex64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.mapped import Source, source_of, view
from sgsdump.tensors.dtypes import KNOWN, name_of, unpacked

# NUMBER NAME CODING; "-" where the encoding is not documented.
_GE_TYPES = """
    0 undefined int8; 1 float float32; 2 float16 float16; 3 int8 int8; 4 uint8 uint8; 5 int16 int16; 6 uint16 uint16
    7 int32 int32; 8 int64 int64; 9 uint32 uint32; 10 uint64 uint64; 11 bool bool; 12 double float64; 13 string -
    14 dual_sub_int8 int8; 15 dual_sub_uint8 uint8; 16 complex64 complex64; 17 complex128 complex128; 18 qint8 int8
    19 qint16 int16; 20 qint32 int32; 21 quint8 uint8; 22 quint16 uint16; 23 resource int64; 24 string_ref -; 25 dual -
    26 variant -; 27 bfloat16 bfloat16; 28 int4 int4; 29 uint1 uint1; 30 int2 -; 31 uint2 -; 32 complex32 complex32
    33 hifloat8 hifloat8; 34 float8_e5m2 float8_e5m2; 35 float8_e4m3fn float8_e4m3fn; 36 float8_e8m0 float8_e8m0fnu
    37 float6_e3m2 float6_e3m2fn; 38 float6_e2m3 float6_e2m3fn; 39 float4_e2m1 float4_e2m1fn
    40 float4_e1m2 float4_e1m2; 41 hifloat4 -; 42 hifloat4_scale -
"""
# Names as in the vendor's statistic.csv. Number 5 is unused.
_ACL_TYPES = """
    0 float float32; 1 float16 float16; 2 int8 int8; 3 int32 int32; 4 uint8 uint8; 6 int16 int16; 7 uint16 uint16
    8 uint32 uint32; 9 int64 int64; 10 uint64 uint64; 11 double float64; 12 bool bool; 13 string -
    16 complex64 complex64; 17 complex128 complex128; 27 bf16 bfloat16; 29 int4 int4; 30 uint1 uint1
    33 complex32 complex32; 34 hifloat8 hifloat8; 35 float8_e5m2 float8_e5m2; 36 float8_e4m3fn float8_e4m3fn
    37 float8_e8m0 float8_e8m0fnu; 38 float6_e3m2 float6_e3m2fn; 39 float6_e2m3 float6_e2m3fn
    40 float4_e2m1 float4_e2m1fn; 41 float4_e1m2 float4_e1m2
"""
_FORMATS = """
    0 NCHW 1 NHWC 2 ND 3 NC1HWC0 4 FRACTAL_Z 5 NC1C0HWPAD 6 NHWC1C0 7 FSR_NCHW 8 FRACTAL_DECONV 9 C1HWNC0
    10 FRACTAL_DECONV_TRANSPOSE 11 FRACTAL_DECONV_SP_STRIDE_TRANS 12 NC1HWC0_C04 13 FRACTAL_Z_C04 14 CHWN
    15 FRACTAL_DECONV_SP_STRIDE8_TRANS 16 HWCN 17 NC1KHKWHWC0 18 BN_WEIGHT 19 FILTER_HWCK 20 HASHTABLE_LOOKUP_LOOKUPS
    21 HASHTABLE_LOOKUP_KEYS 22 HASHTABLE_LOOKUP_VALUE 23 HASHTABLE_LOOKUP_OUTPUT 24 HASHTABLE_LOOKUP_HITS
    25 C1HWNCoC0 26 MD 27 NDHWC 28 FRACTAL_ZZ 29 FRACTAL_NZ 30 NCDHW 31 DHWCN 32 NDC1HWC0 33 FRACTAL_Z_3D 34 CN 35 NC
    36 DHWNC 37 FRACTAL_Z_3D_TRANSPOSE 38 FRACTAL_ZN_LSTM 39 FRACTAL_Z_G 40 RESERVED 41 ALL 42 NULL 43 ND_RNN_BIAS
    44 FRACTAL_ZN_RNN 45 NYUV 46 NYUV_A 47 NCL 48 FRACTAL_Z_WINO 49 C1HWC0 50 FRACTAL_NZ_C0_16 51 FRACTAL_NZ_C0_32
""".split()
FORMATS = MappingProxyType({int(number): name for number, name in zip(_FORMATS[0::2], _FORMATS[1::2])})
_ND = 2
_READ_BYTES = 2**20  # smaller payloads are read, not mapped
# Names in which each letter is a dimension. A tensor of another rank has no such layout, whatever its format number.
_ORDERS = frozenset("NCHW NHWC HWCN CHWN NDHWC NCDHW DHWCN DHWNC NCL NC CN".split())
_NO_LAYOUT = frozenset("ND RESERVED ALL NULL MD".split())


class Coding(NamedTuple):
    """Encoding of an element type.

    dtype   element type in memory.
    bits    bits per element in the payload.
    decode  (payload as flat uint8, count) -> flat array of ``dtype``; None if the payload needs no decoding.
    """

    dtype: np.dtype
    bits: int
    decode: Callable[[np.ndarray, int], np.ndarray] | None = None

    def size(self, count: int) -> int:
        """Return the number of payload bytes of ``count`` elements."""
        return -(-count * self.bits // 8)

    def fit(self, size: int) -> int:
        """Return the number of elements in ``size`` bytes."""
        return size * 8 // self.bits


class DataType(NamedTuple):
    """The vendor's name of an element type, and its encoding; None if unknown."""

    name: str
    coding: Coding | None


def loader(path: Path, coding: Coding, count: int, offset: int) -> Callable[[], np.ndarray]:
    """Return the ``load`` function of a Tensor with ``count`` elements at byte ``offset`` of a file.

    The file is opened on request only, because a folder may hold thousands of files.
    """
    return partial(_load, source_of(path), coding, count, offset)


def ge_numbers() -> Mapping[str, int]:
    """Return the GE number for each element type of ``sgsdump.tensors.dtypes`` that can be written, by type name."""
    by_name: dict[str, int] = {}
    for number, _, word in _entries(_GE_TYPES):
        if number and word in CODINGS and CODINGS[word].decode is None:
            by_name.setdefault(word, number)
    return by_name


def ge_type(number: int) -> DataType:
    """Return the type of a number; for an unknown number, a type ``type 99`` without coding."""
    return GE_TYPES.get(number) or DataType(f"type {number}", None)


def acl_number_of(dtype: np.dtype) -> int | None:
    """Return ACL's number of an element type; None if ACL has none."""
    return _ACL_NUMBERS.get(name_of(dtype))


def acl_type_named(name: str) -> DataType | None:
    """Return the type for a name of statistic.csv; None for any other text."""
    return next((kind for kind in ACL_TYPES.values() if kind.name == name), None)


def format_number(layout: str | None) -> int:
    """Return the format number of a layout; the number of ND for None and unknown names."""
    return _FORMAT_NUMBERS.get(layout or "ND", _ND)


def layout_of(number: int, rank: int) -> str | None:
    """Return the format's name; None for ND, unknown numbers, and dimension orders that do not fit the rank.

    In the protobuf schema, an unset field reads as 0 (NCHW), so the rank must confirm the order.
    """
    name = FORMATS.get(number, "ND")
    return name if layout_fits(name, rank) else None


def layout_fits(name: str, rank: int) -> bool:
    """Return whether the format's name defines the value order of a tensor of this rank."""
    return name in _FORMAT_NUMBERS and name not in _NO_LAYOUT and (name not in _ORDERS or len(name) == rank)


def is_device_layout(layout: str | None) -> bool:
    """Return whether the layout is more than an order of the logical dimensions."""
    return layout is not None and layout not in _ORDERS


def _load(source: Source, coding: Coding, count: int, offset: int) -> np.ndarray:
    if not count:
        return np.empty(0, coding.dtype)
    source.check()
    if offset + coding.size(count) > len(source):
        raise FormatError(f"{source.path} was truncated after it was opened. Open the dump again")
    if coding.decode is None and coding.size(count) < _READ_BYTES:
        return source.read(offset, coding.size(count)).view(coding.dtype)
    if coding.decode is None:
        return view(source, coding.dtype, count, offset)
    return coding.decode(source.read(offset, coding.size(count)), count)


def _entries(table: str) -> list[tuple[int, str, str]]:
    entries = (entry.split() for entry in table.replace("\n", ";").split(";") if entry.strip())
    return [(int(number), name, word) for number, name, word in entries]


def _hifloat8(code: int) -> float:
    """Decode a HiFloat8 code, an 8-bit float with an exponent of 0 to 4 bits.

    The code holds a sign, a prefix with the exponent's width, the exponent (sign and magnitude without the leading 1),
    and the fraction in the remaining bits::

        S 0000 MMM    2 ** (M - 23); 0000 of S 0 is zero, of S 1 is NaN
        S 0001 MMM    (1 + M / 8)
        S 001 E MMM   (1 + M / 8) * 2 ** E, E = +-1
        S 01 EE MMM   (1 + M / 8) * 2 ** E, E = +-(2 to 3)
        S 10 EEE MM   (1 + M / 4) * 2 ** E, E = +-(4 to 7)
        S 11 EEEE M   (1 + M / 2) * 2 ** E, E = +-(8 to 15); 11 0111 1 is infinite

    Source: "Ascend HiFloat8 Format for Deep Learning", arXiv 2409.16626, confirmed by the vendor's public headers. The
    vendor's msaccucmp decodes 49 of the 256 codes differently: all with exponent 0 or +-1, and minus infinity as plus.
    """
    sign, rest = (-1.0 if code & 0x80 else 1.0), code & 0x7F
    if rest < 8:
        return sign * 2.0 ** (rest - 23) if rest else (math.nan if code else 0.0)
    if rest < 16:
        return sign * (1 + (rest - 8) / 8)
    if rest == 0x6F:
        return sign * math.inf
    width = 1 if rest < 0x20 else (rest >> 5) + 1
    fraction_bits = 3 if width < 3 else 5 - width
    fraction = rest & ((1 << fraction_bits) - 1)
    exponent = rest >> fraction_bits & ((1 << width) - 1)
    leading = 1 << (width - 1)
    magnitude = leading | exponent & (leading - 1)
    return sign * (1 + fraction / (1 << fraction_bits)) * 2.0 ** (-magnitude if exponent & leading else magnitude)


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
    codings["hifloat8"] = Coding(np.dtype(np.float32), 8, partial(_looked_up, HIFLOAT8))
    quarters = np.arange(8, dtype=np.float32) / 4
    codings["float4_e1m2"] = Coding(quarters.dtype, 4, partial(_nibbles, np.concatenate([quarters, -quarters])))
    codings.setdefault("complex32", Coding(np.dtype(np.complex64), 32, _halves))
    return codings


HIFLOAT8 = np.array([_hifloat8(code) for code in range(256)], np.float32)
HIFLOAT8.flags.writeable = False
RAW = Coding(np.dtype(np.uint8), 8)
CODINGS = MappingProxyType(_codings())
GE_TYPES = MappingProxyType({n: DataType(name, CODINGS.get(word)) for n, name, word in _entries(_GE_TYPES)})
ACL_TYPES = MappingProxyType({n: DataType(name, CODINGS.get(word)) for n, name, word in _entries(_ACL_TYPES)})
_ACL_NUMBERS = {word: number for number, _, word in _entries(_ACL_TYPES)}
_FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}
