"""Branches put in place: onnxruntime gives the same numbers, and onnx's checker agrees."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from branching_nets import DATA, RATED, body, branch, by_rate, feed, net
from onnx import TensorProto, helper
from small_nets import node

from sgsdump.models.passes.branches import Choice, choices, put_in_place, without_unread


def outputs_of(proto, values):
    session = ort.InferenceSession(proto.SerializeToString())
    known = {info.name for info in session.get_inputs()}
    return session.run(None, {name: array for name, array in values.items() if name in known})


def check(proto, placed, values):
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(placed))
    for before, after in zip(outputs_of(proto, values), outputs_of(placed, values), strict=True):
        np.testing.assert_array_equal(before, after)


def test_nested_branches_keep_their_names_where_these_are_free():
    proto = by_rate().proto
    before = proto.SerializeToString()
    (outer,) = choices(proto)
    assert outer == Choice("b.if", "If", ("is 16k",))
    placed = put_in_place(proto, {outer: "then"})
    (inner,) = choices(placed)
    assert inner == Choice("s.if", "If", ("small",))
    check(proto, placed, feed())
    both = put_in_place(placed, {inner: "then"})
    check(proto, both, feed())
    made = [name for made in both.graph.node for name in made.output]
    assert made == ["c1", "r1", "is 16k", "c2", "shape", "width", "small", "b", "c3", "gap", "y"]
    assert len({made.name for made in both.graph.node}) == len(both.graph.node)
    assert proto.SerializeToString() == before
    wrong = put_in_place(placed, {inner: "else"})
    assert not np.array_equal(outputs_of(wrong, feed())[0], outputs_of(proto, feed())[0])


def test_what_two_branches_call_alike_is_numbered():
    def one(value: float):
        inside = [node("Mul", ["x", "k"], "t"), node("Add", ["t", "data"], "o")]
        return body([node("Identity", ["data"], "x"), *inside], ["o"], {"k": np.float32([value])})

    nodes = [
        branch("yes", ["a"], one(2), one(3)),
        branch("no", ["b"], one(5), one(7)),
        node("Sum", ["a", "b"], "y"),
    ]
    proto = net(nodes, DATA, ["y"], {"yes": np.array(True), "no": np.array(False)}).proto
    first, second = choices(proto)
    placed = put_in_place(proto, {first: "then", second: "else"})
    check(proto, placed, feed())
    names = [name for made in placed.graph.node for name in made.output]
    assert names == ["x", "t", "a", "x__1", "t__1", "b", "y"]
    assert [tensor.name for tensor in placed.graph.initializer] == ["yes", "no", "k", "k__1"]


def test_outputs_that_are_weights_outer_values_or_one_tensor_twice():
    then = body([node("Neg", ["data"], "n")], ["n", "n", "w"], {"w": np.float32([4])})
    other = body([node("Abs", ["data"], "n")], ["n", "n", "n"])
    nodes = [branch("yes", ["a", "b", "c"], then, other), node("Sum", ["a", "b", "c"], "y")]
    proto = net(nodes, DATA, ["y", "b"], {"yes": np.array(True)}).proto
    (choice,) = choices(proto)
    placed = put_in_place(proto, {choice: "then"})
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(placed))
    y, b = outputs_of(placed, feed())
    np.testing.assert_array_equal(b, -feed()["data"])
    np.testing.assert_array_equal(y, (-feed()["data"] - feed()["data"] + 4).astype(np.float32))


def test_what_an_inner_body_captures_is_renamed_too():
    """``x`` of the branch becomes x__1; the If inside that stays reads it, and has an x of its own elsewhere."""
    deep = branch("low", ["z"], body([node("Neg", ["x"], "q")], ["q"]), body([node("Abs", ["x"], "q")], ["q"]))
    nodes = [
        node("Relu", ["data"], "x"),
        branch(
            "yes",
            ["a"],
            body([node("Exp", ["data"], "x"), deep], ["z"]),
            body([node("Log", ["data"], "o")], ["o"]),
        ),
        node("Add", ["a", "x"], "y"),
    ]
    constants = {"yes": np.array(True), "low": np.array(True)}
    proto = net(nodes, DATA, ["y"], constants).proto
    # onnxruntime refuses the name that hides another, so the oracle is the formula
    placed = put_in_place(proto, {choices(proto)[0]: "then"})
    data = feed()["data"]
    np.testing.assert_allclose(outputs_of(placed, feed())[0], -np.exp(data) + np.maximum(data, 0), rtol=1e-6)


@pytest.mark.parametrize("opset", [11, 17])
def test_a_loop_that_runs_once(opset):
    inside = helper.make_graph(
        [
            node("Cast", ["i"], "f", to=TensorProto.FLOAT),
            node("Sum", ["state", "data", "f", "two"], "next"),
            node("Identity", ["go"], "again"),
            node("Neg", ["next"], "row"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, None),
        ],
    )
    loop = helper.make_node("Loop", ["count", "", "data"], ["last", "rows"], name="loop", body=inside)
    nodes = [loop, node("Relu", ["last"], "y")]
    proto = net(nodes, DATA, ["y", "rows"], {"count": np.array(1), "two": np.float32([2])}, opset).proto
    (choice,) = choices(proto)
    assert choice == Choice("loop", "Loop", ("count", ""))
    assert choice.taken({"count": np.array(1)}) == "once" and choice.taken({"count": np.array(2)}) == ""
    placed = put_in_place(proto, {choice: "once"})
    check(proto, placed, feed())
    assert not choices(placed)


def test_what_only_decided_goes():
    proto = by_rate().proto
    placed = put_in_place(proto, {choices(proto)[0]: "then"})
    kept = without_unread(placed, ["is 16k", "c2", "no such"])
    assert {"is 16k"} == {name for made in placed.graph.node for name in made.output} - {
        name for made in kept.graph.node for name in made.output
    }
    assert [info.name for info in kept.graph.input] == list(RATED)
