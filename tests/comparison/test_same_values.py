"""The search for a tensor by its values: in buckets it finds what the search among all finds, with bounded work."""

from __future__ import annotations

import numpy as np
import pytest

from sgsdump import Dump, compare
from sgsdump.comparison import same_values
from sgsdump.comparison.same_values import Agreement, find_matches
from sgsdump.dumps.dump import Record
from sgsdump.tensors.tensor import Tensor, Values


def pool_of(arrays: np.ndarray) -> list[Record]:
    return [Record("out", 0, i, "Conv", Tensor.of(f"l{i}", a)) for i, a in enumerate(arrays)]


@pytest.mark.parametrize("exact", [0, 1 << 40])
def test_both_searches_find_the_moved_tensors(monkeypatch: pytest.MonkeyPatch, exact: int) -> None:
    monkeypatch.setattr(same_values, "EXACT", exact)
    rng = np.random.default_rng(1)
    arrays = rng.standard_normal((600, 4, 8)).astype(np.float32)
    noisy = arrays + (0.02 * rng.standard_normal(arrays.shape)).astype(np.float32)
    noisy_ones = pool_of(noisy)
    targets = {i: (noisy_ones[i], 1.4) for i in range(0, 600, 3)}
    matches = find_matches(targets, pool_of(arrays), Agreement(0.99, 0.1))
    assert {key: match.record.name for key, match in matches.items()} == {i: f"l{i}" for i in targets}


def test_thousands_of_copies_are_no_more_work_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_values, "EXACT", 0)
    looked_at: list[int] = []
    distances = same_values._distances

    def counted(targets, pool_rows, target, index):
        looked_at.append(len(index))
        return distances(targets, pool_rows, target, index)

    monkeypatch.setattr(same_values, "_distances", counted)
    arrays = np.random.default_rng(2).standard_normal((3000, 32)).astype(np.float32)
    arrays[:600] = arrays[0]  # more than the buckets may give, and few enough to be no bucket's border
    (larger,) = pool_of(arrays[:1] * np.float32(1.5))
    find_matches({0: (larger, 2.0)}, pool_of(arrays), Agreement(0.99, 0.1))
    assert 1 < max(looked_at) <= same_values.TABLES * same_values.CANDIDATES


def test_probes_are_at_the_same_places_of_every_layout() -> None:
    """Rows: as stored, as NCHW, as NHWC; the same whether a tensor lies in order or is a view of one that is turned."""
    nhwc = np.random.default_rng(3).standard_normal((2, 5, 6, 7)).astype(np.float32)
    nchw = np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))
    stored, as_nchw, _ = same_values.probe(Values(nhwc))
    np.testing.assert_array_equal(stored, nhwc.ravel()[same_values._places((nhwc.size,))[0]])
    np.testing.assert_array_equal(as_nchw, same_values.probe(Values(nchw))[0])
    np.testing.assert_array_equal(stored, same_values.probe(Values(nchw))[2])
    np.testing.assert_array_equal(
        same_values.probe(Values(nchw.transpose(0, 2, 3, 1))), same_values.probe(Values(nhwc))
    )


def test_what_is_probed_while_a_pair_is_compared_is_what_would_be_probed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, wanted = [], []
    for worth, probes in ((0, kept), (1 << 40, wanted)):
        monkeypatch.setattr(same_values, "WORTH", worth)
        rng = np.random.default_rng(4)
        layers = rng.standard_normal((6, 1, 4, 8, 8)).astype(np.float32)
        sample, benchmark = (
            Dump([Record("out", 0, i, "Conv", Tensor.of(f"l{order[i]}", layers[i] * scale)) for i in range(6)])
            for order, scale in (((0, 1, 3, 2, 4, 5), np.float32(1.0001)), (range(6), np.float32(1)))
        )
        probes += [(row.name, str(row.misnamed)) for row in compare(sample, benchmark)]
    assert kept == wanted and [name for name, found in kept if found != "None"] == ["l2", "l3"]


def dump_of(**arrays: np.ndarray) -> Dump:
    return Dump([Record("out", 0, i, "", Tensor.of(name, array)) for i, (name, array) in enumerate(arrays.items())])


def test_whole_numbers_of_any_size_are_told_apart_by_how_many_differ() -> None:
    """Near 2**60 a difference of 1 is none in float64, so every list of such numbers was as near as its own one."""
    ids = np.arange(64) + 2**60
    few = ids.copy()
    few[3] += 1
    sample = dump_of(ids=ids, few=ids, own=ids + 7)
    comparison = compare(sample, dump_of(ids=ids + 1, few=few, own=ids + 7))
    found = {row.name: row.misnamed.name if row.misnamed else "" for row in comparison.rows}
    assert found == {"ids": "few", "few": "", "own": ""}, "ids has the values of few but for one"
    assert {row.name: row.indices.differing for row in comparison.rows if row.indices} == {
        "ids": 64,
        "few": 1,
        "own": 0,
    }


def test_whole_numbers_that_changed_names_are_found() -> None:
    one, other = np.random.default_rng(0).integers(2**60, 2**60 + 9, (2, 64))
    comparison = compare(dump_of(a=one, b=other), dump_of(a=other, b=one))
    assert {row.name: row.misnamed.name for row in comparison.suspects if row.misnamed} == {"a": "b", "b": "a"}
