"""Models written in versions that the installed onnxruntime does not take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime import session
from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph, WholeGraph
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.table import open_executor
from sgsdump.models.model import Model
from sgsdump.pipeline.run import run, run_once
from sgsdump.pipeline.steps import MODES, Engine, ExecutorConfigs

X = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)


def split(ir_version: int, opset: int, functions: bool = False) -> onnx.ModelProto:
    """a, b = Split(x), c = Relu(a); Relu in a function of the model's own."""
    opsets = [helper.make_opsetid("", opset)]
    relu, own = helper.make_node("Relu", ["a"], ["c"]), []
    if functions:
        own = [helper.make_function("own", "Mine", ["i"], ["o"], [helper.make_node("Relu", ["i"], ["o"])], opsets)]
        relu = helper.make_node("Mine", ["a"], ["c"], domain="own")
        opsets.append(helper.make_opsetid("own", 1))
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2, axis=1), relu]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [2, 4])], [info("c", 1, None)])
    return helper.make_model(graph, ir_version=ir_version, opset_imports=opsets, functions=own)


NEWEST = (onnx.IR_VERSION, onnx.defs.onnx_opset_version())


@pytest.mark.parametrize("functions", [False, True])
def test_a_model_of_todays_onnx_runs(functions: bool) -> None:
    proto = split(*NEWEST, functions)
    before = proto.SerializeToString()
    arrays = {layer.name: layer.array for layer in SegmentRunner(Model(proto, Path("net.onnx"))).run({"x": X})}
    np.testing.assert_array_equal(arrays["c"], np.maximum(X[:, :2], 0))
    np.testing.assert_array_equal(arrays["b"], X[:, 2:])
    with open_executor("ort") as executor:
        executor.load_model(proto)
        np.testing.assert_array_equal(executor.execute(["c"], {"x": X})[0], arrays["c"])
    assert proto.SerializeToString() == before


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """An onnxruntime that takes IR version 10 and opset 22."""
    monkeypatch.setattr(session, "newest_ir", lambda: 10)
    monkeypatch.setattr(session, "newest_opset", lambda: 22)


def test_versions_are_lowered_where_no_operator_changed(older: None) -> None:
    header = session.header(split(13, 25))
    assert (header.ir_version, header.opset_import[0].version) == (10, 22)
    header = session.header(split(13, 25, functions=True))
    assert [each.version for each in (header.opset_import[0], header.functions[0].opset_import[0])] == [22, 22]
    header = session.header(split(8, 18))
    assert (header.ir_version, header.opset_import[0].version) == (8, 18)


@pytest.mark.parametrize("inside", [False, True])
def test_an_operator_that_changed_since_is_named(older: None, inside: bool) -> None:
    proto = split(10, 23)
    changed = helper.make_node("RMSNormalization", ["a", "s"], ["d"])  # new in opset 23
    if inside:
        body = helper.make_graph([changed], "body", [], [helper.make_tensor_value_info("d", 1, None)])
        changed = helper.make_node("Mine", ["x"], ["e"], domain="own", then_branch=body)
    proto.graph.node.append(changed)
    wanted = "RMSNormalization changed in opset 23; onnxruntime .* supports opsets up to 22"
    with pytest.raises(ModelError, match=wanted):
        SegmentRunner(Model(proto, Path("net.onnx")))


def test_an_operator_that_only_takes_more_types_is_the_same(older: None) -> None:
    proto = split(10, 23)
    proto.graph.node.append(helper.make_node("Identity", ["a"], ["d"]))  # opset 23 added float4e2m1
    assert session.header(proto).opset_import[0].version == 22


def test_an_opset_that_nobody_knows(older: None) -> None:
    with pytest.raises(ModelError, match=r"the model has opset 999; onnxruntime .* supports opsets up to 22"):
        session.header(split(10, 999))


def test_what_the_installed_onnxruntime_takes_is_found() -> None:
    assert session.newest_ir() >= 10
    assert session.newest_opset() >= 21
    assert session._loads(session.newest_ir(), session.newest_opset())
    assert not session._loads(onnx.IR_VERSION + 50, 17)


@pytest.mark.parametrize("opset", [25, 999])
def test_one_line_says_it_whatever_the_options(older: None, opset: int, tmp_path: Path) -> None:
    """``-f ort --option threads=1`` runs the model part by part; the line is not one for each tensor."""
    proto = split(10, opset)
    if opset == 25:
        proto.graph.node.append(helper.make_node("RMSNormalization", ["a", "s"], ["d"]))
        proto.graph.input.append(helper.make_tensor_value_info("s", 1, [2]))
    feed = {"x": X, "s": np.ones(2, np.float32)} if opset == 25 else {"x": X}
    model = Model(proto, Path("net.onnx"))
    for configs in (ExecutorConfigs(), ExecutorConfigs({"threads": 1})):
        for mode in MODES:
            with pytest.raises(ModelError, match="supports opsets up to 22"):
                list(run(model, Engine("ort", mode, configs), feed))
    with pytest.raises(ModelError, match="supports opsets up to 22"):
        run_once(model, Engine(configs=configs), feed, ["c"] if opset == 999 else ["c", "d"])


@pytest.mark.parametrize("functions", [False, True])
def test_trying_plans_takes_todays_versions_too(functions: bool) -> None:
    proto = split(*NEWEST, functions)
    before = proto.SerializeToString()
    (c,) = WholeGraph(proto).run({"x": X}, ["c"]).values()
    np.testing.assert_array_equal(c, np.maximum(X[:, :2], 0))
    staged = StagedGraph(proto, [1], {"x"}, ["c"])
    live = {"x": StagedGraph.hold(X)}
    for stage, entry in enumerate(staged.entries()):
        live |= staged.run(stage, live, entry)
    np.testing.assert_array_equal(staged.arrays(live)["c"], c)
    assert proto.SerializeToString() == before


def test_a_model_without_an_operator_set_is_refused_before_onnxruntime_is_asked():
    proto = split(3, 17)
    del proto.opset_import[:]
    with pytest.raises(ModelError, match=r"declares no operator set, so the model is older than ONNX 1\.0"):
        session.header(proto)
