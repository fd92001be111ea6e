"""UINT8 results by one float32 division where that is exact.

QuantizeLinear divides, rounds half to even, adds the zero point, saturates and stores in one pass over float32. This is
faster than the rule in doubles. With an integer P and m = mul / 2^shift, the rule is clip(half_up(P * m) + z): a
staircase that reaches k at P = T_k. Another monotone staircase is equal if it has at least k at T_k and less at T_k -
1, for all stored k but the lowest. The float32 numbers next to 1 / m are tried until one meets this.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

U8_MAX = 255
# Number of float32 neighbours of 1 / m to try on either side, and the largest shift of m to try them for.
NEIGHBOURS = 24
MOST_BITS = 40
# Integers below this are exact in float32.
EXACT = 2**24


def divisors(mul: np.ndarray, shifts: np.ndarray, zero: int = 0) -> np.ndarray | None:
    """Return one float32 divisor for each m = ``mul`` / 2^``shifts`` (C values each), read-only.

    Returns None if no number near 1 / m gives the integers of the rule with the zero point ``zero``.
    """
    return _divisors(mul.astype(np.int64).tobytes(), shifts.astype(np.int64).tobytes(), zero)


# A model is converted to integers repeatedly with the same scales.
@lru_cache(maxsize=512)
def _divisors(muls: bytes, moved: bytes, zero: int) -> np.ndarray | None:
    mul, shifts = np.frombuffer(muls, np.int64), np.frombuffer(moved, np.int64)
    if np.any(shifts < 1) or np.any(shifts > MOST_BITS) or np.any(mul < 1):
        return None
    levels = np.arange(1 - zero, U8_MAX + 1 - zero, dtype=np.int64)
    # P * mul >= (k - 1/2) * 2^shifts, in integers.
    rise = -((-(2 * levels - 1)[None] << (shifts - 1)[:, None]) // mul[:, None])
    if np.abs(rise).max() >= EXACT:
        return None
    at, below = rise.astype(np.float32), (rise - 1).astype(np.float32)
    exact = (2.0**shifts / mul).astype(np.float32)
    quotients, unsolved = exact.copy(), np.ones(mul.size, bool)
    for away in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        tried = _neighbour(exact[unsolved], away)[:, None]
        good = (np.rint(at[unsolved] / tried) >= levels).all(axis=1) & (np.rint(below[unsolved] / tried) < levels).all(
            axis=1
        )
        solved = np.flatnonzero(unsolved)[good]
        quotients[solved] = tried[good, 0]
        unsolved[solved] = False
        if not unsolved.any():
            quotients.setflags(write=False)
            return quotients
    return None


@cache
def divisor_of(times: float, zero: int = 0) -> np.float32 | None:
    """Return the divisor for one float m, or None."""
    mul, power = float(times).as_integer_ratio()
    found = divisors(np.array([mul]), np.array([power.bit_length() - 1]), zero) if mul < EXACT else None
    return None if found is None else found[0]


def _neighbour(values: np.ndarray, away: int) -> np.ndarray:
    """Return the float32 numbers ``away`` positions further (all positive)."""
    return (values.view(np.int32) + np.int32(away)).view(np.float32)
