"""Ranges with room for what the calibration pictures do not show. They cannot stand in an ONNX file.

INT16  HEADROOM times as wide, which costs half a bit of sixteen, and nothing above the calibrated maximum is clipped.
       What a convolution of 16 bits reads up to twice that: its sums keep 13 bits below a power of two that they stay
       within (2^K Δ δ, ``integer/convolution.py``), so with a step Δ of the input that brings them just below one they
       keep up to one bit more, and that is worth more than the 15th bit of the input.
UINT8  as wide as costs little: rounding a tensor's values adds noise N (``noise.py``, as it counts at the
       network's outputs), a range m times as wide m² N. The tensors that convolutions read may together add SHARE of
       the noise of them all, each the same part p, but for those that cannot take it up to MOST:

    m² = 1 + p / N        between 1 and MOST, p such that Σ (m² - 1) N = SHARE · Σ N

and where that is less than LEAST, which keeps nothing from being clipped, m = 1. So a first layer, whose rounding is
most of the error and whose range every picture fills, stays as it is, and a late one, whose rounding nobody sees and
whose range rare pictures exceed, gets room.

Weights at INT16 get scales that suit their convolution's sums, channel by channel.
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

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto

from sgsdump.fixedpoint.curing.noise import Layer, Noise
from sgsdump.fixedpoint.quantisation.analysis import is_convolution, is_grouped, output_axis
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.quant_file import quant_params
from sgsdump.fixedpoint.quantisation.quant_plan import DECIMALS, WIDEST_RATIO, weight_quant
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.models.graph import Graph, attribute
from sgsdump.models.model import Model
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range

HEADROOM, INT16_STEPS = 1.5, 32767
# So far below a power of two sums are kept, of its logarithm.
SLACK = 0.01
SHARE, LEAST, MOST = 0.4, 1.1, 3.0
# INT16 weights' scales grow so much at most; those of one convolution stay so much closer than allowed: files round.
COARSER, CLOSER = 16.0, 0.9


def margins(layers: Sequence[Layer], noise: Noise, factors: np.ndarray, share: float = SHARE) -> dict[str, float]:
    """By tensor that convolutions read, how much wider its range becomes. ``factors``: of the classes, as scaled;
    ``share``: in place of SHARE."""
    rounding: dict[str, float] = {}
    whole = 0.0
    for layer in layers:
        inputs, *_ = noise.parts(layer, factors)
        name = layer.node.input[0]
        if name not in noise.exact:
            rounding[name] = rounding.get(name, 0.0) + inputs
        whole += inputs
    if not (whole > 0 and rounding):
        return {}
    part = _part(np.array(list(rounding.values())) * (MOST**2 - 1), share * whole)
    found = {
        name: float(np.sqrt(min(1 + part / added, MOST**2))) if added > 0 else MOST if share else 1.0
        for name, added in rounding.items()
    }
    return {name: factor if factor >= LEAST else 1.0 for name, factor in found.items()}


def _part(most: np.ndarray, budget: float) -> float:
    """What each may take, and none more than its ``most``, so that all take ``budget`` together."""
    rest = len(most)
    for largest in np.sort(most):
        if budget <= largest * rest:
            break
        budget, rest = budget - largest, rest - 1
    return budget / max(rest, 1)


def headrooms(
    model: Model, ranges: Mapping[str, Range], sums: Mapping[str, Range], per_channel: bool
) -> dict[str, float]:
    """By tensor that convolutions read, how much wider its INT16 range becomes.

    ranges       calibrated; those of weights with room too (``weight_room``).
    sums         the calibrated range of each convolution's output channels (``statistics.SideRanges.channels``).
    per_channel  a weight scale for each output channel (above L1).
    """
    graph = Graph(deployed(model))
    reaches: dict[str, list[float]] = {}
    for node in graph.nodes:
        name = node.input[0] if node.input else ""
        if not is_convolution(graph, node) or node.output[0] not in sums or name not in ranges:
            continue
        measured, channels = ranges[name].at(INT16), sums[node.output[0]]
        widest = max(float(np.abs(measured.min).max()), float(np.abs(measured.max).max()))
        of_weights = ranges.get(node.input[1]) if per_channel else None
        steps = np.asarray(weight_quant(graph, node, INT16, of_weights, per_channel).scale, np.float64)
        largest = np.max(reach_of(graph, node, channels) / steps)
        if widest > 0 and largest > 0:
            reaches.setdefault(name, []).append(float(largest) / (widest * HEADROOM / INT16_STEPS))
    return {name: HEADROOM * _below_a_power(np.log2(each)) for name, each in reaches.items()}


def _below_a_power(reaches: np.ndarray) -> float:
    """By what between 1 and 2 sums that reach 2^r are to be divided, so that they lose least to whole powers of two."""
    candidates = [0.0, *np.minimum(reaches - np.floor(reaches) + SLACK, 1.0)]
    lost = [np.sum(4.0 ** (np.ceil(reaches - down) - (reaches - down))) for down in candidates]
    return float(2.0 ** candidates[int(np.argmin(lost))])


def with_int16_room(
    model: Model, ranges: Mapping[str, Range], sums: Mapping[str, Range], per_channel: bool
) -> dict[str, Range]:
    """Return calibrated ranges with room where values are stored in INT16, and none in UINT8.

    sums         the calibrated range of each convolution's output channels (``statistics.SideRanges.channels``).
    per_channel  a weight scale for each output channel (above L1): INT16 weights then get scales that suit their sums.
    """
    ranges = {**ranges, **(weight_room(model, ranges, sums) if per_channel else {})}
    return widened(model, ranges, {}, headrooms(model, ranges, sums, per_channel))


def widened(
    model: Model, ranges: Mapping[str, Range], wider: Mapping[str, float], headroom: Mapping[str, float] = {}
) -> dict[str, Range]:
    """The ranges of a model with room: those of UINT8 ``wider`` times, those of INT16 ``headroom`` times, or HEADROOM.
    Constants and the network's inputs keep theirs."""
    graph = Graph(model.proto)
    kept = {*graph.constants, *graph.inputs}
    found = {}
    for name, measured in ranges.items():
        if name in kept or measured.uncut is not None:
            found[name] = measured
            continue
        factor, of_wide, wide = wider.get(name, 1.0), headroom.get(name, HEADROOM), measured.wide or measured
        room = Range(wide.min * of_wide, wide.max * of_wide)
        found[name] = Range(measured.min * factor, measured.max * factor, measured.bit, room)
    return found


def params_of(fixed: Model, float_model: Model, ranges: Mapping[str, Range]) -> list[QuantParam]:
    """The entries of a fixed model's quant file: of what it stores, of its weights (without them the SDK makes weights
    of one scale for a tensor whatever the level, wherever it is given a quant file), and of ``ranges``, which it was
    made from, those of what no operator stores but a domain has within it: a BatchNormalization's factor and offset
    work in 16 bits, and clip."""
    graph, stored = Graph(float_model.proto), quant_params(fixed)
    there = {param.name for param in stored}
    inner = [name for name in ranges if name in graph.producer and name not in there]
    return [*stored, *(QuantParam(name, ranges[name].at(INT16), 16) for name in inner)]


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
