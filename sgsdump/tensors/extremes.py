"""The lowest and highest value of every row of many tables at once, by the compiled kernel where it is installed.

low, high = extremes([conv.reshape(64, -1), relu.reshape(1, -1)])     # 64 + 1 values each

A call of numpy's for each end of each tensor takes longer than reading the tensor; of the kernel's one does for all of
them, and it reads once. SGSDUMP_NO_KERNEL=1 in the environment leaves it out: the same values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import ModuleType

import numpy as np

_INTERFACE = 1


def _loaded() -> ModuleType | None:
    """The kernel; None where it was not built, is another version's, or is not wanted."""
    if os.environ.get("SGSDUMP_NO_KERNEL"):
        return None
    try:
        from sgsdump.tensors import extremes_kernel as kernel
    except ImportError:
        return None
    return kernel if kernel.INTERFACE == _INTERFACE else None


_KERNEL = _loaded()


def extremes(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """float64, one value for each row of each float table [rows, columns], one table after the other.

    A row that holds NaN gives NaN twice; zeros come without a sign. No table is empty.
    """
    places = np.cumsum([0, *(len(table) for table in tables)])
    low, high = np.empty((2, places[-1]))
    taken = [_taken(table) for table in tables]
    if any(taken):
        _by_kernel([t for t, yes in zip(tables, taken) if yes], places[:-1][taken], low, high)
    with np.errstate(invalid="ignore"):  # some NaNs would complain of being made float64
        for table, place, yes in zip(tables, places, taken):
            if not yes:
                low[place : place + len(table)] = table.min(axis=1)
                high[place : place + len(table)] = table.max(axis=1)
    return low + 0.0, high + 0.0


def _taken(table: np.ndarray) -> bool:
    return _KERNEL is not None and table.dtype == np.float32 and table.flags.c_contiguous


def _by_kernel(tables: Sequence[np.ndarray], places: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    assert _KERNEL is not None
    found = np.zeros((2, low.size), np.float32)
    described = np.array([(_address(table), *table.shape, 0) for table in tables], np.int64)
    described[:, 3] = places
    _KERNEL.ends_of_rows(_address(described), len(described), *map(_address, found))
    low[:], high[:] = found


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
