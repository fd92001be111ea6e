"""Bytes, rates and limits of plans."""

import numpy as np
import pytest

from sgsdump.tuning.proposals import Sizes

SIZES = Sizes(("a", "b", "c"), np.array([100, 300, 500]), 100)


@pytest.mark.parametrize(
    ("plan", "wide", "rate"), [("", 0, 0.5), ("b", 300, 0.65), ("ac", 600, 0.8), ("abc", 900, 0.95)]
)
def test_a_rate_is_the_bytes_over_those_of_all_at_16_bits(plan, wide, rate):
    """What stays at 8 bits whatever the plan counts too."""
    assert SIZES.wide(frozenset(plan)) == wide and SIZES.rate(frozenset(plan)) == pytest.approx(rate)
    assert SIZES.plan(SIZES.mask(frozenset(plan))) == frozenset(plan)


@pytest.mark.parametrize(("rate", "weights"), [(0.5, 0), (0.65, 300), (0.8, 600), (0.95, 900), (1.0, 1000)])
def test_a_limit_lets_exactly_that_many_weights_through(rate, weights):
    assert weights <= SIZES.limit(rate) < weights + 1
