"""The compiled kernels, all optional, and passes over tensors by the one of this folder: ends of rows, counts in bins.

What they give is what numpy gives without them, digit by digit; SGSDUMP_NO_KERNEL=1 leaves them out.

low, high = extremes([conv.reshape(64, -1), relu.reshape(1, -1)])     # 64 + 1 values each

A call of numpy's for each end of each tensor takes longer than reading the tensor; of the kernel's one does for all of
them, and it reads once.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np


def kernel(name: str, **constants: int) -> ModuleType | None:
    """The compiled module of this name; None where it was not built, was built from a source with other ``constants``
    than its caller counts on, or is switched off."""
    if os.environ.get("SGSDUMP_NO_KERNEL"):
        return None
    try:
        compiled = importlib.import_module(name)
    except ImportError:
        return None
    return compiled if all(getattr(compiled, key, None) == value for key, value in constants.items()) else None


# None where it is not installed; the functions are for arrays only that ``takes`` accepts.
_KERNEL: Any = kernel("sgsdump.tensors.one_pass.kernel", INTERFACE=5)


def takes(array: np.ndarray) -> bool:
    """Whether the kernel is there, and reads this array."""
    return _KERNEL is not None and array.dtype == np.float32 and array.flags.c_contiguous


def ends_of_rows(described: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Fill float32 ``low`` and ``high``; ``described``: int64 rows of address, rows, columns and first row's index of
    each table."""
    _KERNEL.ends_of_rows(address(described), len(described), address(low), address(high))


def count_in_bins(values: np.ndarray, smallest: int, counts: np.ndarray) -> tuple[int, int]:
    """Add to int64 ``counts`` how many of finite values lie where between -2^exponent and 2^exponent, 0 in the middle.
    Returns the exponent, the least that holds all, but not below ``smallest``; and how many values are 0, which are not
    counted."""
    exponent, zeros = _KERNEL.count_in_bins(address(values), values.size, counts.size // 2, smallest, address(counts))
    return exponent, zeros


def count_between(values: np.ndarray, low: float, high: float, counts: np.ndarray) -> None:
    """Add to int64 ``counts`` how many values lie in each of as many equal parts of [low, high], low < high."""
    _KERNEL.count_between(address(values), values.size, low, high, counts.size, address(counts))


def address(array: np.ndarray) -> int:
    """Where its first value lies."""
    start: int = array.__array_interface__["data"][0]
    return start


def extremes(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """float64, one value for each row of each float table [rows, columns], one table after the other.

    A row that holds NaN gives NaN twice; zeros come without a sign. No table is empty.
    """
    watch = RowWatch([tables])
    watch.look(0)
    return watch.ends()


class RowWatch:
    """Tables whose values change while they stay where they are: looked at again and again, a group at a time.

    What the kernel, or numpy, has to know of a table is found out once.
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
        self._tables = groups  # the kernel reads them, by their addresses
        self._is_exact = np.array(exact, bool)
        self._found, self._exact = np.zeros((2, len(exact)), np.float32), np.zeros((2, len(exact)))

    def look(self, group: int) -> None:
        """Find the ends of a group's rows."""
        described, others = self._groups[group]
        if len(described):
            ends_of_rows(described, *self._found)
        with np.errstate(invalid="ignore"):  # some NaNs would complain of being made float64
            for table, rows in others:
                self._exact[0, rows], self._exact[1, rows] = table.min(axis=1), table.max(axis=1)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Of all rows, as ``extremes`` gives them."""
        low, high = np.where(self._is_exact, self._exact, self._found) + 0.0
        return low, high
