"""HiFloat8, the 8-bit float whose exponent takes 0 to 4 bits: a sign, a prefix that says how many, the exponent as sign
and magnitude whose leading 1 is not written, and the fraction in what is left.

::

    S 0000 MMM    2 ** (M - 23); 0000 of S 0 is zero, of S 1 is NaN
    S 0001 MMM    (1 + M / 8)
    S 001 E MMM   (1 + M / 8) * 2 ** E, E = +-1
    S 01 EE MMM   (1 + M / 8) * 2 ** E, E = +-(2 to 3)
    S 10 EEE MM   (1 + M / 4) * 2 ** E, E = +-(4 to 7)
    S 11 EEEE M   (1 + M / 2) * 2 ** E, E = +-(8 to 15); 11 0111 1 is infinite

Source: "Ascend HiFloat8 Format for Deep Learning", arXiv 2409.16626, and the vendor's public headers, which agree. The
vendor's msaccucmp decodes 49 of the 256 codes otherwise: all of exponent 0 and +-1, and minus infinity as plus.
"""

from __future__ import annotations

import math

import numpy as np


def _value(code: int) -> float:
    sign, rest = (-1.0 if code & 0x80 else 1.0), code & 0x7F
    if rest < 8:
        return sign * 2.0 ** (rest - 23) if rest else (math.nan if code else 0.0)
    if rest < 16:
        return sign * (1 + (rest - 8) / 8)
    if rest == 0x6F:
        return sign * math.inf
    width = 1 if rest < 0x20 else (rest >> 5) + 1
    fraction_bits = 3 if width < 3 else 5 - width
    fraction = rest & ((1 << fraction_bits) - 1)
    exponent = rest >> fraction_bits & ((1 << width) - 1)
    leading = 1 << (width - 1)
    magnitude = leading | exponent & (leading - 1)
    return sign * (1 + fraction / (1 << fraction_bits)) * 2.0 ** (-magnitude if exponent & leading else magnitude)


VALUES = np.array([_value(code) for code in range(256)], np.float32)
VALUES.flags.writeable = False
