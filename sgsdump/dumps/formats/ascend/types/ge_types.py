"""The numbers of element types and formats in operator dumps: ``OutputDataType`` and ``OutputFormat`` of the public
protobuf schema. Element types are numbered otherwise in ACL's own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sgsdump.dumps.formats.ascend.types.coding import CODINGS, Coding

# NUMBER NAME CODING; "-" where the encoding is not documented.
_TYPES = """
    0 undefined int8; 1 float float32; 2 float16 float16; 3 int8 int8; 4 uint8 uint8; 5 int16 int16; 6 uint16 uint16
    7 int32 int32; 8 int64 int64; 9 uint32 uint32; 10 uint64 uint64; 11 bool bool; 12 double float64; 13 string -
    14 dual_sub_int8 int8; 15 dual_sub_uint8 uint8; 16 complex64 complex64; 17 complex128 complex128; 18 qint8 int8
    19 qint16 int16; 20 qint32 int32; 21 quint8 uint8; 22 quint16 uint16; 23 resource int64; 24 string_ref -; 25 dual -
    26 variant -; 27 bfloat16 bfloat16; 28 int4 int4; 29 uint1 uint1; 30 int2 -; 31 uint2 -; 32 complex32 complex32
    33 hifloat8 hifloat8; 34 float8_e5m2 float8_e5m2; 35 float8_e4m3fn float8_e4m3fn; 36 float8_e8m0 float8_e8m0fnu
    37 float6_e3m2 float6_e3m2fn; 38 float6_e2m3 float6_e2m3fn; 39 float4_e2m1 float4_e2m1fn
    40 float4_e1m2 float4_e1m2; 41 hifloat4 -; 42 hifloat4_scale -
"""

_FORMATS = """
    0 NCHW 1 NHWC 2 ND 3 NC1HWC0 4 FRACTAL_Z 5 NC1C0HWPAD 6 NHWC1C0 7 FSR_NCHW 8 FRACTAL_DECONV 9 C1HWNC0
    10 FRACTAL_DECONV_TRANSPOSE 11 FRACTAL_DECONV_SP_STRIDE_TRANS 12 NC1HWC0_C04 13 FRACTAL_Z_C04 14 CHWN
    15 FRACTAL_DECONV_SP_STRIDE8_TRANS 16 HWCN 17 NC1KHKWHWC0 18 BN_WEIGHT 19 FILTER_HWCK 20 HASHTABLE_LOOKUP_LOOKUPS
    21 HASHTABLE_LOOKUP_KEYS 22 HASHTABLE_LOOKUP_VALUE 23 HASHTABLE_LOOKUP_OUTPUT 24 HASHTABLE_LOOKUP_HITS
    25 C1HWNCoC0 26 MD 27 NDHWC 28 FRACTAL_ZZ 29 FRACTAL_NZ 30 NCDHW 31 DHWCN 32 NDC1HWC0 33 FRACTAL_Z_3D 34 CN 35 NC
    36 DHWNC 37 FRACTAL_Z_3D_TRANSPOSE 38 FRACTAL_ZN_LSTM 39 FRACTAL_Z_G 40 RESERVED 41 ALL 42 NULL 43 ND_RNN_BIAS
    44 FRACTAL_ZN_RNN 45 NYUV 46 NYUV_A 47 NCL 48 FRACTAL_Z_WINO 49 C1HWC0 50 FRACTAL_NZ_C0_16 51 FRACTAL_NZ_C0_32
"""


class DataType(NamedTuple):
    """The vendor's name of an element type, and the encoding of its elements; None where that is not known."""

    name: str
    coding: Coding | None


_ENTRIES = [entry.split() for entry in _TYPES.replace("\n", ";").split(";") if entry.strip()]
DATA_TYPES = MappingProxyType({int(number): DataType(name, CODINGS.get(word)) for number, name, word in _ENTRIES})
_WORDS = _FORMATS.split()
FORMATS = MappingProxyType({int(number): name for number, name in zip(_WORDS[0::2], _WORDS[1::2])})
_NAMES = frozenset(FORMATS.values())
# Names in which every letter is a dimension: a tensor of another rank is not in this order, whatever the number says.
_PLAIN = frozenset("NCHW NHWC HWCN CHWN NDHWC NCDHW DHWCN DHWNC NCL NC CN".split())
_NO_LAYOUT = frozenset("ND RESERVED ALL NULL MD".split())


def numbers() -> Mapping[str, int]:
    """The number under which elements of a type of ``sgsdump.tensors.dtypes`` are written, by the type's name."""
    by_name: dict[str, int] = {}
    for entry in _ENTRIES:
        number, _, word = entry
        if int(number) and word in CODINGS and CODINGS[word].decode is None:
            by_name.setdefault(word, int(number))
    return by_name


def data_type(number: int) -> DataType:
    """The type of a number; one without coding, named ``type 99``, for a number that the schema has not."""
    return DATA_TYPES.get(number) or DataType(f"type {number}", None)


def layout_of(number: int, rank: int) -> str | None:
    """The format's name; None for plain ND, unknown numbers, and orders of dimensions that do not fit the rank.

    The schema's syntax gives 0 (NCHW) where nothing was set, so the rank decides.
    """
    name = FORMATS.get(number, "ND")
    return name if fits(name, rank) else None


def fits(name: str, rank: int) -> bool:
    """Whether a format's name says in which order the values of a tensor of this rank lie."""
    return name in _NAMES and name not in _NO_LAYOUT and (name not in _PLAIN or len(name) == rank)


def is_device_layout(layout: str | None) -> bool:
    """Whether values in this layout are more than an order of the logical dimensions."""
    return layout is not None and layout not in _PLAIN
