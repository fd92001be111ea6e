"""Small nets whose data are not pictures, and a data loader for each: a waveform, token ids and mask, three inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUTS = {
    "audio": {"wave": (TensorProto.FLOAT, (1, 1, 64))},
    "tokens": {"ids": (TensorProto.INT64, (1, 12)), "mask": (TensorProto.INT64, (1, 12))},
    "three": {
        "a": (TensorProto.FLOAT, (1, 3, 6, 6)),
        "b": (TensorProto.FLOAT, (1, 2, 6, 6)),
        "state": (TensorProto.FLOAT, (1, 4)),
    },
}
LOADER = """
import numpy as np

def audio():
    for seed in range(3):
        yield {"wave": np.random.default_rng(seed).normal(size=(1, 1, 64))}

def tokens():
    return [
        {"ids": np.random.default_rng(seed).integers(0, 50, (1, 12)), "mask": np.arange(12)[None] < 6 + seed}
        for seed in range(3)
    ]

class three:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        draw = np.random.default_rng(index).normal
        return {"state": draw(size=4), "a": draw(size=(1, 3, 6, 6)), "b": draw(size=(1, 2, 6, 6)).astype(np.float32)}
"""


def write(folder: Path, name: str) -> None:
    """``name``.onnx and feeds.py."""
    node, rng = helper.make_node, np.random.default_rng(0)

    def weight(label: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), label)

    if name == "audio":
        nodes = [
            node("Conv", ["wave", "w1", "b1"], ["c1"], name="c1", strides=[4], pads=[4, 4]),
            node("Relu", ["c1"], ["r1"], name="r1"),
            node("Conv", ["r1", "w2"], ["c2"], name="c2", pads=[1, 1]),
            node("GlobalAveragePool", ["c2"], ["gap"], name="gap"),
            node("Flatten", ["gap"], ["flat"], name="flat"),
            node("Gemm", ["flat", "w3"], ["out"], name="fc", transB=1),
        ]
        weights = [weight("w1", 8, 1, 9), weight("b1", 8), weight("w2", 8, 8, 3), weight("w3", 5, 8)]
    elif name == "tokens":
        nodes = [
            node("Gather", ["table", "ids"], ["rows"], name="rows"),
            node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT, name="kept"),
            node("Unsqueeze", ["kept", "axis"], ["column"], name="column"),
            node("Mul", ["rows", "column"], ["masked"], name="masked"),
            node("MatMul", ["masked", "w1"], ["hidden"], name="hidden"),
            node("Relu", ["hidden"], ["relu"], name="relu"),
            node("ReduceMean", ["relu"], ["mean"], axes=[1], keepdims=0, name="mean"),
            node("Gemm", ["mean", "w2"], ["out"], name="fc", transB=1),
        ]
        axis = numpy_helper.from_array(np.array([2]), "axis")
        weights = [weight("table", 50, 16), axis, weight("w1", 16, 24), weight("w2", 4, 24)]
    else:
        nodes = [
            node("Conv", ["a", "w1"], ["c1"], name="c1", pads=[1, 1, 1, 1]),
            node("Relu", ["c1"], ["r1"], name="r1"),
            node("Conv", ["b", "w2"], ["c2"], name="c2", pads=[1, 1, 1, 1]),
            node("Add", ["r1", "c2"], ["sum"], name="sum"),
            node("Conv", ["sum", "w3"], ["c3"], name="c3"),
            node("GlobalAveragePool", ["c3"], ["gap"], name="gap"),
            node("Flatten", ["gap"], ["flat"], name="flat"),
            node("Concat", ["flat", "state"], ["joined"], axis=1, name="joined"),
            node("Gemm", ["joined", "w4"], ["out"], name="fc", transB=1),
        ]
        weights = [weight("w1", 6, 3, 3, 3), weight("w2", 6, 2, 3, 3), weight("w3", 7, 6, 1, 1), weight("w4", 3, 11)]
    inputs = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in INPUTS[name].items()]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, name, inputs, [output], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(proto), str(folder / f"{name}.onnx"))
    (folder / "feeds.py").write_text(LOADER)
