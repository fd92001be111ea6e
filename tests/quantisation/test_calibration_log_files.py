"""What calibration takes and writes when nothing else is said: fused operators, all four files."""

from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.models.graph import Graph
from sgsdump.quantisation.calibration_log import _weights, write_log
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.levels import calibrate
from sgsdump.quantisation.quant_plan import plan
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range


@pytest.fixture(scope="module")
def net():
    """data [1, 3, 4, 5] -> convolution c -> BatchNormalization b, which is folded into c -> softmax s."""
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
def folded():
    """c's weights after folding."""
    return 2 / np.sqrt(1 + 1e-5) * weights("c", (4, 3, 1, 2))["c.w"].astype(np.float64)


def fields(path):
    """The lines of a file about one convolution, by their first word."""
    return dict(row.strip().rstrip(",").split(":", 1) for row in path.read_text(encoding="utf-8").splitlines())


def numbers(text):
    return [float(number) for number in text.strip("[];").split(",") if number.strip()]


def test_calibration_folds_batch_normalization(found, folded):
    given = found.ranges["c.w"]
    assert (given.low, given.high) == pytest.approx((folded.min(), folded.max()))


@pytest.mark.parametrize("known", [True, False])
def test_the_log_holds_the_folded_weights_and_their_range(net, found, folded, tmp_path, known):
    """A range of the whole tensor where calibration has one, else one for each output channel."""
    decided = plan(deployed(net), found.ranges)
    ranges = {name: each for name, each in found.ranges.items() if known or name != "c.w"}
    assert write_log(tmp_path, net, replace(found, ranges=ranges), decided) == tmp_path / "tensor_min_max.txt"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("softmax_lut_range.txt", "tensor_chn.txt", "tensor_min_max.txt"),
        *("tensor_weight.txt", "tensor_weight_calibration.txt"),
    ]
    rows = fields(tmp_path / "tensor_weight_calibration.txt")
    low, high = (folded.min(), folded.max()) if known else (folded.min(axis=(1, 2, 3)), folded.max(axis=(1, 2, 3)))
    np.testing.assert_allclose(numbers(rows["min"]), np.atleast_1d(low), atol=1e-6)
    np.testing.assert_allclose(numbers(rows["max"]), np.atleast_1d(high), atol=1e-6)
    assert (rows["Name"], rows["shape"], rows["hasChanged"]) == ("[data,c.w]", "[4,1,2,3]", "FALSE")
    np.testing.assert_allclose(numbers(rows["data"]), folded.transpose(0, 2, 3, 1).ravel(), atol=1e-6)
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
        node("Softmax", ["r"], "none"),
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
