"""The quant plan: for every tensor of the fixed model its type, scale and zero point; for every convolution its bits.

The rules are those of the SDK's fixed simulator (formats reference §1.4, checked against its dumps):

* a tensor that feeds a convolution or fully connected operator is UINT8, every other one INT16;
* operators that only move values (max pooling, reshape, transpose, concat …) share one domain with their operands:
  one type, one range (the union; the inputs of a Concat take its output's);
* the picture input is always UINT8; a raised tensor (ALL_INT16, tensor_arrays …) takes its whole domain to INT16;
* weights have as many bits as the convolution's input;
* UINT8: scale = (hi - lo) / 255, zero point = round(-lo / scale), the range extended to include 0;
  INT16: scale = max(|lo|, |hi|) / 32767, zero point 0;
* sigmoid puts out INT16 with scale 1/32767, softmax with 1/32768, a softmax input's range includes -10;
* average pooling that stays INT16 keeps its input's scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.family import hint
from sgsdump.fusion import Operator, is_convolution, is_depthwise, operators
from sgsdump.graph import Graph, attribute
from sgsdump.tensor import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MOVERS = (
    *("MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Dropout"),
    *("Concat", "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile"),
)
AVERAGE_POOLS = ("AveragePool", "GlobalAveragePool")
UINT8 = np.dtype(np.uint8)
INT8 = np.dtype(np.int8)
INT16 = np.dtype(np.int16)
SOFTMAX_INPUT_MIN = -10.0

Bounds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Choice:
    """Which convolutions get INT16 inputs and weights: the words of ``[CONV_CONFIG]``.

    input_format is ALL_UINT8, ALL_INT16, CONV2D_INT16 or DEPTHWISE_INT16; ``tensors`` are the first inputs of
    further convolutions to raise. per_channel gives weights one scale per output channel (levels above L1).
    """

    input_format: str = "ALL_UINT8"
    tensors: tuple[str, ...] = ()
    per_channel: bool = False


@dataclass(frozen=True)
class QuantPlan:
    """What ``quantise`` needs: operators in order, a Quant per stored tensor, a Quant per convolution's weights.

    Tensors without a calibrated range (integers, and what the ranges leave out) are in neither and stay as they are.
    ``weights`` goes by the name of the convolution node's output.
    """

    operators: tuple[Operator, ...]
    tensors: dict[str, Quant]
    weights: dict[str, Quant]


def plan(
    proto: ModelProto,
    bounds: Bounds,
    choice: Choice = Choice(),
    pictures: Iterable[str] = (),
    fuse: bool = True,
) -> QuantPlan:
    """Decide types, scales and zero points of a float model.

    bounds     calibrated (min, max) of every float tensor, by name.
    pictures   graph inputs that are pictures (always UINT8).
    Raises ConfigError when ``choice`` names a tensor that is no convolution's first input.
    """
    graph = Graph(proto)
    ops = operators(graph, fuse)
    domain = _domains(ops)
    stored = [*graph.inputs, *(name for op in ops for name in op.outputs)]
    wide = _int16_domains(graph, ops, domain, choice, frozenset(pictures))
    ranges = _domain_ranges(ops, domain, {name: bounds[name] for name in stored if name in bounds})
    tensors = {n: _quant(ranges[domain[n]], domain[n] in wide) for n in stored if domain[n] in ranges}
    _apply_fixed_scales(ops, domain, ranges, tensors)
    weights = {
        node.output[0]: weight_quant(graph, node, INT16 if tensors[node.input[0]].dtype == INT16 else INT8, choice)
        for node in graph.nodes
        if is_convolution(graph, node) and node.input[0] in tensors
    }
    return QuantPlan(tuple(ops), tensors, weights)


def weight_quant(graph: Graph, node: NodeProto, dtype: np.dtype, choice: Choice) -> Quant:
    """Symmetric weights: scale = max|w| / 127 or 32767, one per tensor, or one per output channel."""
    weight = np.abs(graph.value(node.input[1]).astype(np.float64))
    axis = output_axis(graph, node)
    top = weight.max(axis=tuple(i for i in range(weight.ndim) if i != axis)) if choice.per_channel else weight.max()
    scale = np.where(top > 0, top, 1.0) / np.iinfo(dtype).max
    if choice.per_channel:
        return Quant(dtype, scale.astype(np.float32), 0, axis, exact=True)
    return Quant(dtype, float(scale), 0, exact=True)


def output_axis(graph: Graph, node: NodeProto) -> int:
    """Where a weight's output channels lie: axis 0 for Conv and Gemm transB=1, 1 for ConvTranspose, last for MatMul."""
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0)):
        return 0
    return 1 if node.op_type == "ConvTranspose" else len(graph.constants[node.input[1]].dims) - 1


def convolution_inputs(graph: Graph) -> dict[str, list[NodeProto]]:
    """First input tensor -> the convolutions that read it: the names ``tensor_arrays`` may hold."""
    found: dict[str, list[NodeProto]] = {}
    for node in graph.nodes:
        if is_convolution(graph, node):
            found.setdefault(node.input[0], []).append(node)
    return found


class _Domains(dict):
    """Union-find over tensor names; ``self[name]`` is the domain's representative."""

    def __missing__(self, name: str) -> str:
        return name

    def join(self, names: list[str]) -> None:
        roots = {self[name] for name in names}
        root = self[names[0]]
        for name in [*self, *names]:
            if self[name] in roots:
                self[name] = root


def _domains(ops: Iterable[Operator]) -> _Domains:
    domain = _Domains()
    for op in ops:
        if op.head.op_type == "Concat":
            domain.join([*op.outputs, *op.inputs])
        elif op.head.op_type in MOVERS and op.inputs[:1] == tuple(op.head.input[:1]):
            # Second outputs are indices or masks, but a Split's are further pieces.
            domain.join([op.inputs[0], *(op.outputs if op.head.op_type == "Split" else op.outputs[:1])])
    return domain


def _int16_domains(
    graph: Graph, ops: Iterable[Operator], domain: _Domains, choice: Choice, pictures: frozenset[str]
) -> set[str]:
    """Domains of type INT16: those no convolution reads, and the raised ones."""
    first_inputs = convolution_inputs(graph)
    for name in choice.tensors:
        if name not in first_inputs:
            raise ConfigError(
                f"tensor_arrays names {name!r}, which is no convolution's first input{hint(name, first_inputs)}"
            )
        if domain[name] in {domain[p] for p in pictures}:
            raise ConfigError(f"tensor_arrays names {name!r}: the picture input cannot be raised to INT16")
    raised = {domain[name] for name in choice.tensors}
    for name, readers in first_inputs.items():
        depthwise = [is_depthwise(graph, node) for node in readers]
        if (
            choice.input_format == "ALL_INT16"
            or (choice.input_format == "CONV2D_INT16" and not all(depthwise))
            or (choice.input_format == "DEPTHWISE_INT16" and any(depthwise))
        ):
            raised.add(domain[name])
    raised -= {domain[name] for name in pictures}
    narrow = {domain[name] for name in [*first_inputs, *pictures]} - raised
    every = {domain[name] for op in ops for name in (*op.inputs, *op.outputs)}
    return every - narrow


def _domain_ranges(ops: Iterable[Operator], domain: _Domains, bounds: Bounds) -> dict[str, tuple[float, float]]:
    given = {name for op in ops if op.head.op_type == "Concat" for name in op.inputs if op.outputs[0] in bounds}
    ranges: dict[str, tuple[float, float]] = {}
    for name, (lo, hi) in bounds.items():
        if name in given:
            continue
        low, high = ranges.get(domain[name], (lo, hi))
        ranges[domain[name]] = (min(lo, low), max(hi, high))
    for op in ops:
        if op.head.op_type in ("Softmax", "LogSoftmax") and domain[op.inputs[0]] in ranges:
            low, high = ranges[domain[op.inputs[0]]]
            ranges[domain[op.inputs[0]]] = (min(low, SOFTMAX_INPUT_MIN), high)
    return ranges


def _quant(bounds: tuple[float, float], wide: bool) -> Quant:
    return int16_quant(*bounds) if wide else uint8_quant(*bounds)


def uint8_quant(lo: float, hi: float) -> Quant:
    """Asymmetric: scale = (hi - lo) / 255 with the range extended to include 0."""
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    scale = (hi - lo) / 255 if hi > lo else 1.0
    return Quant(UINT8, scale, round(-lo / scale), exact=True)


def int16_quant(lo: float, hi: float) -> Quant:
    """Symmetric: scale = max(|lo|, |hi|) / 32767."""
    top = max(abs(lo), abs(hi))
    return Quant(INT16, (top or 32767.0) / 32767, 0, exact=True)


def _apply_fixed_scales(
    ops: Iterable[Operator], domain: _Domains, ranges: Mapping[str, tuple[float, float]], tensors: dict[str, Quant]
) -> None:
    """Operators whose INT16 scale does not come from the range, in execution order (average pools inherit)."""

    def give(name: str, scale: float) -> None:
        for member in tensors:
            if domain[member] == domain[name]:
                tensors[member] = Quant(INT16, scale, 0, exact=True)

    for op in ops:
        name = op.outputs[0] if op.outputs else ""
        if name not in tensors or tensors[name].dtype != INT16:
            continue
        lo, hi = ranges[domain[name]]
        unit = max(abs(lo), abs(hi)) <= 1.0
        if op.last.op_type == "Sigmoid" and unit:
            give(name, 1 / 32767)
        elif op.last.op_type == "Softmax" and unit:
            give(name, 1 / 32768)
        elif op.last.op_type in AVERAGE_POOLS and op.inputs and op.inputs[0] in tensors:
            source = tensors[op.inputs[0]]
            if source.dtype == INT16:
                give(name, float(source.scale))
