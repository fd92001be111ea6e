"""The errors of the three-way comparison, over whole arrays; the package's docstring has them in one view."""

from __future__ import annotations

import math

import numpy as np

EPSILON = 1e-9


def diff2(e: np.ndarray, b: np.ndarray, apart: np.ndarray | None = None) -> float:
    """sqrt(Σ(e-b)² / Σb²) of two arrays of one shape; infinite when only b is all zeros, NaN when both are. ``apart``
    is |e-b| where the arrays do not hold it exactly."""
    with np.errstate(all="ignore"):
        e, b = e.reshape(-1), b.reshape(-1)
        return math.sqrt(float(np.sum((e - b if apart is None else apart.reshape(-1)) ** 2) / np.sum(b**2)))


def diff3(e: np.ndarray, b: np.ndarray, th1: float, apart: np.ndarray | None = None) -> tuple[float, float]:
    """The largest and the mean diff3 of two arrays of one shape against base b; 0 and 0 when they are empty.

    ``apart`` is |e-b| where the arrays do not hold it exactly.
    """
    if not e.size:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        error = np.abs(e - b) if apart is None else apart
        base = np.abs(b)
        error = np.where(base > np.float64(th1), error / (base + EPSILON), error)
        return float(error.max()), float(error.mean())


def exact_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """|a-b| of integers of 64 bits, rounded once: as float64 they may be equal though they are not. None for others."""
    if a.dtype != b.dtype or a.dtype.kind not in "iu" or a.dtype.itemsize != 8:
        return None
    # modulo 2**64 the larger less the smaller is their true distance
    u, v = a.astype(np.uint64), b.astype(np.uint64)
    return np.where(a >= b, u - v, v - u).astype(np.float64)
