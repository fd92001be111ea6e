"""INT16 weights with scales that suit a convolution's sums, channel by channel. Apart: a formula alone.

A convolution shifts the sums of all its channels by one K, found for the one that needs most
(``integer/convolution.py``):

    2^K = max_c (R_c / (Δ δ_c)) / 2^13, to a power of two        R_c: how far channel c's sums and bias reach,
                                                                 Δ, δ_c: the steps of its input and of its weights

so the sums of channel c keep steps of 2^K Δ δ_c. Where small weights stand beside a large bias, R_c / δ_c is large, and
the sums of a channel with large weights keep few bits: of a YOLOX with a depthwise convolution of 16 channels, whose
biases were a tenth of the output off, most of the error with everything at 16 bits came from that. With δ_c as R_c all
keep 13. INT16 weights have steps to give: δ_c grows, COARSER times at most, which leaves them 12 bits, no further than
that takes 2^K down. INT8 weights have none. Ranges of weights cannot stand in an ONNX file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.analysis import is_convolution, is_grouped, output_axis
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.quant_plan import DECIMALS, WIDEST_RATIO
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

    from sgsdump.models.model import Model

COARSER = 16.0
# Scales of one convolution stay so much closer than it bears: files round them.
CLOSER = 0.9


def weight_room(model: Model, ranges: Mapping[str, Range], sums: Mapping[str, Range]) -> dict[str, Range]:
    """By name of a convolution's weights their range, ``wide`` where its channels share their sums' bits better, one
    value an output channel. For levels above L1.

    sums  the calibrated range of each convolution's output channels (``statistics.SideRanges.channels``).
    """
    graph = Graph(deployed(model))
    found: dict[str, Range] = {}
    read: dict[str, int] = {}
    for node in graph.nodes:
        if not is_convolution(graph, node) or node.output[0] not in sums or is_grouped(graph, node):
            continue
        name = node.input[1]
        read[name] = read.get(name, 0) + 1
        tops = _tops(graph, node)
        if tops.size > 1 and tops.min() > 10.0**-DECIMALS:
            wide = suited(tops, reach_of(graph, node, sums[node.output[0]]))
            own = ranges[name] if name in ranges and ranges[name].min.size == tops.size else Range(-tops, tops)
            found[name] = Range(own.min, own.max, own.bit, Range(-wide, wide))
    return {name: each for name, each in found.items() if read[name] == 1}


def suited(tops: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """How far the weights' ranges go, for how far the weights go (``tops``) and the sums (``reach``), C values each."""
    needs = reach / tops
    least = float(max(needs.max() / COARSER, needs.min()))
    wide = np.maximum(tops, reach / least) if least > 0 else tops
    return np.maximum(wide, wide.max() / (CLOSER * WIDEST_RATIO))


def reach_of(graph: Graph, node: NodeProto, channels: Range) -> np.ndarray:
    """How far a convolution's sums and its bias go, by output channel or one number."""
    bias: float | np.ndarray = 0.0
    if len(node.input) > 2 and node.input[2] in graph.constants:
        factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
        bias = graph.value(node.input[2]).astype(np.float64).reshape(-1) * factor
    away = (np.abs(bias), np.abs(channels.min - bias), np.abs(channels.max - bias))
    return np.asarray(np.max(np.broadcast_arrays(*away), axis=0))


def _tops(graph: Graph, node: NodeProto) -> np.ndarray:
    weight, axis = np.abs(graph.value(node.input[1]).astype(np.float64)), output_axis(graph, node)
    return weight.max(axis=tuple(index for index in range(weight.ndim) if index != axis))
