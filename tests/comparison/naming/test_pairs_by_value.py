"""Pairing by values: a folded net whose names clash, copies, near misses, and the real detector as Caffe and ONNX."""

import random
from dataclasses import replace

import numpy as np
import pytest

import sgsdump
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Quant, Tensor


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dump(**tensors) -> Dump:
    return Dump([Record("out", 0, i, "OP", Tensor.of(n, a, op_type="OP")) for i, (n, a) in enumerate(tensors.items())])


def matched(sample, benchmark):
    found = sgsdump.compare(sample, benchmark, match_by_value=True)
    return [(r.sample_name, r.name, r.paired) for r in found.rows], found


def reasons(unpaired):
    return {u.record.name: u.reason for u in unpaired}


def test_clashing_names_are_paired_by_what_they_hold():
    conv, norm, relu = rand(1, 4, 5, 6), rand(1, 4, 5, 6, seed=1), rand(1, 4, 5, 6, seed=2)
    noise = 1 + 1e-6 * rand(1, 4, 5, 6, seed=3)
    pairs, found = matched(dump(conv=norm * noise, relu=relu), dump(conv=conv, norm=norm, relu=relu))
    assert pairs == [("conv", "norm", "value"), ("relu", "relu", "name")]
    assert not found.suspects and not found.only_in_sample
    assert reasons(found.only_in_benchmark) == {
        "conv": "not paired by name: the tensor 'conv' of the sample is already paired with 'norm' (by value)"
    }


def test_what_no_value_finds_is_paired_by_name():
    """A quantised layer is not equal, yet the one to compare with; NaN, constants and small ones keep their names."""
    a = rand(1, 4, 5, 6)
    broken = a.copy()
    broken[0, 0, 0, 0] = np.nan
    ours = dump(q=np.round(a * 8) / 8, nan=broken, zero=np.zeros(20, np.float32), few=a[0, 0, 0, :3], c=a)
    theirs = dump(q=a * 1.0, nan=a + 1, zero=np.zeros(20, np.float32), few=a[0, 0, 0, :3], c=a * 2)
    pairs, _ = matched(ours, theirs)
    # c of the sample is q of the benchmark, so nothing is left for q of the sample
    assert pairs == [("c", "q", "value")] + [(n, n, "name") for n in ("nan", "zero", "few")]


def test_what_values_cannot_tell_says_why():
    a = rand(1, 4, 5, 6)
    broken = a.copy()
    broken[0, 0, 0, 0] = np.inf
    theirs = dump(nan=broken, zero=np.zeros(20, np.float32), few=a[0, 0, 0, :3], lone=a + 1)
    found = sgsdump.compare(dump(x=a, y=np.zeros(20, np.float32)), theirs, match_by_value=True)
    assert not found.rows
    said = reasons(found.only_in_benchmark)
    assert "NaN or Inf" in said["nan"] and "all its values are equal" in said["zero"] and "too few" in said["few"]
    assert said["lone"] == "the sample has no output of this name and no tensor with the same values"
    assert "all its values are equal" in reasons(found.only_in_sample)["y"]


def test_layouts_do_not_matter():
    a, b, c = rand(1, 4, 5, 6), rand(1, 3, 7, 2, seed=1), rand(1, 4, 4, 4, seed=2)
    ours = dump(p=a.transpose(0, 3, 1, 2), q=b.reshape(-1), r=c.transpose(0, 3, 1, 2))
    pairs, _ = matched(ours, dump(a=a, b=b, c=c))
    assert pairs == [("p", "a", "value"), ("q", "b", "value"), ("r", "c", "value")]


def test_copies_go_by_name_then_shape_then_order_and_say_so():
    a = rand(1, 4, 5, 6)
    flat = a.reshape(1, 120)
    pairs, found = matched(dump(s=a, t=flat, u=a), dump(x=a, y=a, z=flat))
    assert pairs == [("s", "x", "value"), ("u", "y", "value"), ("t", "z", "value")]
    assert all("one of 3 equal tensors in the sample and 3 in the benchmark" in row.note for row in found.rows)
    pairs, found = matched(dump(s=a, y=a, u=a), dump(x=a, y=a, z=a))
    assert pairs == [("s", "x", "value"), ("y", "y", "name"), ("u", "z", "value")]


def test_a_choice_among_names_is_said():
    a = rand(1, 4, 5, 6)
    twice = Dump([*dump(dup=a).records, *dump(dup=a).records])
    pairs, found = matched(twice, twice)
    assert pairs == [("dup", "dup", "name")] * 2 and all("one of 2 equal" in row.note for row in found.rows)
    pairs, found = matched(dump(cat=a), dump(**{"cat one": a, "cat two": a}))
    assert pairs == [("cat", "cat one", "normalised name")] and "2 in the benchmark" in found.rows[0].note


def test_the_surplus_of_copies_is_listed():
    a = rand(1, 4, 5, 6)
    pairs, found = matched(dump(s=a), dump(x=a, y=a))
    assert pairs == [("s", "x", "value")] and "1 equal tensors in the sample and 2" in found.rows[0].note
    assert reasons(found.only_in_benchmark) == {
        "y": "this tensor has the same values as 's' of the sample, but that tensor has another partner"
    }


def test_near_misses_go_to_the_better_one():
    """A Relu that changes one small value of many: within the tolerance, yet not the tensor that was meant."""
    before = np.abs(rand(1, 40, 50, 8)) + 0.1
    before[0, 0, 0, 0] = -0.05
    after = np.maximum(before, 0)
    noise = 1 + 1e-7 * rand(1, 40, 50, 8, seed=1)
    pairs, found = matched(dump(fused=after * noise), dump(conv=before, relu=after))
    assert pairs == [("fused", "relu", "value")]
    assert "has another partner" in reasons(found.only_in_benchmark)["conv"]
    pairs, found = matched(dump(c=before * noise, r=after * noise), dump(conv=before, relu=after))
    assert pairs == [("c", "conv", "value"), ("r", "relu", "value")] and not any(row.note for row in found.rows)


def test_scaled_and_shifted_tensors_are_not_equal():
    a = rand(1, 4, 5, 6)
    found = sgsdump.compare(dump(x=a * 1.01, y=a + 0.01), dump(z=a), match_by_value=True)
    assert not found.rows and len(found.only_in_sample) == 2


def test_a_given_pair_is_kept():
    a, b = rand(1, 4, 5, 6), rand(1, 4, 5, 6, seed=1)
    found = sgsdump.compare(dump(x=a, y=b), dump(p=a, q=b), match_by_value=True, name_map={"p": "y"})
    assert [(r.sample_name, r.name, r.paired) for r in found.rows] == [("y", "p", "map")]
    assert "q" in reasons(found.only_in_benchmark) and "x" in reasons(found.only_in_sample)


def test_inputs_too():
    a, b = rand(1, 4, 5, 6), rand(1, 4, 5, 6, seed=1)
    ours = Dump([Record("in", 0, 0, "OP", Tensor.of("data", a)), *dump(y=b).records])
    theirs = Dump([Record("in", 0, 0, "OP", Tensor.of("image", a)), *dump(y=b).records])
    assert [r.name for r in sgsdump.compare(ours, theirs, match_by_value=True).rows] == ["y"]
    found = sgsdump.compare(ours, theirs, match_by_value=True, inputs=True)
    assert [(r.name, r.paired) for r in found.rows] == [("image", "value"), ("y", "name")]


@pytest.fixture(scope="module")
def detector(shared, tmp_path_factory):
    """The dumps of the detector's Caffe and ONNX model on one random picture."""
    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
    from sgsdump.models.model import graph_inputs, open_model

    folder = tmp_path_factory.mktemp("detector")
    onnx = shared / "ultraface/version-RFB-320_without_postprocessing.onnx"
    caffe = shared / "ultraface/RFB-320.prototxt", shared / "ultraface/RFB-320.caffemodel"
    picture = np.random.default_rng(0).standard_normal((1, 3, 240, 320)).astype(np.float32)
    dumps = []
    for files in (caffe, (onnx,)):
        model = open_model(*files)
        runner = SegmentRunner(model)
        layers = runner.run({graph_inputs(model.proto)[0].name: picture})
        path = folder / f"{files[0].suffix}.bin"
        sgsdump.save_dump((Tensor.of(layer.name, layer.array, op_type=layer.op_type) for layer in layers), path)
        dumps.append(sgsdump.open_dump(path))
    return dumps


def test_every_blob_of_the_real_detector_is_paired(detector):
    sample, benchmark = detector
    by_name = sgsdump.compare(sample, benchmark)
    different = {row.name for row in by_name.rows if row.rmse > 1e-3}
    assert len(by_name.rows) == len(sample) == 110 and len(different) == 35
    found = sgsdump.compare(sample, benchmark, match_by_value=True)
    assert len(found.rows) == 110 and not found.only_in_sample and not found.failed
    assert max(row.rmse for row in found.rows) < 1e-5
    by_value = {row.sample_name: row for row in found.rows if row.paired == "value"}
    assert by_value.keys() == different
    assert {row.op_type for row in by_value.values()} == {"BatchNormalization"}


def test_the_real_detectors_pairs_need_no_names(detector):
    sample, benchmark = detector
    expected = {row.sample_name: row.name for row in sgsdump.compare(sample, benchmark, match_by_value=True).rows}
    names = list(sample)
    random.Random(2).shuffle(names)
    renamed = dict(zip(sample, names))
    shuffled = Dump(
        [
            replace(r, tensor=Tensor(replace(r.tensor.info, name=renamed[r.name]), r.tensor.stored))
            for r in sample.records
        ]
    )
    found = sgsdump.compare(shuffled, benchmark, match_by_value=True)
    assert {row.sample_name: row.name for row in found.rows} == {renamed[a]: b for a, b in expected.items()}


def with_error(array, error, seed=7):
    """The array with |a-b| = error |b|, in a direction of its own."""
    wide = array.astype(np.float64)
    other = rand(*array.shape, seed=seed).astype(np.float64)
    other -= wide * (other * wide).sum() / (wide * wide).sum()
    return wide + other * error * np.linalg.norm(wide) / np.linalg.norm(other)


@pytest.mark.parametrize(("error", "paired"), [(9.9e-4, True), (1.01e-3, False)])
def test_equal_values_differ_by_a_thousandth_of_the_norm_at_most(error, paired):
    a = rand(1, 4, 5, 6).astype(np.float64)
    assert bool(matched(dump(x=with_error(a, error)), dump(a=a))[0]) is paired


@pytest.mark.parametrize(("count", "paired"), [(4, True), (3, False)])
def test_fewer_than_four_values_are_left_to_their_names(count, paired):
    values = np.array([1.0, -2.0, 3.5, 0.25])[:count]
    assert bool(matched(dump(x=values), dump(a=values))[0]) is paired


@pytest.mark.parametrize(("times", "first", "note"), [(1.9, "worse", "one of 2 equal tensors"), (2.1, "better", "")])
def test_twice_the_best_error_is_as_good(times, first, note):
    """Of those the first in execution order is taken, and the note says that there was a choice."""
    a = rand(1, 4, 5, 6).astype(np.float64)
    found = matched(dump(worse=with_error(a, times * 1e-4), better=with_error(a, 1e-4, seed=8)), dump(a=a))[1]
    assert found.rows[0].sample_name == first and found.rows[0].note.startswith(note)
    assert bool(found.rows[0].note) == bool(note)


@pytest.mark.parametrize("error", [0.0, 2e-4, 9e-4])
def test_every_tensor_is_found_among_hundreds_of_its_size(error):
    """Errors of a share of the norm: along the tensor itself, so that norms differ the most, and across it."""
    drawn = rand(300, 1, 4, 4, 4, seed=7) * np.linspace(0.1, 10, 300, dtype=np.float32).reshape(-1, 1, 1, 1, 1)
    across = rand(*drawn.shape, seed=8)
    norms = (np.linalg.norm(each.reshape(300, -1), axis=1).reshape(-1, 1, 1, 1, 1) for each in (drawn, across))
    across *= np.divide(*norms)
    kinds = [drawn * (1 + error), drawn * (1 - error), drawn + error * across]
    order = np.random.default_rng(9).permutation(300)
    sample = dump(**{f"s{i}": kinds[i % 3][i] for i in order})
    pairs, _ = matched(sample, dump(**{f"b{i}": drawn[i] for i in range(300)}))
    assert sorted(pairs) == sorted((f"s{i}", f"b{i}", "value") for i in range(300))


def record(name, values, io="out", op_index=0, slot=0, op_type="ADD", constant=False, **facts) -> Record:
    return Record(io, slot, op_index, op_type, Tensor.of(name, np.asarray(values), **facts), constant)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("balanced", [False, True], ids=["", "of mean 0"])
def test_values_pair_at_any_scale(scale, balanced):
    a, b = rand(40, 50) * scale, rand(40, 50, seed=1) * scale
    if balanced:
        a[20:], b[20:] = -a[:20], -b[:20]
    sample = Dump([record("p", a * (1 + 3e-4 * rand(40, 50, seed=2))), record("q", b)])
    benchmark = Dump([record("r", b), record("s", a)])
    comparison = sgsdump.compare(sample, benchmark, match_by_value=True)
    assert [(row.sample_name, row.name, row.paired) for row in comparison.rows] == [
        *(("q", "r", "value"), ("p", "s", "value")),
    ]


def test_a_pair_that_cannot_be_read_hides_no_misnamed_one():
    unknown = Quant(np.dtype(np.int16), 0.5)
    a, b = rand(30), rand(30, seed=1)
    benchmark = Dump([record("i", np.arange(30.0)), record("x", a), record("y", b), record("j", np.arange(30.0))])
    integers = np.arange(30, dtype=np.int16)
    sample = Dump(
        [record("i", integers, quant=unknown), record("x", b), record("y", a), record("j", integers, quant=unknown)]
    )
    for comparison in (sgsdump.compare(sample, benchmark), sgsdump.compare(benchmark, sample)):
        assert [row.name for row in comparison.suspects] == ["x", "y"]
        assert len(comparison.failed) == 2 and comparison.alike == ()
