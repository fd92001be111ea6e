"""What ``dump_info.json`` says of an array: ``tensor_info``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sgsdump.tensors.dtypes import is_complex, is_number, name_of

Number = int | float | None


@dataclass(frozen=True)
class TensorFacts:
    """``tensor_info``: numpy's name of the dtype, the shape, and statistics as numpy gives them (NaN stays NaN).

    The four statistics are None where there is nothing to compute: an empty tensor, text, complex numbers.
    """

    dtype: str
    shape: tuple[int, ...]
    has_nan: bool = False
    has_inf: bool = False
    mean: Number = None
    median: Number = None
    min: Number = None
    max: Number = None


def facts_of(array: np.ndarray) -> TensorFacts:
    """Statistics of an array by numpy's own mean, median, min and max, in the array's dtype.

    Types numpy has no arithmetic for (bfloat16 and smaller) are computed in float32.
    """
    shape, dtype = tuple(array.shape), name_of(array.dtype)
    if not array.size or not is_number(array.dtype) or is_complex(array.dtype):
        return TensorFacts(dtype, shape)
    if array.dtype.isbuiltin != 1:
        array = array.astype(np.float32)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    inexact = array.dtype.kind == "f"
    with np.errstate(all="ignore"):
        low, high, mean = array.min(), array.max(), array.mean()
        # min and max are NaN as soon as one value is.
        has_nan = bool(inexact and np.isnan(low))
        has_inf = bool(np.isinf(array).any()) if has_nan else bool(inexact and (np.isinf(low) or np.isinf(high)))
        median = np.float64("nan") if has_nan else _median(array)
    return TensorFacts(dtype, shape, has_nan, has_inf, float(mean), float(median), low.item(), high.item())


def _median(array: np.ndarray) -> Any:
    """``np.median``; float16 is sorted as float32, in which the same values stand, and five times faster."""
    if array.dtype == np.float16:
        return np.float16(np.median(array.astype(np.float32)))
    return np.median(array)
