"""Which branches are taken is found from the data; a guard finds data that would take others."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from branching_nets import DATA, OTHER_RATE, RATE, RATED, body, branch, by_rate, feed, net
from onnx import TensorProto
from small_nets import node, residual_net

from sgsdump.errors import InputError, ModelError
from sgsdump.executors.onnx_runtime.observed_branches import KEY, BranchGuard, settled, with_branches
from sgsdump.models.graph import Graph
from sgsdump.models.passes.branches import DIFFERS, SEVERAL_TIMES, UNKNOWN, choices


def given(*feeds):
    return lambda: iter([(str(number), each) for number, each in enumerate(feeds)])


def taken(model):
    return {choice.node: how for choice, how in model.branches.taken.items()}


def staying(model):
    return {choice.node: why for choice, why in model.branches.staying.items()}


def test_all_feeds_take_the_same():
    for rate, found in ((RATE, {"b.if": "then", "s.if": "then"}), (OTHER_RATE, {"b.if": "else"})):
        model = with_branches(by_rate(), given(feed(rate), feed(rate, 1), feed(rate, 2)))
        assert taken(model) == found and not staying(model) and model.branches.feeds == 3
        assert not choices(model.proto)
        values = feed(rate, 7)
        for proto in (model.proto, settled(model, given(feed(rate))).proto):
            np.testing.assert_array_equal(
                ort.InferenceSession(proto.SerializeToString()).run(None, values)[0],
                ort.InferenceSession(by_rate().proto.SerializeToString()).run(None, values)[0],
            )
    assert "replaced by the branch that all 3 inputs take: b.if (else)" in model.branches.sentences()


def test_feeds_that_differ_leave_the_if_and_what_is_inside():
    model = with_branches(by_rate(), given(feed(RATE), feed(RATE, 1), feed(OTHER_RATE)))
    assert staying(model) == {"b.if": DIFFERS} and not taken(model)
    assert model.proto.SerializeToString() == by_rate().proto.SerializeToString()
    assert model.branches.sentences() == [
        "b.if (If) stays: different inputs take different branches; its inner tensors are neither dumped nor quantised"
    ]


def test_an_if_after_one_that_differs_is_looked_at_again():
    """By the first feed's branch of ``a`` the second feed would seem to differ in ``b``, too."""
    nodes = [
        node("ReduceMax", ["data"], "top", keepdims=0),
        node("Greater", ["top", "zero"], "is high"),
        branch(
            "is high", ["a"], body([node("Neg", ["top"], "n")], ["n"]), body([node("Mul", ["top", "one"], "n")], ["n"])
        ),
        node("Less", ["a", "zero"], "is low"),
        branch("is low", ["b"], body([node("Exp", ["a"], "e")], ["e"]), body([node("Abs", ["a"], "e")], ["e"])),
    ]
    model = net(nodes, DATA, ["b"], {"zero": np.float32(0), "one": np.float32(1)})
    high, low = (np.full((1, 3, 8, 8), value, np.float32) for value in (2, -3))
    found = with_branches(model, given({"data": high}, {"data": low}))
    assert staying(found) == {"a.if": DIFFERS} and taken(found) == {"b.if": "then"}


def test_a_condition_that_fails_and_a_loop_of_several_rounds_stay():
    nodes = [
        node("Gather", ["sizes", "sr"], "size"),
        node("Equal", ["size", "sr"], "is"),
        branch("is", ["a"], body([node("Exp", ["data"], "e")], ["e"]), body([node("Abs", ["data"], "e")], ["e"])),
        branch("flag", ["b"], body([node("Exp", ["a"], "e")], ["e"]), body([node("Abs", ["a"], "e")], ["e"])),
    ]
    inputs = {**RATED, "flag": (TensorProto.BOOL, [])}
    model = net(nodes, inputs, ["b"], {"sizes": np.array([4, 5])})
    found = with_branches(model, given({**feed(RATE), "flag": np.array(False)}))
    assert staying(found) == {"a.if": UNKNOWN} and taken(found) == {"b.if": "else"}
    assert SEVERAL_TIMES not in staying(found).values()
    # and an input that is the condition itself is guarded
    guard = BranchGuard(settled(found, given({**feed(RATE), "flag": np.array(False)})))
    guard.check({"flag": np.array(False)})
    with pytest.raises(InputError, match=r"b\.if"):
        guard.check({"flag": np.array(True)})


def test_nothing_is_looked_at_without_an_if():
    model = residual_net()
    assert with_branches(model, lambda: pytest.fail("the data were read")) is model
    assert settled(model, lambda: pytest.fail("the data were read")) is model


def test_the_guard_is_small_and_finds_other_branches():
    feeds = given(feed(), feed(seed=1))
    model = settled(with_branches(by_rate(), feeds), feeds)
    assert model.branches.checked and "is 16k" not in Graph(model.proto).producer
    (text,) = [entry.value for entry in model.proto.metadata_props if entry.key == KEY]
    guard = onnx.ModelProto.FromString(base64.b64decode(json.loads(text)["guard"]))
    assert [each.op_type for each in guard.graph.node] == ["Equal"]  # the sizes fold away
    BranchGuard(model).check(feed(seed=5))
    with pytest.raises(
        InputError, match=r"cat\.jpg: with these inputs, If 'b\.if' takes a different branch than 'then'"
    ):
        BranchGuard(model).check(feed(OTHER_RATE), "cat.jpg")


def test_sizes_that_decide_are_fixed_where_all_feeds_have_them():
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "one"], "length"),
        node("Less", ["length", "limit"], "is short"),
        branch("is short", ["y"], body([node("Exp", ["x"], "e")], ["e"]), body([node("Abs", ["x"], "e")], ["e"])),
    ]
    model = net(nodes, {"x": (TensorProto.FLOAT, [1, "n"])}, ["y"], {"one": np.array(1), "limit": np.array(10)})
    short, longer, long = ({"x": np.ones((1, n), np.float32)} for n in (4, 6, 20))
    same = settled(with_branches(model, given(short, short)), given(short, short))
    assert Graph(same.proto).shapes["x"] == (1, 4)
    both = settled(with_branches(model, given(short, longer)), given(short, longer))
    assert Graph(both.proto).shapes["x"] == (1, None)
    BranchGuard(both).check({"x": np.ones((1, 8), np.float32)})
    with pytest.raises(InputError, match=r"y\.if"):
        BranchGuard(both).check(long)
    assert staying(with_branches(model, given(short, long))) == {"y.if": DIFFERS}


def test_damaged_metadata_are_one_line():
    feeds = given(feed())
    model = settled(with_branches(by_rate(), feeds), feeds)
    outside = onnx.ModelProto()
    outside.graph.initializer.add(name="w", data_location=onnx.TensorProto.EXTERNAL).external_data.add(
        key="location", value="../secret"
    )
    (whole,) = [entry.value for entry in model.proto.metadata_props if entry.key == KEY]
    elsewhere = {**json.loads(whole), "guard": base64.b64encode(outside.SerializeToString()).decode()}
    for text in ("", "[]", "{", whole[:-9], '{"taken": [[1]], "guard": ""}', json.dumps(elsewhere)):
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        for entry in proto.metadata_props:
            entry.value = text if entry.key == KEY else entry.value
        with pytest.raises(ModelError, match=KEY):
            BranchGuard(replace(model, proto=proto))
