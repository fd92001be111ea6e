"""A small draw of the plants in programs: the culprit is named first, and a healthy pair names none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize("kind", ["another_weight", "another_scalar", "another_dtype", "wrong_transpose", "healthy"])
def test_the_culprit_is_first(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(TOOLS))
    for name in [name for name in sys.modules if name.partition(".")[0] == "plants"]:
        monkeypatch.delitem(sys.modules, name)
    outcome = importlib.import_module("plants.programs").PLANTS[kind](np.random.default_rng(7), tmp_path)
    assert outcome.first, outcome
    assert bool(outcome.culprits) == (kind != "healthy")
