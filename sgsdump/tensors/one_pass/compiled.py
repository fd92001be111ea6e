"""The compiled kernels, all optional (numpy does the same, slower; SGSDUMP_NO_KERNEL=1 leaves them out), and calls into
that of this folder: the ends of rows, and counts in bins.

What they give is what numpy gives without them, digit by digit.
"""

from __future__ import annotations

import importlib
import os
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
