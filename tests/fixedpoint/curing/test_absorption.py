"""High biases absorbed: the function stays, ranges get shorter, and what is padded or seen elsewhere is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import conv, model, node, run_all, weights

from sgsdump.fixedpoint.curing.absorption import ROOM, absorbed, absorbing
from sgsdump.fixedpoint.curing.cure import cure
from sgsdump.fixedpoint.curing.steps import CureOptions
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars import input_config


def net(last: onnx.NodeProto, normal: bool = False, outputs: tuple[str, ...] = ("c2",)) -> onnx.ModelProto:
    """data -> c1 (-> n) -> r -> last; c1 or n adds 5 to channels 1 and 2."""
    shape = {"Conv": (6, 2, 1, 1), "Gemm": (6, 4)}[last.op_type]
    constants = {**weights("c1", (4, 3, 1, 1), 1), **weights("c2", shape, 2)}
    raised = np.array([0, 5, 5, 0], np.float32)
    if normal:
        constants |= {"n.g": np.ones(4, np.float32), "n.b": raised, "n.m": np.zeros(4, np.float32)}
        constants["n.v"] = np.ones(4, np.float32)
    else:
        constants["c1.b"] = raised
    between = [node("BatchNormalization", ["c1", "n.g", "n.b", "n.m", "n.v"], "n")] if normal else []
    nodes = [conv("c1", "data"), *between, node("Relu", ["n" if normal else "c1"], "r")]
    if last.op_type == "Gemm":
        nodes = [node("Gemm", ["data", "c1.w", "c1.b"], "c1", transB=1), node("Relu", ["c1"], "r")]
        constants["c1.w"] = constants["c1.w"].reshape(4, 3)
    size = (2, 3) if last.op_type == "Gemm" else (2, 3, 6, 5)
    return model([*nodes, last], constants, {"data": size}, list(outputs)).proto


GROUPED = conv("c2", "r", group=2)
GEMM = node("Gemm", ["r", "c2.w", "c2.b"], "c2", transB=1, alpha=0.5)


@pytest.mark.parametrize("last, normal", [(GROUPED, False), (GROUPED, True), (GEMM, False)])
def test_the_function_stays_and_the_range_begins_at_what_differs(last: onnx.NodeProto, normal: bool) -> None:
    proto = net(last, normal)
    assert absorbing(proto) == ["r"]
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feed = {"data": np.random.default_rng(0).uniform(-0.3, 0.3, shape).astype(np.float32)}
    before = run_all(proto, feed)
    least = np.moveaxis(before["r"], 1, 0).reshape(4, -1).min(axis=1)
    found, count = absorbed(proto, {"r": least})
    after = run_all(found, feed)
    assert count == (least > 0).sum() >= 2
    np.testing.assert_allclose(after["c2"], before["c2"], rtol=1e-5, atol=1e-5)
    taken = np.maximum(least, 0) / ROOM
    np.testing.assert_allclose(np.moveaxis(before["r"] - after["r"], 1, -1) - taken, 0, atol=1e-5)
    assert ROOM == 1.5, "a third less than any seen"


@pytest.mark.parametrize(
    "proto",
    [
        net(conv("c2", "r", group=2, pads=[1, 1, 1, 1])),
        net(conv("c2", "r", group=2, auto_pad="SAME_UPPER")),
        net(GROUPED, outputs=("r", "c2")),
    ],
)
def test_what_is_padded_or_an_output_is_left(proto: onnx.ModelProto) -> None:
    assert absorbing(proto) == []
    assert absorbed(proto, {"r": np.ones(4)})[1] == 0


def test_channels_that_reach_zero_are_left() -> None:
    found, count = absorbed(net(GROUPED), {"r": np.array([0.0, -1.0, 0.0, 0.0])})
    assert count == 0 and found == net(GROUPED)


def test_it_is_taken_where_it_helps_and_is_judged_like_the_others(tmp_path: Path) -> None:
    """A bias of 200 leaves what the picture says a few of 255 steps."""
    write_pictures(tmp_path, 12)
    constants = {**weights("c1", (4, 3, 3, 3), 1), **weights("c2", (6, 4, 1, 1), 2)}
    constants["c1.b"] += 200
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), node("Relu", ["c1"], "r"), conv("c2", "r")]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"]).proto, tmp_path / "net.onnx")
    source, config = open_model(tmp_path / "net.onnx"), input_config.read(tmp_path / "input_config.ini")
    feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    cured = cure(source, feeds, config, CureOptions("L1", ("absorb",)))
    (step,) = cured.steps
    assert step.taken and step.count == 4 and step.kept is not None and step.kept < 1e-4
    assert cured.errors["c2"] < 0.5 * cured.as_it_is["c2"]
