"""Tensors inside a model's own functions are tensors of the model, with the values of the model as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.model import open_model
from sgsdump.models.passes import inline_functions as module
from sgsdump.models.passes.inline_functions import inline_functions

X = np.array([-1.5, 0.25], np.float32)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]


def function(name: str, *nodes: onnx.NodeProto, opset: int = 17) -> onnx.FunctionProto:
    """i -> ... -> o"""
    return helper.make_function("my", name, ["i"], ["o"], nodes, [helper.make_opsetid("", opset), OPSETS[1]])


def call(name: str, source: str, target: str) -> onnx.NodeProto:
    return helper.make_node(name, [source], [target], domain="my")


def net(*nodes: onnx.NodeProto, functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    last = nodes[-1].output[0]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [2])], [info(last, 1, [2])])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=9)


TWICE = function("Twice", helper.make_node("Add", ["i", "i"], ["sum"]), helper.make_node("Neg", ["sum"], ["o"]))
FOUR = function("Four", call("Twice", "i", "half"), call("Twice", "half", "o"))


def dumped(path: Path) -> tuple[dict[str, np.ndarray], SegmentRunner]:
    runner = SegmentRunner(open_model(path))
    return {layer.name: layer.array for layer in runner.run({"x": X})}, runner


def test_every_tensor_inside_is_dumped(tmp_path: Path) -> None:
    proto = net(call("Four", "x", "y"), call("Twice", "y", "z"), functions=[TWICE, FOUR])
    onnx.save(proto, tmp_path / "net.onnx")
    arrays, runner = dumped(tmp_path / "net.onnx")
    assert not runner.skipped
    assert [node.op_type for node in runner.model.proto.graph.node] == ["Add", "Neg", "Add", "Neg", "Add", "Neg"]
    assert len(arrays) == 6 and {"y", "z"} < set(arrays)
    whole = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(arrays["z"], whole.run(["z"], {"x": X})[0])
    for array, factor in zip(arrays.values(), (2, -2, -4, 4, 8, -8)):
        np.testing.assert_array_equal(array, factor * X)


def test_a_function_of_another_opset_stays_and_is_said(tmp_path: Path) -> None:
    old = function("Old", helper.make_node("Relu", ["i"], ["o"]), opset=11)
    onnx.save(net(call("Twice", "x", "y"), call("Old", "y", "z"), functions=[TWICE, old]), tmp_path / "net.onnx")
    arrays, runner = dumped(tmp_path / "net.onnx")
    assert [*arrays][1:] == ["y", "z"]
    np.testing.assert_array_equal(arrays["z"], np.maximum(-2 * X, 0))
    (skip,) = runner.skipped.values()
    assert skip.reason == "they belong to a function of the model"


def test_models_without_functions_are_not_copied() -> None:
    proto = net(helper.make_node("Neg", ["x"], ["y"]), functions=[])
    assert inline_functions(proto) is proto


def test_functions_that_never_end_stay() -> None:
    for functions in (
        [function("Self", call("Self", "i", "o"))],
        [function("Self", call("Other", "i", "o")), function("Other", call("Self", "i", "o"))],
    ):
        proto = net(call("Self", "x", "y"), functions=functions)
        assert inline_functions(proto) is proto


def test_functions_that_stand_for_too_many_nodes_stay() -> None:
    doubling = [function("F0", helper.make_node("Neg", ["i"], ["o"]))]
    doubling += [function(f"F{n}", call(f"F{n - 1}", "i", "t"), call(f"F{n - 1}", "t", "o")) for n in range(1, 60)]
    proto = net(call("F59", "x", "y"), functions=doubling)
    assert inline_functions(proto) is proto
    assert module.MOST_NODES == 1_000_000
    few = net(call("F3", "x", "y"), functions=doubling[:4])
    assert len(inline_functions(few).graph.node) == 8


@pytest.mark.parametrize("inputs", [[], ["x", "x"], ["nowhere"]])
def test_a_call_that_does_not_fit_is_left_to_the_run_time(inputs: list[str]) -> None:
    proto = net(helper.make_node("Twice", inputs, ["y"], domain="my"), functions=[TWICE])
    assert inline_functions(proto).graph.output[0].name == "y"
