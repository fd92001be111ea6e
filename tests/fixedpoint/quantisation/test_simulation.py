"""What the simulators dump: record order, values against onnxruntime, integers, padding; what is let go."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, residual_net, run_all, weights

from sgsdump.executors.runner import Layer
from sgsdump.fixedpoint.quantisation import simulation
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import fixed_config, simulate
from sgsdump.models.fixed_facts import FixedFacts, Origin, is_fixed, read_facts, write_facts
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
from sgsdump.tensors.sdk_buffers import pad_channels
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range, to_nchw

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("prob", True),))


def raw_feed(seed=0):
    return {"data": np.random.default_rng(seed).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)}


def float_feed(seed=0):
    return {"data": (raw_feed(seed)["data"] - 127) / 128}


@pytest.fixture(scope="module")
def float_model():
    return simplify(residual_net())


@pytest.fixture(scope="module")
def fixed_model(float_model):
    ranges = measure_ranges(float_model, [(str(s), float_feed(s)) for s in range(3)])
    return replace(float_model, proto=make_fixed(float_model, ranges, CONFIG).proto)


def make_plan(model):
    return {name: tensor.quant for name, tensor in read_facts(model).tensors.items()}


def test_the_float_dump_holds_every_layer_with_its_inputs_and_constants(float_model):
    simulation = simulate(float_model, float_feed())
    records = list(simulation.records)
    heads = [(r.io, r.slot, r.op_index, r.op_type, r.name, r.constant) for r in records[:6]]
    assert heads == [
        ("in", 0, 0, "CONV_2D", "data", False),
        ("in", 1, 0, "CONV_2D", "c1.w", True),
        ("in", 2, 0, "CONV_2D", "c1.b", True),
        ("out", 0, 0, "CONV_2D", "c1", False),
        ("in", 0, 1, "RELU", "c1", False),
        ("out", 0, 1, "RELU", "r1", False),
    ]
    oracle = run_all(float_model.proto, float_feed())
    for record in records:
        if record.name in oracle:
            array = record.tensor.real()
            np.testing.assert_array_equal(to_nchw(array), oracle[record.name], err_msg=record.name)
    assert list(simulation.outputs) == ["prob"]
    assert not simulation.skipped


def test_weights_are_output_height_width_input(float_model):
    weight = next(r.tensor for r in simulate(float_model, float_feed()).records if r.name == "c1.w")
    assert weight.info.shape == weight.real().shape == (8, 3, 3, 3)
    np.testing.assert_array_equal(to_nchw(weight.real())[0, 1], np.asarray(weight.real())[0, :, :, 1])


def test_the_fixed_dump_holds_what_the_fixed_model_computes(fixed_model):
    records = [r for r in simulate(fixed_model, raw_feed()).records if r.io == "out"]
    assert [r.name for r in records] == ["r1", "r2", "pool", "sig", "gap", "flat", "fc", "prob"]
    oracle = run_all(fixed_model.proto, raw_feed())
    quants = make_plan(fixed_model)
    for record in records:
        name, quant = record.name, quants[record.name]
        real = (oracle[f"{name}#stored"].astype(np.float32) - np.float32(quant.zero_point)) * np.float32(quant.scale)
        np.testing.assert_array_equal(to_nchw(record.tensor.real()), real, err_msg=name)
        assert record.tensor.info.quant == quant
    np.testing.assert_array_equal(records[-1].tensor.real(), oracle["prob"])


def test_biases_are_dumped_as_two_rows(fixed_model):
    """Bias and multiplier, int16, of every output channel."""
    rows = {
        r.name: r.tensor for r in simulate(fixed_model, raw_feed(), dequantise=False).records if r.name[-2:] == ".b"
    }
    assert {name: each.info.shape for name, each in rows.items()} == {
        "c1.b": (2, 8), "c2.b": (2, 8), "c3.b": (2, 6), "fc.b": (2, 5),
    }  # fmt: skip
    for name, tensor in rows.items():
        bias, multipliers = tensor.stored()
        assert tensor.info.dtype == np.int16 and np.all(multipliers == multipliers[0]), name
        assert 16384 <= multipliers[0] <= 32767 and np.any(bias), name


def test_stored_integers_mean_the_dequantised_values(fixed_model):
    integers = {r.name: r.tensor for r in simulate(fixed_model, raw_feed(), dequantise=False).records}
    for record in simulate(fixed_model, raw_feed()).records:
        if record.constant:
            continue
        stored = integers[record.name]
        assert stored.info.dtype in (np.uint8, np.int16)
        np.testing.assert_allclose(stored.real(), record.tensor.real(), rtol=1e-6, atol=1e-9, err_msg=record.name)


def test_without_stripping_the_stored_integers_are_padded(fixed_model):
    plain = {r.name: r.tensor for r in simulate(fixed_model, raw_feed(), dequantise=False).records}
    padded = {r.name: r.tensor for r in simulate(fixed_model, raw_feed(), dequantise=False, strip=False).records}
    np.testing.assert_array_equal(padded["sig"].raw(), pad_channels(plain["sig"].stored()))
    assert padded["data"].raw().nbytes == 8 * 8 * 4
    assert padded["sig"].info.shape == plain["sig"].info.shape


def test_the_fixed_model_remembers_how_its_pictures_were_prepared(fixed_model, float_model):
    assert fixed_config(fixed_model) == InputConfig(CONFIG.inputs)
    assert is_fixed(fixed_model) and not is_fixed(float_model)


RANGES = {name: Range.of(-1, 1) for name in ("data", "c", "flat")}


def net():
    nodes = [conv("c", "data"), node("Flatten", ["c"], "flat")]
    return model(nodes, weights("c", (5, 3, 1, 2)), {"data": (1, 3, 4, 6)}, ["flat"])


@pytest.mark.parametrize("fixed", [False, True])
def test_four_dimensions_are_nhwc_and_others_have_no_layout(fixed):
    float_net = net()
    one = replace(float_net, proto=make_fixed(float_net, RANGES).proto) if fixed else float_net
    feed = {"data": np.random.default_rng(0).uniform(-1, 1, (1, 3, 4, 6)).astype(np.float32)}
    records = list(simulate(one, feed).records)
    given = {r.name.partition("#")[0]: (r.tensor.info.shape, r.tensor.info.layout) for r in records}
    assert given == {
        "data": ((1, 4, 6, 3), "NHWC"),
        "c.w": ((5, 1, 2, 3), "NHWC"),
        # A fixed model's convolution has two rows: bias and multiplier.
        "c.b": ((2, 5) if fixed else (5,), None),
        "c": ((1, 4, 5, 5), "NHWC"),
        "flat": ((1, 100), None),
    }
    # The two rows are no real values; what they mean depends on the layer's shifts.
    values = [r.tensor.stored() if fixed and r.name.endswith(".b") else r.tensor.real() for r in records]
    assert [array.shape for array in values] == [record.tensor.info.shape for record in records]


def test_a_tensor_is_let_go_after_its_last_reader(monkeypatch):
    kept = {}

    class Runner:
        def __init__(self, model, keep_sessions, provider):
            self.skipped = {}

        def run(self, feed, only, advance):
            for name in ("a", "b", "c", "d"):
                array = np.zeros((2, 3), np.float32)
                kept[name] = weakref.ref(array)
                yield Layer(name, name, "Relu", array)
                del array

    monkeypatch.setattr(simulation, "SegmentRunner", Runner)
    chain = [node("Relu", ["x"], "a"), node("Relu", ["a"], "b"), node("Add", ["a", "b"], "c"), node("Relu", ["c"], "d")]
    records = simulate(model(chain, {}, {"x": (2, 3)}, ["d"]), {"x": np.zeros((2, 3), np.float32)}).records
    alive = {}
    for record in records:
        if record.io == "out":
            alive[record.name] = "".join(name for name, array in kept.items() if array() is not None)
        del record
    assert alive["a"] == "a" and alive["b"] == "ab" and alive["c"] == "abc", "a is read again by c"
    assert alive["d"] == "cd"


@pytest.mark.parametrize("origin", [None, Origin()])
def test_only_a_fixed_model_with_inputs_remembers_a_config(origin):
    assert fixed_config(net()) is None
    fixed = net()
    write_facts(FixedFacts({}, {}, {}, (), origin), fixed.proto)
    assert fixed_config(fixed) is None


def test_the_inputs_of_the_config_are_remembered():
    inputs = (ModelInput("data", "RGB", "RGB", (1.0, 2.0, 3.0), (4.0,) * 3),)
    fixed = net()
    write_facts(FixedFacts({}, {}, {}, (), Origin(inputs)), fixed.proto)
    assert fixed_config(fixed) == InputConfig(inputs)


def test_facts_without_an_origin_give_no_config(monkeypatch):
    monkeypatch.setattr(simulation, "read_facts", lambda model: FixedFacts({}, {}, {}, ()))
    assert fixed_config(net()) is None


def test_constants_of_a_float_model_are_float32_and_integers_say_what_they_were():
    constants = {"at": np.array([2, 0], np.int64), "bias": np.array([0.5], np.float32)}
    nodes = [node("Gather", ["data", "at"], "g", axis=1), node("Add", ["g", "bias"], "y")]
    one = model(nodes, constants, {"data": (1, 3)}, ["y"])
    records = {r.name: r for r in simulate(one, {"data": np.ones((1, 3), np.float32)}).records if r.constant}
    assert {name: r.tensor.info.quant for name, r in records.items()} == {"at": Quant(np.dtype(np.int32)), "bias": None}
    for name, record in records.items():
        assert record.tensor.info.dtype == record.tensor.raw().dtype == np.float32
        np.testing.assert_array_equal(record.tensor.raw(), constants[name])
