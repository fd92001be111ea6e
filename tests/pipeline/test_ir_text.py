"""The printed graph: readable back by onnx's own parser, with types behind every node and no weights' values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import model, node, residual_net

from sgsdump.errors import ConfigError
from sgsdump.executors.base import Executor
from sgsdump.pipeline.ir_text import executor_text, ir_text


def plain(node: onnx.NodeProto) -> tuple:
    return node.name, node.op_type, [*node.input], [*node.output], [str(a) for a in node.attribute]


def test_the_text_is_the_graph() -> None:
    proto = residual_net().proto
    text = ir_text(proto, ["prob"])
    read = onnx.parser.parse_model(text)
    assert [plain(n) for n in read.graph.node] == [plain(n) for n in proto.graph.node]
    assert "  # float[1,8,4,4] pool" in text
    assert 'float[8,3,3,3] "c1.w",' in text
    first = numpy_helper.to_array(proto.graph.initializer[0]).ravel()[0]
    assert str(first)[:6] not in text


def test_the_last_nodes_only() -> None:
    text = ir_text(residual_net().proto, ["r2"], depth=2)
    assert "net (float[1,8,8,8] r1, float[1,8,8,8] c2) => (float[1,8,8,8] r2)" in text
    assert [line.split("= ")[1].split()[0] for line in text.splitlines() if "  # " in line] == ["Add", "Relu"]
    with pytest.raises(ConfigError, match="depth of 0"):
        ir_text(residual_net().proto, ["r2"], depth=0)
    with pytest.raises(ConfigError, match="did you mean 'r2'"):
        ir_text(residual_net().proto, ["r22"])


def test_small_parameters_are_shown_and_big_constants_are_not() -> None:
    big = numpy_helper.from_array(np.arange(100, dtype=np.float32), "v")
    half = numpy_helper.from_array(np.ones(2, np.float16), "h")
    nodes = [
        helper.make_node("Constant", [], ["big"], value=big),
        helper.make_node("Constant", [], ["half"], value=half),
        node("Reshape", ["x", "shape"], "flat"),
        node("Add", ["flat", "big"], "sum"),
        helper.make_node("Odd", ["sum", "half"], ["a/b 0"], domain="my"),
    ]
    proto = model(nodes[:-1], {"shape": np.array([-1, 100])}, {"x": (10, 20)}, []).proto
    proto.graph.node.append(nodes[-1])
    proto.opset_import.append(helper.make_opsetid("my", 1))
    text = ir_text(proto, ["a/b 0"])
    assert "int64[2] shape = {-1,100}" in text
    assert "big = Constant <value: tensor = float[100] v {}>" in text
    assert "15360" not in text
    assert '"a/b 0" = my.Odd (sum, half)  # the type is not known' in text
    assert onnx.parser.parse_model(text).graph.node[-1].output[0] == "a/b 0"


def test_functions_and_bodies_are_printed() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    twice = helper.make_function("my", "Twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])], opsets)
    value = numpy_helper.from_array(np.arange(50, dtype=np.float32), "k")
    inside = [helper.make_node("Add", ["x", "k"], ["s"])]
    info = helper.make_tensor_value_info("s", TensorProto.FLOAT, [50])
    body = helper.make_graph(inside, "body", [], [info], [value])
    nodes = [
        helper.make_node("If", ["yes"], ["a"], then_branch=body, else_branch=body),
        helper.make_node("Twice", ["a"], ["b"], domain="my"),
    ]
    proto = model(nodes[:1], {"yes": np.array(True)}, {"x": (50,)}, []).proto
    proto.graph.node.append(nodes[1])
    proto.opset_import.append(opsets[1])
    proto.functions.append(twice)
    text = ir_text(proto, ["b"])
    assert "s = Add (x, k)" in text
    assert "Twice (p) => (q)" in text
    assert "49" not in text


class Talking(Executor):
    name = "talking"

    def on_load(self, model, configs, folder):
        self.text = " ".join(n.op_type for n in model.graph.node)

    def on_execute(self, output_names, feed, configs):
        return []

    def ir_text(self):
        return self.text


class Silent(Executor):
    name = "silent"

    def on_load(self, model, configs, folder): ...

    def on_execute(self, output_names, feed, configs):
        return []


def test_an_executors_own_text() -> None:
    assert executor_text(residual_net(), Talking(), ["r2"], depth=3) == "Conv Add Relu"
    with pytest.raises(ConfigError, match="silent has no"):
        executor_text(residual_net(), Silent(), ["r2"])


def test_relax() -> None:
    pytest.importorskip("tvm", reason="Apache TVM (the extra tvm) is not installed")
    from sgsdump.executors.table import open_executor

    text = executor_text(residual_net(), open_executor("tvm"), ["r1"])
    assert "R.nn.conv2d" in text
    assert "R.nn.relu" in text
