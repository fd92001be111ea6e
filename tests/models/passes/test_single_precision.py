"""Half and double precision as float32: types everywhere, the same values."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import conv, model, node, run_all, weights

from sgsdump.models.passes.single_precision import single_precision

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
