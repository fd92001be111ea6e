"""The search for a tensor by its values: in buckets it finds what the search among all finds, with bounded work."""

from __future__ import annotations

import numpy as np
import pytest

from sgsdump.comparison.misnaming import value_probes
from sgsdump.comparison.misnaming.value_probes import Agreement, find_matches
from sgsdump.dumps.dump import Record
from sgsdump.tensors.real_view import Values
from sgsdump.tensors.tensor import Tensor


def pool_of(arrays: np.ndarray) -> list[tuple[Record, Values]]:
    return [(Record("out", 0, i, "Conv", Tensor.of(f"l{i}", a)), Values(a)) for i, a in enumerate(arrays)]


@pytest.mark.parametrize("exact", [0, 1 << 40])
def test_both_searches_find_the_moved_tensors(monkeypatch: pytest.MonkeyPatch, exact: int) -> None:
    monkeypatch.setattr(value_probes, "EXACT", exact)
    rng = np.random.default_rng(1)
    arrays = rng.standard_normal((600, 4, 8)).astype(np.float32)
    noisy = arrays + (0.02 * rng.standard_normal(arrays.shape)).astype(np.float32)
    targets = {i: (Values(noisy[i]), 1.4) for i in range(0, 600, 3)}
    matches = find_matches(targets, pool_of(arrays), Agreement(0.99, 0.1))
    assert {key: match.record.name for key, match in matches.items()} == {i: f"l{i}" for i in targets}


def test_thousands_of_copies_are_no_more_work_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_probes, "EXACT", 0)
    looked_at: list[int] = []
    nearest = value_probes._nearest

    def counted(targets, pool, own):
        looked_at.append(len(pool[1]))
        return nearest(targets, pool, own)

    monkeypatch.setattr(value_probes, "_nearest", counted)
    copies = np.ones((3000, 32), np.float32)
    find_matches({0: (Values(copies[0] * 3), 2.0)}, pool_of(copies), Agreement(0.99, 0.1))
    assert looked_at and max(looked_at) <= value_probes.TABLES * value_probes.CANDIDATES
