"""Room in ranges for values that calibration images miss. An ONNX file cannot store these ranges.

INT16  HEADROOM times as wide, which costs half a bit of sixteen; values above the calibrated maximum are not clipped.
       Inputs of 16-bit convolutions get up to twice that. Sums keep 13 bits below a power of two that bounds them
       (2^K Δ δ, ``integer/convolution.py``). An input step Δ that puts the sums just below a power of two keeps up to
       one more bit, which is worth more than the 15th bit of the input.
UINT8  as wide as is cheap. Rounding a tensor adds noise N (``noise.py``, weighted by its effect on the outputs). A
       range m times as wide adds m² N. Together, the inputs of convolutions may add SHARE of the total noise. Each
       adds the same part p, except those limited by MOST:

    m² = 1 + p / N        between 1 and MOST, p such that Σ (m² - 1) N = SHARE · Σ N

If m is less than LEAST, which prevents no clipping, m = 1. A first layer dominates the error and every image fills its
range, so its range stays. A late layer adds little noise and rare images exceed its range, so it gets room.

INT16 weights get scales that suit their convolution's sums, channel by channel. A convolution shifts the sums of all
channels by one K, set by the channel that needs most (``integer/convolution.py``):

    2^K = max_c (R_c / (Δ δ_c)) / 2^13, to a power of two        R_c: how far channel c's sums and bias reach,
                                                                 Δ, δ_c: the steps of its input and of its weights

The sums of channel c then have steps of 2^K Δ δ_c. If small weights have a large bias, R_c / δ_c is large, and the sums
of channels with large weights keep few bits. A YOLOX has a depthwise convolution of 16 channels whose biases were a
tenth of the output off; this caused most of the error with everything at 16 bits. With δ_c proportional to R_c, all
channels keep 13 bits. INT16 weights have steps to spare: δ_c grows at most COARSER times, which leaves 12 bits, and no
further than lowers 2^K. INT8 weights have none to spare. An ONNX file cannot store ranges of weights either.
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
# Margin, as a logarithm, by which sums stay below a power of two.
SLACK = 0.01
SHARE, LEAST, MOST = 0.4, 1.1, 3.0
# Largest growth of INT16 weight scales. CLOSER keeps the scales of a convolution within the allowed ratio when files
# round them.
COARSER, CLOSER = 16.0, 0.9


def margins(layers: Sequence[Layer], noise: Noise, factors: np.ndarray, share: float = SHARE) -> dict[str, float]:
    """Return how much wider the range of each input of a convolution becomes.

    factors  factors by class, as scaled.
    share    used in place of SHARE.
    """
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
    """Split the budget equally; cap each share at its maximum in ``most``."""
    rest = len(most)
    for largest in np.sort(most):
        if budget <= largest * rest:
            break
        budget, rest = budget - largest, rest - 1
    return budget / max(rest, 1)


def headrooms(
    model: Model, ranges: Mapping[str, Range], sums: Mapping[str, Range], per_channel: bool
) -> dict[str, float]:
    """Return how much wider the INT16 range of each input of a convolution becomes.

    ranges       calibration ranges; those of weights already with room (``weight_room``).
    sums         calibration range of each convolution's output channels (``statistics.SideRanges.channels``).
    per_channel  one weight scale per output channel (above L1).
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
    """Return the divisor, between 1 and 2, of sums that reach 2^r that loses least to whole powers of two."""
    candidates = [0.0, *np.minimum(reaches - np.floor(reaches) + SLACK, 1.0)]
    lost = [np.sum(4.0 ** (np.ceil(reaches - down) - (reaches - down))) for down in candidates]
    return float(2.0 ** candidates[int(np.argmin(lost))])


def with_int16_room(
    model: Model, ranges: Mapping[str, Range], sums: Mapping[str, Range], per_channel: bool
) -> dict[str, Range]:
    """Return calibration ranges with room for values stored in INT16, and none for UINT8.

    sums         calibration range of each convolution's output channels (``statistics.SideRanges.channels``).
    per_channel  one weight scale per output channel (above L1): INT16 weights then get scales that suit their sums.
    """
    ranges = {**ranges, **(weight_room(model, ranges, sums) if per_channel else {})}
    return widened(model, ranges, {}, headrooms(model, ranges, sums, per_channel))


def widened(
    model: Model, ranges: Mapping[str, Range], wider: Mapping[str, float], headroom: Mapping[str, float] = {}
) -> dict[str, Range]:
    """Return the ranges with room: UINT8 ranges ``wider`` times, INT16 ranges ``headroom`` times, or HEADROOM.

    Constants and model inputs keep their ranges.
    """
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
    """Return the entries of a fixed model's quant file.

    They contain the stored tensors and the weights. Given a quant file without weights, the SDK uses one scale per
    tensor at every level. They also contain ``ranges`` of tensors inside a domain that no operator stores: the factor
    and offset of a BatchNormalization work in 16 bits, and clip.
    """
    graph, stored = Graph(float_model.proto), quant_params(fixed)
    there = {param.name for param in stored}
    inner = [name for name in ranges if name in graph.producer and name not in there]
    return [*stored, *(QuantParam(name, ranges[name].at(INT16), 16) for name in inner)]


def weight_room(model: Model, ranges: Mapping[str, Range], sums: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges of convolution weights, one value per output channel, for levels above L1.

    ``wide`` is set so that the channels share the bits of the sums better.

    sums  calibration range of each convolution's output channels (``statistics.SideRanges.channels``).
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
    """Return the ranges of weights for the maxima of the weights (``tops``) and sums (``reach``), [C] each."""
    needs = reach / tops
    least = float(max(needs.max() / COARSER, needs.min()))
    wide = np.maximum(tops, reach / least) if least > 0 else tops
    return np.maximum(wide, wide.max() / (CLOSER * WIDEST_RATIO))


def reach_of(graph: Graph, node: NodeProto, channels: Range) -> np.ndarray:
    """Return how far a convolution's sums and bias reach, per output channel or as one value."""
    bias: float | np.ndarray = 0.0
    if len(node.input) > 2 and node.input[2] in graph.constants:
        factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
        bias = graph.value(node.input[2]).astype(np.float64).reshape(-1) * factor
    away = (np.abs(bias), np.abs(channels.min - bias), np.abs(channels.max - bias))
    return np.asarray(np.max(np.broadcast_arrays(*away), axis=0))


def _tops(graph: Graph, node: NodeProto) -> np.ndarray:
    weight, axis = np.abs(graph.value(node.input[1]).astype(np.float64)), output_axis(graph, node)
    return weight.max(axis=tuple(index for index in range(weight.ndim) if index != axis))
