"""Which of many domains have an effect, found in few trials."""

import numpy as np
import pytest

from sgsdump.fixedpoint.quantisation.trials.group_effects import GroupEffects


@pytest.mark.parametrize("seed", range(5))
def test_the_few_that_matter_are_found_in_few_trials(seed):
    rng = np.random.default_rng(seed)
    effects = rng.uniform(0, 1e-5, 200)
    culprits = {int(index) for index in rng.choice(200, 4, replace=False)}
    for index in culprits:
        effects[index] = rng.uniform(0.01, 0.5)
    tried = []

    def effect(group):
        tried.append(group)
        return float(effects[list(group)].sum())

    found = GroupEffects(200, effect)
    assert found.at_least(0.01) == sorted(culprits, reverse=True)
    assert len(tried) == len(set(tried)) <= 2 * 4 * 8 + 1
    assert {index: found.bounds[index] for index in culprits} == {index: effects[index] for index in culprits}
    assert all(found.bounds[i] >= effects[i] for i in range(200))
    before = len(tried)
    assert found.at_least(0.01) == sorted(culprits, reverse=True) and len(tried) == before, "each group is tried once"


def test_where_all_matter_small_groups_are_not_halved():
    tried = []

    def effect(group):
        tried.append(len(group))
        return float("inf") if 3 in group else float(len(group))

    assert GroupEffects(16, effect).at_least(0.5) == list(range(16))[::-1]
    assert sorted(tried) == [1] * 16 + [4] * 4 + [8] * 2 + [16]


def test_a_group_is_followed_by_its_first_half_or_its_first_member():
    """Up to the middle, a network runs with that as it ran with the group."""
    tried = []
    found = GroupEffects(8, lambda group: tried.append((group.start, group.stop)) or (9.0 if 0 in group else 0.4))
    assert found.at_least(1.0) == [0]
    assert tried == [(0, 8), (0, 4), (0, 1), (1, 2), (2, 3), (3, 4), (4, 8)]


def test_members_that_hide_half_of_each_other_are_found():
    """Errors of opposite signs add up to less than each."""
    found = GroupEffects(2, lambda group: {1: 1.0, 2: 0.5}[len(group)])
    assert found.at_least(1.0) == [1, 0]


def test_where_nothing_matters_one_trial_says_so():
    tried = []
    quiet = GroupEffects(100, lambda group: tried.append(group) or 1e-6)
    assert quiet.at_least(0.002) == [] and len(tried) == 1
    assert quiet.bounds[7] == 1e-6 and quiet.together[7] == 100
    assert GroupEffects(0, lambda group: 1.0).at_least(0) == []
