"""A model as it is dumped: its operators, and each of their tensors in the form that the SDK's simulators give it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.quantisation.fixed_facts import DumpedOperator, FixedFacts
from sgsdump.quantisation.fusion import operators, sdk_name
from sgsdump.quantisation.simulation.buffers import buffer_orders
from sgsdump.tensors.sdk_buffers import (
    pad_bias,
    pad_blocks,
    pad_channels,
    pad_depthwise,
    pad_parameter,
    pad_picture,
    pad_weights,
)
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
from sgsdump.tensors.types import NHWC, to_nhwc

DEPTHWISE = "DEPTHWISE_CONV_2D"


class FloatView:
    """What a float model dumps: every node its own operator, every tensor as float32."""

    def __init__(self, model: Model):
        self.graph = Graph(model.proto)
        self.operators = [
            DumpedOperator(
                sdk_name(self.graph, op.head),
                sdk_name(self.graph, op.head),
                op.inputs,
                tuple(name for name in op.head.input if name in self.graph.constants),
                op.outputs,
            )
            for op in operators(self.graph, fuse=None)
        ]

    def source(self, name: str) -> str:
        return name

    def variable(self, name: str, op_type: str, array: np.ndarray) -> Tensor:
        return _tensor(name, op_type, to_nhwc(array).astype(np.float32, copy=False))

    def constant(self, name: str, op_type: str) -> Tensor:
        quant = None if self.graph.value(name).dtype.kind == "f" else Quant(np.dtype(np.int32))
        return _lazy(self.graph, name, name, op_type, np.dtype(np.float32), quant)


class FixedView:
    """What a fixed model dumps: fused operators, stored integers or the float32 they mean."""

    def __init__(self, model: Model, facts: FixedFacts, dequantise: bool, strip: bool):
        self.graph = Graph(model.proto)
        self.operators = facts.operators
        self.tensors = facts.tensors
        self.weights = facts.weights
        self.biases = facts.biases
        self.dequantise = dequantise
        self.strip = strip
        self.orders = buffer_orders(facts)

    def source(self, name: str) -> str:
        tensor = self.tensors.get(name)
        if tensor is None or (tensor.picture and not self.dequantise):
            return name
        return tensor.real if self.dequantise and tensor.real is not None else tensor.stored

    def variable(self, name: str, op_type: str, array: np.ndarray) -> Tensor:
        array = to_nhwc(array)
        stored = self.tensors.get(name)
        if stored is None:
            return _tensor(name, op_type, array.astype(np.float32, copy=False))
        if self.dequantise:
            return _tensor(name, op_type, _real(array, stored.quant), stored.quant)
        if stored.picture:
            # The SDK dumps the picture's bytes, also where what is computed with is rescaled (level L5 may do that).
            array = np.clip(np.floor(array + 0.5), 0, 255).astype(stored.dtype)
        if self.strip:
            return _tensor(name, op_type, array, stored.quant)
        padded = _PADDED[self.orders[name] if array.ndim == 4 else "NHWC"](array)
        return Tensor(_info(name, op_type, array, stored.quant), lambda: padded)

    def constant(self, name: str, op_type: str) -> Tensor:
        constant = self._plain_constant(name, op_type)
        if self.dequantise or self.strip or constant.dtype.kind != "i":
            return constant
        kind = "bias" if name in self.biases else "parameter" if name not in self.weights else op_type
        pad = _PADDED_CONSTANTS.get(kind, pad_weights)
        return Tensor(constant.info, lambda: pad(constant.stored()))

    def _plain_constant(self, name: str, op_type: str) -> Tensor:
        if name in self.biases:
            return _lazy(self.graph, name, self.biases[name], op_type, np.dtype(np.int16), Quant(np.dtype(np.int16)))
        weights = self.weights.get(name)
        if weights is None:
            return _lazy(self.graph, name, name, op_type, np.dtype(np.float32), None)
        return _lazy(self.graph, name, weights.name, op_type, weights.dtype, weights.quant)


def _real(array: np.ndarray, quant: Quant) -> np.ndarray:
    """The float32 values of stored integers; what is float already is that."""
    if array.dtype.kind == "f":
        return array
    return (array.astype(np.float32) - np.float32(quant.zero_point)) * np.float32(quant.scale)


_PADDED_CONSTANTS = {"bias": pad_bias, "parameter": pad_parameter, DEPTHWISE: pad_depthwise}
_PADDED = {"RGB": pad_picture, "NHWC": pad_channels, "NHWX": pad_blocks}


def _info(name: str, op_type: str, array: np.ndarray, quant: Quant | None) -> TensorInfo:
    return TensorInfo(name, array.shape, array.dtype, NHWC if array.ndim == 4 else None, quant, op_type)


def _tensor(name: str, op_type: str, array: np.ndarray, quant: Quant | None = None) -> Tensor:
    return Tensor(_info(name, op_type, array, quant), lambda: array)


def _lazy(graph: Graph, initializer: str, name: str, op_type: str, dtype: np.dtype, quant: Quant | None) -> Tensor:
    """A constant of the model: 4-D weights as O, H, W, I, depthwise ones as 1, H, W, O."""
    dims = tuple(graph.constants[initializer].dims)
    depthwise = op_type == DEPTHWISE and len(dims) == 4 and dims[1] == 1
    order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1) if len(dims) == 4 else tuple(range(len(dims)))
    shape = tuple(dims[axis] for axis in order)
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=order.index(quant.axis))
    info = TensorInfo(name, shape, dtype, NHWC if len(dims) == 4 else None, quant, op_type)
    return Tensor(info, lambda: graph.value(initializer).transpose(order).astype(dtype, copy=False))
