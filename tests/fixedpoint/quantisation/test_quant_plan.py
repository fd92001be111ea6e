"""Types, scales and domains of the fixed model, against the plain formulas of docs/formats/sigmastar.md#scales."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_nets import conv, model, node, residual_net, single_convolution, weights

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.analysis import analyse, output_axis
from sgsdump.fixedpoint.quantisation.fixed_model import clipped_ranges
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, as_read, plan, weight_quant
from sgsdump.fixedpoint.quantisation.tensor_scales import INT8, INT16, UINT8, int16_quant, uint8_quant
from sgsdump.models.graph import Graph
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range


def ranged(bounds):
    return {name: Range.of(lo, hi) for name, (lo, hi) in bounds.items()}


BOUNDS = ranged({
    "data": (-1.0, 1.0),
    "c1": (-4.0, 4.0),
    "r1": (0.0, 4.0),
    "c2": (-3.0, 3.0),
    "add": (-3.0, 5.0),
    "r2": (0.0, 5.0),
    "pool": (0.0, 5.5),
    "c3": (-6.0, 6.0),
    "sig": (0.002, 0.99),
    "gap": (0.2, 0.7),
    "flat": (0.2, 0.7),
    "fc": (-2.0, 3.0),
    "prob": (0.1, 0.6),
})  # fmt: skip
finite = st.floats(-1e6, 1e6)


def single(value):
    """A range's end as the SDK reads it: float32; what is computed from it is double."""
    return float(np.float32(value))


def types(decided):
    return {name: str(quant.dtype) for name, quant in decided.tensors.items()}


def test_what_feeds_a_convolution_is_uint8_and_the_rest_int16():
    decided = plan(residual_net().proto, BOUNDS, pictures=["data"])
    assert types(decided) == {
        "data": "uint8", "r1": "uint8", "r2": "uint8", "pool": "uint8", "sig": "int16",
        "gap": "int16", "flat": "uint8", "fc": "int16", "prob": "int16",
    }  # fmt: skip
    assert {str(q.dtype) for q in decided.weights.values()} == {"int8"}


def test_max_pooling_shares_the_union_of_its_ranges():
    decided = plan(residual_net().proto, BOUNDS)
    assert decided.tensors["r2"] == decided.tensors["pool"]
    assert decided.tensors["pool"].scale == pytest.approx(5.5 / 255)


def test_the_fixed_scales_of_sigmoid_softmax_and_softmax_input():
    tensors = plan(residual_net().proto, BOUNDS).tensors
    assert tensors["sig"].scale == single(0.99) / 32767, "behind a convolution it keeps its own range"
    assert tensors["prob"].scale == 1 / 32768
    assert tensors["fc"].scale == 10 / 32767


def test_a_wider_softmax_input_keeps_its_own_range():
    tensors = plan(residual_net().proto, {**BOUNDS, "fc": Range.of(-12.0, 25.0)}).tensors
    assert tensors["fc"].scale == 25 / 32767


def test_all_int16_leaves_only_the_picture_and_its_weights_at_8_bits():
    decided = plan(residual_net().proto, BOUNDS, Choice("ALL_INT16"), ["data"])
    assert {name for name, dtype in types(decided).items() if dtype == "uint8"} == {"data"}
    assert {name for name, quant in decided.weights.items() if quant.dtype == np.int8} == {"c1"}
    assert decided.tensors["gap"].scale == decided.tensors["sig"].scale == single(0.99) / 32767, (
        "average pooling keeps its input's scale"
    )


def test_tensor_arrays_raise_a_tensor_with_its_domain():
    decided = plan(residual_net().proto, BOUNDS, Choice(tensors=("pool",)), ["data"])
    assert types(decided)["r2"] == types(decided)["pool"] == "int16"
    assert types(decided)["r1"] == "uint8"
    assert str(decided.weights["c3"].dtype) == "int16"


def test_a_name_that_is_no_convolution_input_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'poool'.*did you mean 'pool'"):
        plan(residual_net().proto, BOUNDS, Choice(tensors=("poool",)))
    with pytest.raises(ConfigError, match="image input cannot be raised"):
        plan(residual_net().proto, BOUNDS, Choice(tensors=("data",)), ["data"])


def concat_net(first, second, *more, outputs=("c",)):
    """Two convolutions that read the picture x, and one that reads their Concat."""
    constants = {**weights("a", (first, 3, 1, 1)), **weights("b", (second, 3, 1, 1))}
    constants |= weights("c", (2, first + second, 1, 1))
    nodes = [conv("a", "x"), conv("b", "x"), node("Concat", ["a", "b"], "cat", axis=1), conv("c", "cat"), *more]
    return model(nodes, {**constants, **weights("d", (2, first, 1, 1))}, {"x": (1, 3, 4, 4)}, list(outputs))


CONCAT = ranged(dict.fromkeys(("x", "a", "b", "cat", "c", "d", "p", "e"), (-1, 1)))


@pytest.mark.parametrize(
    ("channels", "dtype"),
    [
        *(((16, 16), "uint8"), ((32, 16), "uint8"), ((8, 7), "uint8"), ((16, 15), "uint8"), ((8, 4), "uint8")),
        *(((8, 8), "int16"), ((8, 16), "int16"), ((16, 8), "int16"), ((7, 9), "int16"), ((12, 12), "int16")),
    ],
)
def test_a_concat_along_channels_is_uint8_only_where_they_fit(channels, dtype):
    tensors = types(plan(concat_net(*channels).proto, CONCAT, pictures=["x"]))
    assert tensors["a"] == tensors["b"] == tensors["cat"] == dtype
    assert plan(concat_net(*channels).proto, CONCAT, pictures=["x"]).weights["c"].dtype.itemsize == (
        1 if dtype == "uint8" else 2
    )


def test_an_int16_concat_takes_the_convolutions_that_read_its_inputs_along():
    net = concat_net(8, 8, conv("d", "a"), outputs=["c", "d"])
    decided = plan(net.proto, CONCAT, pictures=["x"])
    assert types(decided)["a"] == "int16" and decided.weights["d"].dtype == np.int16


def test_an_input_of_an_int16_concat_that_is_aligned_first_stays_uint8_for_the_convolution_that_reads_it():
    """The SDK's converter aligns an input to 8 channels where it has no multiple of them."""
    net = concat_net(18, 18, conv("d", "a"), outputs=["c", "d"])
    decided = plan(net.proto, CONCAT, pictures=["x"])
    assert types(decided) == {"x": "uint8", "a": "uint8", "b": "int16", "cat": "int16", "c": "int16", "d": "int16"}
    assert decided.weights["d"].dtype == np.int8


def test_of_concats_of_concats_the_last_one_decides():
    constants = {**weights("a", (8, 3, 1, 1)), **weights("b", (4, 3, 1, 1)), **weights("c", (2, 20, 1, 1))}
    nodes = [conv("a", "x"), conv("b", "x"), node("Concat", ["b", "a", "b"], "e", axis=1)]
    nodes += [node("Concat", ["e", "b"], "cat", axis=1), conv("c", "cat")]
    decided = plan(model(nodes, constants, {"x": (1, 3, 4, 4)}, ["c"]).proto, CONCAT, pictures=["x"])
    assert types(decided)["e"] == types(decided)["cat"] == "uint8"


@pytest.mark.parametrize(("first", "dtype"), [("b", "int16"), ("u", "uint8")])
def test_upsampled_inputs_of_a_concat_need_a_multiple_of_8_channels_only(first, dtype):
    constants = {**weights("a", (8, 3, 1, 1)), **weights("b", (8, 3, 1, 1)), **weights("c", (2, 24, 1, 1))}
    constants |= {"wide": weights("w", (16, 3, 1, 1))["w.w"], "scales": np.array([1, 1, 2, 2], np.float32)}
    nodes = [conv("a", "x"), conv("b", "x"), node("Conv", ["x", "wide"], "w"), node("Upsample", ["a", "scales"], "u")]
    nodes += [node("Upsample", ["w", "scales"], "v"), node("Upsample", ["b", "scales"], "t")]
    first = {"b": "y", "u": "u"}[first]
    nodes += [node("Conv", ["z", "b.w"], "y"), node("Concat", [first, "v"], "cat", axis=1), conv("c", "cat")]
    net = model(nodes, constants, {"x": (1, 3, 4, 4), "z": (1, 3, 8, 8)}, ["c"], opset=9)
    bounds = ranged(dict.fromkeys(("x", "z", "a", "b", "w", "u", "v", "t", "y", "cat", "c"), (-1, 1)))
    assert types(plan(net.proto, bounds, pictures=["x", "z"]))["cat"] == dtype


@pytest.mark.parametrize("before", [True, False])
def test_a_mover_between_two_types_requantises_and_the_first_one_decides(before):
    """a is pooled twice, for an INT16 Concat and for a convolution: the pool that runs first gives a its type."""
    constants = {**weights("a", (8, 3, 1, 1)), **weights("b", (8, 3, 1, 1)), **weights("c", (2, 16, 1, 1))}
    pools = [node("MaxPool", ["a"], "p", kernel_shape=[1, 1]), node("MaxPool", ["a"], "e", kernel_shape=[1, 1])]
    nodes = [conv("a", "x"), conv("b", "x"), *(pools if before else pools[::-1]), conv("d", "e")]
    nodes += [node("Concat", ["p", "b"], "cat", axis=1), conv("c", "cat")]
    net = model(nodes, constants | weights("d", (2, 8, 1, 1)), {"x": (1, 3, 4, 4)}, ["c", "d"])
    tensors = types(plan(net.proto, CONCAT, pictures=["x"]))
    assert (tensors["p"], tensors["e"], tensors["a"]) == ("int16", "uint8", "int16" if before else "uint8")


def test_an_output_of_the_graph_is_int16_and_so_is_the_convolution_that_reads_it():
    net = concat_net(16, 16, outputs=["c", "cat"])
    decided = plan(net.proto, CONCAT, pictures=["x"])
    assert types(decided)["cat"] == "int16" and decided.weights["c"].dtype == np.int16


def test_a_concat_and_its_inputs_share_the_union_of_their_ranges():
    # as level L3 fits them, one by one (k16_16_L3)
    net = concat_net(16, 16)
    bounds = ranged({"x": (-1, 1), "a": (-9, 8), "b": (-1, 1), "cat": (-7, 9), "c": (-5, 5)})
    tensors = plan(net.proto, bounds).tensors
    assert tensors["a"] == tensors["b"] == tensors["cat"] == uint8_quant(-9, 9)


def test_depthwise_int16_raises_only_depthwise_inputs():
    constants = {**weights("pw", (6, 3, 1, 1)), **weights("dw", (6, 1, 3, 3)), **weights("pw2", (4, 6, 1, 1))}
    nodes = [conv("pw", "x"), conv("dw", "pw", group=6), conv("pw2", "dw")]
    net = model(nodes, constants, {"x": (1, 3, 8, 8)}, ["pw2"])
    bounds = ranged(dict.fromkeys(("x", "pw", "dw", "pw2"), (-1.0, 1.0)))
    deep = plan(net.proto, bounds, Choice("DEPTHWISE_INT16"), ["x"])
    flat = plan(net.proto, bounds, Choice("CONV2D_INT16"), ["x"])
    assert types(deep) == {"x": "uint8", "pw": "int16", "dw": "uint8", "pw2": "int16"}
    assert types(flat) == {"x": "uint8", "pw": "uint8", "dw": "int16", "pw2": "int16"}


def test_per_channel_weights_have_a_scale_per_output_channel():
    net = residual_net()
    quant = plan(net.proto, BOUNDS, Choice(per_channel=True)).weights["c2"]
    weight = weights("c2", (8, 8, 1, 1), 2)["c2.w"]
    np.testing.assert_allclose(quant.scale, np.abs(weight).max(axis=(1, 2, 3)) / 127, rtol=1e-6)


def test_a_weight_range_per_channel_sets_the_scales_and_one_for_all_clips():
    net = residual_net()
    tops = np.linspace(0.1, 0.8, 8)
    decided = plan(net.proto, {**BOUNDS, "c2.w": Range(-tops, tops), "fc.w": Range.of(-0.2, 0.1)})
    np.testing.assert_allclose(decided.weights["c2"].scale, tops / 127, rtol=1e-6)
    assert decided.weights["fc"].scale == single(0.2) / 127 and decided.weights["fc"].axis is None


@pytest.mark.parametrize(
    ("op", "outputs"),
    [
        *((op, 1) for op in ("GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity")),
        *((op, 1) for op in ("Concat", "Slice", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile")),
        *(("MaxPool", 1), ("Dropout", 1), ("Split", 2)),
    ],
)
def test_operators_that_only_move_values_share_one_domain(op, outputs):
    """Of a second output only Split's is a piece of the values; MaxPool's and Dropout's are indices and masks."""
    nodes = [onnx.helper.make_node(op, ["x", "k"], ["y", "z"], name="y")]
    domain = analyse(model(nodes, {"k": np.ones(1, np.int64)}, {"x": (1, 4, 2, 2)}, ["y", "z"]).proto).domain
    assert [domain[name] == domain["x"] for name in ("y", "z")] == [outputs >= 1, outputs == 2 or op == "Concat"]


def split(read, outputs, raised=(), picture=True):
    """The domains of a Split's input "a" and of its pieces, three of which convolutions ``read`` some."""
    constants = weights("a", (12, 3, 1, 1))
    nodes = [conv("a", "x"), onnx.helper.make_node("Split", ["a"], ["p0", "p1", "p2"], name="s", axis=1)]
    if not picture:  # "a" is an input of numbers, which is INT16
        nodes = nodes[1:]
    for piece in read:
        constants |= weights(f"c{piece}", (2, 4, 1, 1))
        nodes.append(conv(f"c{piece}", f"p{piece}"))
    source = {"x": (1, 3, 4, 4)} if picture else {"a": (1, 12, 4, 4)}
    found = analyse(model(nodes, constants, source, outputs).proto, ["x"] if picture else [])
    domain = found.raising(frozenset(raised)).domain
    return [domain.get(name, name) for name in ("a", "p0", "p1", "p2")]


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        (split((0, 1, 2), ["c0", "c1", "c2"]), "aaaa"),
        (split((0, 1, 2), ["c0", "c1", "c2"], ("p0", "p2")), "abac"),  # each raised piece has a range of its own
        (split((1, 2), ["p0", "c1", "c2"]), "abaa"),  # so has an output of the network, whatever its place
        (split((1,), ["p0", "c1", "p2"]), "abac"),
        (split((0, 1), ["c0", "c1"], picture=False), "abba"),  # requantised once, before the Split
    ],
)
def test_a_piece_of_a_split_that_is_uint8_decides(domains, expected):
    """docs/formats/fixed_arithmetic.md: its input has its range, each INT16 piece one of its own."""
    names = dict(zip(dict.fromkeys(domains), "abcd"))
    assert "".join(names[each] for each in domains) == expected


@pytest.mark.parametrize(("size", "dtype"), [((15, 17), "uint8"), ((16, 16), "int16"), ((4, 64), "int16")])
@pytest.mark.parametrize("op", ["AveragePool", "GlobalAveragePool"])
def test_an_average_pool_has_the_type_of_its_input_and_of_256_values_int16(op, size, dtype):
    how = {"kernel_shape": list(size)} if op == "AveragePool" else {}
    nodes = [conv("a", "x"), node(op, ["a"], "p", **how), conv("d", "p")]
    constants = {**weights("a", (8, 3, 1, 1)), **weights("d", (2, 8, 1, 1))}
    decided = plan(model(nodes, constants, {"x": (1, 3, *size)}, ["d"]).proto, CONCAT, pictures=["x"])
    assert types(decided)["a"] == types(decided)["p"] == dtype and decided.tensors["a"] == decided.tensors["p"]
    unknown = plan(model(nodes, constants, {"x": (1, 3, "H", "W")}, ["d"]).proto, CONCAT, pictures=["x"])
    assert types(unknown)["p"] == ("int16" if op == "GlobalAveragePool" else dtype)


@pytest.mark.parametrize("op", ["Relu", "Add", "Sigmoid", "Softmax"])
def test_operators_that_compute_do_not(op):
    domain = analyse(model([node(op, ["x", "k"], "y")], {"k": np.ones(1)}, {"x": (1, 4, 2, 2)}, ["y"]).proto).domain
    assert domain["y"] != domain["x"]


@pytest.mark.parametrize("op", ["Resize", "Upsample"])
@pytest.mark.parametrize(("mode", "moves"), [(None, True), ("nearest", True), ("linear", True)])
def test_upsampling_keeps_the_scale(op, mode, moves):
    how = {} if mode is None else {"mode": mode}
    domain = analyse(
        model([node(op, ["x", "k"], "y", **how)], {"k": np.ones(1)}, {"x": (1, 4, 2, 2)}, ["y"]).proto
    ).domain
    assert (domain["y"] == domain["x"]) == moves


def densenet_block(moved=()):
    """c1 -> an average pool, which a convolution reads behind a Relu and a Concat takes beside its output."""
    constants = {**weights("c1", (4, 3, 3, 3)), **weights("c2", (4, 4, 1, 1))}
    nodes = [
        conv("c1", "x"),
        node("AveragePool", ["c1"], "p", kernel_shape=[2, 2]),
        *moved,
        node("Relu", ["p"], "r"),
        conv("c2", "r"),
        node("Concat", [moved[-1].output[0] if moved else "p", "c2"], "cat", axis=1),
        node("Sigmoid", ["cat"], "y"),
    ]
    return model(nodes, constants, {"x": (1, 3, 8, 8)}, ["y"])


BLOCK = ranged({
    "x": (-1, 1), "c1": (-2.39, 2.0), "p": (-2.0, 1.5), "r": (0, 1.5), "c2": (-20.2, 12.0), "cat": (-20.2, 12.0),
    "y": (0, 1),
})  # fmt: skip


def test_an_average_pool_and_what_is_moved_from_it_share_the_domain_of_a_concat():
    for moved in ([], [node("Identity", ["p"], "i")]):
        decided = plan(densenet_block(moved).proto, {**BLOCK, "i": BLOCK["p"]}, Choice("ALL_INT16"), ["x"])
        names = ["c1", "p", "c2", "cat", *(each.output[0] for each in moved)]
        assert {decided.tensors[name].scale for name in names} == {single(20.2) / 32767}
        assert clipped_ranges(decided, BLOCK) == ()


def test_a_calibrated_range_that_the_plan_does_not_hold_is_named():
    decided = plan(densenet_block().proto, BLOCK, Choice("ALL_INT16"), ["x"])
    beyond = {**BLOCK, "p": Range.of(-2.39005, 2.0), "r": Range.of(0, 1.6), "c2": Range.of(-20.3, 12.0)}
    assert [str(each) for each in clipped_ranges(decided, beyond)] == [
        "r: the calibration range 0 to 1.6 is clipped to the range -1.50005 to 1.5",
        "c2: the calibration range -20.3 to 12 is clipped to the range -20.2006 to 20.2",
    ]


def test_a_range_beyond_by_less_than_a_step_is_not_clipped():
    """What is held ends at a whole step, 20.2 / 32767 here."""
    decided = plan(densenet_block().proto, BLOCK, Choice("ALL_INT16"), ["x"])
    step = 20.2 / 32767
    for beyond, named in ((0.5, 0), (1.5, 0), (3.0, 1)):
        ranges = {**BLOCK, "c2": Range.of(-20.2 - beyond * step, 12.0)}
        assert len(clipped_ranges(decided, ranges)) == named, beyond


def test_the_picture_is_uint8_whatever_reads_it():
    net = model([node("Sigmoid", ["x"], "y")], {}, {"x": (1, 3, 4, 4)}, ["y"])
    bounds = ranged({"x": (-1, 1), "y": (0.2, 0.8)})
    assert types(plan(net.proto, bounds, pictures=["x"])) == {"x": "uint8", "y": "int16"}
    assert types(plan(net.proto, bounds)) == {"x": "int16", "y": "int16"}


@pytest.mark.parametrize(
    ("op", "high", "scale"),
    [
        *(("Sigmoid", 0.9, 0.9 / 32767), ("Sigmoid", 1.0, 1 / 32767), ("Sigmoid", 1.5, 1.5 / 32767)),
        *(("Softmax", 0.9, 0.9 / 32767), ("Softmax", 1.0, 1 / 32767), ("Softmax", 1.5, 1.5 / 32767)),
    ],
)
def test_the_scale_of_a_softmax_is_fixed_and_that_of_its_domain_is_not(op, high, scale):
    nodes = [node(op, ["x"], "y"), node("Concat", ["y", "v"], "cat", axis=1)]
    net = model(nodes, {}, {"x": (1, 3, 4, 4), "v": (1, 3, 4, 4)}, ["cat"])
    decided = plan(net.proto, ranged({"x": (-20, 3), "y": (0.1, 0.9), "v": (0, 0.5), "cat": (0.1, high)}))
    tensors = decided.tensors
    assert tensors["v"].scale == tensors["cat"].scale == as_read(decided, "y").scale
    assert tensors["cat"].scale == pytest.approx(scale, rel=1e-6)
    assert tensors["y"].scale == (1 / 32768 if op == "Softmax" else tensors["cat"].scale)


def test_what_a_level_raises_is_not_told_as_a_word_of_the_file():
    net = residual_net().proto
    told = plan(net, BOUNDS, Choice(tensors=("r1",)), ["data"]).decided["r1"]
    by_level = plan(net, BOUNDS, Choice(tensors=("r1",), by_level=("r1",)), ["data"]).decided["r1"]
    assert (told, by_level) == ("tensor_arrays: r1", "the calibration level: r1")


def test_who_raised_what_is_at_int16_is_known():
    net = residual_net().proto
    by = {
        "config": Choice(tensors=("r1",)),
        "level": Choice(tensors=("r1",), by_level=("r1",)),
        "quant file": Choice(tensors=("r1",), by_quant_file=("r1",)),
    }
    for who, choice in by.items():
        decided = plan(net, BOUNDS, choice, ["data"])
        assert decided.raised_by["r1"] == who
        assert decided.raised_by.keys() == {n for n, quant in decided.tensors.items() if quant.dtype == np.int16}
        outputs = {output.name for output in net.graph.output}
        assert {decided.raised_by[name] for name in outputs} == {"rule"}
    assert plan(net, BOUNDS, Choice("ALL_INT16"), ["data"]).raised_by["r1"] == "config"


@pytest.mark.parametrize("moved", ["Flatten", "MaxPool", "Identity"])
@pytest.mark.parametrize(("source", "scale"), [("Sigmoid", 0.5 / 32767), ("GlobalAveragePool", 4 / 32767)])
def test_what_is_always_int16_goes_on_to_a_convolution_as_uint8(source, scale, moved):
    """Sigmoids' outputs, large average pools' inputs and outputs; a mover of them has a domain of its own."""
    how = {"kernel_shape": [1, 1]} if moved == "MaxPool" else {}
    nodes = [node(source, ["x"], "y"), node(moved, ["y"], "m", **how), conv("c", "m"), conv("d", "y")]
    constants = weights("c", (2, 3, 1, 1)) | weights("d", (2, 3, 1, 1))
    net = model(nodes, constants, {"x": (1, 3, 16, 16)}, ["c", "d"])
    bounds = ranged({"x": (-4, 3), "y": (0.25, 0.5), "m": (0.25, 0.5), "c": (-1, 1), "d": (-1, 1)})
    decided = plan(net.proto, bounds)
    assert types(decided) == {"x": "int16", "y": "int16", "m": "uint8", "c": "int16", "d": "int16"}
    assert decided.tensors["y"].scale == scale
    assert decided.tensors["m"] == uint8_quant(0.25, 0.5)
    assert {name: quant.dtype for name, quant in decided.weights.items()} == {"c": np.int8, "d": np.int16}


def test_a_large_average_pool_raises_the_convolution_that_reads_its_input():
    nodes = [node("Relu", ["x"], "r"), node("GlobalAveragePool", ["r"], "g"), conv("c", "r")]
    net = model(nodes, weights("c", (2, 3, 1, 1)), {"x": (1, 3, 16, 16)}, ["g", "c"])
    decided = plan(net.proto, ranged({"x": (-1, 1), "r": (0, 1), "g": (0, 1), "c": (-1, 1)}))
    assert types(decided)["r"] == types(decided)["g"] == "int16" and decided.weights["c"].dtype == np.int16


def test_groups_have_a_weight_scale_each():
    """The SDK makes as many convolutions of one with groups; X_conv#0_filter#0 is the first one's weights."""
    constants = weights("c", (6, 2, 3, 3))
    net = model([conv("c", "x", group=3)], constants, {"x": (1, 6, 5, 5)}, ["c"])
    bounds = ranged({"x": (-1, 1), "c": (-1, 1)})
    quant = plan(net.proto, bounds).weights["c"]
    tops = np.abs(constants["c.w"]).reshape(3, -1).max(axis=1).astype(np.float64)
    np.testing.assert_array_equal(quant.scale, np.repeat(tops, 2) / 127)
    named = {f"c_conv#{i}_filter#{i}": Range.of(-(i + 1), 0.5) for i in range(3)}
    quant = plan(net.proto, {**bounds, **named}).weights["c"]
    np.testing.assert_array_equal(quant.scale, np.array([1, 1, 2, 2, 3, 3]) / 127)
    quant = plan(net.proto, {**bounds, "c.w": Range.of(-9, 9)}).weights["c"]
    np.testing.assert_array_equal(quant.scale, np.repeat(tops, 2) / 127)
    by_channel = Range(-np.arange(1.0, 7), np.zeros(6))  # as every level above L1 measures them, and its log has them
    parts = {f"c_conv#{i}_filter#{i}": Range(by_channel.min[2 * i : 2 * i + 2], np.zeros(2)) for i in range(3)}
    for measured in ({"c.w": by_channel}, parts):
        quant = plan(net.proto, {**bounds, **measured}).weights["c"]
        np.testing.assert_array_equal(quant.scale, np.arange(1, 7) / 127)
    quant = plan(net.proto, {**bounds, **named}, Choice(per_channel=True)).weights["c"]
    np.testing.assert_array_equal(quant.scale, np.abs(constants["c.w"]).reshape(6, -1).max(axis=1).astype(float) / 127)


def test_channels_too_far_apart_have_one_scale_the_largest():
    """Their ratio has to fit the multipliers: 1024 does, more does not."""
    for ratio, size in ((1024.0, 2), (1025.0, 1)):
        constants = {"c.w": np.array([ratio, 1.0], np.float32).reshape(2, 1, 1, 1), "c.b": np.zeros(2, np.float32)}
        net = model([conv("c", "x")], constants, {"x": (1, 1, 5, 5)}, ["c"])
        quant = plan(net.proto, ranged({"x": (-1, 1), "c": (-1, 1)}), Choice(per_channel=True)).weights["c"]
        assert np.size(quant.scale) == size and np.max(quant.scale) == ratio / 127


def test_ranges_are_read_as_float32():
    assert uint8_quant(0.1, 0.7).scale == single(0.7) / 255
    assert int16_quant(-0.1, 0.3).scale == single(0.3) / 32767


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("low", "high", "top"), [(-2, 3, 10), (-10, 3, 10), (-11, 3, 11), (-2, 12, 12)])
def test_the_range_of_a_softmax_input_includes_minus_10(op, low, high, top):
    net = model([node(op, ["x"], "y")], {}, {"x": (1, 3)}, ["y"])
    assert plan(net.proto, ranged({"x": (low, high), "y": (0.1, 0.9)})).tensors["x"].scale == top / 32767


@pytest.mark.parametrize("op", ["AveragePool", "GlobalAveragePool"])
@pytest.mark.parametrize(("raised", "scale"), [(("r",), 4 / 32767), ((), 3 / 32767)])
def test_average_pooling_keeps_its_inputs_scale_where_both_are_int16(op, raised, scale):
    nodes = [node("Relu", ["x"], "r"), conv("c", "r"), node(op, ["r"], "p", kernel_shape=[2, 2])]
    net = model(nodes, weights("c", (2, 3, 1, 1)), {"x": (1, 3, 4, 4)}, ["c", "p"])
    bounds = ranged({"x": (-1, 1), "r": (0, 4), "c": (-1, 1), "p": (0, 3)})
    assert plan(net.proto, bounds, Choice(tensors=raised)).tensors["p"].scale == scale


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "axis"),
    [
        ("Conv", (5, 3, 1, 1), {}, 0),
        ("ConvTranspose", (3, 5, 1, 1), {}, 1),
        ("Gemm", (5, 3), {"transB": 1}, 0),
        ("Gemm", (3, 5), {"transB": 0}, 1),
        ("Gemm", (3, 5), {}, 1),
        ("MatMul", (3, 5), {}, 1),
        ("MatMul", (2, 3, 5), {}, 2),
    ],
)
def test_where_the_output_channels_of_weights_lie(op, shape, attributes, axis):
    given = {"x": (1, 3, 4, 4) if op.startswith("Conv") else (1, 3)}  # onnx before 1.22 crashes where ranks differ
    proto = model([node(op, ["x", "w"], "y", **attributes)], {"w": np.ones(shape, np.float32)}, given, ["y"])
    graph = Graph(proto.proto)
    assert output_axis(graph, graph.nodes[0]) == axis


@pytest.mark.parametrize(
    ("input_format", "reads", "dtype"),
    [
        *((each, "dw", "uint8") for each in ("ALL_UINT8", "CONV2D_INT16")),
        *((each, "dw", "int16") for each in ("ALL_INT16", "DEPTHWISE_INT16")),
        *((each, "conv", "uint8") for each in ("ALL_UINT8", "DEPTHWISE_INT16")),
        *((each, "conv", "int16") for each in ("ALL_INT16", "CONV2D_INT16")),
        ("ALL_UINT8", "both", "uint8"),
        *((each, "both", "int16") for each in ("ALL_INT16", "CONV2D_INT16", "DEPTHWISE_INT16")),
    ],
)
def test_what_each_input_format_raises(input_format, reads, dtype):
    """``both``: one tensor that a depthwise and another convolution read."""
    nodes = [node("Relu", ["x"], "r"), conv("dw", "r", group=4), conv("conv", "r")]
    nodes = [each for each in nodes if each.name in ("r", reads) or reads == "both"]
    outputs = [each.name for each in nodes[1:]]
    constants = {**weights("dw", (4, 1, 1, 1)), **weights("conv", (2, 4, 1, 1))}
    net = model(nodes, constants, {"x": (1, 4, 4, 4)}, outputs)
    bounds = ranged(dict.fromkeys(("x", "r", *outputs), (-1.0, 1.0)))
    assert types(plan(net.proto, bounds, Choice(input_format)))["r"] == dtype


def test_concat_inputs_have_their_union_when_its_output_has_no_range():
    net = model([node("Concat", ["x", "y"], "cat", axis=1)], {}, {"x": (1, 3), "y": (1, 3)}, ["cat"])
    tensors = plan(net.proto, ranged({"x": (-2, 1), "y": (0, 5)})).tensors
    assert tensors["x"] == tensors["y"] == tensors["cat"] == int16_quant(-2, 5)


def test_what_is_zero_throughout_has_a_scale_and_a_channel_of_zeros_that_of_a_half():
    assert uint8_quant(0.0, 0.0) == uint8_quant(0.0, 1e-39) == Quant(UINT8, 1 / 255, 128, exact=True)
    assert int16_quant(0.0, 0.0).scale == int16_quant(-1e-39, 1e-39).scale == 1.0
    constants = {"c.w": np.zeros((2, 3, 1, 1), np.float32), "c.b": np.zeros(2, np.float32)}
    net = model([conv("c", "x")], constants, {"x": (1, 3, 4, 4)}, ["c"])
    bounds = ranged({"x": (-1, 1), "c": (-1, 1)})
    assert plan(net.proto, bounds, Choice(per_channel=True)).weights["c"].scale.tolist() == [0.5 / 127] * 2
    constants["c.w"][0], constants["c.w"][1] = 1e-6, 0.7
    net = model([conv("c", "x")], constants, {"x": (1, 3, 4, 4)}, ["c"])
    assert plan(net.proto, bounds, Choice(per_channel=True)).weights["c"].scale.tolist() == pytest.approx(
        [0.5 / 127, 0.7 / 127]
    )
    constants["c.w"][0] = 2e-6
    net = model([conv("c", "x")], constants, {"x": (1, 3, 4, 4)}, ["c"])
    assert plan(net.proto, bounds, Choice(per_channel=True)).weights["c"].scale == pytest.approx(0.7 / 127)


@pytest.mark.parametrize(
    ("lo", "hi", "scale", "zero_point"),
    [(-1, 1, 2 / 255, 128), (0, 5.1, 0.02, 0), (2, 5.1, 0.02, 0), (-5.1, -2, 0.02, 255), (-0.1, 5, 0.02, 5)],
)
def test_uint8_scale_and_zero_point(lo, hi, scale, zero_point):
    quant = uint8_quant(lo, hi)
    assert quant.dtype == np.uint8 and quant.scale == pytest.approx(scale) and quant.zero_point == zero_point


@pytest.mark.parametrize(("lo", "hi", "top"), [(-1, 3, 3), (-4, 3, 4), (1, 2, 2)])
def test_int16_scale(lo, hi, top):
    assert int16_quant(lo, hi).scale == top / 32767 and int16_quant(lo, hi).dtype == np.int16


@pytest.mark.parametrize(("raised", "limit"), [((), 127), (("r1",), 32767)])
def test_weights_have_the_bits_of_the_convolutions_input(raised, limit):
    quant = plan(residual_net().proto, BOUNDS, Choice(tensors=raised), ["data"]).weights["c2"]
    assert quant.scale == np.abs(weights("c2", (8, 8, 1, 1), 2)["c2.w"].astype(np.float64)).max() / limit


@given(finite, finite)
def test_uint8_represents_zero_exactly_and_covers_the_range(a, b):
    lo, hi = (float(np.float32(end)) for end in (min(a, b), max(a, b)))  # ends are read so
    quant = uint8_quant(lo, hi)
    assert 0 <= quant.zero_point <= 255
    assert quant.scale > 0
    assert (255 - quant.zero_point + 0.5) * quant.scale >= hi * (1 - 1e-9)
    assert (-quant.zero_point - 0.5) * quant.scale <= lo * (1 - 1e-9) + 1e-35


@given(finite, finite)
def test_int16_is_symmetric(a, b):
    quant = int16_quant(min(a, b), max(a, b))
    assert quant.zero_point == 0
    top = max(abs(a), abs(b))
    assert quant.scale * 32767 == pytest.approx(top if top >= 1e-30 else 32767.0) or top < 1e-30


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(INT8, 127), (INT16, 32767)])
def test_weights_have_exact_scales(per_channel, dtype, limit):
    net = single_convolution()
    graph = Graph(net.proto)
    quant = weight_quant(graph, graph.nodes[0], dtype, None, per_channel)
    tops = np.abs(weights("c", (4, 3, 1, 1))["c.w"]).max(axis=(1, 2, 3)) / limit
    assert (quant.dtype, quant.zero_point, quant.exact) == (dtype, 0, True)
    assert quant.axis == (0 if per_channel else None)
    np.testing.assert_allclose(quant.scale, tops if per_channel else tops.max(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [INT8, INT16])
def test_a_channel_of_zeros_leaves_the_others_their_scales(dtype):
    net = single_convolution()
    graph = Graph(net.proto)
    filters = weights("c", (4, 3, 1, 1))["c.w"]
    filters[1] = 0
    graph.constants["c.w"].raw_data = filters.tobytes()
    tops = np.abs(filters).max(axis=(1, 2, 3)) / np.iinfo(dtype).max
    tops[1] = 0.5 / np.iinfo(dtype).max
    quant = weight_quant(graph, graph.nodes[0], dtype, None, per_channel=True)
    np.testing.assert_allclose(quant.scale, tops, rtol=1e-6)
