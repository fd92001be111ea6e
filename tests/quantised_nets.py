"""Networks quantised by onnxruntime's own tools, and the integers of such a network by numpy: the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from small_nets import run_all

WAYS = {
    "QDQ": {"quant_format": QuantFormat.QDQ},
    "QDQ per channel": {
        "quant_format": QuantFormat.QDQ,
        "per_channel": True,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
    },
    "QDQ 16 bits": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QUInt16,
        "weight_type": QuantType.QInt8,
        "extra_options": {"UseQDQContribOps": True},
    },
    "QOperator": {
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
    },
    "dynamic": {},
}


class Feeds(CalibrationDataReader):
    def __init__(self, feeds: list[dict[str, np.ndarray]]):
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def quantise(net: Path, quantised: Path, feeds: list[dict[str, np.ndarray]], way: str, **options: Any) -> None:
    """``WAYS[way]`` of a model file, into another."""
    if way == "dynamic":
        quantize_dynamic(net, quantised, **options)
    else:
        quantize_static(str(net), str(quantised), Feeds(feeds), **{**WAYS[way], **options})


def true_values(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By the name that onnxruntime gives to a float tensor X the floats that its integers mean, of every X that is
    quantised: from the scale, the zero point and the integers themselves, whatever DequantizeLinear makes of them."""
    ran = run_all(proto, feed)
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer} | ran
    makers = {name: node for node in proto.graph.node for name in node.output}
    endings = ("_QuantizeLinear_Output", "_quantized")
    found: dict[str, np.ndarray] = {}
    for name in ran:
        tensor = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), "")
        if tensor and ran[name].dtype.itemsize < 4:
            scale, zero_point = (known[number].astype(np.float64).item() for number in _numbers(name, makers, known))
            found[tensor] = ((ran[name].astype(np.float64) - zero_point) * scale).astype(np.float32)
    return found


def _numbers(name: str, makers: dict[str, onnx.NodeProto], known: dict[str, np.ndarray]) -> tuple[str, str]:
    """The names of a tensor's scale and zero point: onnxruntime names them after it, or the one it copies."""
    tensor = name.removesuffix("_quantized").removesuffix("_QuantizeLinear_Output")
    if f"{tensor}_scale" in known:
        return f"{tensor}_scale", f"{tensor}_zero_point"
    maker = makers[name]
    if maker.op_type == "QuantizeLinear":
        return maker.input[1], maker.input[2]
    return _numbers(maker.input[0], makers, known)
