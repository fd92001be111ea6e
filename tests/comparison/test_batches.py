"""Pairs that are measured together have the results that each has by itself."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from platforms import unix_only

from sgsdump import Dump, Record, Tensor, compare, open_dump, save_dump
from sgsdump.comparison.align import align_names as align
from sgsdump.comparison.measure import batches, in_batches
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Row
from sgsdump.comparison.same_values import Probes
from sgsdump.comparison.sums import summation
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.errors import FileChanged
from sgsdump.files.mapped import KEPT, file_of
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.types import Quant

MEASURES = Measures.of((), None, None, crop=True)


@pytest.fixture(autouse=True)
def npy_files_are_mapped(monkeypatch):
    monkeypatch.setattr(npy_file, "_READ_BYTES", 1)


def layers(count, shape, error=0.01):
    rng = np.random.default_rng(1)
    for number in range(count):
        values = rng.standard_normal(shape).astype(np.float32)
        yield f"layer{number}", values, values + np.float32(error) * rng.standard_normal(shape).astype(np.float32)


def dumps_of(tmp_path, made, endings=(".bin", ".bin")):
    made = list(made)
    for side, (name, ending) in enumerate(zip(("sample", "benchmark"), endings)):
        save_dump({layer: arrays[side] for layer, *arrays in made}, tmp_path / f"{name}{ending}", on_loss="ignore")
    return [open_dump(tmp_path / f"{name}{ending}") for name, ending in zip(("sample", "benchmark"), endings)]


def measured(sample, benchmark, threads=1, probes=None):
    with ThreadPoolExecutor(threads) as pool:
        return list(in_batches(pool.map, replace(MEASURES, threads=threads), align(sample, benchmark).pairs, probes))


def alone(sample, benchmark):
    return [MEASURES.result(pair) for pair in align(sample, benchmark).pairs]


@pytest.mark.parametrize("endings", [(".bin", ".bin"), ("", ""), (".npz", ""), (".bin", ".npz")])
@pytest.mark.parametrize("shape", [(3, 5), (2, 100, 130)])
def test_dumps_of_any_number_of_files(tmp_path, endings, shape):
    dumps = dumps_of(tmp_path, layers(3 * KEPT + 1, shape), endings)
    expected = alone(*dumps)
    assert len(expected) == 3 * KEPT + 1 and all(isinstance(row, Row) for row in expected)
    for threads in (1, 3):
        assert measured(*dumps, threads) == expected


def test_among_those_that_are_read_together_are_others(tmp_path):
    """Statistics, tensors in memory, sizes that differ, quantised ones, and another layout: in their order."""
    sample, benchmark = dumps_of(tmp_path, layers(20, (1, 20, 30, 40)))
    records = {side: list(dump.records) for side, dump in (("a", sample), ("b", benchmark))}

    def put(number, a, b):
        for side, tensor in (("a", a), ("b", b)):
            records[side][number] = replace(records[side][number], tensor=tensor)

    kept = Statistics(count=4, min=0.0, max=1.0, mean=0.5, l2norm=1.0)
    info = Tensor.of("layer3", np.ones(4, np.float32)).info
    put(3, Tensor.of_statistics(info, kept), Tensor.of_statistics(info, kept))
    put(5, Tensor.of("layer5", np.ones(7, np.float32)), Tensor.of("layer5", np.ones(8, np.float32)))
    put(8, Tensor.of("layer8", np.ones(7, np.float32)), Tensor.of("layer8", np.zeros(7, np.float32)))
    quant = Quant(np.dtype(np.int8), 0.5, 3, exact=True)
    put(12, *(Tensor.of("layer12", np.arange(k, 90 + k, dtype=np.int8), quant=quant) for k in (0, 1)))
    turned = sample["layer17"].stored()
    put(17, sample["layer17"], Tensor.of("layer17", np.ascontiguousarray(turned.transpose(0, 3, 1, 2))))
    dumps = Dump(records["a"]), Dump(records["b"])
    expected = alone(*dumps)
    assert not isinstance(expected[5], Row) and expected[17].note and expected[3].statistics and expected[12].integers
    for threads in (1, 4):
        assert repr(measured(*dumps, threads)) == repr(expected)  # as text one NaN is like another
    assert [row.name for row in expected if isinstance(row, Row)] == [f"layer{i}" for i in range(20) if i != 5]


def test_the_probes_of_read_values_are_those_of_loaded_ones(tmp_path):
    sample, benchmark = dumps_of(tmp_path, [*layers(3, (1, 64, 64, 32)), ("small", *next(layers(1, (6, 7)))[1:])])
    kept, fresh = Probes(), Probes()
    measured(sample, benchmark, probes=kept)
    for dump in (sample, benchmark):
        for record in dump.records:
            np.testing.assert_array_equal(kept.of(record), fresh.of(record))


def test_batches_are_fair_shares_and_lose_nothing(monkeypatch):
    sizes = [1, 9, 40, 3, 3, 3, 200, 1, 1, 1, 5, 5, 5, 5, 5, 5, 5, 5] * 4
    monkeypatch.setattr("sgsdump.comparison.measure.LEAST", 40)
    monkeypatch.setattr("sgsdump.comparison.measure.MOST", 400)
    dump = Dump([Record("out", 0, i, "", Tensor.of(f"t{i}", np.ones(n, np.float32))) for i, n in enumerate(sizes)])
    pairs = align(dump, dump).pairs
    made = list(batches(pairs, 2))
    assert [pair for batch in made for pair in batch] == list(pairs)
    held = [sum(4 * sizes[pairs.index(pair)] for pair in batch) for batch in made]
    assert all(size >= 40 for size in held[:-1]) and held[0] >= 400 and max(held[-3:]) < 400 + 4 * 200
    assert len(list(batches(pairs, 20))) > len(made)
    monkeypatch.setattr("sgsdump.comparison.measure.PAIRS", 2)
    assert {len(batch) for batch in batches(pairs)} <= {1, 2}


@unix_only  # Windows cuts no mapped file
def test_a_file_that_is_cut_off_meanwhile_ends_the_comparison(tmp_path, monkeypatch):
    sample, benchmark = dumps_of(tmp_path, layers(6, (100, 200)), ("", ".bin"))
    cut = next(path for path in (tmp_path / "sample").iterdir() if path.name.startswith("layer4"))
    opened = summation.opened

    def opened_and_cut(array):
        file, data = opened(array), file_of(array)
        if data is not None and data.source.path == cut:
            os.truncate(cut, 1000)
        return file

    monkeypatch.setattr(summation, "opened", opened_and_cut)
    if summation._KERNEL is None:
        pytest.skip("numpy's sums do not ask for open files")
    with pytest.raises(FileChanged, match="layer4"):
        compare(sample, benchmark, threads=1)


def test_large_tensors_with_each_others_names_are_found_by_any_number_of_threads(tmp_path):
    made = list(layers(6, (1, 64, 64, 20), error=1e-4))
    swapped = [(made[i][0], made[i][1], made[j][2]) for i, j in enumerate([1, 0, 2, 4, 3, 5])]
    dumps = dumps_of(tmp_path, swapped)
    one, many = (compare(*dumps, threads=threads) for threads in (1, 3))
    assert [(row.name, row.misnamed.name) for row in one.suspects] == [
        (f"layer{i}", f"layer{j}") for i, j in ((0, 1), (1, 0), (3, 4), (4, 3))
    ]
    assert one == many
