"""Positions of the tensors in a safetensors file: ``uint64 N, N bytes of JSON, values`` (needs ``safetensors``).

The safetensors library opens and checks the file. It cannot return 8-bit floats as numpy arrays, so the values are read
from the mapped file; they lie one after the other without gaps.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.errors import FormatError, MissingExtra
from sgsdump.files.mapped import MappedFile, Source, in_memory, view
from sgsdump.tensors.dtypes import bits, dtype_named, unpacked

LENGTH = struct.Struct("<Q")
READ_NAMES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F4": "float4_e2m1fn",
    "C64": "complex64",
    **{f"F{size}": f"float{size}" for size in (16, 32, 64)},
    **{f"I{size}": f"int{size}" for size in (8, 16, 32, 64)},
    **{f"U{size}": f"uint{size}" for size in (8, 16, 32, 64)},
}
_ODD_BITS = {"F6_E2M3": 6, "F6_E3M2": 6}


class StoredTensor(NamedTuple):
    """Element type (None if numpy has none), shape and byte offset of a tensor in the file."""

    dtype: np.dtype | None
    shape: tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def stored_tensors(data: MappedFile, path: Path, key: str = "") -> tuple[dict[str, StoredTensor], str | None]:
    """Return the position of each tensor, and the file's metadata under ``key`` (None if there is none).

    Raises FormatError for damage, MissingExtra without the library.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtra(f"{path} needs safetensors. Install it with: pip install sgsdump[safetensors]") from None
    if len(data) < LENGTH.size:
        raise FormatError(f"{path} is a damaged safetensors file (it has only {len(data)} bytes)")
    found: dict[str, StoredTensor] = {}
    offset = LENGTH.size + LENGTH.unpack_from(data)[0]
    try:
        with safe_open(path, framework="np") as file:
            for name in file.offset_keys():
                part = file.get_slice(name)
                code, shape = part.get_dtype(), tuple(part.get_shape())
                dtype = dtype_named(READ_NAMES[code]) if code in READ_NAMES else None
                size = _ODD_BITS.get(code) if dtype is None else bits(dtype)
                if size is None:
                    raise FormatError(f"{path}: tensor {name!r} has the unknown type {code}. Update sgsdump")
                found[name] = StoredTensor(dtype, shape, offset)
                offset += math.prod(shape) * size // 8
            text = (file.metadata() or {}).get(key)
    except (SafetensorError, OSError, OverflowError, ValueError) as error:
        raise FormatError(f"{path} is a damaged safetensors file ({' '.join(str(error).split())[:120]})") from None
    if offset != len(data):
        raise FormatError(f"{path} is damaged: it has {len(data)} bytes, but its tensors end at byte {offset}")
    return found, text


def load(data: Source, stored: StoredTensor) -> np.ndarray:
    """Return a view of the values of a tensor with a known element type."""
    assert stored.dtype is not None
    if bits(stored.dtype) == 4:
        packed = view(data, np.dtype(np.uint8), (stored.elements + 1) // 2, stored.offset)
        return unpacked(in_memory(packed).data, stored.dtype, stored.elements).reshape(stored.shape)
    return view(data, stored.dtype, stored.elements, stored.offset).reshape(stored.shape)
