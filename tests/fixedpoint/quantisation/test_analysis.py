"""Which nodes become one operator of the fixed model, in which order."""

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, residual_net, single_convolution, weights

from sgsdump.fixedpoint.quantisation.analysis import is_convolution, is_depthwise, operators, sdk_name
from sgsdump.fixedpoint.quantisation.quant_plan import plan
from sgsdump.fixedpoint.quantisation.trials.qdq_graph import quantise
from sgsdump.models.graph import Graph
from sgsdump.tensors.types import Range


def chains(net, fuse):
    return [[n.name for n in op.nodes] for op in operators(Graph(net.proto), fuse)]


def test_every_node_is_its_own_operator_in_the_float_model():
    assert all(len(chain) == 1 for chain in chains(residual_net(), None))


def test_a_relu_and_an_add_join_the_convolution_before_them():
    found = chains(residual_net(), True)
    assert ["c1", "r1"] in found
    assert ["c2", "add", "r2"] in found
    assert ["c3", "sig"] in found, "so does a Sigmoid"


def test_without_fusing_only_the_activation_stays_inside():
    found = chains(residual_net(), False)
    assert ["c1", "r1"] in found
    assert ["c2"] in found
    assert ["add"] in found


def test_an_add_joins_the_later_of_its_two_convolutions():
    constants = {**weights("a", (4, 3, 1, 1)), **weights("b", (4, 3, 1, 1))}
    net = model(
        [conv("a", "x"), conv("b", "x"), node("Add", ["a", "b"], "sum")], constants, {"x": (1, 3, 4, 4)}, ["sum"]
    )
    assert chains(net, True) == [["a"], ["b", "sum"]]


def test_a_tensor_that_leaves_the_graph_is_never_fused_away():
    constants = weights("a", (4, 3, 1, 1))
    net = model([conv("a", "x"), node("Relu", ["a"], "r")], constants, {"x": (1, 3, 4, 4)}, ["r", "a"])
    assert chains(net, True) == [["a"], ["r"]]


def test_operator_types_have_the_names_of_the_sdk():
    constants = {**weights("dw", (6, 1, 3, 3)), **weights("pw", (4, 6, 1, 1))}
    net = model([conv("dw", "x", group=6), conv("pw", "dw")], constants, {"x": (1, 6, 5, 5)}, ["pw"])
    graph = Graph(net.proto)
    assert [sdk_name(graph, n) for n in graph.nodes] == ["DEPTHWISE_CONV_2D", "CONV_2D"]
    assert is_depthwise(graph, graph.nodes[0]) and not is_depthwise(graph, graph.nodes[1])


@pytest.mark.parametrize(
    ("shape", "attributes", "name"),
    [
        ((6, 1, 3, 3), {"group": 6}, "DEPTHWISE_CONV_2D"),
        ((12, 1, 3, 3), {"group": 6}, "CONV_2D"),
        ((6, 2, 3, 3), {"group": 3}, "CONV_2D"),
        ((6, 6, 3, 3), {}, "CONV_2D"),
        ((6, 1, 3, 3), {}, "CONV_2D"),
    ],
)
def test_depthwise_is_a_group_for_each_input_and_output_channel_and_more_than_one(shape, attributes, name):
    net = model([conv("c", "x", **attributes)], weights("c", shape), {"x": (1, 6, 5, 5)}, ["c"])
    graph = Graph(net.proto)
    assert sdk_name(graph, graph.nodes[0]) == name


@pytest.mark.parametrize(
    ("op", "inputs", "name"),
    [
        *(("ConvTranspose", ["x", "k"], "TRANSPOSE_CONV"), ("Gemm", ["x", "k"], "FULLY_CONNECTED")),
        *(("MatMul", ["x", "k"], "FULLY_CONNECTED"), ("MaxPool", ["x"], "MAX_POOL_2D")),
        *(("AveragePool", ["x"], "AVERAGE_POOL_2D"), ("GlobalAveragePool", ["x"], "AVERAGE_POOL_2D")),
        *(("Concat", ["x"], "CONCATENATION"), ("Sigmoid", ["x"], "LOGISTIC"), ("Flatten", ["x"], "RESHAPE")),
        *(
            ("Unsqueeze", ["x", "k"], "RESHAPE"),
            ("BatchNormalization", ["x"], "BATCH_NORM"),
            ("ReduceMean", ["x"], "MEAN"),
        ),
        *(("LeakyRelu", ["x"], "LEAKY_RELU"), ("Clip", ["x"], "RELU6"), ("Softmax", ["x"], "SOFTMAX")),
    ],
)
def test_other_operator_types(op, inputs, name):
    graph = Graph(model([node(op, inputs, "y")], {"k": np.ones((3, 3), np.float32)}, {"x": (1, 3)}, ["y"]).proto)
    assert sdk_name(graph, graph.nodes[0]) == name


def test_a_product_of_two_variables_is_no_convolution():
    nodes = [
        node("MatMul", ["x", "y"], "a"),
        node("MatMul", ["k", "x"], "b"),
        node("MatMul", ["x", "k"], "c"),
        node("MatMul", ["k", "k"], "d"),
    ]
    net = model(nodes, {"k": np.ones((3, 3), np.float32)}, {"x": (3, 3), "y": (3, 3)}, ["a", "b", "c", "d"])
    graph = Graph(net.proto)
    assert [is_convolution(graph, each) for each in graph.nodes] == [False, False, True, False]


@pytest.mark.parametrize("activation", ["Relu", "Clip", "LeakyRelu", "PRelu"])
@pytest.mark.parametrize(
    ("before", "fused", "visible"),
    [
        *(("Conv", True, True), ("ConvTranspose", True, True), ("Gemm", False, False), ("MatMul", False, False)),
        *(("Add", True, False), ("Sigmoid", True, False), ("Mul", True, False), ("MaxPool", True, False)),
    ],
)
def test_what_an_activation_joins(activation, before, fused, visible):
    """``visible``: also with disableDomainFuseOps. A fully connected operator takes none."""
    slope = ["k"] if activation == "PRelu" else []
    nodes = [node(before, ["x", "k"], "y"), node(activation, ["y", *slope], "z")]
    net = model(nodes, {"k": np.ones((3, 3), np.float32)}, {"x": (3, 3)}, ["z"])
    assert chains(net, True) == ([["y", "z"]] if fused else [["y"], ["z"]])
    assert chains(net, False) == ([["y", "z"]] if visible else [["y"], ["z"]])


def test_a_slope_that_is_computed_is_not_fused():
    nodes = [node("MatMul", ["x", "k"], "y"), node("PRelu", ["y", "x"], "z")]
    assert chains(model(nodes, {"k": np.ones((3, 3), np.float32)}, {"x": (3, 3)}, ["z"]), True) == [["y"], ["z"]]


def test_what_is_only_the_slope_of_an_activation_is_not_its_input():
    nodes = [node("MatMul", ["x", "k"], "y"), node("PRelu", ["k", "y"], "z")]
    assert chains(model(nodes, {"k": np.ones((3, 3), np.float32)}, {"x": (3, 3)}, ["z"]), True) == [["y"], ["z"]]


@pytest.mark.parametrize("before", ["Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "Relu"])
@pytest.mark.parametrize("following", ["Sigmoid", "Tanh", "Add", "Mul", "AddConstant", "MulConstant"])
def test_what_functions_and_arithmetic_join(before, following):
    """After a convolution, a pool and what works element by element all of them; after a fully connected one none."""
    second = {"Add": ["v"], "Mul": ["v"], "AddConstant": ["k"], "MulConstant": ["k"]}.get(following, [])
    nodes = [node(before, ["x", "k"], "y"), node(following.removesuffix("Constant"), ["y", *second], "z")]
    net = model(nodes, {"k": np.ones((3, 3), np.float32)}, {"x": (3, 3), "v": (3, 3)}, ["z"])
    joins = before not in ("Gemm", "MatMul")
    assert chains(net, True) == ([["y", "z"]] if joins else [["y"], ["z"]])
    assert chains(net, False) == [["y"], ["z"]]


def test_a_batchnorm_in_two_joins_with_its_activation():
    nodes = [node("Conv", ["x", "k"], "c"), node("Mul", ["c", "k"], "m"), node("Add", ["m", "k"], "a")]
    nodes.append(node("Relu", ["a"], "r"))
    net = model(nodes, {"k": np.ones((3, 3), np.float32)}, {"x": (3, 3)}, ["r"])
    assert chains(net, True) == [["c", "m", "a", "r"]]


def test_an_add_joins_after_the_activation_of_its_later_operand():
    constants = {**weights("a", (3, 3, 1, 1)), **weights("b", (3, 3, 1, 1))}
    nodes = [conv("a", "x"), conv("b", "x"), node("Relu", ["b"], "r"), node("Add", ["a", "r"], "sum")]
    assert chains(model(nodes, constants, {"x": (1, 3, 4, 4)}, ["sum"]), True) == [["a"], ["b", "r", "sum"]]


def test_an_add_whose_other_operand_comes_later_waits_for_it():
    constants = {**weights("a", (3, 3, 1, 1)), **weights("b", (3, 3, 1, 1))}
    nodes = [conv("a", "x"), conv("b", "x"), node("Add", ["a", "b"], "sum")]
    assert chains(model(nodes, constants, {"x": (1, 3, 4, 4)}, ["sum"]), True) == [["a"], ["b", "sum"]]
    nodes = [conv("a", "x"), node("Sigmoid", ["x"], "s"), node("Add", ["a", "s"], "sum")]
    assert chains(model(nodes, constants, {"x": (1, 3, 4, 4)}, ["sum"]), True) == [["a"], ["s", "sum"]]
    nodes = [conv("a", "x"), node("Add", ["x", "a"], "sum"), node("Relu", ["sum"], "r")]
    assert chains(model(nodes, constants, {"x": (1, 3, 4, 4)}, ["r"]), True) == [["a", "sum", "r"]]


def test_a_convolution_with_groups_takes_nothing_in():
    constants = {**weights("g", (6, 2, 3, 3)), **weights("m", (12, 1, 3, 3)), **weights("d", (12, 1, 3, 3))}
    nodes = [conv("g", "x", group=3), node("Relu", ["g"], "r"), conv("m", "r", group=6), node("Relu", ["m"], "s")]
    nodes += [conv("d", "s", group=12), node("Relu", ["d"], "t")]
    net = model(nodes, constants, {"x": (1, 6, 9, 9)}, ["t"])
    assert chains(net, True) == [["g"], ["r"], ["m"], ["s"], ["d", "t"]]


def test_a_factor_an_offset_and_another_tensor_join_after_the_activation_too():
    constants = {**weights("c", (6, 3, 3, 3)), "k": np.ones((6, 1, 1), np.float32), **weights("d", (6, 3, 3, 3))}
    nodes = [conv("c", "x"), node("Relu", ["c"], "r"), node("Mul", ["r", "k"], "m"), node("Add", ["m", "k"], "a")]
    nodes += [conv("d", "x"), node("Relu", ["d"], "s"), node("Add", ["s", "a"], "e")]
    assert chains(model(nodes, constants, {"x": (1, 3, 9, 9)}, ["e"]), True) == [
        ["c", "r", "m", "a"],
        ["d", "s", "e"],
    ]


def test_nodes_of_a_chain_keep_their_order():
    nodes = [conv("c", "data"), node("Relu", ["c"], "r")]
    net = model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 4, 4)}, ["r"])
    made = quantise(net.proto, plan(net.proto, {"data": Range.of(-1, 1), "r": Range.of(0, 1)}), {})
    kinds = [each.op_type for each in made.graph.node if each.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    assert kinds == ["Conv", "Relu"]


def test_operators_follow_their_last_node():
    """c is fused into add, which comes after t."""
    nodes = [node("Sigmoid", ["data"], "s"), conv("c", "data"), node("Tanh", ["data"], "t")]
    nodes.append(node("Add", ["s", "c"], "add"))
    graph = Graph(model(nodes, weights("c", (3, 3, 1, 1)), {"data": (1, 3, 4, 4)}, ["t", "add"]).proto)
    assert [op.outputs for op in operators(graph, True)] == [("s",), ("t",), ("add",)]
    fused = operators(graph, True)[-1]
    assert (fused.head.op_type, fused.last.op_type, fused.inputs) == ("Conv", "Add", ("data", "s"))
    assert [op.outputs for op in operators(graph, None)] == [("s",), ("c",), ("t",), ("add",)]


def test_a_node_that_puts_out_nothing_is_an_operator_of_its_own():
    net = single_convolution()
    net.proto.graph.node.append(onnx.helper.make_node("Relu", ["c"], [], name="nothing"))
    assert [op.outputs for op in operators(Graph(net.proto), True)] == [("c",), ()]
