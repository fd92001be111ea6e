"""The float32 values that stored ones mean: what ``Tensor.real`` gives.

Floats are cast, complex numbers become pairs, integers are dequantised where a scale is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sgsdump.errors import ValuesError
from sgsdump.tensors.dtypes import is_complex, is_float, is_number, name_of
from sgsdump.tensors.types import TensorInfo


def real_values(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    """The float32 values that stored ones mean; see ``Tensor.real``. Raises ValuesError."""
    if is_float(stored.dtype):
        with np.errstate(over="ignore", invalid="ignore"):
            return stored.astype(np.float32, copy=False)
    if is_complex(stored.dtype):
        pairs = np.ascontiguousarray(stored, np.complex128 if stored.dtype.itemsize > 8 else np.complex64)
        with np.errstate(over="ignore"):
            return pairs.view(pairs.real.dtype).reshape(*stored.shape, 2).astype(np.float32, copy=False)
    if not is_number(stored.dtype):
        raise ValuesError(f"tensor {info.name!r} holds {name_of(stored.dtype)}, which are not numbers")
    return dequantise(stored, info)


def real_part(stored: np.ndarray, index: Any, info: TensorInfo) -> np.ndarray:
    """``real_values(stored, info)[index]``, of which only that part is read and converted."""
    part = np.asarray(stored[index])
    if info.quant is None or not is_scaled(stored.dtype):
        return real_values(part, info)
    scale = checked_scale(info, stored.shape)
    if scale.ndim:
        scale = np.broadcast_to(scale, stored.shape)[index]
    return _product(part, scale, info.quant.zero_point)


def dequantise(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    """``float32(stored - zero_point) * float32(scale)``, the single-precision product the SDK computes.

    Raises ValuesError when the scale is absent or only known to six decimals, or does not fit the shape.
    """
    if info.quant is None:
        return stored.astype(np.float32)
    return _product(stored, checked_scale(info, stored.shape), info.quant.zero_point)


def is_scaled(dtype: np.dtype) -> bool:
    """Whether stored values of this type have to be dequantised: integers and booleans."""
    return is_number(dtype) and not is_float(dtype) and not is_complex(dtype)


def checked_scale(info: TensorInfo, shape: tuple[int, ...]) -> np.ndarray:
    """The scale in float32: one number, or in a shape that is broadcast to ``shape``. Raises as ``dequantise``."""
    quant = info.quant
    assert quant is not None, "values without a scale mean themselves"
    if not quant.exact:
        raise ValuesError(
            f"tensor {info.name!r} holds integers whose true scale is not in the file (its header rounds it to "
            f"six decimals); give the calibrated ranges, or dump again with dequantFixed"
        )
    if not scale_fits(info):
        raise ValuesError(
            f"tensor {info.name!r} has {np.size(quant.scale)} scales along axis {quant.axis}, which do not fit its "
            f"shape {list(shape)}; give the calibrated ranges"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.asarray(quant.scale, np.float32)
    if quant.axis is not None and scale.ndim:
        scale = scale.reshape([-1 if axis == quant.axis else 1 for axis in range(len(shape))])
    return scale


def scale_fits(info: TensorInfo) -> bool:
    """Whether there is one scale, or one for each channel along its axis (the last one where none is named)."""
    if info.quant is None:
        return True
    quant, shape, count = info.quant, info.shape or (), np.size(info.quant.scale)
    if np.ndim(quant.scale) == 0 or (quant.axis is None and count == 1):
        return True
    axis = len(shape) - 1 if quant.axis is None else quant.axis
    return np.ndim(quant.scale) == 1 and 0 <= axis < len(shape) and count == shape[axis]


def _product(stored: np.ndarray, scale: np.ndarray, zero_point: int) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        real: np.ndarray = (stored.astype(np.int64) - zero_point).astype(np.float32) * scale
    return real
