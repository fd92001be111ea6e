"""The graph index: producers, consumers, captured names, constants.

Needs, bodies and an order in which nodes can run.
"""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from small_nets import residual_net

from sgsdump.errors import ModelError
from sgsdump.models.graph import (
    Graph,
    attribute,
    called,
    captured,
    drop_unused_constants,
    inner_tensors,
    needs,
    sorted_nodes,
)


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


FLOAT = TensorProto.FLOAT


def graph(nodes: list[onnx.NodeProto], inputs: tuple[str, ...] = ("x",)) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, FLOAT, [1]) for n in inputs], [])


def branch(*nodes: onnx.NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "b", [], [onnx.ValueInfoProto(name=output)])


def node(op_type: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], output, **attributes)


def test_outer_values_of_nested_bodies_are_needed() -> None:
    deep = node(
        "If", ["c2"], "d", then_branch=branch(node("Neg", ["far"], "n"), output="n"), else_branch=branch(output="p")
    )
    outer = branch(node("Relu", ["near"], "p"), deep, output="d")
    outer.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "own"))
    outer.node.append(node("Add", ["own", "d"], "q"))
    whole = node("If", ["c", ""], "y", then_branch=outer, else_branch=branch(output="passed"))
    assert needs(whole) == {"c", "c2", "near", "far", "passed"}
    assert sorted(inner_tensors(whole)) == ["d", "n", "p", "q"]


def test_captured_values_come_before_the_body() -> None:
    user = node(
        "If", ["c"], "y", then_branch=branch(node("Neg", ["late"], "n"), output="n"), else_branch=branch(output="x")
    )
    order = sorted_nodes(graph([user, node("Relu", ["x"], "late"), node("Cast", ["x"], "c", to=TensorProto.BOOL)]))
    assert [n.name for n in order] == ["late", "c", "y"]


@given(st.integers(1, 30), st.integers(0, 1000))
def test_order_is_stable_and_right(count: int, seed: int) -> None:
    choose = random.Random(seed)
    nodes = []
    for i in range(count):
        inputs = [choose.choice(["x", *(f"t{j}" for j in range(i))]) for _ in range(2)]
        nodes.append(node("Add", inputs, f"t{i}"))
    assert sorted_nodes(graph(nodes)) == nodes
    choose.shuffle(nodes)
    order = sorted_nodes(graph(nodes))
    assert sorted(n.name for n in order) == sorted(n.name for n in nodes)
    seen = {"x"}
    for each in order:
        assert set(each.input) <= seen
        seen.update(each.output)


def test_broken_graphs() -> None:
    with pytest.raises(ModelError, match="a cycle: node 'a' "):
        sorted_nodes(graph([node("Relu", ["x"], "z"), node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b")]))
    with pytest.raises(ModelError, match=r"node 'a' .Relu. needs the tensor 'ghost', which nothing"):
        sorted_nodes(graph([node("Relu", ["ghost"], "a")]))
    with pytest.raises(ModelError, match="computes the tensor 'x', which is already an input or weight"):
        sorted_nodes(graph([node("Relu", ["x"], "x")]))
    with pytest.raises(ModelError, match="compute the tensor 'a'"):
        sorted_nodes(graph([node("Relu", ["x"], "a"), node("Neg", ["x"], "a")]))


def test_sparse_weights_count_as_given() -> None:
    whole = graph([node("Add", ["x", "s"], "y")])
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    whole.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1]))
    assert len(sorted_nodes(whole)) == 1


def test_nodes_without_a_name_have_one_in_messages() -> None:
    assert called(helper.make_node("Relu", ["x"], ["y"])) == "the Relu node that computes 'y'"
    assert called(helper.make_node("Foo", ["x"], ["y"], "n", domain="my")) == "node 'n' (my.Foo)"
