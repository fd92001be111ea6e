"""The compiled kernel, where it is installed: the sums of ``lanes``, digit by digit, at the speed of reading.

SGSDUMP_NO_KERNEL=1 in the environment leaves it out.
"""

from __future__ import annotations

import os
from types import ModuleType

import numpy as np

from sgsdump.comparison.sums.lanes import CHUNK, LANES, Totals

_INTERFACE = 1
_FLOAT32 = np.dtype(np.float32)


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


def takes(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the kernel takes two arrays of one size."""
    return _KERNEL is not None and all(side.dtype == _FLOAT32 and side.flags.c_contiguous for side in (a, b))


def add(totals: Totals, a: np.ndarray, b: np.ndarray) -> None:
    """Add all chunks of two arrays that ``takes`` accepts."""
    assert _KERNEL is not None, "asked of pairs only that takes() accepts"
    assert a.size == b.size
    _KERNEL.add_pair(_address(a), _address(b), a.size, _address(totals.lanes), _address(totals.odd))


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
