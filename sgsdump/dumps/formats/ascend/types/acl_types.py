"""The numbers of element types in ACL's own files (ATB tensors, nano dumps), which are not those of operator dumps.

Formats bear the numbers of ``sgsdump.dumps.formats.ascend.types.ge_types``. Number 5 is not in use.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from sgsdump.dumps.formats.ascend.types.coding import CODINGS
from sgsdump.dumps.formats.ascend.types.ge_types import FORMATS, DataType
from sgsdump.tensors.dtypes import name_of

# NUMBER NAME CODING: the name as the vendor's statistic.csv prints it; "-" where the encoding is not documented.
_TYPES = """
    0 float float32; 1 float16 float16; 2 int8 int8; 3 int32 int32; 4 uint8 uint8; 6 int16 int16; 7 uint16 uint16
    8 uint32 uint32; 9 int64 int64; 10 uint64 uint64; 11 double float64; 12 bool bool; 13 string -
    16 complex64 complex64; 17 complex128 complex128; 27 bf16 bfloat16; 29 int4 int4; 30 uint1 uint1
    33 complex32 complex32; 34 hifloat8 hifloat8; 35 float8_e5m2 float8_e5m2; 36 float8_e4m3fn float8_e4m3fn
    37 float8_e8m0 float8_e8m0fnu; 38 float6_e3m2 float6_e3m2fn; 39 float6_e2m3 float6_e2m3fn
    40 float4_e2m1 float4_e2m1fn; 41 float4_e1m2 float4_e1m2
"""
_ENTRIES = [entry.split() for entry in _TYPES.replace("\n", ";").split(";") if entry.strip()]

DATA_TYPES = MappingProxyType({int(number): DataType(name, CODINGS.get(word)) for number, name, word in _ENTRIES})
_ND = 2
_NUMBERS = {word: int(number) for number, _, word in _ENTRIES}
_NAMED = {name: number for number, (name, _) in DATA_TYPES.items()}
_FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}


def number_of(dtype: np.dtype) -> int | None:
    """The number of a type of elements in memory; None where ACL has none for it."""
    return _NUMBERS.get(name_of(dtype))


def named(name: str) -> DataType | None:
    """The type of a name in statistic.csv; None for any other text."""
    number = _NAMED.get(name)
    return None if number is None else DATA_TYPES[number]


def format_number(layout: str | None) -> int:
    """The number of a layout; that of ND for None and for names that are no format's."""
    return _FORMAT_NUMBERS.get(layout or "ND", _ND)
