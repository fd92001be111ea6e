"""The compiled passes over floats, where they are installed: for the ends of rows, and for counts in bins.

What they give is what numpy gives without them, digit by digit.
"""

from __future__ import annotations

import numpy as np

from sgsdump.tensors.kernels import kernel

_KERNEL = kernel("sgsdump.tensors.one_pass.kernel", INTERFACE=2)


def takes(array: np.ndarray) -> bool:
    """Whether the kernel is there, and reads this array."""
    return _KERNEL is not None and array.dtype == np.float32 and array.flags.c_contiguous


def ends_of_rows(described: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Fill float32 ``low`` and ``high``; ``described``: int64 rows of address, rows, columns and first place of each
    table."""
    assert _KERNEL is not None, "asked of arrays only that takes() accepts"
    _KERNEL.ends_of_rows(address(described), len(described), address(low), address(high))


def count_in_bins(values: np.ndarray, scale: float, counts: np.ndarray) -> int:
    """Add how many values lie where to int64 ``counts``: bin ``floor(value * scale)``, 0 in the middle; the product is
    float32. What lies beyond counts at the end. Returns how many values are 0, which are not counted."""
    assert _KERNEL is not None, "asked of arrays only that takes() accepts"
    zeros: int = _KERNEL.count_in_bins(address(values), values.size, scale, counts.size // 2, address(counts))
    return zeros


def address(array: np.ndarray) -> int:
    """Where its first value lies."""
    start: int = array.__array_interface__["data"][0]
    return start
