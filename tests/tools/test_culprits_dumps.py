"""A small draw of the faults in dumps: each culprit is named first, and healthy pairs are called healthy."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from culprits import run_group
from plants.dumps import PLANTS


@pytest.mark.usefixtures("plants_in_process")
@pytest.mark.parametrize("kind", PLANTS)
def test_the_culprit_is_named_first(kind):
    outcomes = run_group("dumps", 1, 7, kind)[kind]
    assert all(outcome.first for outcome in outcomes), outcomes
