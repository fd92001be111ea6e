"""A MobileNet and a U-Net, as small as they keep their structure."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from architectures.drawn import with_weights


class _Net:
    """Nodes one behind the other, and the dimensions of the weights they read."""

    def __init__(self, channels: int = 3):
        self.nodes: list[onnx.NodeProto] = []
        self.dims: dict[str, tuple[int, ...]] = {}
        self.channels = {"data": channels}

    def add(self, op_type: str, inputs: list[str], channels: int, **attributes: object) -> str:
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def conv(self, source: str, channels: int, kernel: int = 3, stride: int = 1, depthwise: bool = False) -> str:
        """Convolution and BatchNormalization."""
        before, at = self.channels[source], len(self.nodes)
        self.dims[f"w{at}"] = (channels, 1 if depthwise else before, kernel, kernel)
        self.dims |= {f"bn{at}.{part}": (channels,) for part in ("scale", "bias", "mean", "var")}
        shape = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": before if depthwise else 1}
        made = self.add("Conv", [source, f"w{at}"], channels, **shape)
        return self.add("BatchNormalization", [made, *(n for n in self.dims if n.startswith(f"bn{at}."))], channels)

    def relu(self, source: str, most: float | None = None) -> str:
        if most is None:
            return self.add("Relu", [source], self.channels[source])
        return self.add("Clip", [source, "zero", "six"], self.channels[source])

    def model(self, output: str, size: int, seed: int) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info("data", TensorProto.FLOAT, (1, self.channels["data"], size, size))]
        constants = [
            helper.make_tensor("zero", TensorProto.FLOAT, (), [0.0]),
            helper.make_tensor("six", TensorProto.FLOAT, (), [6.0]),
            helper.make_tensor("twice", TensorProto.FLOAT, (4,), [1.0, 1.0, 2.0, 2.0]),
        ]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "net", ends, outputs, constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        return onnx.shape_inference.infer_shapes(with_weights(proto, self.dims, seed))


# Of MobileNet v2: expansion, channels, repeats, stride.
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet(size: int = 224, blocks: int = len(BLOCKS), seed: int = 0) -> onnx.ModelProto:
    """MobileNet v2: inverted residuals with depthwise convolutions and ReLU6; a part of its blocks for a small one."""
    net = _Net()
    top = net.relu(net.conv("data", 32, stride=2), 6)
    for expansion, channels, repeats, stride in BLOCKS[:blocks]:
        for index in range(repeats):
            top = _inverted(net, top, expansion, channels, stride if index == 0 else 1)
    top = net.relu(net.conv(top, 4 * net.channels[top], kernel=1), 6)
    width = net.channels[top]
    top = net.add("Flatten", [net.add("GlobalAveragePool", [top], width)], width)
    net.dims |= {"fc.w": (100, width), "fc.b": (100,)}
    top = net.add("Gemm", [top, "fc.w", "fc.b"], 100, transB=1)
    return net.model(net.add("Softmax", [top], 100), size, seed)


def _inverted(net: _Net, source: str, expansion: int, channels: int, stride: int) -> str:
    inner = expansion * net.channels[source]
    top = net.relu(net.conv(source, inner, kernel=1), 6) if expansion > 1 else source
    top = net.relu(net.conv(top, inner, stride=stride, depthwise=True), 6)
    top = net.conv(top, channels, kernel=1)
    same = stride == 1 and net.channels[source] == channels
    return net.add("Add", [source, top], channels) if same else top


def unet(size: int = 128, width: int = 16, floors: int = 4, seed: int = 0) -> onnx.ModelProto:
    """U-Net: max pooling down; up by transposed convolution and by linear resizing in turn; skips joined by Concat."""
    net = _Net()
    top, skips = "data", []
    for floor in range(floors):
        top = _twice(net, top, width << floor)
        skips.append(top)
        top = net.add("MaxPool", [top], width << floor, kernel_shape=[2, 2], strides=[2, 2])
    top = _twice(net, top, width << floors)
    for floor, skip in reversed(list(enumerate(skips))):
        top = _up(net, top, width << floor, by_resize=floor % 2 == 1)
        top = _twice(net, net.add("Concat", [skip, top], 2 * (width << floor), axis=1), width << floor)
    return net.model(net.add("Sigmoid", [net.conv(top, 1, kernel=1)], 1), size, seed)


def _twice(net: _Net, source: str, channels: int) -> str:
    return net.relu(net.conv(net.relu(net.conv(source, channels)), channels))


def _up(net: _Net, source: str, channels: int, by_resize: bool) -> str:
    if by_resize:
        larger = net.add("Resize", [source, "", "twice"], net.channels[source], mode="linear")
        return net.conv(larger, channels, kernel=1)
    weight = f"up{len(net.nodes)}"
    net.dims[weight] = (net.channels[source], channels, 2, 2)
    return net.add("ConvTranspose", [source, weight], channels, strides=[2, 2], kernel_shape=[2, 2])
