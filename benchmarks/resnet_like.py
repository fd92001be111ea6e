"""A ResNet-50-like ONNX model with seeded random weights, BatchNormalization kept: 176 tensors, 25.6 million weights.

    python benchmarks/resnet_like.py OUT.onnx [WIDTH]

WIDTH is the number of channels of the first stage, 64 in ResNet-50.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STAGES = ((3, 1), (4, 2), (6, 2), (3, 2))  # bottlenecks, stride of the first one


class _Net:
    """Nodes and weights, collected while the layers are laid."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def add(self, op_type: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def conv(self, x: str, name: str, channels: tuple[int, int], kernel: int, stride: int) -> str:
        """Convolution and BatchNormalization."""
        inputs, outputs = channels
        spread = np.sqrt(2 / (inputs * kernel * kernel))
        values = self.random.standard_normal((outputs, inputs, kernel, kernel), np.float32) * spread
        weight = self.weight(f"{name}.weight", values)
        side = kernel // 2
        x = self.add("Conv", [x, weight], name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[side] * 4)
        norm = [
            self.weight(f"{name}.{key}", base + 0.1 * self.random.random(outputs))
            for key, base in (("scale", 0.5), ("bias", 0.0), ("mean", 0.0), ("var", 1.0))
        ]
        return self.add("BatchNormalization", [x, *norm], f"{name}.bn")

    def bottleneck(self, x: str, name: str, inputs: int, inner: int, stride: int) -> str:
        y = self.add("Relu", [self.conv(x, f"{name}.conv1", (inputs, inner), 1, 1)], f"{name}.relu1")
        y = self.add("Relu", [self.conv(y, f"{name}.conv2", (inner, inner), 3, stride)], f"{name}.relu2")
        y = self.conv(y, f"{name}.conv3", (inner, inner * 4), 1, 1)
        if inputs != inner * 4:
            x = self.conv(x, f"{name}.down", (inputs, inner * 4), 1, stride)
        return self.add("Relu", [self.add("Add", [y, x], f"{name}.add")], f"{name}.relu3")


def resnet_like(width: int = 64) -> onnx.ModelProto:
    """The model; input ``data``, float32 [N, 3, 224, 224], output ``prob`` [N, 1000]."""
    net = _Net()
    x = net.add("Relu", [net.conv("data", "stem", (3, width), 7, 2)], "stem.relu")
    x = net.add("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage, (count, stride) in enumerate(STAGES):
        inner = width << stage
        for block in range(count):
            x = net.bottleneck(x, f"stage{stage + 1}.{block}", channels, inner, stride if block == 0 else 1)
            channels = inner * 4
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x], "gap")], "flat")
    fc = net.weight("fc.weight", net.random.standard_normal((1000, channels), np.float32) * 0.02)
    x = net.add("Gemm", [x, fc, net.weight("fc.bias", np.zeros(1000))], "fc", transB=1)
    net.add("Softmax", [x], "prob")
    graph = helper.make_graph(
        net.nodes,
        "resnet_like",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, ["N", 1000])],
        net.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(resnet_like(*map(int, sys.argv[2:])).SerializeToString())
