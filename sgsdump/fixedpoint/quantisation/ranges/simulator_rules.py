"""Rules that give nodes of a float model the summation order of the SDK's float simulator (``simulator_sums``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from onnx import NodeProto

from sgsdump.fixedpoint.quantisation.ranges import simulator_sums as sums
from sgsdump.fixedpoint.quantisation.ranges.simulator_sums import Filters, Window
from sgsdump.models.graph import MAIN_DOMAINS, Graph, attribute, opset_of

Rule = Callable[[np.ndarray], np.ndarray]
"""A function from a node's first input to its output."""

UNFIT = (ValueError, IndexError, TypeError, ZeroDivisionError, MemoryError)
"""Errors of a rule for a damaged node, which onnxruntime then reports by name."""

# Number of windows that each operator caches, one for each input size.
_SIZES = 4
_SOFTMAX_ALONG_ONE_AXIS = 13  # from this opset on
_REDUCE_READS_AXES = {"ReduceMean": 18, "ReduceSum": 13}


def rules_of(graph: Graph) -> dict[str, Rule]:
    """Return the rule of each output that has one."""
    opset = opset_of(graph.proto)
    rules = {}
    for node in graph.nodes:
        maker = _MAKERS.get(node.op_type) if node.domain in MAIN_DOMAINS else None
        if maker is None or not node.input or node.input[0] in graph.constants:
            continue
        with suppress(*UNFIT):
            rule = maker(_Operator(graph, node, opset))
            if rule is not None:
                rules[node.output[0]] = rule
    return rules


@dataclass(frozen=True)
class _Operator:
    graph: Graph
    node: NodeProto
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return attribute(self.node, name, default)

    def constant(self, index: int) -> np.ndarray | None:
        """Return an input's values; None if it is absent or not constant."""
        name = self.node.input[index] if index < len(self.node.input) else ""
        return self.graph.value(name) if name in self.graph.constants else None

    def has(self, index: int) -> bool:
        return index < len(self.node.input) and bool(self.node.input[index])

    def windows(self, kernel_shape: Sequence[int]) -> Callable[[tuple[int, ...]], Window]:
        """Return a function from the rows and columns of an input to the window, with the latest results cached."""
        return lru_cache(maxsize=_SIZES)(partial(self._window, kernel_shape))

    def _window(self, kernel_shape: Sequence[int], shape: Sequence[int]) -> Window:
        """Return the window over an input of these rows and columns; a single spatial axis counts as columns."""
        count = len(self.get("strides") or self.get("dilations") or self.get("pads", ())[::2] or kernel_shape)
        strides, dilations = (self.get(name, [1] * count) for name in ("strides", "dilations"))
        pads, auto = self.get("pads", [0] * 2 * count), self.get("auto_pad", b"NOTSET")
        if count == 1:
            strides, dilations, pads = [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]]
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            spans = [(size - 1) * step + 1 for size, step in zip(kernel_shape, dilations)]
            lacking = [max(0, -(-n // s) * s - s + span - n) for n, s, span in zip(shape, strides, spans)]
            begin = [(n + (auto == b"SAME_LOWER")) // 2 for n in lacking]
            pads = [*begin, *(n - b for n, b in zip(lacking, begin))]
        top, left, bottom, right = pads
        if min(*strides, *dilations) < 1 or min(pads) < 0:
            raise ValueError("strides and dilations must be at least 1, and pads must not be negative")
        return Window((strides[0], strides[1]), (top, left, bottom, right), (dilations[0], dilations[1]))


def _convolution(operator: _Operator) -> Rule | None:
    weights, bias = operator.constant(1), operator.constant(2)
    if weights is None or weights.ndim not in (3, 4) or (bias is None and operator.has(2)):
        return None
    if weights.ndim == 3:
        weights = weights[:, :, None]
    kernel_shape, groups = weights.shape[2:], operator.get("group", 1)
    filters = Filters(weights, groups, _aligned_channels(operator) if groups == 1 else ())
    window = operator.windows(kernel_shape)

    def rule(x: np.ndarray) -> np.ndarray:
        planar = x[:, :, None] if x.ndim == 3 else x
        made = filters.convolve(planar, bias, window(planar.shape[2:]))
        return made[:, :, 0] if x.ndim == 3 else made

    return rule


def _aligned_channels(operator: _Operator) -> list[int]:
    """Return the channels of a Concat's inputs if the SDK's converter pads each to whole blocks of eight; else [].

    The converter does so if a convolution is the only reader of the Concat and the first input has no whole blocks.
    """
    graph, node = operator.graph, operator.graph.producer.get(operator.node.input[0])
    if node is None or node.op_type != "Concat" or graph.sole_consumer(node.output[0]) is None:
        return []
    shapes = [graph.shapes.get(name, ()) for name in node.input]
    if attribute(node, "axis") not in (1, -3) or any(len(shape) != 4 for shape in shapes):
        return []
    channels = [shape[1] or 0 for shape in shapes]
    return channels if all(channels) and channels[0] % sums.LANES else []


def _transposed_convolution(operator: _Operator) -> Rule | None:
    weights, bias = operator.constant(1), operator.constant(2)
    automatic = operator.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or operator.get("output_shape")
    if weights is None or weights.ndim != 4 or automatic or (bias is None and operator.has(2)):
        return None
    kernel_shape, groups = weights.shape[2:], operator.get("group", 1)
    filters = Filters(sums.turned(weights, groups), groups)
    window, output_pads = operator.windows(kernel_shape), operator.get("output_padding", [0, 0])

    def rule(x: np.ndarray) -> np.ndarray:
        wide, over = sums.spread(x, kernel_shape, window(x.shape[2:]), output_pads)
        return filters.convolve(wide, bias, over)

    return rule


def _gemm(operator: _Operator) -> Rule | None:
    weights, bias = operator.constant(1), operator.constant(2)
    scaled = operator.get("alpha", 1.0) != 1 or operator.get("beta", 1.0) != 1 or operator.get("transA", 0)
    if weights is None or scaled or (bias is None and operator.has(2)):
        return None
    weights = weights if operator.get("transB", 0) else weights.T
    if bias is not None and (bias.size not in (1, len(weights)) or bias.shape[-1:] not in ((), (bias.size,))):
        return None
    offset = None if bias is None else np.broadcast_to(bias.reshape(-1), len(weights))
    order = _channels_last(operator)
    if order is None:
        return _fully_connected(weights, offset)
    rule = _fully_connected(weights[:, order], offset)
    return lambda x: rule(x[:, order])


def _channels_last(operator: _Operator) -> np.ndarray | None:
    """Return the order in which the SDK reads the map before a Caffe InnerProduct: rows, columns, channels, as stored.

    None for other operators, whose input the SDK brings into the model's order.
    """
    node, graph = operator.node, operator.graph
    flatten = graph.producer.get(node.input[0])
    if flatten is None or flatten.op_type != "Flatten" or flatten.name != f"{node.name}/flatten":
        return None
    shape = [size or 0 for size in graph.shapes.get(flatten.input[0], ())]
    if len(shape) != 4 or not all(shape[1:]):
        return None
    return np.arange(shape[1] * shape[2] * shape[3]).reshape(shape[1:]).transpose(1, 2, 0).reshape(-1)


def _matmul(operator: _Operator) -> Rule | None:
    weights = operator.constant(1)
    return _fully_connected(weights.T, None) if weights is not None and weights.ndim == 2 else None


def _fully_connected(weights: np.ndarray, bias: np.ndarray | None) -> Rule:
    """Return the rule for ``weights`` [O, K]."""
    filters = Filters(weights[:, :, None, None])

    def rule(x: np.ndarray) -> np.ndarray:
        rows = x.reshape(1, -1, x.shape[-1], 1).transpose(0, 2, 1, 3)
        made = filters.convolve(rows, bias, Window())
        return made[0, :, :, 0].T.reshape(*x.shape[:-1], len(weights))

    return rule


def _average_pool(operator: _Operator) -> Rule | None:
    kernel_shape = tuple(operator.get("kernel_shape"))
    if len(kernel_shape) != 2 or operator.get("ceil_mode", 0):
        return None
    counts_pads, window = operator.get("count_include_pad", 0) != 0, operator.windows(kernel_shape)
    return lambda x: sums.average_pool(x, kernel_shape, window(x.shape[2:]), counts_pads)


def _global_average_pool(operator: _Operator) -> Rule:
    return lambda x: sums.mean(x, range(2, x.ndim), keep=True)


def _reduction(function: Callable[..., np.ndarray], operator: _Operator) -> Rule | None:
    axes = operator.get("axes")
    if operator.opset >= _REDUCE_READS_AXES[operator.node.op_type]:
        constant = operator.constant(1)
        axes = None if constant is None else constant.tolist()
    return partial(function, axes=axes, keep=operator.get("keepdims", 1) != 0) if axes else None


def _softmax(operator: _Operator) -> Rule:
    if operator.opset >= _SOFTMAX_ALONG_ONE_AXIS:
        return partial(sums.softmax, axis=operator.get("axis", -1))
    axis = operator.get("axis", 1)

    def rule(x: np.ndarray) -> np.ndarray:
        first = axis % x.ndim
        return sums.softmax(x.reshape(*x.shape[:first], -1), first).reshape(x.shape)

    return rule


_MAKERS: Mapping[str, Callable[[_Operator], Rule | None]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "ReduceMean": partial(_reduction, sums.mean),
    "ReduceSum": partial(_reduction, sums.total_over),
    "Softmax": _softmax,
    "Sigmoid": lambda operator: sums.sigmoid,
    "Exp": lambda operator: sums.exp,
    "Tanh": lambda operator: sums.tanh,
}
