"""Single rules, each on the smallest graph that has it, by the reference in numpy; most are from published nets."""

from dataclasses import replace

import integer_reference as rule
import numpy as np
import onnx.reference
import pytest
from integer_reference import Scale
from onnx_part import STORED, part_outputs
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import Picture, simplify
from sgsdump.fixedpoint.quantisation.integer import curves
from sgsdump.fixedpoint.quantisation.integer.arithmetic import add_to, multiply_by
from sgsdump.fixedpoint.quantisation.integer.emitter import Emitter, Integers, Unrounded, half_up, ratio, requantise
from sgsdump.fixedpoint.quantisation.integer.walk import steps_of_bytes
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, int16_quant, uint8_quant
from sgsdump.tensors.stages import KEY
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range


def fixed_output(net, ranges, feeds, name):
    fixed = make_fixed(net, {each: Range.of(*ends) for each, ends in ranges.items()})
    stored = {STORED.format(each): array for each, array in feeds.items()}
    return part_outputs(fixed.proto, stored, [STORED.format(name)])[0]


@pytest.mark.parametrize("shape", [(1, 40), (1, 40, 1, 1)])
def test_constants_as_large_as_the_tensor_are_int16_operands(shape):
    """BatchNorm and Scale behind a fully connected operator, and on maps of one pixel."""
    rng = np.random.default_rng(3)
    gain = rng.uniform(0.5, 2, shape[1:]).astype(np.float32)
    offset = rng.normal(0, 0.5, shape[1:]).astype(np.float32)
    nodes = [node("Mul", ["x", "k"], "m"), node("Add", ["m", "b"], "y")]
    ends = {"x": (-1.0, 1.2), "m": (-2.0, 2.3), "y": (-2.5, 2.6)}
    x = rng.integers(-32767, 32768, shape).astype(np.int16)
    ours = fixed_output(model(nodes, {"k": gain, "b": offset}, {"x": shape}, ["y"]), ends, {"x": x}, "y")

    scales = {name: rule.scale_of(*each, "int16") for name, each in ends.items()}
    k, b = (rule.scale_of(*(float(f"{end:.6f}") for end in (v.min(), v.max())), "int16") for v in (gain, offset))
    whole = [np.vectorize(rule.away)(v.astype(np.float64) / s.step)[None] for v, s in ((gain, k), (offset, b))]
    product = rule.multiply(x.astype(np.int64), scales["x"], whole[0], k, scales["m"], rule.single(2.3))
    np.testing.assert_array_equal(ours, rule.add(product, scales["m"], whole[1], b, scales["y"]))


def test_a_relu_of_its_own_goes_to_uint8_by_way_of_int16():
    net = model([node("Relu", ["x"], "r"), conv("c", "r")], weights("c", (2, 1, 1, 1)), {"x": (1, 1, 256, 256)}, ["c"])
    x = np.arange(-32768, 32768, dtype=np.int64).clip(-32767).reshape(1, 1, 256, 256)
    ends = {"x": (-2.868073, 2.357735), "r": (0, 2.357735), "c": (-1, 1)}
    ours = fixed_output(net, ends, {"x": x.astype(np.int16)}, "r")
    source, out = rule.scale_of(*ends["x"], "int16"), rule.scale_of(*ends["r"], "uint8")
    np.testing.assert_array_equal(ours, rule.relu(x, source, out, *ends["r"]))
    assert (ours != np.maximum(rule.requantise(x, source, out), 0)).any()


@pytest.mark.parametrize("top", [6.0, 3.0])
def test_a_clip_after_a_convolution_ends_below_a_wider_range(top):
    """As a quant file, or a Concat, may give the output of a Relu6: 255 steps reach further than the limit."""
    constants = weights("c", (4, 3, 1, 1)) | weights("d", (2, 4, 1, 1))
    limits = {"low": np.float32(0), "top": np.float32(top)}
    nodes = [conv("c", "x"), node("Clip", ["c", "low", "top"], "r"), conv("d", "r")]
    net = model(nodes, {**constants, **limits}, {"x": (1, 3, 8, 8)}, ["d"])
    x = np.random.default_rng(5).integers(0, 256, (1, 3, 8, 8)).astype(np.uint8)
    ends = {"x": (0, 40), "c": (-20, 20), "r": (0, 11), "d": (-1, 1)}
    plain = model([conv("c", "x"), node("Relu", ["c"], "r"), conv("d", "r")], constants, {"x": x.shape}, ["d"])
    clipped, unclipped = (fixed_output(each, ends, {"x": x}, "r") for each in (net, plain))
    assert clipped.dtype == np.uint8 and unclipped.max() > 140
    np.testing.assert_array_equal(clipped, np.minimum(unclipped, rule.away(top / (11 / 255))))


def test_a_relu_is_computed_for_the_range_of_its_domain():
    """What a Concat makes wider."""
    constants = {**weights("a", (16, 3, 1, 1)), **weights("b", (16, 3, 1, 1)), **weights("c", (2, 32, 1, 1))}
    nodes = [node("Add", ["x", "z"], "s"), node("Relu", ["s"], "r"), node("Concat", ["r", "y"], "cat", axis=1)]
    inputs = dict.fromkeys(("x", "y", "z"), (1, 16, 64, 64))
    ends = {"x": (-3, 3), "y": (0, 8.741114), "z": (-1, 1), "s": (-3.6, 4.18879), "r": (0, 4.18879)}
    ends |= {"cat": (0, 8.741114), "c": (-1, 1)}
    nodes.append(conv("c", "cat"))
    x, z = np.random.default_rng(1).integers(-32767, 32768, (2, *inputs["x"])).astype(np.int16)
    ours = fixed_output(model(nodes, constants, inputs, ["c"]), ends, {"x": x, "z": z}, "r")
    a, b, s = (rule.scale_of(*ends[name], "int16") for name in "xzs")
    total = rule.add(x.astype(np.int64), a, z.astype(np.int64), b, s)
    out = rule.scale_of(*ends["cat"], "uint8")
    np.testing.assert_array_equal(ours, rule.relu(total, s, out, *ends["cat"]))
    assert (ours != rule.relu(total, s, out, *ends["r"])).any()


@pytest.mark.parametrize(("kind", "compute"), [("mul", multiply_by), ("add", add_to)])
def test_a_constant_is_scaled_in_float32(kind, compute):
    """Near a half the order of the roundings decides: with these scales for some constants of 20 000."""
    rng = np.random.default_rng(7)
    constants = rng.uniform(0.3, 1.9, 20000).astype(np.float32).reshape(-1, 1)
    source, out = Quant(INT16, 7.9e-05, 0, exact=True), Quant(INT16, 1.27e-04, 0, exact=True)
    x = np.tile(np.array([[32767, -20001, 12345]]), (20000, 1))
    emit = Emitter()
    value = emit.inner(compute(emit, Integers("x", np.dtype(np.float64), source), constants, out), out)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(emit.nodes, "rule", [], [], emit.constants),
        opset_imports=[onnx.helper.make_opsetid("", 13)],
        ir_version=8,
    )
    (ours,) = part_outputs(proto, {"x": x.astype(np.float64)}, [value.name])
    a, b = Scale("int16", source.scale), Scale("int16", out.scale)
    wanted = (rule.multiply_by if kind == "mul" else rule.add_to)(x, a, constants, b)
    np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("high", [1.0, 3.0])
@pytest.mark.parametrize("low", [-0.5, 0.0])
def test_what_is_clipped_inside_a_chain_stays_within_it(low, high):
    """Where the output's range is the larger one, what left the inner tensor's range ends at that, not at 255."""
    inner, out, emit = int16_quant(-1.0, 1.0), uint8_quant(low, high), Emitter()
    x = np.arange(-50000, 50001, 7).astype(np.float64)
    value = emit.inner(Unrounded("x"), inner)
    stored = emit.store(requantise(emit, value, out), out, "y")
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(emit.nodes, "rule", [], [], emit.constants),
        opset_imports=[onnx.helper.make_opsetid("", 13)],
        ir_version=8,
    )
    (ours,) = part_outputs(proto, {"x": x}, [stored.name])
    clipped = np.clip(x, -32767, 32767).astype(np.int64)
    wanted = rule.requantise(clipped, Scale("int16", inner.scale), Scale("uint8", out.scale, out.zero_point))
    np.testing.assert_array_equal(ours, wanted)


def test_a_pictures_offset_is_rounded_half_up():
    """From pictures of 1 to 255 it is -1.5."""
    quant, emit = uint8_quant(-0.984375, 1.0), Emitter()
    steps = steps_of_bytes(emit, "x", Picture(np.array([127.0] * 3), np.array([128.0] * 3)), quant)
    offset = onnx.numpy_helper.to_array(next(c for c in emit.constants if c.name == emit.nodes[-1].input[1]))
    assert steps.name == emit.nodes[-1].output[0] and offset.reshape(-1).tolist() == [-1, -1, -1]


def test_an_average_of_many_int16_values_is_exact():
    """Their sums are more than float32 holds."""
    net = model([node("AveragePool", ["x"], "y", kernel_shape=[16, 17])], {}, {"x": (1, 2, 40, 41)}, ["y"])
    x = np.random.default_rng(2).integers(-32767, 32768, (1, 2, 40, 41)) // np.array([1, 40]).reshape(1, 2, 1, 1)
    x[0, 0] = np.where(np.arange(40)[:, None] < 20, 32767, x[0, 0])
    ours = fixed_output(net, {"x": (-1, 1), "y": (-1, 1)}, {"x": x.astype(np.int16)}, "y")
    windows = np.lib.stride_tricks.sliding_window_view(x, (16, 17), axis=(2, 3)).sum(axis=(4, 5))
    np.testing.assert_array_equal(ours, rule.average(windows, 16 * 17))


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_an_average_pool_of_caffe_counts_its_padding_as_zero_points(dtype):
    """Of a different width on each side, of values whose zero point is not 0 as bytes."""
    pads = [1, 0, 2, 3]  # top, left, bottom, right
    pool = node("AveragePool", ["x"], "y", kernel_shape=[4, 5], strides=[2, 3], pads=pads, count_include_pad=1)
    nodes, constants, outputs = [pool], {}, ["y"]
    if dtype == "uint8":
        nodes, constants, outputs = [pool, conv("c", "y")], weights("c", (2, 3, 1, 1)), ["c"]
    limits = np.iinfo(dtype)
    x = np.random.default_rng(4).integers(max(limits.min, -limits.max), limits.max, (1, 3, 9, 11)).astype(dtype)
    ends = {"x": (-1.0, 2.0), "y": (-1.0, 2.0), "c": (-1.0, 1.0)}
    net = model(nodes, constants, {"x": x.shape}, outputs)
    net.proto.metadata_props.add(key=KEY, value="[]")
    ours = fixed_output(net, ends, {"x": x}, "y")
    zero_point = rule.scale_of(*ends["x"], dtype).zero
    assert zero_point == (85 if dtype == "uint8" else 0)
    np.testing.assert_array_equal(ours, rule.pooled(x, (4, 5), (2, 3), tuple(pads), zero_point, largest=False))


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 1, 1, 1]},
        {"pads": [0, 0, 0, 1], "count_include_pad": 0},
        {"ceil_mode": 1, "strides": [2, 2]},
        {"pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_UPPER", "strides": [3, 2]},
    ],
    ids=["by default", "not counted", "ceil", "counted in ONNX", "auto_pad", "auto_pad with strides"],
)
@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_a_pool_takes_what_is_inside_its_input(attributes, kind):
    """Of ONNX, as the SDK does: padding never counts, and that of SAME_UPPER is all behind the input."""
    own = {key: value for key, value in attributes.items() if kind == "AveragePool" or key != "count_include_pad"}
    net = model([node(kind, ["x"], "y", kernel_shape=[3, 3], **own)], {}, {"x": (1, 2, 8, 8)}, ["y"])
    fixed = make_fixed(net, {name: Range.of(-1, 1) for name in "xy"})
    assert not fixed.approximate
    x = np.random.default_rng(0).integers(-32767, 32768, (1, 2, 8, 8)).astype(np.int16)
    (got,) = part_outputs(fixed.proto, {STORED.format("x"): x}, [STORED.format("y")])
    if "auto_pad" in attributes:
        pads = [0, 0, *(2 if stride == 1 else 1 for stride in own.pop("strides", [1, 1]))]
        own = {"strides": attributes.get("strides", [1, 1]), "pads": pads}
    own.pop("count_include_pad", None)
    if kind == "MaxPool" and "pads" in own:  # onnx's reference does not pad these as written
        (top, left, bottom, right), least = own.pop("pads"), -32768
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=least)
    net = model([node(kind, ["x"], "y", kernel_shape=[3, 3], **own)], {}, {"x": x.shape}, ["y"])
    whole = onnx.reference.ReferenceEvaluator(net.proto).run(None, {"x": x.astype(np.float32)})[0].astype(np.float64)
    np.testing.assert_array_equal(got, np.trunc(whole + np.sign(whole) * 0.01))


@pytest.mark.parametrize(("axes", "first"), [([2, 3], 2), ([3, 2], 3), ([-2, -1], 2)])
def test_a_slice_of_several_axes_takes_the_first_values_of_one_along_the_first(axes, first):
    bounds = {"begin": [1, 0], "end": [9, 7], "axes": axes, "steps": [2, 1]}
    constants = {name: np.array(values) for name, values in bounds.items()}
    net = model([node("Slice", ["x", *constants], "y")], constants, {"x": (1, 3, 9, 11)}, ["y"])
    x = np.random.default_rng(0).integers(-32767, 32768, (1, 3, 9, 11)).astype(np.int16)
    got = fixed_output(net, {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, {"x": x}, "y")
    cut = x[:, :, 1:9:2] if first == 2 else x[..., 1:9:2]
    size = 3 * 4 * 7
    shape = (1, 4, 7, 3) if first == 2 else (1, 7, 4, 3)
    wanted = cut.transpose(0, 2, 3, 1).reshape(-1)[:size].reshape(shape).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (11, 2), (9, 3), (13, 1), (13, 3), (13, -2)])
def test_a_softmax_of_maps_goes_over_the_channels(opset, axis):
    """Whatever its axis is, at every opset; the oracle is one over the channels alone."""
    values = weights("c", (5, 3, 1, 1), 1)
    nets = [
        simplify(
            model([conv("c", "x"), node("Softmax", ["c"], "y", axis=at)], values, {"x": (1, 3, 4, 6)}, ["y"], version)
        )
        for at, version in ((axis, opset), (1, 13))
    ]
    x = np.random.default_rng(0).integers(-32767, 32768, (1, 3, 4, 6)).astype(np.int16)
    ends = {"x": (-1.0, 1.0), "c": (-12.0, 3.0), "y": (0.0, 1.0)}
    got, wanted = (fixed_output(net, ends, {"x": x}, "y") for net in nets)
    np.testing.assert_array_equal(got, wanted)
    assert abs(wanted.astype(int).sum(axis=1) - 32768).max() < 8


def test_a_multiplier_near_a_tie_is_decided_by_the_float32_ratio():
    """Scales of a MobileNet v3, whose SDK takes 16385 here: 16384.4996 in double precision."""
    a, b, product = (float(np.float32(top / 32767)) for top in (2.733236, 5.733236, 15.670288))
    assert half_up(a * b / product * 2.0**29) == 16384
    assert half_up(ratio(a * b, Quant(INT16, product, 0)) * 2.0**29) == 16385


@pytest.mark.parametrize(("apart", "same"), [(0.0, True), (0.9e-4, True), (1.1e-4, False)])
def test_an_exp_is_not_rescaled_to_a_scale_that_the_range_as_text_gives(apart, same):
    """INT16 outputs are the table's whole numbers where the scales differ by less than one in 10,000."""
    source, ends = int16_quant(-4.0, 2.0), Range.of(-4.0, 2.0)
    q = np.arange(-32767, 32768.0)
    wide = int16_quant(0.0, float(np.exp(2.0)))
    exact = curves.exp(q, source, wide, ends)
    stored = curves.exp(q, source, replace(wide, scale=wide.scale * (1 + apart)), ends)
    assert np.array_equal(stored, exact) == same
