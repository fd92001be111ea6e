"""Open input sizes get numbers; what does not fit is one line.

Tensors inside a model's own functions are tensors of the model, with the values of the model as it was.

Half and double precision as float32: types everywhere, the same values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import conv, model, node, run_all, weights

from sgsdump.errors import InputError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.model import open_model
from sgsdump.models.passes import rewrites as module
from sgsdump.models.passes.rewrites import fix_shapes, inline_functions, single_precision


@pytest.fixture
def proto() -> onnx.ModelProto:
    """a [N, 3, ?] and b [N, 4] with a fixed 4."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Shape", ["a"], ["s"])],
        "g",
        [info("a", TensorProto.FLOAT, ["N", 3, None]), info("b", TensorProto.FLOAT, ["N", 4])],
        [info("s", TensorProto.INT64, [3])],
    )
    return helper.make_model(graph)


def dims(proto: onnx.ModelProto) -> dict[str, list[int | str]]:
    return {
        each.name: [d.dim_param if d.HasField("dim_param") else d.dim_value for d in each.type.tensor_type.shape.dim]
        for each in proto.graph.input
    }


def test_a_size_with_a_name_is_the_same_everywhere(proto: onnx.ModelProto) -> None:
    before = proto.SerializeToString()
    assert dims(fix_shapes(proto, {"a": (2, 3, 7)})) == {"a": [2, 3, 7], "b": [2, 4]}
    assert dims(fix_shapes(proto, {})) == dims(proto)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"c": (1,)}, "'c', but the model has no such input"),
        ({"a": (1, 3)}, r"\[1, 3\] does not fit the model's input 'a', which is declared as \[\?, 3, \?\]"),
        ({"a": (1, 4, 7)}, r"\[1, 4, 7\] does not fit"),
        ({"a": (1, 3, 7), "b": (2, 4)}, "dimension 'N' of the model is 1 and also 2"),
    ],
)
def test_what_does_not_fit(proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        fix_shapes(proto, shapes)


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


TYPES = {TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64}


def net_of(kind):
    """x -> MatMul -> Add of a Constant -> If(any) { x + 1 } else { Cast to the type of what was cast to int32 }."""
    dtype = TYPES[kind]
    w = np.random.default_rng(0).normal(size=(4, 4)).astype(dtype)
    value = numpy_helper.from_array(np.array(0.25, dtype), "value")
    one = numpy_helper.from_array(np.array(1, dtype), "one")
    then = helper.make_graph(
        [node("Add", ["sum", "one"], "more")], "then", [], [helper.make_tensor_value_info("more", kind, None)], [one]
    )
    back = [node("Cast", ["sum"], "whole", to=TensorProto.INT32), node("Cast", ["whole"], "less", to=kind)]
    other = helper.make_graph(back, "else", [], [helper.make_tensor_value_info("less", kind, None)])
    nodes = [
        node("Cast", ["x"], "x32", to=TensorProto.FLOAT),
        node("Cast", ["x32"], "x16", to=kind),
        node("MatMul", ["x16", "w"], "product"),
        helper.make_node("Constant", [], ["quarter"], value=value),
        node("Add", ["product", "quarter"], "sum"),
        node("If", ["flag"], "y", then_branch=then, else_branch=other),
    ]
    ends = [helper.make_tensor_value_info(name, kind, (1, n, 4, 4)) for name, n in (("x", 3), ("y", 3))]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "net", [ends[0], flag], ends[1:], [numpy_helper.from_array(w, "w")])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_values_and_types(kind, flag):
    net, x = net_of(kind), np.random.default_rng(1).normal(size=(1, 3, 4, 4))
    single = single_precision(net)
    onnx.checker.check_model(single, full_check=True)
    types = {each.type.tensor_type.elem_type for each in (*single.graph.input, *single.graph.value_info)}
    assert types == {TensorProto.FLOAT, TensorProto.BOOL}
    got = run_all(single, {"x": x.astype(np.float32), "flag": np.array(flag)})["y"]
    want = run_all(net, {"x": x.astype(TYPES[kind]), "flag": np.array(flag)})["y"]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)


def test_a_model_of_float32_is_given_back_itself():
    net = model([conv("c", "x")], weights("c", (4, 3, 1, 1)), {"x": (1, 3, 4, 4)}, ["c"]).proto
    assert single_precision(net) is net


def test_an_optional_tensor_changes_its_type_too():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.DOUBLE, [2]))
    source = helper.make_value_info("x", kind)
    nodes = [node("OptionalGetElement", ["x"], "y")]
    end = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [2])
    net = helper.make_model(helper.make_graph(nodes, "net", [source], [end]))
    inner = single_precision(net).graph.input[0].type.optional_type.elem_type.tensor_type
    assert inner.elem_type == TensorProto.FLOAT
