"""Which nodes become one operator of the fixed model."""

from small_nets import conv, model, node, residual_net, weights

from sgsdump.models.graph import Graph
from sgsdump.quantisation.fusion import is_depthwise, operators, sdk_name


def chains(net, fuse):
    return [[n.name for n in op.nodes] for op in operators(Graph(net.proto), fuse)]


def test_every_node_is_its_own_operator_in_the_float_model():
    assert all(len(chain) == 1 for chain in chains(residual_net(), None))


def test_a_relu_and_an_add_join_the_convolution_before_them():
    found = chains(residual_net(), True)
    assert ["c1", "r1"] in found
    assert ["c2", "add", "r2"] in found
    assert ["sig"] in found


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
