"""networks.py PROBES [NAME...]: makes folders of small networks with pictures to calibrate on, a function each.

A folder: net.onnx, or net.prototxt and net.caffemodel; input.npy and calib/c0..c2.npy (H x W x C, 0..255 before
normalising; RAWDATA: as it is, N,H,W,C); input_config.ini; meta.json (shapes, and [mean, std] of each input).
"""

import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path()
NETWORKS = {}


def network(function):
    NETWORKS[function.__name__] = function
    return function


def picture(rng, height, width, channels=3):
    """Smooth, with noise: ranges like those of photographs."""
    y, x = np.mgrid[0:height, 0:width]
    out = np.zeros((height, width, channels))
    for k in range(channels):
        for _ in range(3):
            a, b, phase = [*rng.uniform(-0.9, 0.9, 2), rng.uniform(0, 6)]
            out[..., k] += np.sin(a * x + b * y + phase)
    out = (out - out.min()) / (out.max() - out.min()) * 255
    return np.clip(out + rng.normal(0, 12, out.shape), 0, 255).astype("float32")


def folder(name, inputs, outputs, formats=None, conv_config=""):
    """``inputs``: {name: N,C,H,W}; ``formats``: RGB, BGR, RAWDATA_S16_NHWC … of each; mean 127, std 128."""
    path = ROOT / name
    shutil.rmtree(path, ignore_errors=True)
    (path / "calib").mkdir(parents=True)
    formats = formats or ["RGB"] * len(inputs)
    raw = [format.startswith("RAWDATA") for format in formats]
    meta = {"shapes": ":".join(",".join(map(str, s)) for s in inputs.values()), "norm": {}}
    rng = np.random.RandomState(zlib.crc32(name.encode()) % (1 << 31))
    for where in ("input", "calib/c0", "calib/c1", "calib/c2"):
        for i, (tensor, shape) in enumerate(inputs.items()):
            if raw[i]:
                values = rng.normal(0, 2, shape).astype("float32")
                values = np.ascontiguousarray(values.transpose(0, 2, 3, 1)) if len(shape) == 4 else values
            else:
                values = picture(rng, shape[2], shape[3], shape[1])
            np.save(path / f"{where}{'' if len(inputs) == 1 else f'_{i}'}.npy", values)
            meta["norm"][tensor] = None if raw[i] else [[127] * shape[1], 128]
    ini = f"[INPUT_CONFIG]\ninputs = {','.join(inputs)};\ntraining_input_formats = {','.join(formats)};\n"
    ini += f"input_formats = {','.join(formats)};\nquantizations = {','.join(['TRUE'] * len(inputs))};\n"
    if not all(raw):
        ini += "mean_red = 127;\nmean_green = 127;\nmean_blue = 127;\nstd_value = 128;\n"
    ini += (
        f"\n[OUTPUT_CONFIG]\noutputs = {','.join(outputs)};\ndequantizations = {','.join(['TRUE'] * len(outputs))};\n"
    )
    if conv_config:
        ini += f"\n[CONV_CONFIG]\n{conv_config}\n"
    (path / "input_config.ini").write_text(ini)
    (path / "meta.json").write_text(json.dumps(meta))
    return path


class Onnx:
    """An ONNX network being written: ``conv`` and ``op`` give the name of what they put out."""

    def __init__(self, inputs=None, opset=11, seed=0):
        self.inputs, self.opset, self.rng = inputs or {"data": [1, 3, 16, 16]}, opset, np.random.RandomState(seed)
        self.nodes, self.constants = [], []

    def const(self, values, name=None, dtype="float32"):
        name = name or f"const{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def op(self, kind, inputs, output, **attributes):
        outputs = output if isinstance(output, list) else [output]
        inputs = [inputs] if isinstance(inputs, str) else inputs
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes))
        return output

    def conv(self, x, channels, filters, output, kernel=3, stride=1, group=1, gain=1.0):
        weights = self.rng.normal(
            0, gain / np.sqrt(channels // group * kernel**2), (filters, channels // group, kernel, kernel)
        )
        inputs = [x, self.const(weights, output + "_w"), self.const(self.rng.normal(0, 0.3, filters), output + "_b")]
        pads = [(kernel - 1) // 2] * 4
        return self.op("Conv", inputs, output, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group)

    def done(self, name, outputs, **options):
        ins = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()]
        outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, name, ins, outs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 6
        onnx.save(onnx.shape_inference.infer_shapes(model), folder(name, self.inputs, outputs, **options) / "net.onnx")


def _varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _field(number, payload):
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


class Caffe:
    """A Caffe network being written, text and weights; a layer whose top is its bottom is in place, as published."""

    def __init__(self, shape=(1, 3, 16, 16), seed=0):
        self.shape, self.rng, self.text, self.weights = shape, np.random.RandomState(seed), "", b""
        self.channels = {"data": shape[1]}

    def layer(self, kind, name, bottoms, top, params="", blobs=()):
        bottoms = [bottoms] if isinstance(bottoms, str) else bottoms
        lines = [f'name: "{name}"', f'type: "{kind}"', *(f'bottom: "{b}"' for b in bottoms), f'top: "{top}"', params]
        self.text += "layer {\n" + "".join(f"  {line}\n" for line in lines if line) + "}\n"
        strings = [(1, name), (2, kind), *((3, b) for b in bottoms), (4, top)]
        body = b"".join(_field(number, text.encode()) for number, text in strings)
        for values in blobs:
            values = np.asarray(values, "<f4")
            shape = _field(7, _field(1, b"".join(_varint(d) for d in values.shape)))
            body += _field(7, shape + _field(5, values.tobytes()))
        self.weights += _field(100, body)
        self.channels.setdefault(top, self.channels[bottoms[0]])
        return top

    def conv(self, x, filters, top, kernel=3, stride=1, group=1, bias=True, gain=1.2):
        channels = self.channels[x] // group
        blobs = [self.rng.normal(0, gain / np.sqrt(channels * kernel**2), (filters, channels, kernel, kernel))]
        blobs += [self.rng.normal(0, 0.2, filters)] if bias else []
        self.channels[top] = filters
        size = f"num_output: {filters} kernel_size: {kernel} pad: {kernel // 2} stride: {stride} group: {group}"
        return self.layer(
            "Convolution", top, x, top, f"convolution_param {{ {size} bias_term: {str(bias).lower()} }}", blobs
        )

    def batch_norm(self, x):
        """BatchNorm and Scale, both in place."""
        count, factor = self.channels[x], np.array([999.98])
        stats = [self.rng.normal(0, 0.3, count) * factor, self.rng.uniform(0.3, 2, count) * factor, factor]
        self.layer("BatchNorm", x + "_bn", x, x, "batch_norm_param { use_global_stats: true }", stats)
        return self.layer(
            "Scale",
            x + "_scale",
            x,
            x,
            "scale_param { bias_term: true }",
            [self.rng.uniform(0.5, 1.6, count), self.rng.normal(0, 0.4, count)],
        )

    def done(self, name, outputs, **options):
        path = folder(name, {"data": list(self.shape)}, outputs, **options)
        head = f'name: "{name}"\ninput: "data"\n' + "".join(f"input_dim: {size}\n" for size in self.shape)
        (path / "net.prototxt").write_text(head + self.text)
        (path / "net.caffemodel").write_bytes(_field(1, name.encode()) + self.weights)


@network
def add_of_two(name):
    net = Onnx(seed=1)
    a = net.op("Relu", net.conv("data", 3, 8, "c0"), "r0")
    b = net.op("Relu", net.conv("data", 3, 8, "c1", gain=3), "r1")
    net.conv(net.op("Add", [a, b], "sum"), 8, 8, "c2")
    net.done(name, ["c2"])


@network
def concat_12_20(name):
    net = Onnx(seed=2)
    a = net.op("Relu", net.conv("data", 3, 12, "c0"), "r0")
    b = net.op("Relu", net.conv("data", 3, 20, "c1"), "r1")
    net.conv(net.op("Concat", [a, b], "cat", axis=1), 32, 8, "c2")
    net.done(name, ["c2"])


@network
def raw_input_L2(name):
    net = Onnx({"data": [1, 4, 8, 8]}, seed=3)
    net.conv(net.op("Relu", net.conv("data", 4, 8, "c0"), "r0"), 8, 8, "c1")
    net.done(name, ["c1"], formats=["RAWDATA_S16_NHWC"])


@network
def caffe_in_place(name):
    net = Caffe(seed=4)
    net.layer("ReLU", "c0_relu", net.batch_norm(net.conv("data", 8, "c0", bias=False)), "c0")
    net.conv("c0", 6, "c1")
    net.done(name, ["c1"])


@network
def padding_counted(name):
    net = Onnx(seed=5)
    net.conv("data", 3, 8, "c0")
    window = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}
    net.conv(net.op("AveragePool", "c0", "p", count_include_pad=1, **window), 8, 6, "c1")
    net.done(name, ["c1"])


@network
def softmax_before_opset_13(name):
    net = Onnx({"data": [1, 3, 8, 12]}, opset=11, seed=6)
    net.op("Softmax", net.conv("data", 3, 5, "c0", gain=4), "s", axis=1)
    net.done(name, ["s"])


@network
def focus_by_one_slice_each(name):
    net = Onnx({"data": [1, 3, 12, 20]}, seed=7)
    bounds = [net.const(values, dtype="int64") for values in ([2**63 - 1] * 2, [2, 3], [2, 2])]
    parts = [
        net.op("Slice", ["data", net.const([row, column], dtype="int64"), *bounds], f"f{row}{column}")
        for column in (0, 1)
        for row in (0, 1)
    ]
    net.conv(net.op("Concat", parts, "cat", axis=1), 12, 8, "c1")
    net.done(name, ["c1"])


@network
def groups_and_shuffle_L5(name):
    net = Onnx({"data": [1, 3, 8, 8]}, seed=8)
    x = net.conv(net.op("Relu", net.conv("data", 3, 16, "c0"), "r0"), 16, 16, "g1", kernel=1, group=2)
    x = net.op("Reshape", [net.op("Relu", x, "e1"), net.const([1, 2, 8, 8, 8], dtype="int64")], "s1")
    x = net.op(
        "Reshape", [net.op("Transpose", x, "s2", perm=[0, 2, 1, 3, 4]), net.const([1, 16, 8, 8], dtype="int64")], "s3"
    )
    net.conv(x, 16, 6, "c1")
    net.done(name, ["c1"])


if __name__ == "__main__":
    ROOT = Path(sys.argv[1]).resolve()
    for name in sys.argv[2:] or NETWORKS:
        NETWORKS[name](name)
