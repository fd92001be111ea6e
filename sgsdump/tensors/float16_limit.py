"""float16 values at the end of what the type holds: devices put ±65504 where the result is larger, instead of Inf."""

from __future__ import annotations

import numpy as np

LARGEST = 65504.0
_BITS, _WITHOUT_SIGN = 0x7BFF, 0x7FFF
_PART = 1 << 20


def saturated(values: np.ndarray) -> int:
    """How many values of a float16 array are ±65504; 0 for an array of another type."""
    if values.dtype.kind != "f" or values.dtype.itemsize != 2:
        return 0
    flat = values.reshape(-1)
    parts = (flat[start : start + _PART] for start in range(0, flat.size, _PART))
    return sum(int(np.count_nonzero((_bits(part) & _WITHOUT_SIGN) == _BITS)) for part in parts)


def _bits(part: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(part, np.float16).view(np.uint16)
