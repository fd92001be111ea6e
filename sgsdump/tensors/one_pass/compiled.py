"""Loader of the optional compiled kernels, and passes over tensors that use them: extremes, sums and bin counts.

Results are bit-identical with and without a kernel. SGSDUMP_NO_KERNEL=1 disables the kernels.

low, high = extremes([conv.reshape(64, -1), relu.reshape(1, -1)])     # 64 + 1 values each

One numpy call per extreme of each tensor takes longer than reading the tensor. The kernel reads each tensor once and
handles all tensors in one call.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np


def kernel(name: str, **constants: int) -> ModuleType | None:
    """Return the compiled module of this name, or None if unavailable.

    A module is unavailable if it was not built, is disabled, or was built from a source whose ``constants`` differ from
    those that the caller expects.
    """
    if os.environ.get("SGSDUMP_NO_KERNEL"):
        return None
    try:
        compiled = importlib.import_module(name)
    except ImportError:
        return None
    return compiled if all(getattr(compiled, key, None) == value for key, value in constants.items()) else None


# None if not installed. Its functions accept only arrays for which ``takes`` is true.
_KERNEL: Any = kernel("sgsdump.tensors.one_pass.kernel", INTERFACE=6)


def takes(array: np.ndarray) -> bool:
    """Return whether the kernel is available and supports this array."""
    return _KERNEL is not None and array.dtype == np.float32 and array.flags.c_contiguous


def in_memory_order(array: np.ndarray) -> np.ndarray | None:
    """Return a view with other axes that ``takes`` accepts, or None if the array has gaps or another type."""
    if array.flags.c_contiguous:
        return array if takes(array) else None
    view = array.transpose(sorted(range(array.ndim), key=array.strides.__getitem__, reverse=True))
    return view if takes(view) else None


def ends_of_rows(described: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Fill float32 ``low`` and ``high`` with the minimum and maximum of each row.

    described  int64, one row per table: address, rows, columns, index of the first row in ``low`` and ``high``
    """
    _KERNEL.ends_of_rows(address(described), len(described), address(low), address(high))


def count_in_bins(values: np.ndarray, smallest: int, counts: np.ndarray) -> tuple[int, int]:
    """Add to int64 ``counts`` a histogram of finite values over [-2^exponent, 2^exponent], with 0 in the middle.

    Returns the exponent and the number of zeros, which are not counted. The exponent is the smallest that covers all
    values, but at least ``smallest``.
    """
    exponent, zeros = _KERNEL.count_in_bins(address(values), values.size, counts.size // 2, smallest, address(counts))
    return exponent, zeros


def count_between(values: np.ndarray, low: float, high: float, counts: np.ndarray) -> None:
    """Add to int64 ``counts`` a histogram of the values over equal parts of [low, high]; low < high."""
    _KERNEL.count_between(address(values), values.size, low, high, counts.size, address(counts))


def count_outside(values: np.ndarray, low: float, high: float) -> int:
    """Count the finite values below ``low`` or above ``high``."""
    count: int = _KERNEL.count_outside(address(values), values.size, low, high)
    return count


def summarise(values: np.ndarray, chunk: int) -> tuple[float, float, float, float, int, int, int]:
    """Return minimum, maximum, sum and sum of squares of the finite values, and the numbers of NaN, -Inf and +Inf.

    Each chunk of ``chunk`` values is summed in numpy's order. Without a finite value, minimum and maximum are
    undefined.
    """
    found: tuple[float, float, float, float, int, int, int]
    found = _KERNEL.summarise(address(values), values.size, chunk)
    return found


def address(array: np.ndarray) -> int:
    """Return the address of the array's data."""
    start: int = array.__array_interface__["data"][0]
    return start


def extremes(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 minimum and maximum of each row of float tables [rows, columns], one table after the other.

    A row with NaN gives NaN for both. Zeros have no sign. No table may be empty.
    """
    watch = RowWatch([tables])
    watch.look(0)
    return watch.ends()


class RowWatch:
    """Repeated extremes of tables whose values change in place, one group of tables at a time.

    The description of each table for the kernel or numpy is computed once.
    """

    def __init__(self, groups: Sequence[Sequence[np.ndarray]]):
        self._groups: list[tuple[np.ndarray, list[tuple[np.ndarray, slice]]]] = []
        exact: list[bool] = []
        for tables in groups:
            described, others = [], []
            for table in tables:
                taken, first = takes(table), len(exact)
                if taken:
                    described.append((address(table), *table.shape, first))
                else:
                    others.append((table, slice(first, first + len(table))))
                exact += [not taken] * len(table)
            self._groups.append((np.array(described, np.int64), others))
        self._tables = groups  # keeps the tables alive: the kernel reads them by address
        self._is_exact = np.array(exact, bool)
        self._found, self._exact = np.zeros((2, len(exact)), np.float32), np.zeros((2, len(exact)))

    def look(self, group: int) -> None:
        """Update the extremes of the rows of a group."""
        described, others = self._groups[group]
        if len(described):
            ends_of_rows(described, *self._found)
        with np.errstate(invalid="ignore"):  # converting a signalling NaN to float64 would warn
            for table, rows in others:
                self._exact[0, rows], self._exact[1, rows] = table.min(axis=1), table.max(axis=1)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the extremes of all rows in the format of ``extremes``."""
        low, high = np.where(self._is_exact, self._exact, self._found) + 0.0
        return low, high
