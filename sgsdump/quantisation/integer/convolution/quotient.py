"""UINT8 results by one float32 division, where it is exact.

QuantizeLinear divides, rounds half to even, saturates and stores in one pass over float32, which takes less time than
the rule written out in doubles. With P = A + bias_c whole and m_c = mul_c * 2^(K - n), the rule is
out = clip(half_up(P * m_c)): a staircase that rises to k at P = T_k. Another monotone staircase is the same if it has k
or more at T_k and less at T_k - 1, for k = 1 to 255. For each channel the float32 numbers next to 1 / m_c are tried
until one has.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.convolution.requantisation import Requantisation

NEIGHBOURS = 24
MOST_BITS = 40


def divisors(numbers: Requantisation) -> np.ndarray | None:
    """One float32 divisor per output channel; None where no number near 1 / m_c gives the rule's integers."""
    shift = (numbers.n - numbers.k).astype(np.int64)
    mul = numbers.mul.astype(np.int64)
    if np.any(shift < 1) or np.any(shift > MOST_BITS) or np.any(mul < 1):
        return None
    steps = np.arange(1, 256, dtype=np.int64)
    # P * mul >= (k - 1/2) * 2^shift, in whole numbers.
    rise = -((-(2 * steps - 1)[None] << (shift - 1)[:, None]) // mul[:, None])
    if rise.max() >= 2**24:
        return None
    at, below = rise.astype(np.float32), (rise - 1).astype(np.float32)
    exact = 2.0**shift / mul
    quotients, open_ = exact.astype(np.float32), np.ones(mul.size, bool)
    for away in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        tried = _neighbour(exact.astype(np.float32)[open_], away)[:, None]
        good = (np.rint(at[open_] / tried) >= steps).all(axis=1) & (np.rint(below[open_] / tried) < steps).all(axis=1)
        places = np.flatnonzero(open_)[good]
        quotients[places] = tried[good, 0]
        open_[places] = False
        if not open_.any():
            return quotients
    return None


def _neighbour(values: np.ndarray, away: int) -> np.ndarray:
    """The float32 numbers so many places further on (all positive)."""
    return (values.view(np.int32) + np.int32(away)).view(np.float32)
