"""Weights for a network that has none: He's for what multiplies, scales about 1, shifts about 0."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

SCALES = {("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 0), ("Mul", 1)}


def light(name: str, seed: int = 0, size: int = 0) -> onnx.ModelProto:
    """``light_NAME.onnx`` of the onnx package, whose weights are one number repeated, with drawn ones instead.
    ``size``: of a smaller picture, and then at most 256 features between fully connected layers."""
    from onnx.backend import test

    proto = onnx.load(Path(test.__file__).parent / "data" / "light" / f"light_{name}.onnx")
    shapes = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    dims = {n.output[0]: tuple(shapes[n.input[0]]) for n in proto.graph.node if n.op_type == "ConstantOfShape"}
    nodes = [node for node in proto.graph.node if node.op_type != "ConstantOfShape"]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    dims |= {t.name: tuple(t.dims) for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    if size:
        _shrink(proto, dims, size)
    return with_weights(proto, dims, seed)


def _shrink(proto: onnx.ModelProto, dims: dict[str, tuple[int, ...]], size: int) -> None:
    """Smaller pictures: a pool over the whole map stays one, a Reshape flattens, a Gemm takes what comes. In place."""
    graph = proto.graph
    weights = {*dims, *(tensor.name for tensor in graph.initializer)}
    proto.ir_version = 8  # from 4 on a constant need not be an input too
    picture = next(entry for entry in graph.input if entry.name not in weights)
    for axis in (2, 3):
        picture.type.tensor_type.shape.dim[axis].dim_value = size
    del graph.value_info[:]
    for end in graph.output:
        end.type.tensor_type.ClearField("shape")
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    targets = [node.input[1] for node in graph.node if node.op_type == "Reshape"]
    flat = {name for name in targets if shapes[name].size == 2 and shapes[name][0] == 1}
    kept = [tensor for tensor in graph.initializer if tensor.name not in flat]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *(numpy_helper.from_array(np.array([1, -1]), name) for name in sorted(flat))])
    inputs = [entry for entry in graph.input if entry.name not in flat]
    del graph.input[:]
    graph.input.extend(inputs)
    for node in graph.node:
        if node.op_type == "AveragePool" and [7, 7] in [list(entry.ints) for entry in node.attribute]:
            del node.attribute[:]
            node.op_type = "GlobalAveragePool"
    gemms = [node for node in graph.node if node.op_type == "Gemm" and node.input[1] in dims]
    features = _features(proto, dims, gemms[0].input[0]) if gemms else 0
    for gemm in gemms:  # transB in all of them
        high = dims[gemm.input[1]][0] if gemm is gemms[-1] else min(dims[gemm.input[1]][0], 256)
        dims[gemm.input[1]], dims[gemm.input[2]], features = (high, features), (high,), high


def _features(proto: onnx.ModelProto, dims: dict[str, tuple[int, ...]], name: str) -> int:
    """How many features come in ``name``, (1, features)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    last = next(at for at, node in enumerate(copy.graph.node) if name in node.output)
    del copy.graph.node[last + 1 :], copy.graph.output[:]
    copy = onnx.shape_inference.infer_shapes(with_weights(copy, dims, 0))
    shape = next(entry for entry in copy.graph.value_info if entry.name == name).type.tensor_type.shape
    return int(shape.dim[1].dim_value)


def with_weights(proto: onnx.ModelProto, dims: dict[str, tuple[int, ...]], seed: int) -> onnx.ModelProto:
    """The network with float32 constants of these dimensions, drawn by what reads them; others stay."""
    rng = np.random.default_rng(seed)
    readers = {name: (node, slot) for node in proto.graph.node for slot, name in enumerate(node.input)}
    drawn = {}
    for name, shape in dims.items():
        node, slot = readers.get(name, (None, 0))
        while node is not None and node.op_type == "Unsqueeze":
            node, slot = readers[node.output[0]]
        if node is not None:
            drawn[name] = _values(rng, node, slot, tuple(int(size) for size in shape)).astype(np.float32)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in drawn]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend([*kept, *(numpy_helper.from_array(a, n) for n, a in drawn.items())])
    inputs = [entry for entry in proto.graph.input if entry.name not in dims]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    return proto


def _values(rng: np.random.Generator, node: onnx.NodeProto, slot: int, shape: tuple[int, ...]) -> np.ndarray:
    if (node.op_type, slot) in SCALES:
        return rng.uniform(0.8, 1.2, shape)
    if slot != 1 or len(shape) < 2:
        return rng.normal(0, 0.1, shape)
    return rng.normal(0, math.sqrt(2 / _inputs(node, shape)), shape)


def _inputs(node: onnx.NodeProto, shape: tuple[int, ...]) -> int:
    """How many inputs each output of a layer with such a weight sums up."""
    given = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    if node.op_type == "ConvTranspose":
        return shape[0]  # kernels that do not overlap
    if node.op_type == "Conv" or given.get("transB"):
        return math.prod(shape[1:])
    return shape[0]
