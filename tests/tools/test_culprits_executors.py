"""A small draw of tools/culprits.py: faults of an executor are named, a healthy one is called healthy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.parametrize(("kind", "seed"), [("hidden", 3), ("fused", 4), ("healthy", 5)])
def test_a_plant(kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "tools"), *sys.path])
    from plants.executors import PLANTS

    outcome = PLANTS[kind](np.random.default_rng(seed), tmp_path)
    assert outcome.first, outcome
