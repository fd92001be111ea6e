"""The graph index: producers, consumers, captured names, constants."""

import numpy as np
import onnx
from onnx import TensorProto, helper
from small_nets import residual_net

from sgsdump.models.graph import Graph, attribute, captured, drop_unused_constants


def test_weights_listed_among_the_inputs_are_not_inputs():
    net = residual_net().proto
    net.graph.input.append(helper.make_tensor_value_info("c1.w", TensorProto.FLOAT, (8, 3, 3, 3)))
    assert Graph(net).inputs == ["data"]


def test_a_sole_consumer_is_neither_one_of_two_nor_the_world_outside():
    graph = Graph(residual_net().proto)
    assert graph.sole_consumer("c1").op_type == "Relu"
    assert graph.sole_consumer("r1") is None
    assert graph.sole_consumer("prob") is None


def test_names_captured_by_bodies_count_as_read():
    body = helper.make_graph(
        [helper.make_node("Add", ["outer", "outer"], ["y"])], "b", [], [onnx.ValueInfoProto(name="y")]
    )
    node = helper.make_node("If", ["cond"], ["out"], then_branch=body, else_branch=body)
    assert captured(node) == ["outer"]


def test_attributes_have_defaults():
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=4)
    assert attribute(node, "group", 1) == 4
    assert attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"


def test_unused_constants_go_with_their_inputs():
    net = residual_net().proto
    net.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3, np.float32), "spare"))
    net.graph.input.append(helper.make_tensor_value_info("spare", TensorProto.FLOAT, (3,)))
    drop_unused_constants(net)
    assert "spare" not in Graph(net).constants
    assert [i.name for i in net.graph.input] == ["data"]
    assert "c1.w" in Graph(net).constants
