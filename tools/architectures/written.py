"""Small networks whose data are not pictures, written node by node, with drawn weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Inputs = dict[str, tuple[int, tuple[int, ...]]]


class _Weights:
    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)
        self.made: list[onnx.TensorProto] = []

    def draw(self, name: str, *shape: int, spread: float = 0.3) -> str:
        self.made.append(numpy_helper.from_array(self._rng.normal(0, spread, shape).astype(np.float32), name))
        return name

    def keep(self, name: str, values: object) -> str:
        self.made.append(numpy_helper.from_array(np.array(values), name))
        return name


def _model(nodes: list[onnx.NodeProto], inputs: Inputs, output: str, weights: _Weights) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(output, FLOAT, None)],
        weights.made,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


def _node(kind: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], name=output, **attributes)


def audio(seed: int = 0) -> onnx.ModelProto:
    """Convolutions over a waveform."""
    w = _Weights(seed)
    nodes = [
        _node("Conv", ["wave", w.draw("w1", 8, 1, 9), w.draw("b1", 8)], "c1", strides=[4], pads=[4, 4]),
        _node("Relu", ["c1"], "r1"),
        _node("Conv", ["r1", w.draw("w2", 8, 8, 3), w.draw("b2", 8)], "c2", pads=[1, 1]),
        _node("Relu", ["c2"], "r2"),
        _node("GlobalAveragePool", ["r2"], "gap"),
        _node("Flatten", ["gap"], "flat"),
        _node("Gemm", ["flat", w.draw("w3", 5, 8), w.draw("b3", 5)], "out", transB=1),
    ]
    return _model(nodes, {"wave": (FLOAT, (1, 1, 256))}, "out", w)


def tokens(seed: int = 0) -> onnx.ModelProto:
    """An embedding, a mask, a hidden layer, a mean over the sequence."""
    w = _Weights(seed)
    nodes = [
        _node("Gather", [w.draw("table", 50, 16, spread=1.0), "ids"], "rows"),
        _node("Cast", ["mask"], "kept", to=FLOAT),
        _node("Unsqueeze", ["kept", w.keep("axis", [2])], "column"),
        _node("Mul", ["rows", "column"], "masked"),
        _node("MatMul", ["masked", w.draw("w1", 16, 24)], "hidden"),
        _node("Relu", ["hidden"], "relu"),
        _node("ReduceMean", ["relu"], "mean", axes=[1], keepdims=0),
        _node("Gemm", ["mean", w.draw("w2", 4, 24), w.draw("b2", 4)], "out", transB=1),
    ]
    return _model(nodes, {"ids": (INT64, (1, 12)), "mask": (INT64, (1, 12))}, "out", w)


def three_inputs(seed: int = 0) -> onnx.ModelProto:
    """Two planes of features and a vector, joined."""
    w = _Weights(seed)
    nodes = [
        _node("Conv", ["a", w.draw("w1", 6, 3, 3, 3), w.draw("b1", 6)], "c1", pads=[1] * 4),
        _node("Relu", ["c1"], "r1"),
        _node("Conv", ["b", w.draw("w2", 6, 2, 3, 3), w.draw("b2", 6)], "c2", pads=[1] * 4),
        _node("Add", ["r1", "c2"], "sum"),
        _node("Conv", ["sum", w.draw("w3", 7, 6, 1, 1), w.draw("b3", 7)], "c3"),
        _node("GlobalAveragePool", ["c3"], "gap"),
        _node("Flatten", ["gap"], "flat"),
        _node("Concat", ["flat", "state"], "joined", axis=1),
        _node("Gemm", ["joined", w.draw("w4", 3, 11), w.draw("b4", 3)], "out", transB=1),
    ]
    return _model(nodes, {"a": (FLOAT, (1, 3, 8, 8)), "b": (FLOAT, (1, 2, 8, 8)), "state": (FLOAT, (1, 4))}, "out", w)


def recurrent(kind: str, seed: int = 0) -> onnx.ModelProto:
    """An LSTM or a GRU over a sequence, and a layer on its last step."""
    w, gates = _Weights(seed), {"LSTM": 4, "GRU": 3}[kind]
    parts = [w.draw("w", 1, gates * 16, 8), w.draw("r", 1, gates * 16, 16), w.draw("b", 1, gates * 32)]
    nodes = [
        helper.make_node(kind, ["sequence", *parts], ["", "last"], name="cell", hidden_size=16),
        _node("Squeeze", ["last", w.keep("axis", [0])], "flat"),
        _node("Gemm", ["flat", w.draw("w2", 3, 16), w.draw("b2", 3)], "out", transB=1),
    ]
    return _model(nodes, {"sequence": (FLOAT, (10, 1, 8))}, "out", w)


def branches(seed: int = 0) -> onnx.ModelProto:
    """An If on an input, a convolution in each branch."""
    w = _Weights(seed)
    w.draw("w1", 4, 3, 3, 3)
    w.draw("w2", 4, 3, 3, 3)
    ends = [helper.make_tensor_value_info(f"y{n}", FLOAT, (1, 4, 8, 8)) for n in (1, 2)]
    bodies = [
        helper.make_graph([_node("Conv", ["x", f"w{n}"], f"y{n}", pads=[1] * 4)], f"branch{n}", [], [ends[n - 1]])
        for n in (1, 2)
    ]
    nodes = [
        helper.make_node("If", ["fast"], ["chosen"], name="if", then_branch=bodies[0], else_branch=bodies[1]),
        _node("Relu", ["chosen"], "relu"),
        _node("Conv", ["relu", w.draw("w3", 2, 4, 1, 1)], "out"),
    ]
    return _model(nodes, {"x": (FLOAT, (1, 3, 8, 8)), "fast": (TensorProto.BOOL, ())}, "out", w)
