"""The comparison as a whole: other tensors under one name, where the error rises, thresholds, the real detector."""

import dataclasses
import math

import numpy as np
import pytest
from watched import Watched

import sgsdump
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor

RNG = np.random.default_rng(3)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def out(index: int, name: str, array: np.ndarray, op_type: str = "CONV_2D") -> Record:
    return Record("out", 0, index, op_type, Tensor.of(name, array))


def into(index: int, name: str, array: np.ndarray) -> Record:
    return Record("in", 0, index, "CONV_2D", Tensor.of(name, array))


def off(array: np.ndarray, by: float) -> np.ndarray:
    """The array with an RMSE, Σ|a-b|/Σ|b|, of ``by``."""
    return array * np.float32(1 + by)


def test_same_name_another_tensor_is_found_in_either_dump_and_layout():
    conv, norm, last = noise(1, 8, 8, 6), noise(1, 8, 8, 6), noise(1, 32)
    benchmark = Dump([out(0, "245", conv), out(1, "246", norm, "BatchNormalization"), out(2, "z", last)])
    folded = np.ascontiguousarray(norm.transpose(0, 3, 1, 2))
    comparison = sgsdump.compare(Dump([out(0, "245", folded), out(2, "z", last)]), benchmark)
    assert [row.name for row in comparison.suspects] == ["245"]
    other = (
        "sample and benchmark use this name for different tensors; the tensor with matching values is 246, the "
        "output of BatchNormalization (COS 1.000000, RMSE 0.000000)"
    )
    assert str(comparison.rows[0].misnamed) == other
    # what the values alone say is counted, and no threshold passes it
    assert comparison.worst.name == "245" and [row.name for row in comparison.past()] == ["245"]
    assert [row.name for row in comparison.past(Thresholds(min_cos=-1.0, max_rmse=100.0))] == ["245"]
    assert not comparison.passes(Thresholds(min_cos=-1.0, max_rmse=100.0))
    # the other way round the matching tensor is in the sample
    comparison = sgsdump.compare(benchmark, Dump([out(0, "245", folded), out(2, "z", last)]))
    assert (
        str(comparison.rows[0].misnamed)
        == "sample and benchmark use this name for different tensors; the tensor with matching values is 246 of "
        "the sample, the output of BatchNormalization (COS 1.000000, RMSE 0.000000)"
    )


def test_another_tensor_of_another_size_is_found_for_a_failed_pair():
    conv, pool = noise(1, 8, 8, 6), noise(1, 4, 4, 6)
    comparison = sgsdump.compare(Dump([out(0, "x", pool)]), Dump([out(0, "x", conv), out(1, "y", pool, "MaxPool")]))
    assert (
        "sizes differ" in comparison.failed[0].reason
        and "the tensor with matching values is y, the output of MaxPool" in comparison.failed[0].reason
    )


def test_a_spoilt_layer_is_not_called_another_tensor():
    clean = noise(1, 8, 8, 6)
    spoilt = clean + noise(1, 8, 8, 6)
    near = clean + np.float32(0.3) * noise(1, 8, 8, 6)
    comparison = sgsdump.compare(
        Dump([out(0, "x", spoilt), out(1, "y", near)]), Dump([out(0, "x", clean), out(1, "y", near)])
    )
    assert not comparison.suspects and comparison.worst.name == "x"


def test_rise_follows_the_data_flow_not_the_order():
    """b and c read a; c is far off already at a's side branch, d only carries on what it gets."""
    a, b, c, d = (noise(1, 64) for _ in range(4))
    errors = {"a": 0.01, "b": 0.30, "c": 0.02, "d": 0.31}
    arrays = {"a": a, "b": b, "c": c, "d": d}
    flow = [out(0, "a", a), into(1, "a", a), out(1, "b", b), into(2, "a", a), out(2, "c", c)]
    flow += [into(3, "b", b), into(3, "c", c), out(3, "d", d)]
    sample = Dump([out(i, name, off(arrays[name], errors[name])) for i, name in enumerate("abcd")])
    comparison = sgsdump.compare(sample, Dump(flow))
    rows = {row.name: row for row in comparison.rows}
    assert rows["c"].sources == ("a",) and rows["d"].sources == ("b", "c")
    assert rows["c"].rise == pytest.approx(0.01, abs=1e-5) and rows["d"].rise == pytest.approx(0.01, abs=1e-5)
    assert comparison.jumps[0].name == "b" and comparison.worst.name == "d"


def test_rise_looks_through_layers_that_were_fused_away_and_falls_back_to_the_row_before():
    a, b, c = (noise(1, 64) for _ in range(3))
    benchmark = Dump([out(0, "a", a), into(1, "a", a), out(1, "b", b), into(2, "b", b), out(2, "c", c)])
    sample = Dump([out(0, "a", off(a, 0.1)), out(1, "c", off(c, 0.15))])
    assert [row.sources for row in sgsdump.compare(sample, benchmark).rows] == [(), ("a",)]
    plain = Dump([out(0, "a", a), out(1, "c", c)])
    rows = sgsdump.compare(sample, plain).rows
    assert [row.sources for row in rows] == [(), ()] and rows[1].rise == rows[1].rmse - rows[0].rmse


def test_thresholds_and_not_finite():
    good, nan = noise(1, 64), noise(1, 64)
    nan[0, 0] = np.nan
    fine = sgsdump.compare(Dump([out(0, "a", off(good, 0.05))]), Dump([out(0, "a", good)]))
    assert fine.passes() and fine.passes(DOCUMENTED) and fine.passes(Thresholds())
    assert not fine.passes(Thresholds(max_rmse=0.01)) and not fine.passes(Thresholds(max_mse=1e-9))
    for sample, benchmark in ((nan, good), (good, nan), (nan, nan)):
        found = sgsdump.compare(Dump([out(0, "a", sample)]), Dump([out(0, "a", benchmark)]))
        assert not found.passes(Thresholds()) and found.rows[0].error == float("inf")
    zeros = np.zeros((1, 64), np.float32)
    assert sgsdump.compare(Dump([out(0, "a", zeros)]), Dump([out(0, "a", zeros)])).passes()
    assert not sgsdump.compare(Dump([out(0, "a", zeros)]), Dump([out(0, "a", good)])).passes()
    assert not sgsdump.compare(Dump([out(0, "a", zeros)]), Dump([out(0, "b", zeros)])).passes()


def test_rows_are_frozen_and_threads_change_nothing():
    dump = Dump([out(i, f"t{i}", noise(1, 300, 200)) for i in range(9)])
    other = Dump([out(i, f"t{i}", noise(1, 300, 200)) for i in range(9)])
    one, many = sgsdump.compare(other, dump, threads=1), sgsdump.compare(other, dump, threads=5)
    assert one == many
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.rows[0].mse = 0.0


def test_progress_counts_the_pairs():
    progress = Watched()
    dump = Dump([out(i, f"t{i}", noise(4)) for i in range(3)])
    assert len(sgsdump.compare(dump, dump, progress=progress).rows) == 3
    (bar,) = progress.bars
    assert (bar.what, bar.unit, bar.total) == ("compare", "layer", 3) and bar.is_full


def test_the_detector_with_wrongly_named_tensors(shared):
    """The real detector's own tensors, 36 of them under the name of the next one of their size, as when
    BatchNormalization is folded on one side only: each is found, and no other is accused."""
    import onnx
    import onnxruntime

    model = onnx.load(shared / "ultraface/version-RFB-320_without_postprocessing.onnx")
    names = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output]
    kinds = {name: node.op_type for node in model.graph.node for name in node.output}
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    picture = np.random.default_rng(0).uniform(-1, 1, (1, 3, 240, 320)).astype(np.float32)
    values = dict(zip(names, session.run(names, {session.get_inputs()[0].name: picture})))
    values = {name: array for name, array in values.items() if array.dtype == np.float32 and array.size > 1}
    benchmark = Dump([out(i, name, array, kinds[name]) for i, (name, array) in enumerate(values.items())])

    convolutions = [name for name in values if kinds[name] == "Conv"]
    moved = {}
    for name in convolutions:
        later = list(values)[list(values).index(name) + 1 :]
        following = next((other for other in later if values[other].shape == values[name].shape), None)
        if following is not None and not np.allclose(values[name], values[following]):
            moved[name] = following
    sample = Dump(
        [out(i, name, np.ascontiguousarray(_nhwc(values[moved.get(name, name)]))) for i, name in enumerate(values)]
    )
    comparison = sgsdump.compare(sample, benchmark)
    assert len(moved) >= 36 and len(comparison.rows) == len(values)
    found = {row.name: values[row.misnamed.name] for row in comparison.suspects}
    assert found.keys() == moved.keys()
    assert all(np.array_equal(array, values[moved[name]]) for name, array in found.items())
    assert {row.name for row in comparison.past()} == moved.keys() and comparison.worst.name in moved
    assert max(row.error for row in comparison.alike) < 1e-6


def _nhwc(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


@pytest.mark.parametrize(("count", "found"), [(16, True), (15, False)])
def test_fewer_than_sixteen_values_accuse_no_one(count, found):
    values, others = np.split(noise(2 * count), 2)
    benchmark = Dump([out(0, "x", others), out(1, "y", values)])
    comparison = sgsdump.compare(Dump([out(0, "x", values)]), benchmark)
    assert bool(comparison.suspects) is found


@pytest.mark.parametrize(("own", "other", "found"), [(0.5, 0.0499, True), (0.5, 0.0501, False), (2.0, 0.101, False)])
def test_another_tensor_must_agree_ten_times_better_than_the_namesake_and_within_the_limits(own, other, found):
    """Of one side the RMSE to its namesake is ``own``, to y it is ``other``."""
    clean = np.random.default_rng(5).standard_normal((1, 400))
    benchmark = Dump([out(0, "x", clean / (1 + own)), out(1, "y", clean / (1 + other))])
    comparison = sgsdump.compare(Dump([out(0, "x", clean)]), benchmark)
    assert comparison.rows[0].rmse == pytest.approx(own)
    assert (comparison.rows[0].misnamed is not None) is found


@pytest.mark.parametrize(("error", "looked_at"), [(1.01e-3, True), (0.99e-3, False)])
def test_pairs_that_agree_to_a_thousandth_are_not_looked_at(error, looked_at):
    clean = np.random.default_rng(6).standard_normal((1, 400))
    comparison = sgsdump.compare(
        Dump([out(0, "x", off(clean, error))]), Dump([out(0, "x", clean), out(1, "y", off(clean, error))])
    )
    assert bool(comparison.suspects) is looked_at


@pytest.mark.parametrize(("least", "kept"), [(0.0101, ["a", "b"]), (0.0099, ["a"])])
def test_rises_below_a_tenth_of_the_steepest_are_left_out(least, kept):
    a, b = noise(1, 64).astype(np.float64), noise(1, 64).astype(np.float64)
    dumps = [Dump([out(0, "a", x), out(1, "b", y)]) for x, y in ((off64(a, 0.1), off64(b, 0.1 + least)), (a, b))]
    assert [row.name for row in sgsdump.compare(*dumps).jumps] == kept


def off64(array: np.ndarray, by: float) -> np.ndarray:
    return array * (1 + by)


def test_a_pair_that_failed_never_passes():
    """One layer is equal, the other could not be compared: no limit, however wide, is held by it."""
    good, size = noise(1, 8), noise(1, 9)
    found = sgsdump.compare(Dump([out(0, "a", good), out(1, "b", size)]), Dump([out(0, "a", good), out(1, "b", good)]))
    assert len(found.rows) == len(found.failed) == 1 and not found.past(Thresholds(min_cos=-1))
    assert not found.passes(Thresholds(min_cos=-1)) and not found.passes(Thresholds())


def test_an_error_that_was_infinite_before_does_not_rise():
    a, b = noise(1, 8), noise(1, 8)
    broken = a.copy()
    broken[0, 0] = np.nan
    found = sgsdump.compare(
        Dump([out(0, "a", broken), out(1, "b", off(b, 0.5))]), Dump([out(0, "a", a), out(1, "b", b)])
    )
    assert found["a"].rise == math.inf and found["b"].rise == 0.0
    assert [row.name for row in found.jumps] == ["a"]
