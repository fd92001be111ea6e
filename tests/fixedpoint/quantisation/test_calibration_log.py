"""The log folder: what calibration writes, by the type a tensor is stored with; what is read of the SDK's."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper
from small_nets import conv, model, node, weights

from sgsdump.errors import FormatError
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.calibration_log import (
    _weights,
    model_name,
    read_log,
    read_side_ranges,
    read_weight_params,
    used_ranges,
    write_log,
)
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.quant_plan import plan
from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges, updated, with_softmax
from sgsdump.fixedpoint.quantisation.tensor_scales import joined
from sgsdump.models.graph import Graph
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.quant_param_entries import QuantParam, with_model_names
from sgsdump.tensors.types import Range

WIDE = Range.of(-4, 4)
FITTED = Range(np.array([-1.0]), np.array([1.0]), wide=WIDE)


@pytest.mark.parametrize(
    ("tensor", "weight", "listed"),
    [
        (np.uint8, np.int8, {"t": FITTED, "w": FITTED, "other": FITTED}),
        (np.int16, np.int8, {"t": WIDE, "w": FITTED, "other": FITTED}),
        (np.uint8, np.int16, {"t": FITTED, "w": WIDE, "other": FITTED}),
        (np.int16, np.int16, {"t": WIDE, "w": WIDE, "other": FITTED}),
    ],
)
def test_sixteen_bits_take_the_wide_range(tensor, weight, listed):
    graph = SimpleNamespace(producer={"c": SimpleNamespace(input=["t", "w"])})
    plan = SimpleNamespace(
        tensors={"t": SimpleNamespace(dtype=np.dtype(tensor))}, weights={"c": SimpleNamespace(dtype=np.dtype(weight))}
    )
    found = used_ranges(graph, dict.fromkeys(("t", "w", "other"), FITTED), plan)
    assert list(found) == ["t", "w", "other"]
    assert all(found[name] is wanted for name, wanted in listed.items())


@pytest.fixture(scope="module")
def net():
    """data [1, 3, 4, 5] -> convolution c -> BatchNormalization b -> softmax s."""
    norm = {f"b.{what}": np.full(4, value, np.float32) for what, value in zip("sbmv", (2.0, 0.5, 0.0, 1.0))}
    nodes = [
        conv("c", "data"),
        node("BatchNormalization", ["c", "b.s", "b.b", "b.m", "b.v"], "b"),
        node("Softmax", ["b"], "s", axis=1),
    ]
    return model(nodes, {**weights("c", (4, 3, 1, 2)), **norm}, {"data": (1, 3, 4, 5)}, ["s"])


@pytest.fixture(scope="module")
def found(net):
    feed = {"data": np.random.default_rng(0).normal(0, 1, (1, 3, 4, 5)).astype(np.float32)}
    return calibrate(net, [("one", feed)], InputConfig(()), "L1")


@pytest.fixture(scope="module")
def kept():
    """c's weights, into which no BatchNormalization is kept."""
    return weights("c", (4, 3, 1, 2))["c.w"].astype(np.float64)


def fields(path):
    """The lines of a file about one convolution, by their first word."""
    return dict(row.strip().rstrip(",").split(":", 1) for row in path.read_text(encoding="utf-8").splitlines())


def numbers(text):
    return [float(number) for number in text.strip("[];").split(",") if number.strip()]


def test_calibration_leaves_weights_before_a_batch_normalization(found, kept):
    given = found.ranges["c.w"]
    assert (given.low, given.high) == pytest.approx((kept.min(), kept.max()))


@pytest.mark.parametrize("known", [True, False])
def test_the_log_holds_the_weights_and_their_range(net, found, kept, tmp_path, known):
    """A range of the whole tensor where calibration has one, else one for each output channel."""
    decided = plan(deployed(net), found.ranges)
    ranges = {name: each for name, each in found.ranges.items() if known or name != "c.w"}
    assert write_log(tmp_path, net, replace(found, ranges=ranges), decided) == tmp_path / "tensor_min_max.txt"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("softmax_lut_range.txt", "tensor_chn.txt", "tensor_min_max.txt"),
        *("tensor_weight.txt", "tensor_weight_calibration.txt"),
    ]
    rows = fields(tmp_path / "tensor_weight_calibration.txt")
    low, high = (kept.min(), kept.max()) if known else (kept.min(axis=(1, 2, 3)), kept.max(axis=(1, 2, 3)))
    np.testing.assert_allclose(numbers(rows["min"]), np.atleast_1d(low), atol=1e-6)
    np.testing.assert_allclose(numbers(rows["max"]), np.atleast_1d(high), atol=1e-6)
    assert (rows["Name"], rows["shape"], rows["hasChanged"]) == ("[data,c.w]", "[4,1,2,3]", "FALSE")
    np.testing.assert_allclose(numbers(rows["data"]), kept.transpose(0, 2, 3, 1).ravel(), atol=1e-6)
    rows = fields(tmp_path / "tensor_weight.txt")
    assert (rows["min"], rows["max"], rows["AllowedBitWidth"]) == ("[]", "[]", "[8]")


@pytest.mark.parametrize(
    ("kind", "shape", "attributes", "data", "given", "order"),
    [
        ("Conv", (4, 3, 1, 2), {}, (1, 3, 4, 5), [4, 1, 2, 3], (0, 2, 3, 1)),
        ("Conv", (4, 3, 2), {}, (1, 3, 5), [4, 1, 1, 6], (0, 1, 2)),
        ("Conv", (3, 1, 1, 2), {"group": 3}, (1, 3, 4, 5), [1, 1, 2, 3], (2, 3, 0, 1)),
        ("ConvTranspose", (3, 4, 1, 2), {}, (1, 3, 4, 5), [4, 1, 1, 6], (1, 0, 2, 3)),
        ("Gemm", (4, 3), {"transB": 1}, (1, 3), [4, 1, 1, 3], (0, 1)),
        ("Gemm", (3, 4), {}, (1, 3), [4, 1, 1, 3], (1, 0)),
        ("MatMul", (3, 4), {}, (1, 3), [4, 1, 1, 3], (1, 0)),
    ],
)
def test_weights_lie_as_the_log_says(kind, shape, attributes, data, given, order):
    weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    nodes = [
        node("Relu", ["data"], "r"),
        node("Abs", ["r"], "none"),
        node(kind, ["r", "w"], "y", **attributes),
        node(kind, ["none", "w"], "unknown", **attributes),
        node(kind, ["r", "w"], "z", **attributes),
    ]
    graph = Graph(model(nodes, {"w": weight}, {"data": data}, ["none", "y", "unknown", "z"]).proto)
    ranges = {name: Range.of(0, 1) for name in ("data", "r", "y", "z")}
    found = list(_weights(graph, {}, plan(graph.proto, ranges), frozenset("w")))
    assert len(found) == 2, "none for a tensor without a range"
    for one in found:
        assert list(one.data.shape) == given
        np.testing.assert_array_equal(one.data.ravel(), weight.transpose(order).ravel())
        assert (one.input, one.name, one.types, one.allowed_bits) == ("r", "w", ("UINT8", "INT8"), (8, 16))
        assert one.changed


NET = model([conv("f1", "x")], weights("f1", (2, 3, 1, 1)), {"x": (1, 3, 4, 4)}, ["f1"])
CHN = "Name:f1#22, 2\nmin_chn: -1.0, -2.0, max_chn: 1.0, 3.0;\n"
WEIGHT = """Name:[{names}],
     BitWidth:[{types}],
     min:[-1.0, -0.5],
     max:[0.5, 2.0],
     data:[];
"""


@pytest.fixture
def log(tmp_path):
    (tmp_path / "tensor_min_max.txt").write_text("Name:x, min: -1.0, max: 1.0;\n")
    (tmp_path / "tensor_chn.txt").write_text(CHN)
    (tmp_path / "softmax_lut_range.txt").write_text("Name:f1#22, min: -12.5, max: 0.0;\n")
    text = WEIGHT.format(names="x,f1.w#18", types="INT16,INT16") + WEIGHT.format(names="a,b", types="UINT8,INT8")
    (tmp_path / "tensor_weight_calibration.txt").write_text(text)
    return tmp_path / "tensor_min_max.txt"


def test_a_numbered_name_is_the_models_where_it_has_one():
    known = {"f1", "g#3", "h#x"}
    pairs = {
        "f1": "f1",
        "f1#22": "f1",
        "g#3": "g#3",
        "g#3#4": "g#3",
        "h#x": "h#x",
        "h#1": None,
        "f1#": None,
        "#1": None,
    }
    assert {name: model_name(name, known) for name in pairs} == pairs


def test_all_that_lies_beside_it_is_read(log):
    params, side = read_log(log, NET, weights=True)
    assert [(each.name, each.bit, each.range.max.tolist()) for each in params] == [("f1.w", 16, [0.5, 2.0])]
    assert side.channels["f1"].max.tolist() == [1.0, 3.0] and side.softmax["f1"].low == -12.5


def test_level_l1_takes_no_ranges_of_channels_for_weights(log):
    params, side = read_log(log, NET, weights=False)
    assert params == [] and set(side.channels) == set(side.softmax) == {"f1"}


def test_only_a_tensor_min_max_has_a_log_beside_it(log):
    other = log.parent / "ranges.json"
    other.touch()
    params, side = read_log(other, NET, weights=True)
    assert params == [] and not side.channels and not side.softmax


def test_what_is_not_there_is_left_out(tmp_path):
    path = tmp_path / "tensor_min_max.txt"
    path.touch()
    (tmp_path / "softmax_lut_range.txt").touch()
    assert read_side_ranges(path) == SideRanges() or not read_side_ranges(path).channels
    assert read_weight_params(path, {"x"}) == []


def test_a_damaged_file_is_named(log):
    (log.parent / "tensor_chn.txt").write_text("what?\n")
    with pytest.raises(FormatError, match=r"tensor_chn\.txt:1: 'what\?'"):
        read_log(log, NET, weights=True)


@pytest.mark.parametrize("names", ["a,b,c", "a,b,c#7"])
@pytest.mark.parametrize("known", ["c", "b,c"])
def test_names_may_hold_commas(tmp_path, names, known):
    (tmp_path / "tensor_weight_calibration.txt").write_text(WEIGHT.format(names=names, types="UINT8,INT8"))
    (param,) = read_weight_params(tmp_path / "tensor_min_max.txt", {"a", known})
    assert param.name == known and param.bit is None


def test_the_models_own_entry_goes_before_a_numbered_one():
    def param(name, high):
        return QuantParam(name, Range.of(0, high), None)

    found = with_model_names([param("f1#22", 1), param("f2#3", 2), param("f2", 3), param("other#1", 4)], {"f1", "f2"})
    assert [(each.name, each.range.high) for each in found] == [("f1", 1), ("f2", 3), ("other#1", 4)]


def test_the_ranges_of_a_file_go_before_those_of_the_pictures():
    own = SideRanges({"a": Range.of(0, 1), "b": Range.of(0, 1)}, {"s": Range.of(-1, 0)})
    given = SideRanges({"b": Range.of(0, 2)}, {"t": Range.of(-2, 0)})
    both = updated(own, given)
    assert {name: each.high for name, each in both.channels.items()} == {"a": 1, "b": 2}
    assert {name: each.low for name, each in both.softmax.items()} == {"s": -1, "t": -2}


def test_a_softmaxs_input_holds_its_differences_too():
    ranges = {"s": Range.of(-3, 2), "wide": Range.of(-30, 2), "x": Range.of(-1, 1)}
    found = with_softmax(ranges, {"s": Range.of(-12.5, 0), "wide": Range.of(-20, 0), "none": Range.of(-9, 0)})
    assert {name: (each.low, each.high) for name, each in found.items()} == {
        "s": (-12.5, 2), "wide": (-30, 2), "x": (-1, 1),
    }  # fmt: skip


def test_groups_are_joined_in_their_order():
    ranges = {f"c_conv#{i}_output#{i}": Range(np.array([-i, 0.0]), np.array([1.0, i])) for i in range(3)}
    found = joined(ranges, [f"c_conv#{i}_output#{i}" for i in range(3)])
    assert found.min.tolist() == [0, 0, -1, 0, -2, 0] and found.max.tolist() == [1, 0, 1, 1, 1, 2]
    assert joined(ranges, [f"c_conv#{i}_output#{i}" for i in range(4)]) is None


def test_the_channels_of_a_layer_stand_by_its_name_where_its_stage_has_another(tmp_path):
    """As after a Dropout in place, whose stage has the place of the InnerProduct's."""
    gemm = helper.make_node("Gemm", ["x", "w"], ["fc_xx"], name="fc")
    net = model([gemm], {"w": np.ones((3, 2), np.float32)}, {"x": (1, 3)}, ["fc_xx"])
    path = tmp_path / "tensor_min_max.txt"
    path.write_text("Name:fc_xx, min: -1.0, max: 1.0;\n")
    (tmp_path / "tensor_chn.txt").write_text(CHN.replace("f1#22", "fc#53"))
    _, side = read_log(path, net, weights=False)
    assert side.channels["fc_xx"].max.tolist() == [1.0, 3.0]
