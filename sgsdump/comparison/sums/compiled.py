"""The compiled kernel, where it is installed: the sums of ``by_numpy``, digit by digit, at the speed of reading.

SGSDUMP_NO_KERNEL=1 in the environment leaves it out.
"""

from __future__ import annotations

import os
import threading
from types import ModuleType

import ml_dtypes
import numpy as np

from sgsdump.comparison.sums.lanes import CHUNK, LANES, Totals
from sgsdump.comparison.sums.tiles import Table
from sgsdump.tensors.real_view import Values

_INTERFACE = 2
# The kernel's numbers for types; integers mean numbers by a scale and a zero point.
_TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16)
_KINDS = {np.dtype(dtype): kind for kind, dtype in enumerate(_TYPES)}
_LARGEST_ZERO_POINT = 1 << 30
_LOCAL = threading.local()


def _loaded() -> ModuleType | None:
    """The kernel; None where it was not built, is another version's, or is not wanted."""
    if os.environ.get("SGSDUMP_NO_KERNEL"):
        return None
    try:
        from sgsdump.comparison.sums import kernel
    except ImportError:
        return None
    return kernel if (kernel.INTERFACE, kernel.LANES, kernel.CHUNK) == (_INTERFACE, LANES, CHUNK) else None


_KERNEL = _loaded()


def description() -> str:
    """Which sums are in use, for ``sgsdump --version``."""
    return "numpy sums" if _KERNEL is None else f"compiled sums ({_KERNEL.vectors()})"


def takes(side: Values) -> bool:
    """Whether the kernel is there and knows the type, and how its values become real ones."""
    dtype = side.array.dtype
    if _KERNEL is None or dtype not in _KINDS:
        return False
    if side.to_real is None:
        return True
    return dtype.kind in "iu" and side.scaling is not None and abs(side.scaling.zero_point) <= _LARGEST_ZERO_POINT


def add(totals: Totals, sample: Values, benchmark: Values, table: Table) -> None:
    """Add a table, a part of two that ``takes`` accepts."""
    assert _KERNEL is not None, "asked of pairs only that takes() accepts"
    assert table.a.shape == table.b.shape
    _KERNEL.add_pair(
        _described(sample, table.a),
        _described(benchmark, table.b),
        (*table.a.shape, *table.tile),
        *map(_address, (totals.lanes, totals.odd, _scratch())),
    )


def _described(side: Values, array: np.ndarray) -> tuple[int, int, int, int, float, int]:
    scale, zero_point = (1.0, 0) if side.scaling is None else (side.scaling.scale, side.scaling.zero_point)
    rows, columns = array.strides
    return _address(array), _KINDS[array.dtype], rows, columns, scale, zero_point


def _scratch() -> np.ndarray:
    """The thread's own room for a packed chunk of either side, kept, beginning on a cache line."""
    if not hasattr(_LOCAL, "scratch"):
        block = np.empty(2 * CHUNK + 16, np.float32)
        start = -block.ctypes.data % 64 // 4
        _LOCAL.scratch = block[start : start + 2 * CHUNK]
    scratch: np.ndarray = _LOCAL.scratch
    return scratch


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
