"""The fixed model against plain fake quantisation in numpy, and as a valid ONNX file."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, residual_net, run_all, single_convolution, weights

from sgsdump.fixedpoint.quantisation.float_model import Picture
from sgsdump.fixedpoint.quantisation.integer.emitter import store_weight
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, plan
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, uint8_quant
from sgsdump.fixedpoint.quantisation.trials.qdq_graph import LARGEST, fake_weight, lowest, quantise, zero_point
from sgsdump.models.fixed_facts import read_facts
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

PICTURE = {"data": Picture((127.0,) * 3, (128.0,) * 3)}


def bounds_of(net, feeds):
    seen = {"data": (-1.0, 1.0)}
    for feed in feeds:
        for name, array in run_all(net.proto, feed).items():
            lo, hi = seen.get(name, (np.inf, -np.inf))
            seen[name] = (min(lo, float(array.min())), max(hi, float(array.max())))
    return {name: Range.of(*bounds) for name, bounds in seen.items()}


def picture_feed(seed):
    return np.random.default_rng(seed).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)


def fake(x, quant, rounded=np.round):
    info = np.iinfo(quant.dtype)
    stored = np.clip(rounded(x / np.float32(quant.scale)) + quant.zero_point, info.min, info.max)
    return ((stored - quant.zero_point) * np.float32(quant.scale)).astype(np.float32)


def divided(steps):
    """Rounded down, as the hardware divides the sum of what it averages; a whole number stays one."""
    return np.floor(steps + np.float32(0.001))


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("choice", [Choice(), Choice("ALL_INT16"), Choice(per_channel=True)])
def test_one_operator_after_the_other_is_plain_fake_quantisation(opset, choice):
    net = residual_net(opset)
    raw = picture_feed(0)
    bounds = bounds_of(net, [{"data": (raw - 127) / 128}])
    decided = plan(net.proto, bounds, choice, ["data"])
    fixed = quantise(net.proto, decided, PICTURE)
    onnx.checker.check_model(fixed)
    made = run_all(fixed, {"data": raw})
    assert "c1.w" not in {t.name for t in fixed.graph.initializer}, "float weights are gone"
    for name, quant in decided.tensors.items():
        if name == "data":
            continue
        rounded = divided if name == "gap" else np.round
        np.testing.assert_array_equal(made[name], fake(made[f"{name}#float"], quant, rounded), err_msg=name)
        assert made[f"{name}#stored"].dtype == quant.dtype
    np.testing.assert_array_equal(made["pool"], made["r2"].reshape(1, 8, 4, 2, 4, 2).max(axis=(3, 5)))


@pytest.mark.parametrize("steps", [1, 2, 101, 254])
def test_an_average_of_a_whole_number_of_steps_keeps_it(steps):
    net, feed = residual_net(), {"data": picture_feed(0)}
    decided = plan(net.proto, bounds_of(net, [{"data": (feed["data"] - 127) / 128}]), pictures=["data"])
    average = run_all(quantise(net.proto, decided, PICTURE), feed)["gap#float"].reshape(-1)[0]
    quant = decided.tensors["gap"] = replace(decided.tensors["gap"], scale=float(average) / steps)
    stored = run_all(quantise(net.proto, decided, PICTURE), feed)["gap#stored"].reshape(-1)[0]
    assert int(stored) - quant.zero_point == steps


def test_fused_tensors_are_not_stored():
    net = residual_net()
    decided = plan(net.proto, bounds_of(net, [{"data": (picture_feed(0) - 127) / 128}]), pictures=["data"])
    facts = read_facts(replace(net, proto=quantise(net.proto, decided, PICTURE)))
    assert "c2" not in facts.tensors and "add" not in facts.tensors
    fused = next(op for op in facts.operators if op.outputs == ("r2",))
    assert (fused.in_type, fused.out_type, fused.inputs) == ("CONV_2D", "ADD", ("r1",))


def test_the_picture_input_takes_raw_bytes():
    net = residual_net()
    decided = plan(net.proto, bounds_of(net, []), pictures=["data"])
    decided.tensors["data"] = uint8_quant(-127 / 128, 1.0)
    made = run_all(quantise(net.proto, decided, PICTURE), {"data": picture_feed(3)})
    np.testing.assert_array_equal(made["data#stored"], picture_feed(3).astype(np.uint8))


def test_channels_with_their_own_mean_and_std_are_mapped_to_stored_integers():
    net = residual_net()
    mean, std = np.array([104.0, 117.0, 123.0]), np.array([58.0, 60.0, 62.0])
    raw = picture_feed(4)
    real = (raw - mean.reshape(1, 3, 1, 1)) / std.reshape(1, 3, 1, 1)
    bounds = bounds_of(net, []) | {"data": Range.of(float(real.min()), float(real.max()))}
    decided = plan(net.proto, bounds, pictures=["data"])
    made = run_all(quantise(net.proto, decided, {"data": Picture(tuple(mean), tuple(std))}), {"data": raw})
    assert np.abs(made["data#real"] - real).max() <= 1.1 * decided.tensors["data"].scale


def test_an_output_kept_integer_leaves_as_integers():
    net = residual_net()
    decided = plan(net.proto, bounds_of(net, [{"data": (picture_feed(0) - 127) / 128}]), pictures=["data"])
    fixed = quantise(net.proto, decided, PICTURE, frozenset(["prob"]))
    onnx.checker.check_model(fixed)
    assert [o.name for o in fixed.graph.output] == ["prob#stored"]
    assert run_all(fixed, {"data": picture_feed(0)})["prob#stored"].dtype == np.int16


def test_a_weight_shared_by_an_8_and_a_16_bit_convolution_is_stored_twice():
    constants = weights("a", (3, 3, 1, 1))
    nodes = [
        conv("a", "data"),
        node("Relu", ["a"], "r"),
        onnx.helper.make_node("Conv", ["r", "a.w", "a.b"], ["b"], name="b"),
    ]
    net = model(nodes, constants, {"data": (1, 3, 8, 8)}, ["b"])
    bounds = bounds_of(net, [{"data": (picture_feed(0) - 127) / 128}])
    fixed = quantise(net.proto, plan(net.proto, bounds, Choice(tensors=("r",)), ["data"]), PICTURE)
    dtypes = {str(onnx.numpy_helper.to_array(t).dtype) for t in fixed.graph.initializer if t.name.startswith("a.w#")}
    assert {"int8", "int16"} <= dtypes
    run_all(fixed, {"data": picture_feed(0)})


@pytest.mark.parametrize(("dtype", "limit"), [(np.int8, 127), (np.int16, 32767)])
def test_weights_are_rounded_and_clipped_to_symmetric_limits(dtype, limit):
    quant = Quant(np.dtype(dtype), 1 / limit)
    weight = np.array([-2.0, -1.0, -0.6 / limit, -0.4 / limit, 0.0, 0.4 / limit, 1.0, 2.0])
    assert store_weight(weight, quant).tolist() == [-limit, -limit, -1, 0, 0, 0, limit, limit]
    assert store_weight(weight, quant).dtype == dtype
    np.testing.assert_allclose(fake_weight(weight, quant)[[0, 2, 6]], [-1, -1 / limit, 1], rtol=1e-6)


def test_weights_per_channel_are_scaled_along_their_axis():
    quant = Quant(np.dtype(np.int8), np.array([0.1, 0.01], np.float32), axis=1)
    assert store_weight(np.full((3, 2, 1), 0.5), quant).tolist() == [[[5], [50]]] * 3


@pytest.mark.parametrize(("opset", "domain"), [(13, "com.microsoft"), (20, "com.microsoft"), (21, ""), (22, "")])
def test_16_bits_are_onnxs_own_from_opset_21_on(opset, domain):
    net = residual_net(opset)
    decided = plan(net.proto, bounds_of(net, [{"data": (picture_feed(0) - 127) / 128}]), pictures=["data"])
    fixed = quantise(net.proto, decided, PICTURE)
    kinds = {each.domain for each in fixed.graph.node if each.op_type in ("QuantizeLinear", "DequantizeLinear")}
    assert kinds == {domain}


@pytest.mark.parametrize(
    ("mean", "std", "scale", "zero_point", "gain", "offset"),
    [
        (0.0, 1.0, 1.0, 0, None, None),  # the byte itself
        (127.0, 128.0, 1 / 128, 127, None, None),
        (0.0, 1.0, 1.0, 3, 1.0, 3.0),
        (0.0, 2.0, 1.0, 0, 0.5, 0.0),
        (0.0, 3.0, 1.0, 0, 341 / 1024, 0.0),
        (10.0, 1.0, 0.5, 7, 2.0, -13.0),
    ],
)
def test_the_picture_is_scaled_in_steps_of_1024ths(mean, std, scale, zero_point, gain, offset):
    net = residual_net()
    decided = plan(net.proto, bounds_of(net, []) | {"c1": Range.of(-1, 1)}, pictures=["data"])
    decided.tensors["data"] = Quant(np.dtype(np.uint8), scale, zero_point)
    fixed = quantise(net.proto, decided, {"data": Picture((mean,) * 3, (std,) * 3)})
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in fixed.graph.initializer}
    given = [constants[name].ravel().tolist() if name in constants else None for name in ("data#gain", "data#offset")]
    assert given == [None if each is None else pytest.approx([each] * 3) for each in (gain, offset)]


@pytest.mark.parametrize("activation", ["Relu", "Clip", "LeakyRelu", "PRelu"])
def test_a_fused_operator_puts_out_under_its_last_part_that_is_no_activation(activation):
    nodes = [conv("a", "data"), node(activation, ["a", *(["slope"] if activation == "PRelu" else [])], "r")]
    constants = {**weights("a", (3, 3, 1, 1)), "slope": np.ones(1, np.float32)}
    net = model(nodes, constants, {"data": (1, 3, 8, 8)}, ["r"])
    facts = read_facts(replace(net, proto=quantise(net.proto, plan(net.proto, {"r": Range.of(0, 1)}), {})))
    assert [(op.in_type, op.out_type) for op in facts.operators] == [("CONV_2D", "CONV_2D")]


def test_a_weight_that_two_convolutions_share_at_8_bits_is_a_valid_model():
    nodes = [
        onnx.helper.make_node("Conv", ["data", "a.w"], ["a"], name="a"),
        onnx.helper.make_node("Conv", ["a", "a.w"], ["b"], name="b"),
    ]
    net = model(nodes, {"a.w": weights("a", (3, 3, 1, 1))["a.w"]}, {"data": (1, 3, 8, 8)}, ["b"])
    bounds = bounds_of(net, [{"data": (picture_feed(0) - 127) / 128}])
    fixed = quantise(net.proto, plan(net.proto, bounds, pictures=["data"]), PICTURE)
    names = [tensor.name for tensor in fixed.graph.initializer]
    assert len(names) == len(set(names))
    run_all(fixed, {"data": picture_feed(0)})


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "ends"),
    [
        (np.uint8, 0.5, 0, (0, 127.5)),
        (np.uint8, 0.5, 10, (-5, 122.5)),
        (np.int16, 0.25, 0, (-8192, 8191.75)),
        (np.int16, 0.25, 4, (-8193, 8190.75)),
    ],
)
def test_the_limits_are_what_the_type_s_ends_mean(dtype, scale, zero, ends):
    """The upper end is where int16 itself ends."""
    quant = Quant(np.dtype(dtype), scale, zero)
    assert (lowest(quant), (LARGEST - int(zero_point(quant))) * scale) == ends


@pytest.mark.parametrize("others", [[], ["org.example"], ["ai.example"], ["com.microsoft"], ["org.a", "com.microsoft"]])
def test_the_operator_set_of_16_bits_is_imported_once(others):
    net = single_convolution()
    for domain in others:
        net.proto.opset_import.add(domain=domain, version=1)
    ranges = {"data": Range.of(-1, 1), "c": Range.of(-1, 1)}
    made = quantise(net.proto, plan(net.proto, ranges), {})
    assert sorted(each.domain for each in made.opset_import) == sorted({"", "com.microsoft", *others})


@pytest.mark.parametrize(
    ("std", "zero_point", "gain", "offset"),
    [(1.0, 0, None, None), (0.5, 0, 2.0, 0.0), (2.0, 0, 0.5, 0.0), (1.0, 2, 1.0, 2.0), (1.0, -2, 1.0, -2.0)],
)
def test_a_picture_is_scaled_unless_its_bytes_are_the_integers(std, zero_point, gain, offset):
    net = single_convolution()
    decided = plan(net.proto, {"data": Range.of(0, 1), "c": Range.of(-1, 1)}, pictures=["data"])
    dtype = np.dtype(np.uint8) if zero_point >= 0 else INT16
    decided.tensors["data"] = Quant(dtype, 1.0, zero_point)
    made = quantise(net.proto, decided, {"data": Picture((0.0,) * 3, (std,) * 3)})
    constants = {t.name: onnx.numpy_helper.to_array(t).ravel().tolist() for t in made.graph.initializer}
    expected = (None, None) if gain is None else ([gain] * 3, [offset] * 3)
    assert (constants.get("data#gain"), constants.get("data#offset")) == expected
