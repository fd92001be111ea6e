"""Small ONNX nets that tests build in memory, seeded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sgsdump.models.model import Model
from sgsdump.models.passes.lift import OPSET


def model(
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    opset: int = OPSET,
) -> Model:
    """A Model with float32 inputs of the given shapes; output types are inferred. Of an opset that needs no converting:
    what older ones become is held by tests/models/passes/test_lift.py."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Model(onnx.shape_inference.infer_shapes(proto), Path("net.onnx"))


def conv(name: str, source: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, f"{name}.w", f"{name}.b"], [name], name=name, **attributes)


def weights(name: str, shape: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Filter [O, I, kh, kw] and bias [O] for ``conv``."""
    rng = np.random.default_rng(seed)
    return {
        f"{name}.w": rng.normal(0, 0.3, shape).astype(np.float32),
        f"{name}.b": rng.normal(0, 0.1, shape[0]).astype(np.float32),
    }


def node(op_type: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], name=output, **attributes)


def loud_net(times: float) -> Model:
    """x [1,3,8,8] -> a -> ra -> b -> rb -> c; one channel of ra is so many times as loud, which b's weights undo."""
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    constants["a.w"][0] *= times
    constants["b.w"][:, 0] /= times
    nodes = [conv("a", "x"), node("Relu", ["a"], "ra"), conv("b", "ra"), node("Relu", ["b"], "rb"), conv("c", "rb")]
    return model(nodes, constants, {"x": (1, 3, 8, 8)}, ["c"])


def residual_net(opset: int = OPSET) -> Model:
    """data [1,3,8,8] -> c1 -> r1; r1 -> c2; add = r1 + c2 -> r2 -> pool -> c3 -> sig -> gap -> flat -> fc -> prob."""
    constants = {
        **weights("c1", (8, 3, 3, 3), 1),
        **weights("c2", (8, 8, 1, 1), 2),
        **weights("c3", (6, 8, 3, 3), 3),
        **weights("fc", (5, 6), 4),
    }
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        conv("c2", "r1"),
        node("Add", ["r1", "c2"], "add"),
        node("Relu", ["add"], "r2"),
        node("MaxPool", ["r2"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("c3", "pool", pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c3"], "sig"),
        node("GlobalAveragePool", ["sig"], "gap"),
        node("Flatten", ["gap"], "flat"),
        helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["fc"], name="fc", transB=1),
        node("Softmax", ["fc"], "prob", axis=1),
    ]
    return model(nodes, constants, {"data": (1, 3, 8, 8)}, ["prob"], opset)


def run_all(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every node output by onnxruntime in one run, every output marked, optimisation off: the oracle."""
    import onnxruntime as ort

    marked = onnx.ModelProto()
    marked.CopyFrom(proto)
    names = [name for n in proto.graph.node for name in n.output if name]
    del marked.graph.output[:]
    marked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return dict(zip(names, ort.InferenceSession(marked.SerializeToString(), options).run(names, feed)))


def single_convolution():
    """data -> c, of 1 x 1 weights."""
    return model([conv("c", "data")], weights("c", (4, 3, 1, 1)), {"data": (1, 3, 4, 4)}, ["c"])


def ini_of_arrays(output: str, **conv: str) -> str:
    """An input_config.ini for arrays as the input ``data``; ``conv``: keys of [CONV_CONFIG]."""
    arrays = "inputs = data;\ntraining_input_formats = RAWDATA_F32_NHWC;\ninput_formats = RAWDATA_F32_NHWC;"
    keys = "".join(f"{key} = {value};\n" for key, value in conv.items())
    ends = f"[OUTPUT_CONFIG]\noutputs = {output};\ndequantizations = TRUE;\n"
    return f"[INPUT_CONFIG]\n{arrays}\n{ends}" + (f"[CONV_CONFIG]\n{keys}" if keys else "")
