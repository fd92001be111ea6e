"""``tools/ranking.py`` with its short setting; what it measures is in docs/how_well_it_finds.md."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ranking


def test_a_small_net_is_ranked_as_the_integers_say(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ranking.py", "--short"])
    assert ranking.main() == 0
    name, domains, measured, ceiling, first, halves, share = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert (name, domains) == ("| convolutional L1", "4")
    assert all(float(each) > 0.7 for each in (*measured.split(", "), ceiling, share.rstrip(" |")))
    assert first == halves == "2 of 2"


@pytest.mark.parametrize("a, b", [([3, 1, 2, 2], [1, 5, 4, 4]), ([1, 2, 3, 4], [1, 3, 2, 9]), ([1, 1, 2], [2, 1, 1])])
def test_ranks_are_correlated_as_scipy_does(a, b):
    from scipy.stats import spearmanr  # a second of every worker's start

    expected = spearmanr(a, b).statistic
    assert ranking.spearman(np.array(a, float), np.array(b, float)) == pytest.approx(expected)
