"""The order of nodes is told by what they compute, and a file's own order is found again."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from small_nets import conv, model, node, run_all, weights

from sgsdump.models.canonical_order import in_canonical_order, in_file_order


def net() -> onnx.ModelProto:
    """Two branches of one shape that differ in their weights alone, and two nodes that compute the same."""
    constants = {**weights("c1", (4, 3, 1, 1), 1), **weights("c2", (4, 3, 1, 1), 2), **weights("c3", (2, 4, 1, 1), 3)}
    nodes = [
        conv("c1", "x"),
        node("Relu", ["c1"], "r1"),
        conv("c2", "x"),
        node("Relu", ["c2"], "r2"),
        node("Relu", ["c2"], "r3"),
        node("Add", ["r1", "r2"], "s"),
        node("Add", ["s", "r3"], "t"),
        conv("c3", "t"),
    ]
    return model(nodes, constants, {"x": (1, 3, 4, 5)}, ["c3"]).proto


def listed(proto: onnx.ModelProto, order: list[int], names: bool = False) -> onnx.ModelProto:
    """The same network with its nodes in another order, and with other names of what is inside."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    nodes = [result.graph.node[index] for index in order]
    if names:
        new = {name: f"n{name[::-1]}" for each in nodes for name in each.output if name != "c3"}
        for each in nodes:
            each.input[:] = [new.get(name, name) for name in each.input]
            each.output[:] = [new.get(name, name) for name in each.output]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def computed(proto: onnx.ModelProto) -> list[tuple[str, bytes]]:
    """By node its operator and its values, which no name tells."""
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    values = run_all(proto, {"x": x})
    return [(each.op_type, values[each.output[0]].tobytes()) for each in proto.graph.node]


@given(st.permutations(range(8)), st.booleans())
def test_neither_the_order_nor_names_change_it(order, names) -> None:
    other = in_canonical_order(listed(net(), order, names))
    assert computed(other) == computed(in_canonical_order(net()))


@given(st.permutations(range(8)))
def test_the_files_own_order_is_found_again(order) -> None:
    proto = net()
    found = in_file_order(in_canonical_order(listed(proto, order)), proto.graph.node)
    assert [each.output[0] for each in found.graph.node] == [each.output[0] for each in proto.graph.node]


def test_a_new_node_comes_before_what_reads_it() -> None:
    proto = net()
    other = listed(proto, [*range(8)])
    other.graph.node[5].input[0] = "new"
    other.graph.node.add(op_type="Neg", input=["r1"], output=["new"])
    found = in_file_order(in_canonical_order(listed(other, [*range(9)])), proto.graph.node)
    assert [each.output[0] for each in found.graph.node] == ["c1", "r1", "c2", "r2", "r3", "new", "s", "t", "c3"]


def test_weights_alone_tell_branches_apart() -> None:
    swapped = net()
    for place, name in ((0, "c2"), (2, "c1")):
        swapped.graph.node[place].input[1:] = [f"{name}.w", f"{name}.b"]
    first, second = in_canonical_order(net()), in_canonical_order(swapped)
    assert [each.input[1] for each in first.graph.node if each.op_type == "Conv"] == [
        each.input[1] for each in second.graph.node if each.op_type == "Conv"
    ]
