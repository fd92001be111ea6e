"""Small torch modules and the ONNX models that exporters made of them: ``python exported.py gru torch``.

The last argument is the side: torch, or what exporters write, ``right`` as the fix made it or ``wrong``; an ONNX model
is run by onnxruntime. Nodes and weights are named as torch's exporter names them.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu, self.pool = nn.ReLU(), nn.AvgPool2d(3, 2, 1)

    def forward(self, x):
        return self.conv2(self.pool(self.relu(self.conv1(x))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.gru, self.head = nn.Linear(6, 8), nn.GRU(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.gru(self.proj(x))[0])


class Enlarged(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.conv2(functional.interpolate(torch.relu(self.conv1(x)), size=(9, 9), mode="nearest-exact"))


class Normalised(nn.Module):
    """A layer that normalises by the statistics of its input, not by recorded ones."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn, self.conv2 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)
        nn.init.uniform_(self.bn.running_var, 0.2, 3)
        nn.init.normal_(self.bn.running_mean)

    def forward(self, x):
        y = self.conv1(x)
        bn = self.bn
        return self.conv2(functional.batch_norm(y, None, None, bn.weight, bn.bias, training=True))


def pool(net, is_right):
    counted = {"count_include_pad": 1} if is_right else {}
    return [
        _conv("conv1", "x", "/conv1/Conv_output_0", 1),
        helper.make_node("Relu", ["/conv1/Conv_output_0"], ["/relu/Relu_output_0"], "/relu/Relu"),
        helper.make_node(
            "AveragePool",
            ["/relu/Relu_output_0"],
            ["/pool/AveragePool_output_0"],
            "/pool/AveragePool",
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            **counted,
        ),
        _conv("conv2", "/pool/AveragePool_output_0", "y", 1),
    ], {}


def gru(net, is_right):
    def gates(name):  # torch: reset, update, new; ONNX: update, reset, new
        reset, update, new = getattr(net.gru, name).detach().chunk(3)
        return torch.cat((update, reset, new))[None].numpy()

    biases = [gates("bias_ih_l0"), gates("bias_hh_l0")]
    weights = {
        "proj.w": net.proj.weight.detach().numpy().T,
        "head.w": net.head.weight.detach().numpy().T,
        "gru.W": gates("weight_ih_l0"),
        "gru.R": gates("weight_hh_l0"),
        "gru.B": np.concatenate(biases, 1),
        "axis": np.array([1]),
    }
    reset = {"linear_before_reset": 1} if is_right else {}
    nodes = [
        helper.make_node("MatMul", ["x", "proj.w"], ["/proj/MatMul_output_0"], "/proj/MatMul"),
        helper.make_node("Add", ["proj.bias", "/proj/MatMul_output_0"], ["/proj/Add_output_0"], "/proj/Add"),
        helper.make_node(
            "GRU",
            ["/proj/Add_output_0", "gru.W", "gru.R", "gru.B"],
            ["/gru/GRU_output_0"],
            "/gru/GRU",
            hidden_size=8,
            **reset,
        ),
        helper.make_node("Squeeze", ["/gru/GRU_output_0", "axis"], ["/gru/Squeeze_output_0"], "/gru/Squeeze"),
        helper.make_node("MatMul", ["/gru/Squeeze_output_0", "head.w"], ["/head/MatMul_output_0"], "/head/MatMul"),
        helper.make_node("Add", ["head.bias", "/head/MatMul_output_0"], ["y"], "/head/Add"),
    ]
    return nodes, weights


def resize(net, is_right):
    how = {"coordinate_transformation_mode": "half_pixel" if is_right else "asymmetric"}
    rounding = {"nearest_mode": "round_prefer_ceil" if is_right else "floor"}
    nodes = [
        _conv("conv1", "x", "/conv1/Conv_output_0", 1),
        helper.make_node("Relu", ["/conv1/Conv_output_0"], ["/Relu_output_0"], "/Relu"),
        helper.make_node(
            "Resize", ["/Relu_output_0", "", "", "sizes"], ["/Resize_output_0"], "/Resize", **how, **rounding
        ),
        _conv("conv2", "/Resize_output_0", "y", 1),
    ]
    return nodes, {"sizes": np.array([2, 4, 9, 9])}


def batch_norm(net, is_right):
    nodes = [_conv("conv1", "x", "/conv1/Conv_output_0", 0)]
    mean, var = "bn.running_mean", "bn.running_var"
    if is_right:
        mean, var = "/bn/mean", "/bn/var"
        nodes += [
            helper.make_node("ReduceMean", ["/conv1/Conv_output_0", "axes"], ["/bn/kept"], "/bn/ReduceMean"),
            helper.make_node("Sub", ["/conv1/Conv_output_0", "/bn/kept"], ["/bn/centred"], "/bn/Sub"),
            helper.make_node("Mul", ["/bn/centred", "/bn/centred"], ["/bn/squares"], "/bn/Mul"),
            helper.make_node("ReduceMean", ["/bn/squares", "axes"], [var], "/bn/ReduceMean_1", keepdims=0),
            helper.make_node("Squeeze", ["/bn/kept", "axes"], [mean], "/bn/Squeeze"),
        ]
    made = "/bn/BatchNormalization_output_0"
    nodes += [
        helper.make_node(
            "BatchNormalization",
            ["/conv1/Conv_output_0", "bn.weight", "bn.bias", mean, var],
            [made],
            "/bn/BatchNormalization",
        ),
        _conv("conv2", made, "y", 0),
    ]
    return nodes, {"axes": np.array([0, 2, 3])} if is_right else {}


NETS = {
    "pool": (Pooled, pool, (2, 3, 7, 7)),
    "gru": (Recurrent, gru, (5, 2, 6)),
    "resize": (Enlarged, resize, (2, 3, 6, 6)),
    "batch_norm": (Normalised, batch_norm, (2, 3, 8, 8)),
}


def _conv(name, source, made, padding):
    return helper.make_node(
        "Conv",
        [source, f"{name}.weight", f"{name}.bias"],
        [made],
        f"/{name}/Conv",
        kernel_shape=[3, 3],
        pads=[padding] * 4,
    )


def main(name, side):
    make, export, shape = NETS[name]
    torch.manual_seed(6)
    net, x = make().eval(), torch.randn(shape)
    if side == "torch":
        with torch.no_grad():
            print(float(net(x).sum()))
        return
    import onnxruntime

    nodes, weights = export(net, side != "wrong")
    used = {source for node in nodes for source in node.input} - {made for node in nodes for made in node.output}
    weights |= {key: value.numpy() for key, value in net.state_dict().items() if key in used}
    values = [numpy_helper.from_array(np.ascontiguousarray(value), key) for key, value in weights.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "main_graph", inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    print(float(session.run(None, {"x": x.numpy()})[0].sum()))


if __name__ == "__main__":
    main(*sys.argv[1:])
