"""A small draw of two float back-ends: the layer where noise starts is named first, healthy pairs are not accused."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from culprits import run_group
from plants.backends import PLANTS


@pytest.mark.usefixtures("plants_in_process")
@pytest.mark.parametrize("kind", PLANTS)
def test_the_culprit_is_named_first(kind):
    outcomes = run_group("backends", 1, 7, kind)[kind]
    assert all(outcome.first for outcome in outcomes), outcomes
