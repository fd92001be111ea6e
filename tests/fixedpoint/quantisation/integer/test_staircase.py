"""UINT8 results by one division are the rule's, at every whole number that a tensor may hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.fixedpoint.quantisation.integer.staircase import divisor_of, divisors

WHOLE = np.arange(-(1 << 16), 1 << 16)


def rule(mul: int, shift: int, zero: int) -> np.ndarray:
    """clip(half_up(q * mul / 2^shift) + zero), in whole numbers."""
    return np.clip(((2 * WHOLE * mul + (1 << shift)) >> (shift + 1)) + zero, 0, 255)


def divided(divisor: np.float32, zero: int) -> np.ndarray:
    """As QuantizeLinear computes it."""
    return np.clip(np.rint(WHOLE.astype(np.float32) / divisor) + zero, 0, 255).astype(int)


@given(st.integers(16384, 32767), st.integers(15, 28), st.integers(0, 255))
def test_a_division_gives_the_rule(mul: int, shift: int, zero: int) -> None:
    divisor = divisor_of(mul / 2.0**shift, zero)
    if divisor is not None:
        assert np.array_equal(divided(divisor, zero), rule(mul, shift, zero))


@pytest.mark.parametrize("zero", [0, 100, 255])
def test_most_multipliers_have_a_divisor(zero: int) -> None:
    mul = np.arange(16384, 32768, 97)
    found = [divisors(np.array([each]), np.array([22]), zero) for each in mul]
    assert np.mean([each is not None for each in found]) > 0.9


def test_ties_are_rounded_up_on_both_sides_of_zero() -> None:
    """q / 2: 0.5 becomes 1 and -0.5 becomes 0, where rounding half to even makes 0 of both."""
    divisor = divisor_of(0.5, 128)
    assert divisor is None or np.array_equal(divided(divisor, 128), rule(16384, 15, 128))


def test_what_no_float_divides_right_is_left_to_doubles() -> None:
    assert divisor_of(3.0) is None  # no shift at all
    assert divisor_of(2.0**-60) is None


def test_each_channel_has_its_own() -> None:
    mul, shifts = np.array([16384, 20001, 32767]), np.array([21, 22, 23])
    found = divisors(mul, shifts)
    assert found is not None
    for divisor, each, shift in zip(found, mul, shifts):
        assert np.array_equal(divided(divisor, 0), rule(int(each), int(shift), 0))
