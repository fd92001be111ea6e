"""Convolutions of every kind against the reference in int64: random ones, and those at the limits of exact sums.

The weights are whole numbers times a step, up to all -127 or all 32767, so that the accumulator passes 2^24 and each
way to add it up exactly is taken: one float32 Conv, doubles tap by tap, pieces of the weights, bytes of the input.
"""

import math
from dataclasses import dataclass, replace

import integer_reference as rule
import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx_part import STORED, part_outputs
from small_nets import helper, model, node

from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.integer import convolution, emitter
from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

KINDS = ("Conv", "ConvTranspose", "Gemm", "GemmTransB", "MatMul")
PLAIN = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Case:
    """``fill``: what the weights are made of; ``reach``: the power of two by which the channels' ranges differ from
    what the accumulators reach, which shifts K; ``narrow``: an UINT8 output."""

    kind: str = "Conv"
    source: str = "uint8"
    narrow: bool = False
    relu: bool = False
    group: int = 1
    inputs: int = 3
    outputs: int = 2
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    size: tuple[int, int] = (5, 6)
    fill: str = "random"
    low: float = -1.0
    reach: int = 0
    seed: int = 0
    per_channel: bool = False

    @property
    def spatial(self) -> bool:
        return self.kind.startswith("Conv")


@st.composite
def cases(draw):
    kind = draw(st.sampled_from(KINDS))
    group = draw(st.sampled_from([1, 1, 2, 3]))
    depthwise = kind == "Conv" and group > 1 and draw(st.booleans())
    inputs = group * (1 if depthwise else draw(st.sampled_from([1, 2, 5, 40])))
    if not kind.startswith("Conv"):
        group = 1
    small = st.integers(1, 3)
    return Case(
        kind,
        draw(st.sampled_from(["uint8", "int16"])),
        draw(st.booleans()),
        draw(st.booleans()),
        group,
        inputs,
        group * draw(st.integers(1, 4)),
        (draw(small), draw(small)),
        (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        (draw(st.integers(1, 2)), draw(st.integers(1, 2))) if kind == "Conv" else (1, 1),
        tuple(draw(st.integers(0, 1)) for _ in range(4)),
        fill=draw(st.sampled_from(["random", "random", "small", "lowest", "highest"])),
        low=draw(st.sampled_from([-1.0, -0.3, 0.0, -5.0])),
        reach=draw(st.integers(-4, 9)),
        seed=draw(st.integers(0, 2**31)),
        per_channel=draw(st.booleans()),
    )


def whole_weights(case, top):
    rng = np.random.default_rng(case.seed)
    shape = (case.outputs, case.inputs // case.group, *case.kernel) if case.spatial else (case.outputs, case.inputs)
    values = {
        "random": lambda: rng.integers(-top, top + 1, shape),
        "small": lambda: rng.integers(-3, 4, shape),
        "lowest": lambda: np.full(shape, -top),
        "highest": lambda: np.full(shape, top),
    }[case.fill]()
    if case.kind == "Conv" and case.group > 1:
        # A convolution with groups has a scale for each: the same, so.
        values[:: max(1, case.outputs // case.group)].reshape(case.group, -1)[:, 0] = top
    return values.astype(np.int64)


def check(case):
    """One operator by the ONNX file and by the reference; gives its Numbers and the accumulators."""
    rng = np.random.default_rng(case.seed + 1)
    wide = "int8" if case.source == "uint8" else "int16"
    top = rule.TOP[wide]
    ends = (case.low, case.low + 2.0)
    source = rule.scale_of(*ends, case.source)
    whole = whole_weights(case, top)
    steps = np.full(case.outputs, 2.0**-7)
    depthwise = case.kind == "Conv" and case.group == case.inputs == case.outputs
    if case.per_channel and (case.group == 1 or depthwise or case.kind == "ConvTranspose"):
        # A ConvTranspose's weights (I, O / group, ...) have the scales of their second axis, for every group.
        shared = case.group if case.kind == "ConvTranspose" else 1
        steps = steps * np.tile(np.linspace(1, 3, case.outputs // shared), shared)
    tops = (top * steps).astype(np.float32).astype(np.float64)
    values = (whole * steps.reshape(-1, *[1] * (whole.ndim - 1))).astype(np.float32)
    stored = rule.weights(values, (tops / top).reshape(-1, *[1] * (whole.ndim - 1)), wide)
    np.testing.assert_array_equal(stored, whole)

    shape = (1, case.inputs, *case.size) if case.spatial else (4, case.inputs)
    x = rng.integers(source.lowest, source.highest + 1, shape)
    if case.fill in ("lowest", "highest"):
        x[..., ::2] = source.highest  # as far as it goes
    acc = accumulators(case, x, whole, source)
    s = source.single * np.array([rule.single(each) for each in tops / top])
    bias = rng.normal(0, 1, case.outputs) * s * np.abs(acc).max() / 4
    bias = (bias * (case.kind != "MatMul")).astype(np.float32)
    axes = tuple(i for i in range(acc.ndim) if i != 1)
    sums = stored.reshape(case.outputs, -1).sum(axis=1)
    real = (acc - (source.zero * sums).reshape(1, -1, *[1] * (acc.ndim - 2))) * s.reshape(1, -1, *[1] * (acc.ndim - 2))
    real = real + bias.reshape(1, -1, *[1] * (acc.ndim - 2))
    low, high = (end * 2.0**case.reach for end in (real.min(axis=axes), real.max(axis=axes)))
    bounds = float(min(real.min(), 0) * 0.9), float(max(real.max(), 1e-3) * 0.9)
    # A convolution with groups takes no ReLU in, but for a depthwise one, and is a Concat of its groups' channels.
    grouped = case.kind == "Conv" and case.group > 1 and not depthwise
    narrow = case.narrow and not (grouped and case.outputs // case.group % 16)
    out = rule.scale_of(*bounds, "uint8" if narrow else "int16")
    relu = case.relu and case.spatial and not grouped

    net = network(case, values, bias, relu)
    name = "r" if relu else "y"
    ranges = {"x": Range.of(*ends), "y": Range.of(*bounds), "r": Range.of(*bounds), "z": Range.of(-1, 1)}
    own = tops[: case.outputs // case.group] if case.kind == "ConvTranspose" else tops
    ranges["w"] = Range(-own, own) if np.ptp(tops) else Range.of(-tops[0], tops[0])
    groups = 1 if depthwise or case.kind == "ConvTranspose" else case.group
    arrays = ("x",) if case.source == "int16" else ()
    fixed = make_fixed(net, ranges, InputConfig((), tensor_arrays=arrays), side=SideRanges({"y": Range(low, high)}))
    quant = fixed.plan.tensors[name]
    assert (quant.scale, quant.zero_point, str(quant.dtype)) == (out.step, out.zero, out.dtype)
    feeds = {STORED.format("x"): x.astype(case.source)}
    (ours,) = part_outputs(fixed.proto, feeds, [STORED.format(name)])

    parts, numbers = [], []
    each = case.outputs // groups
    for g in range(groups):
        own = slice(g * each, (g + 1) * each)
        found = rule.numbers(
            sums[own], bias[own].astype(np.float64), low[own], high[own], source, (tops / top)[own], out
        )
        largest = np.abs(rule.rounded_accumulator(acc[:, own], found.k)).max() + 2.0**15
        if math.log2(float(largest)) + 15 >= 52:
            reject()  # far beyond its calibrated range, and beyond what doubles hold
        parts.append(rule.convolution(acc[:, own], found, out, relu))
        numbers.append(found)
    np.testing.assert_array_equal(ours, np.concatenate(parts, axis=1))
    (rows,) = (numpy_helper.to_array(t) for t in fixed.proto.graph.initializer if t.name == "y#rows")
    np.testing.assert_array_equal(rows[0], np.concatenate([each.bias for each in numbers]))
    np.testing.assert_array_equal(rows[1], np.concatenate([each.mul for each in numbers]))
    return numbers, acc


def accumulators(case, x, w, source):
    if not case.spatial:
        return x.astype(np.int64) @ w.T
    if case.kind == "Conv":
        return rule.sums_of_products(x, w, source.zero, case.strides, case.pads, case.dilations, case.group)
    return rule.sums_transposed(x, transposed(case, w), case.strides, case.pads, source.zero, case.group)


def transposed(case, w):
    """(O, I / group, ...) as ConvTranspose has it: (I, O / group, ...)."""
    parts = w.reshape(case.group, case.outputs // case.group, *w.shape[1:])
    return np.swapaxes(parts, 1, 2).reshape(case.inputs, case.outputs // case.group, *w.shape[2:])


def network(case, values, bias, relu):
    """x -> y (-> r), and a convolution behind it where the output shall be UINT8."""
    how = {}
    if case.spatial:
        how = {"strides": case.strides, "pads": case.pads, "group": case.group}
        how |= {"dilations": case.dilations} if case.kind == "Conv" else {}
    constants = {"w": values, "b": bias}
    if case.kind == "ConvTranspose":
        constants["w"] = transposed(case, values)
    if case.kind in ("Gemm", "MatMul"):
        constants["w"] = np.ascontiguousarray(values.T)
    if case.kind == "GemmTransB":
        how["transB"] = 1
    inputs = ["x", "w"] if case.kind == "MatMul" else ["x", "w", "b"]
    nodes = [helper.make_node(case.kind.removesuffix("TransB"), inputs, ["y"], name="y", **how)]
    if relu:
        nodes.append(node("Relu", ["y"], "r"))
    last = "r" if relu else "y"
    if case.narrow:
        kernel = (1, case.outputs, 1, 1) if case.spatial else (case.outputs, 1)
        constants["v"] = np.ones(kernel, np.float32)
        nodes.append(node("Conv" if case.spatial else "MatMul", [last, "v"], "z"))
        last = "z"
    shape = (1, case.inputs, *case.size) if case.spatial else (4, case.inputs)
    return model(nodes, constants, {"x": shape}, [last])


@PLAIN
@given(cases())
def test_every_kind_of_convolution_is_the_reference(case):
    check(case)


# What each way of adding up is taken for; ``ways`` are functions of convolution.py.
WAYS = {
    "one float32 Conv": (Case(inputs=6, fill="lowest"), set()),
    "one float32 ConvTranspose": (Case("ConvTranspose", inputs=4, strides=(2, 2), pads=(1, 1, 1, 1)), set()),
    "just within 2^24": (Case(inputs=518, kernel=(1, 1), low=0.0, fill="highest"), set()),
    "just beyond 2^24": (Case(inputs=519, kernel=(1, 1), low=0.0, fill="highest"), {"_by_taps"}),
    "doubles tap by tap": (Case(inputs=70, fill="lowest", pads=(1, 0, 1, 1), outputs=3), {"_by_taps"}),
    "16 bits tap by tap": (
        Case(source="int16", fill="highest", strides=(2, 1), dilations=(1, 2), size=(7, 8), narrow=True),
        {"_by_taps"},
    ),
    "taps per channel": (Case(source="int16", fill="lowest", per_channel=True, outputs=4, relu=True), {"_by_taps"}),
    "pieces of a depthwise": (Case(source="int16", group=4, inputs=4, outputs=4, fill="highest"), {"_by_pieces"}),
    "pieces of two per channel": (Case(source="int16", group=4, inputs=4, outputs=8), {"_by_pieces"}),
    "pieces of groups": (Case(group=2, inputs=260, outputs=4, fill="lowest"), {"_by_pieces"}),
    "pieces of a ConvTranspose": (
        Case("ConvTranspose", inputs=140, pads=(1, 1, 0, 0), fill="highest", low=-0.3),
        {"_by_pieces"},
    ),
    "bytes of the input": (Case("ConvTranspose", "int16", inputs=80, outputs=2), {"_by_pieces", "bytes"}),
    "bytes of grouped inputs": (Case(source="int16", group=2, inputs=200, outputs=2), {"_by_pieces", "bytes"}),
    "a ConvTranspose's groups, per channel": (
        Case("ConvTranspose", inputs=4, outputs=6, group=2, per_channel=True, strides=(2, 1)),
        set(),
    ),
    "a product of float32": (Case("Gemm", inputs=30, outputs=4), {"_matrix_product"}),
    "a product of doubles": (Case("GemmTransB", "int16", inputs=50, outputs=4, fill="lowest"), {"_matrix_product"}),
    "a MatMul of doubles": (Case("MatMul", "int16", inputs=50, outputs=4, narrow=True), {"_matrix_product"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_add_up(way, monkeypatch):
    case, ways = WAYS[way]
    taken = set()
    for name in ("_by_taps", "_by_pieces", "_matrix_product"):
        own = getattr(convolution, name)
        monkeypatch.setattr(convolution, name, lambda *a, name=name, own=own: (taken.add(name), own(*a))[1])
    bits = convolution._piece_bits
    monkeypatch.setattr(convolution, "_piece_bits", lambda k, top: (top == 128 and taken.add("bytes")) or bits(k, top))
    _, acc = check(case)
    assert taken == ways
    if way.startswith(("just", "doubles", "16 bits", "pieces of groups", "bytes")):
        assert (np.abs(acc).max() >= 2**24) == (way != "just within 2^24")


def test_an_auto_padded_convolution_goes_by_pieces():
    """onnxruntime finds the padding; a slice for each tap could not."""
    rng = np.random.default_rng(0)
    whole = rng.choice([-127, 127], (2, 90, 3, 3))
    x = rng.integers(0, 256, (1, 90, 5, 6)).astype(np.uint8)
    net = model(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="y", auto_pad="SAME_UPPER"), node("Relu", ["y"], "r")],
        {"w": whole.astype(np.float32)},
        {"x": (1, 90, 5, 6)},
        ["r"],
    )
    bounds = Range.of(-2e6, 2e6)
    ranges = {"x": Range.of(-100, 155), "w": Range.of(-127, 127), "y": bounds, "r": bounds}
    fixed = make_fixed(net, ranges)
    (ours,) = part_outputs(fixed.proto, {STORED.format("x"): x}, [STORED.format("r")])
    source, out = rule.scale_of(-100, 155, "uint8"), rule.scale_of(-2e6, 2e6, "int16")
    acc = rule.sums_of_products(x, whole, source.zero, (1, 1), (1, 1, 1, 1), (1, 1))
    own = rule.numbers(whole.reshape(2, -1).sum(axis=1), np.zeros(2), [-2e6] * 2, [2e6] * 2, source, np.ones(2), out)
    np.testing.assert_array_equal(ours, rule.convolution(acc, own, out, relu=True))


def one_product(x, k, halvings, weights=(1,), bias=0):
    """sum(x * weights) + bias with steps of 2^-20, K as wanted, and an output step 2^halvings times as large."""
    step, steps = 2.0**-10, 2.0**-20
    constants = {"w": (np.array(weights) * step).astype(np.float32).reshape(1, -1, 1, 1)}
    net = model(
        [node("Conv", ["x", "w", "b"], "y")],
        constants | {"b": np.array([bias * steps], np.float32)},
        {"x": (1, len(weights), 1, x.shape[-1])},
        ["y"],
    )
    whole = Range.of(-32767 * step, 32767 * step)
    end = 32767 * steps * 2.0**halvings
    channels = np.array([(2.0 ** (13 + k) - abs(bias)) * steps])
    fixed = make_fixed(
        net,
        {"x": whole, "w": whole, "y": Range.of(-end, end)},
        InputConfig((), tensor_arrays=("x",)),
        side=SideRanges({"y": Range(-channels, channels)}),
    )
    feed = {STORED.format("x"): x.astype(np.int16).reshape(1, len(weights), 1, -1)}
    return part_outputs(fixed.proto, feed, [STORED.format("y")])[0].reshape(-1).tolist()


def test_the_accumulators_ties_go_away_from_zero():
    x = np.array([4, -4, 12, -12, 20, -20, 3, -3, 5, -5])
    assert one_product(x, 3, 3) == [1, -1, 2, -2, 3, -3, 0, 0, 1, -1]


def test_the_ties_of_8_bit_inputs_too():
    """Their accumulators are float32."""
    net = model([node("Conv", ["x", "w"], "y")], {"w": np.ones((1, 1, 1, 1), np.float32)}, {"x": (1, 1, 1, 8)}, ["y"])
    ranges = {"x": Range.of(-128, 127), "w": Range.of(-127, 127), "y": Range.of(-32767 * 8, 32767 * 8)}
    side = SideRanges({"y": Range(np.array([-(2.0**16)]), np.array([2.0**16 - 128]))})
    fixed = make_fixed(net, ranges, side=side)
    x = np.array([0, 4, 12, 20, 3, 255, 252, 244], np.uint8).reshape(1, 1, 1, 8)
    (out,) = part_outputs(fixed.proto, {STORED.format("x"): x}, [STORED.format("y")])
    # (x - 128) / 8: K is 3, and the bias -128 / 8.
    assert out.reshape(-1).tolist() == [-16, -15, -14, -13, -16, 16, 16, 15]


def test_the_outputs_ties_go_up():
    x = np.array([1, -1, 3, -3, 5, -5, 2, -2])
    assert one_product(x, 0, 1) == [1, 0, 2, -1, 3, -2, 1, -1]


def test_both_roundings_one_after_the_other():
    """x / 4 is rounded away from zero, its half up."""
    x = np.array([2, -2, 6, -6, 10, -10, 1, -1])
    assert one_product(x, 2, 3) == [1, 0, 1, -1, 2, -1, 0, 0]


def test_the_biass_ties_go_away_from_zero():
    nothing = np.zeros(1)
    assert [one_product(nothing, 1, 1, bias=bias) for bias in (1, -1, 3, 5, -5, -7)] == [
        [1],
        [-1],
        [2],
        [3],
        [-3],
        [-4],
    ]


def test_the_multiplier_is_rounded_half_up():
    """2^15 - 1.5 and 2^15 - 2.5 of 2^15."""
    source, weights = Quant(INT16, 1.0), Quant(INT16, 1.0)
    for m, mul in ((1 - 1.5 * 2.0**-15, 32767), (1 - 2.5 * 2.0**-15, 32766), (0.5 + 0.5 * 2.0**-15, 16385)):
        output = Quant(INT16, 1.0)
        numbers = convolution.requantisation(
            np.array([1]), np.zeros(1), Range.of(-1, 1), convolution.Quants(source, replace(weights, scale=m), output)
        )
        assert numbers.mul.tolist() == [mul]


def test_stored_weights_ties_go_away_from_zero():
    values = np.array([0.5, -0.5, 1.5, -2.5, 2.4, 200.0, -200.0, 127.0], np.float32).reshape(8, 1, 1, 1)
    net = model([node("Conv", ["x", "w"], "y")], {"w": values}, {"x": (1, 1, 1, 1)}, ["y"])
    ranges = {"x": Range.of(-1, 1), "w": Range.of(-127, 127), "y": Range.of(-1, 1)}
    (stored,) = (t for t in make_fixed(net, ranges).proto.graph.initializer if t.name == "w#int8")
    assert numpy_helper.to_array(stored).reshape(-1).tolist() == [1, -1, 2, -3, 2, 127, -127, 127]


@pytest.mark.parametrize("k", [0, -1, -5])
def test_a_k_below_one_rounds_nothing(k):
    x = np.array([1, -1, 1234, -32767])
    assert one_product(x, k, 0) == x.tolist()


def test_beyond_16_bits_the_rest_is_cut_down_first():
    """(-131071) / 2^18 is nearer to 0 than to -1; floor(-131071 / 4) / 2^16 is the tie between them."""
    x = np.array([[-4, 4, -4, 4, 4], [-3, 3, -4, 4, 5]])
    assert one_product(x, 18, 18, (32767, 1)) == [-1, 0, -1, 1, 1]
    assert one_product(x, 16, 16, (32767, 1)) == [-2, 2, -2, 2, 2]


@pytest.mark.parametrize("reach", [-3, 0, 3, 9])
def test_a_small_accumulator_has_a_k_below_one(reach):
    found, _ = check(Case(inputs=1, kernel=(1, 1), fill="small", low=0.0, reach=reach, relu=True))
    assert (found[0].k <= 0) == (reach < 9)


def test_k_beyond_16():
    found, _ = check(Case(source="int16", inputs=30, reach=2))
    assert found[0].k > 16


NUDGED = [
    (convolution, "FLOAT_TIES", 1.0),
    (convolution, "DOUBLE_TIES", 1.0),
    (convolution, "FLOOR_BITS", 40),
    (convolution, "BIAS_BITS", 12),
    (convolution, "BIAS_BITS", 14),
    (convolution, "half_away", np.round),
    (convolution, "half_up", np.floor),
    (convolution, "shift", lambda largest: int(np.frexp(32767 / largest)[1])),
    (emitter, "S16_MAX", 16384),
    (convolution, "store_weight", lambda w, quant: np.trunc(w / np.max(quant.scale)).astype(quant.dtype)),
    (convolution, "EXACT", 2.0**60),
    (convolution, "BYTE", 128.0),
]


@pytest.mark.parametrize(
    ("module", "name", "other"), NUDGED, ids=[f"{m.__name__.rsplit('.', 1)[1]}.{n}" for m, n, _ in NUDGED]
)
def test_a_rule_that_is_a_little_another_is_noticed(module, name, other, monkeypatch):
    """The tests above fail when one number or one rounding of the rule changes."""
    monkeypatch.setattr(module, name, other)
    with pytest.raises((AssertionError, OverflowError)):
        for case, _ in WAYS.values():
            check(case)
        check(Case(source="int16", size=(60, 60)))
        test_the_accumulators_ties_go_away_from_zero()
        test_the_biass_ties_go_away_from_zero()
        test_the_multiplier_is_rounded_half_up()
        test_stored_weights_ties_go_away_from_zero()
        test_beyond_16_bits_the_rest_is_cut_down_first()


def test_none_of_that_is_noticed_where_nothing_changed():
    check(Case(source="int16", size=(60, 60)))
