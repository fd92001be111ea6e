"""How integers mean real numbers: scale, zero point, and along which axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Quant:
    """How integers mean real numbers: ``real = (stored - zero_point) * scale``.

    scale        one step; an array of C entries when per channel, along ``axis`` (of the logical shape).
                 0.0 says that the file gives none.
    zero_point   the stored value that means 0.0.
    dtype        the quantised type; None when the file names a type we do not know (``type_name`` keeps its word).
                 A dequantised tensor (stored as float32) still says here what it was.
    exact        False when the scale was read from text of six decimals: good to print, too coarse to dequantise
                 16-bit values (up to 1.6 % off).
    """

    dtype: np.dtype | None
    scale: float | np.ndarray = 0.0
    zero_point: int = 0
    axis: int | None = None
    exact: bool = False
    type_name: str = ""


def same_quant(one: Quant | None, other: Quant | None) -> bool:
    """Whether two ways of dequantising are equal in every field, scales per channel compared one by one."""
    if one is None or other is None:
        return one is other
    plain = [(q.dtype, q.zero_point, q.axis, q.exact, q.type_name) for q in (one, other)]
    return plain[0] == plain[1] and np.array_equal(one.scale, other.scale, equal_nan=True)
