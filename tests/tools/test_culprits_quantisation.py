"""A small draw of tools/culprits.py: planted faults of quantisation are named first, a healthy net is healthy."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


@pytest.mark.usefixtures("plants_in_process")
@pytest.mark.parametrize(("kind", "seed"), [("outlier_channel", 7), ("clipped_range", 6), ("healthy", 6)])
def test_a_small_draw(kind, seed):
    from culprits import run_group

    (outcome,) = run_group("quantisation", 1, seed=seed, kind=kind)[kind]
    assert outcome.first, outcome
