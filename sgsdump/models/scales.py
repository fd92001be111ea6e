"""Scale and zero point of a tensor that holds a range of values, of its channels or groups: UINT8 or INT16.

The rules are the SDK's (docs/formats/sigmastar.md#the-fixed-model).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

UINT8 = np.dtype(np.uint8)
INT8 = np.dtype(np.int8)
INT16 = np.dtype(np.int16)
# Scales are float32; a tensor whose range needs a smaller one is zero, and any scale stores zero.
TINIEST_SCALE = float(np.finfo(np.float32).tiny)

# What a Softmax puts out, whatever its range.
SOFTMAX_QUANT = Quant(INT16, 1 / 32768, 0, exact=True)


def uint8_quant(lo: float, hi: float) -> Quant:
    """Asymmetric: scale = (hi - lo) / 255 with the range extended to include 0; of a tensor that is always zero
    -0.5 to 0.5."""
    lo, hi = min(_single(lo), 0.0), max(_single(hi), 0.0)
    scale = (hi - lo) / 255
    if scale < TINIEST_SCALE:
        return Quant(UINT8, 1 / 255, 128, exact=True)
    return Quant(UINT8, scale, round(-lo / scale), exact=True)


def int16_quant(lo: float, hi: float) -> Quant:
    """Symmetric: scale = max(|lo|, |hi|) / 32767."""
    scale = max(abs(_single(lo)), abs(_single(hi))) / 32767
    return Quant(INT16, scale if scale >= TINIEST_SCALE else 1.0, 0, exact=True)


def _single(value: float) -> float:
    """A range's end as the SDK reads it: float32. What is computed from it is double."""
    return float(np.float32(value))


def joined(ranges: Mapping[str, Range], names: Iterable[str]) -> Range | None:
    """The ranges of all groups' tensors one after another; None when one is missing."""
    parts = [ranges.get(name) for name in names]
    if any(part is None for part in parts):
        return None
    low = np.concatenate([part.min for part in parts if part is not None])
    high = np.concatenate([part.max for part in parts if part is not None])
    return Range(low, high)
