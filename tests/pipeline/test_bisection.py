"""The search for the first difference: planted faults are found, with few tensors dumped."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from small_nets import model, node, residual_net
from watched import Watched

from sgsdump.errors import ModelError
from sgsdump.executors.reference import ReferenceExecutor
from sgsdump.models.model import Model
from sgsdump.pipeline.bisection import Missing, bisect, bisect_executors, worst_relative
from sgsdump.pipeline.report_lines import bisection_lines
from sgsdump.pipeline.steps import Engine


@st.composite
def nets(draw: st.DrawFn, most: int = 300) -> tuple[Model, str]:
    """A net of 10 to ``most`` nodes with branches of one and two inputs, often short ones, and the planted tensor.

    Fed with ones every tensor is 1 but the end, and an error of any tensor reaches the end.
    """
    count = draw(st.integers(10, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    names, nodes, unread = ["x"], [], {"x"}
    for index in range(count):
        pool = sorted(unread) if rng.random() < 0.5 else names[-20:]
        kind = rng.integers(3)
        sources = [str(rng.choice(pool)), str(rng.choice(names[-8:]))][: 1 + (kind == 0)]
        if kind == 2 and rng.random() < 0.3:
            sources = ["x"]
        unread -= set(sources)
        name = f"t{index}"
        op = ("Mul", "Abs", "Mul")[kind]
        nodes.append(helper.make_node(op, [*sources, "w"][: 1 + (op == "Mul")], [name], name=f"n{index}"))
        names.append(name)
        unread.add(name)
    planted = str(rng.choice(names[1:]))
    ends = [name for name in names[1:] if name in unread]
    nodes.append(helper.make_node("Sum", ends, ["end"], name="end"))
    return model(nodes, {"w": np.float32([1])}, {"x": (4,)}, ["end"]), planted


def descendants(proto: onnx.ModelProto, name: str) -> set[str]:
    found = {name}
    for each in proto.graph.node:
        if found & set(each.input):
            found.add(each.output[0])
    return found


def few(proto: onnx.ModelProto, inputs: int) -> float:
    """The promise: twice log2 N for operators of two inputs, the graph's end, and the inputs of what was found."""
    wide = max(len(n.input) for n in proto.graph.node)
    return 2 * math.log2(len(proto.graph.node)) + 3 + inputs + (wide if wide > 2 else 0)


@given(nets())
def test_an_error_that_stays_is_found_where_it_was_made(net: tuple[Model, str]) -> None:
    proto, planted = net[0].proto, net[1]
    bad = descendants(proto, planted)
    asked: list[str] = []

    def differs(name: str) -> float:
        asked.append(name)
        return float(name in bad)

    result = bisect(proto, differs)
    assert result.first is not None
    assert result.first.name == planted
    assert result.first.node == planted.replace("t", "n")
    sources = {name for n in proto.graph.node if planted in n.output for name in n.input} - {"x", "w"}
    assert {(each.name, each.difference) for each in result.first.inputs} == {(name, 0) for name in sources}
    assert [each.name for each in result.tried] == asked
    assert len(asked) == len(set(asked)) <= few(proto, len(sources))
    assert result.in_all == len(proto.graph.node)


@given(nets(60), st.data())
def test_what_is_found_disagrees_and_its_inputs_agree_whatever_is_swallowed(
    net: tuple[Model, str], draw: st.DataObject
) -> None:
    """Errors swallowed anywhere, several culprits, and tensors that cannot be told."""
    proto = net[0].proto
    names = [n.output[0] for n in proto.graph.node]
    values = {name: draw.draw(st.sampled_from([0.0, 0.0, 1e-4, 1.0, math.inf, math.nan, None])) for name in names}
    result = bisect(proto, values.__getitem__)
    if result.first is None:
        assert not any(each.difference is not None and not each.difference <= 1e-3 for each in result.tried)
        assert values["end"] in (0.0, 1e-4, None)
        return
    assert not values[result.first.name] <= 1e-3
    for each in result.first.inputs:
        assert values[each.name] <= 1e-3


class Faulty(ReferenceExecutor):
    """The reference evaluator, but one tensor comes out 3 % too large."""

    name = "faulty"

    def __init__(self, planted: str):
        self.planted = planted

    def on_load(self, model, configs, folder):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for index, each in enumerate(model.graph.node):
            if self.planted in each.output:
                copy.graph.node[index].output[list(each.output).index(self.planted)] = "right"
                wrong = helper.make_node("Mul", ["right", "factor"], [self.planted])
                copy.graph.node.insert(index + 1, wrong)
                copy.graph.initializer.append(numpy_helper.from_array(np.float32(1.03), "factor"))
        super().on_load(copy, configs, folder)


@settings(max_examples=6)
@given(nets(40))
@pytest.mark.parametrize("mode", ["fast", "isolated"])
def test_a_planted_fault_between_two_executors(mode: str, net: tuple[Model, str]) -> None:
    check_planted(*net, mode)


def test_a_planted_fault_in_three_hundred_nodes() -> None:
    """A trunk of sixty blocks, each with two branches: t = sqrt(w t + mean(t, sqrt(t))); the fault is near its end."""
    last, nodes = "x", []
    for i in range(60):
        nodes += [
            node("Mul", [last, "w"], f"mul{i}"),
            node("Sqrt", [last], f"root{i}"),
            node("Mean", [last, f"root{i}"], f"mean{i}"),
            node("Sum", [f"mul{i}", f"mean{i}"], f"sum{i}"),
            node("Sqrt", [f"sum{i}"], f"t{i}"),
        ]
        last = f"t{i}"
    constants = {"w": np.float32([1.25])}
    net = model(nodes, constants, {"x": (4,)}, [last])
    check_planted(net, "mean54", "isolated")


def check_planted(model: Model, planted: str, mode: str) -> None:
    feed = {"x": np.ones(4, np.float32)}
    result = bisect_executors(model, Engine(Faulty(planted), mode), Engine("reference", mode), feed, 1e-5)
    assert result.first is not None
    assert result.first.name == planted
    assert result.first.difference == pytest.approx(0.03, rel=1e-3)
    assert len(result.tried) <= few(model.proto, 2)


def test_executors_that_agree() -> None:
    feed = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    progress = Watched()
    result = bisect_executors(residual_net(), Engine("reference"), Engine("ort"), feed, progress=progress)
    assert result.first is None
    assert result.in_all == 12
    assert progress.lines == [f"tried {each.name}: {each.difference:.3g}" for each in result.tried]
    assert all(each.difference < 1e-5 for each in result.tried)


class Refuses(ReferenceExecutor):
    """The reference evaluator without one of its operators."""

    name = "refuses"

    def __init__(self, op_type: str):
        self.op_type = op_type

    def on_load(self, model, configs, folder):
        if any(each.op_type == self.op_type for each in model.graph.node):
            raise ModelError(f"there is no {self.op_type}")
        super().on_load(model, configs, folder)


def test_what_only_one_executor_computes_differs() -> None:
    feed = {"data": np.ones((1, 3, 8, 8), np.float32)}
    why = "node 'pool' (MaxPool) cannot run: there is no MaxPool"
    for executor, reference in ((Refuses("MaxPool"), "ort"), ("ort", Refuses("MaxPool"))):
        progress = Watched()
        result = bisect_executors(residual_net(), Engine(executor), Engine(reference), feed, progress=progress)
        assert result.first is not None
        assert (result.first.name, result.first.difference) == ("pool", math.inf)
        assert result.first.missing == Missing(("refuses",), why, failed=True)
        assert all(each.difference < 1e-5 and each.missing is None for each in result.first.inputs)
        assert "tried pool: not given by refuses" in progress.lines
        (line, _) = bisection_lines(result, 1e-3)
        assert f"executor refuses does not compute this tensor: {why} (" in line


def test_what_neither_executor_computes_is_said() -> None:
    feed = {"data": np.ones((1, 3, 8, 8), np.float32)}
    result = bisect_executors(residual_net(), Engine(Refuses("MaxPool")), Engine(Refuses("MaxPool")), feed)
    assert result.first is None
    lines = bisection_lines(result, 1e-3)
    assert lines[0].startswith("computed by neither executor: prob: ") and lines[0].endswith("there is no MaxPool")
    assert lines[-1].startswith("none of the 5 tensors tried differs") and lines[-1].endswith("; 7 not checked")


def test_tensors_that_cannot_be_dumped_are_stepped_over() -> None:
    nodes = [
        node("Abs", ["x"], "a"),
        helper.make_node("SequenceConstruct", ["a", "x"], ["seq"]),
        helper.make_node("SequenceAt", ["seq", "zero"], ["b"]),
        node("Neg", ["b"], "c"),
    ]
    net = model(nodes, {"zero": np.array(0)}, {"x": (2,)}, ["c"])
    feed = {"x": np.array([1, 2], np.float32)}
    for planted in ("a", "b", "c"):
        result = bisect_executors(net, Engine(Faulty(planted)), Engine("ort"), feed)
        assert result.first is not None
        assert result.first.name == planted
        assert all(each.difference is None for each in result.tried if each.name == "seq")


def test_values_that_bodies_capture_are_inputs_too() -> None:
    info = [helper.make_tensor_value_info("s", TensorProto.FLOAT, [2])]
    body: Callable[[], onnx.GraphProto] = lambda: helper.make_graph(  # noqa: E731
        [helper.make_node("Neg", ["a"], ["s"])], "body", [], info
    )
    nodes = [
        node("Abs", ["x"], "a"),
        helper.make_node("If", ["yes"], ["b"], then_branch=body(), else_branch=body(), name="if"),
        node("Neg", ["b"], "c"),
    ]
    proto = model(nodes, {"yes": np.array(True)}, {"x": (2,)}, ["c"]).proto
    result = bisect(proto, lambda name: float(name in ("b", "c")))
    assert result.first is not None
    assert (result.first.name, result.first.node, result.first.op_type) == ("b", "if", "If")
    assert [each.name for each in result.first.inputs] == ["a"]


def test_worst_relative() -> None:
    def of(s: list, b: list, dtype: type = np.float32) -> float:
        return worst_relative(np.array(s, dtype), np.array(b, dtype))

    assert of([1, 2, 4.5], [1, 2, 4]) == 0.125
    assert of([1, -3], [1, -4], np.int8) == 0.25
    assert of([True, False], [True, True], np.bool_) == 1
    assert of([0, 0], [0, 0]) == 0
    assert of([1, 0], [0, 0]) == math.inf
    assert of([1, 2], [1, 2, 3]) == math.inf
    assert of([math.nan, 1], [math.nan, 1]) == 0
    assert of([math.nan, 1], [1, 1]) == math.inf
    assert of([1, 1], [math.inf, 1]) == math.inf
    assert of([-math.inf], [math.inf]) == math.inf
    assert of([math.inf, 2], [math.inf, 4]) == 0.5
    assert of([], []) == 0
    assert of([1 + 1j], [1], np.complex64) == 1
