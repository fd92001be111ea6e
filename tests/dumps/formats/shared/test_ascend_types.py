"""HiFloat8 against what its paper says of it: how many exponents have how many bits, and the ends of its range."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sgsdump.dumps.formats.shared.ascend_types import HIFLOAT8


def test_special_codes() -> None:
    assert (HIFLOAT8[0x00], HIFLOAT8[0x6F], HIFLOAT8[0xEF]) == (0, np.inf, -np.inf)
    assert np.flatnonzero(np.isnan(HIFLOAT8)).tolist() == [0x80]
    assert (HIFLOAT8[0x08], HIFLOAT8[0x10], HIFLOAT8[0x18], HIFLOAT8[0x6E]) == (1, 2, 0.5, 2.0**15)


def test_every_code_is_a_number_of_its_own_and_the_sign_is_the_first_bit() -> None:
    finite = HIFLOAT8[np.isfinite(HIFLOAT8)]
    assert len(set(finite.tolist())) == len(finite) == 253
    assert np.array_equal(HIFLOAT8[129:], -HIFLOAT8[1:128])


def test_precision_tapers_from_the_middle() -> None:
    """7 exponents of 3 bits, 8 of 2, 16 of 1 (one code of which is infinity), 7 more powers of two below."""
    positive = HIFLOAT8[1:128][np.isfinite(HIFLOAT8[1:128])].astype(np.float64)
    codes = Counter(np.floor(np.log2(positive)).astype(int).tolist())
    bits = {exponent: 3 if abs(exponent) < 4 else 2 if abs(exponent) < 8 else 1 for exponent in range(-15, 16)}
    expected = {exponent: 2**width for exponent, width in bits.items()} | dict.fromkeys(range(-22, -15), 1)
    assert codes == {**expected, 15: 1}
