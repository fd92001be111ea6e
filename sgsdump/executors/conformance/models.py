"""The small models that the conformance tests of executors run, their feeds, and what numpy makes of these."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feed = dict[str, np.ndarray]
FLOAT = TensorProto.FLOAT
# In the order of the graph; names as exporters write them.
OUTPUTS = ["block/conv.1", "relu:0", "pooled", "flat", "scores", "best", "picked", "not keep"]


def small_model(outputs: list[str] | None = None, batch: int | str = 1) -> onnx.ModelProto:
    """Inputs ``x/in`` float32 [batch, 3, 4, 6], ``index`` int64 [2], ``keep`` bool [1]; outputs OUTPUTS, untyped."""
    nodes = [
        helper.make_node("Conv", ["x/in", "conv.w", "conv.b"], ["block/conv.1"], "block/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["block/conv.1"], ["relu:0"], "relu"),
        helper.make_node("GlobalAveragePool", ["relu:0"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["scores"], "fc", transB=1),
        helper.make_node("ArgMax", ["scores"], ["best"], "best", axis=1, keepdims=0),
        helper.make_node("Gather", ["scores", "index"], ["picked"], "pick", axis=1),
        helper.make_node("Not", ["keep"], ["not keep"], "negate"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info("x/in", FLOAT, [batch, 3, 4, 6]),
            helper.make_tensor_value_info("index", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, [1]),
        ],
        [onnx.ValueInfoProto(name=name) for name in (OUTPUTS if outputs is None else outputs)],
        [numpy_helper.from_array(array, name) for name, array in _weights().items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def small_feed(seed: int = 0, batch: int = 1) -> Feed:
    rng = np.random.default_rng(seed)
    return {
        "x/in": rng.normal(size=(batch, 3, 4, 6)).astype(np.float32),
        "index": np.array([seed % 5, 4], np.int64),
        "keep": np.array([seed % 2 == 0]),
    }


def small_outputs(feed: Feed) -> Feed:
    """What ``small_model`` makes of a feed, by numpy in float64."""
    weights = {name: array.astype(np.float64) for name, array in _weights().items()}
    padded = np.pad(feed["x/in"].astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    conv = np.einsum("nchwij,ocij->nohw", windows, weights["conv.w"]) + weights["conv.b"][:, None, None]
    relu = np.maximum(conv, 0)
    pooled = relu.mean(axis=(2, 3), keepdims=True)
    flat = pooled.reshape(len(pooled), -1)
    scores = flat @ weights["fc.w"].T + weights["fc.b"]
    floats = [conv, relu, pooled, flat, scores]
    rest = [scores.argmax(axis=1), scores[:, feed["index"]].astype(np.float32), ~feed["keep"]]
    return dict(zip(OUTPUTS, [*(array.astype(np.float32) for array in floats), *rest]))


def other_model(width: int = 2) -> onnx.ModelProto:
    """``b = a + a``, float32 [1, width]."""
    return _model([helper.make_node("Add", ["a", "a"], ["b"], "add")], width)


def broken_model(op_type: str) -> onnx.ModelProto:
    """A model with one node ``odd`` that no back-end can run on ``a``, float32 [1, 2]."""
    return _model([helper.make_node(op_type, ["a", "a"], ["b"], "odd")], 2)


def _model(nodes: list[onnx.NodeProto], width: int) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("a", FLOAT, [1, width])]
    graph = helper.make_graph(nodes, "other", inputs, [onnx.ValueInfoProto(name="b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _weights() -> Feed:
    rng = np.random.default_rng(7)
    shapes = {"conv.w": (4, 3, 3, 3), "conv.b": (4,), "fc.w": (5, 4), "fc.b": (5,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
