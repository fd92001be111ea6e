"""Stored values and the way to real ones: a chunk is converted when it is read, never the whole tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sgsdump.tensors.dtypes import is_complex, is_float, is_number
from sgsdump.tensors.quant import Quant
from sgsdump.tensors.real_values import checked_scale, dequantise
from sgsdump.tensors.tensor import Tensor


@dataclass(frozen=True)
class Scaling:
    """One float32 scale and one zero point: ``float32(stored - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Values:
    """Stored values and how a chunk of them becomes real ones (None: the stored values are real).

    array may be memory-mapped, unaligned or a transposed view; it is never written to. scaling says what ``to_real``
    does, where that is all of it.
    """

    array: np.ndarray
    to_real: Callable[[np.ndarray], np.ndarray] | None = None
    scaling: Scaling | None = None

    def of(self, array: np.ndarray) -> Values:
        """The same meaning on another view of the values."""
        return self if array is self.array else Values(array, self.to_real, self.scaling)


def values_of(tensor: Tensor, quant: Quant | None = None) -> Values:
    """A tensor's stored values and the way from a chunk of them to real ones; ``quant`` replaces the header's.

    Raises ValuesError for integers whose true scale is not known.
    """
    stored = tensor.stored()
    info = tensor.info if quant is None else replace(tensor.info, quant=quant)
    if is_complex(stored.dtype) or not is_number(stored.dtype):
        return Values(tensor.real())
    if is_float(stored.dtype) or info.quant is None:
        return Values(stored)
    if not info.quant.exact or info.quant.axis is not None or np.size(info.quant.scale) != 1:
        return Values(dequantise(stored, info))
    scaling = Scaling(float(checked_scale(info, (1,)).reshape(())), info.quant.zero_point)
    return Values(stored, lambda chunk: dequantise(chunk, info), scaling)
