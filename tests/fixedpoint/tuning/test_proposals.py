"""Bytes, rates and limits of plans."""

import numpy as np
import pytest

from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.proposals import Surrogate, best_by_model, changes_of

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


@pytest.mark.parametrize("seed", range(4))
def test_changes_of_a_plan_are_foreseen_as_the_plans_themselves_are(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((2, 8, 20)) * rng.lognormal(0, 1, (2, 8, 1))
    model = Surrogate(vectors @ vectors.transpose(0, 2, 1), rng.uniform(0, 1, 2), np.zeros(7), 0.0)
    plan = rng.integers(0, 2, 7).astype(bool)
    one, two = model.one_away(plan)
    flipped = plan ^ np.eye(7, dtype=bool)
    np.testing.assert_allclose(one, model.predict(flipped), rtol=1e-9)
    for row, i in enumerate(np.flatnonzero(plan)):
        np.testing.assert_allclose(two[row], model.predict(flipped[i] ^ np.eye(7, dtype=bool)[~plan]), rtol=1e-9)
    weights = rng.integers(1, 9, 7)
    best = best_by_model(model, weights, 20, plan & (np.cumsum(weights * plan) <= 20))
    changes = changes_of(model, best, weights, 20)
    near = np.array(list(changes.ranked()))
    np.testing.assert_allclose(np.sort(changes.errors), model.predict(near), rtol=1e-9)
    np.testing.assert_array_equal(changes.wide, [changes.plan(index) @ weights for index in range(len(near))])
    smaller = list(changes.ranked(smaller_than=weights @ best))
    assert len(smaller) == (changes.wide < weights @ best).sum() > 0
    assert weights[best].sum() <= 20 and model.predict(near).min() >= model.predict(best[None])[0] * (1 - 1e-9)
