"""The noise that 8 bits add to convolutions, as a function of the channel factors.

A convolution reads a tensor with one step for all channels. Its weights have one step per output channel (at L1 one for
all). With factors a of the input channels and b of the output channels, the added noise in units of the unscaled output
channel o is as follows (W: weights, summed over taps if a channel has several):

    inputs    (Δ² / 12) Σ_i W²_oi / a_i²          Δ   = (max a_i h_i - min a_i l_i) / 255
    weights   (δ_o² / 12) Σ_i taps a_i² P_i        δ_o = max_i |W_oi| / a_i / 127, at L1 max_o (b_o ·) / b_o
    sums      (2^K Δ δ_o)² / 12                    2^K ≥ max_o R_o / (Δ δ_o) / 2^13, where K > 0

l and h are the minimum and maximum of channel i on the images, including 0. P is its power, or its variance if biases
are corrected afterwards (``biases.py``), which removes the mean error of rounding the weights. R_o is the larger of the
bias and what is added to it. Sums of products lose K bits, as many as the channel with the finest weights needs
(``integer/convolution.py``). The noise of each channel is weighted by its effect on the model's outputs
(``sensitivity.py``). Rounding is modelled as uniform noise, step² / 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, NodeProto

from sgsdump.fixedpoint.curing.channels import ChannelFigures
from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.fixedpoint.curing.scaling import Scaled, Scaling
from sgsdump.fixedpoint.quantisation.analysis import output_axis
from sgsdump.fixedpoint.quantisation.integer.convolution import BIAS_BITS
from sgsdump.fixedpoint.quantisation.integer.emitter import log2_ceiling
from sgsdump.fixedpoint.quantisation.quant_plan import EMPTY_TOP, WIDEST_RATIO
from sgsdump.models.graph import Graph, attribute

UINT8_STEPS, INT8_STEPS = 255.0, 127.0
EMPTY, TINIEST = 1.5e-6, 1e-300
# A step this far below its tensor's would be 0 in float32.
NOTHING = 1e-12


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution as seen by the noise model.

    before   class of each input channel; ``after``: of each output channel.
    squares  [O, I] sum of squared weights over the taps; 0 if a group does not read a channel.
    largest  [O, I] largest magnitude over the taps; 0 likewise.
    taps     number of taps.
    reach    [O] the larger of the bias and of how far the channel's values are from it.
    counts   [O] weight of a channel's squared noise, initially 1 over the power of the layer's output.
    apart    weight of noise that differs from position to position, relative to noise of weights.
    """

    node: NodeProto
    before: np.ndarray
    after: np.ndarray
    squares: np.ndarray
    largest: np.ndarray
    taps: int
    reach: np.ndarray
    counts: np.ndarray
    apart: float = 1.0


def layers_of(proto: ModelProto, scaling: Scaling, figures: Mapping[str, ChannelFigures]) -> list[Layer]:
    """Return the convolutions whose input and output have statistics."""
    editing = Editing(proto)
    graph, found = editing.graph, []
    for each in scaling.nodes:
        source, output = each.node.input[0], each.node.output[0]
        if source in figures and output in figures and figures[source].low.size == each.before.size:
            squares, largest, taps = by_channel(graph, each)
            bias, seen = editing.bias(each.node, each.after.size), figures[output]
            reach = np.max(np.abs([bias, seen.low - bias, seen.high - bias]), axis=0)
            energy = float(seen.power.sum())
            counts = np.full(bias.size, 1 / energy if energy > 0 else 0.0)
            found.append(Layer(each.node, each.before, each.after, squares, largest, taps, reach, counts))
    return [layer for layer in found if layer.counts.any()]


def weighted(
    layers: Sequence[Layer], noise: Noise, sensitivity: Mapping[str, np.ndarray], rounding: Mapping[str, np.ndarray]
) -> list[Layer]:
    """Return the layers with noise weighted by its effect on the model's outputs.

    All outputs count equally: the noise of each one is a part of its error with all factors 1.

    sensitivity  by layer, [outputs], the effect of noise in the layer.
    rounding     by tensor, [outputs], the effect of rounding its channels to ``full_steps`` (``sensitivity.py``).
    """
    ones = np.ones(1 + max(int(max(layer.before.max(), layer.after.max())) for layer in layers))
    moved = [sensitivity[layer.node.output[0]] / max(noise.added(layer).sum(), TINIEST) for layer in layers]
    shares = [np.repeat(each[:, None], layer.counts.size, axis=1) for layer, each in zip(layers, moved)]
    own = [noise.by_channel(layer, ones).sum(axis=0) for layer in layers]
    whole = np.sum([share @ each for share, each in zip(shares, own)], axis=0)
    some = whole > 0
    found = [
        replace(layer, counts=(share[some] / whole[some, None]).sum(axis=0)) for layer, share in zip(layers, shares)
    ]
    expected: dict[str, float] = {}
    for layer in found:
        name = layer.node.input[0]
        steps = full_steps(noise.figures[name])
        expected[name] = expected.get(name, 0.0) + float(layer.squares @ steps**2 @ layer.counts) / 12
    measured = {name: float((moved[some] / whole[some]).sum()) for name, moved in rounding.items()}
    apart = {name: measured[name] / expected[name] for name in measured if expected.get(name, 0.0) > 0}
    return [replace(layer, apart=apart.get(layer.node.input[0], 1.0)) for layer in found]


def full_steps(figures: ChannelFigures) -> np.ndarray:
    """Return the step of each channel with a range of its own, [C].

    A channel of zeros, or one negligible beside the others, gets the step of its tensor.
    """
    tops = figures.top
    return np.where(tops > NOTHING * tops.max(), tops, max(tops.max(), TINIEST)) / UINT8_STEPS


def by_channel(graph: Graph, each: Scaled) -> tuple[np.ndarray, np.ndarray, int]:
    """Return sum of squared weights over the taps [O, I], largest magnitude [O, I], and number of taps."""
    node, weight = each.node, graph.value(each.node.input[1]).astype(np.float64)
    groups = attribute(node, "group", 1) if node.op_type in ("Conv", "ConvTranspose") else 1
    if node.op_type == "ConvTranspose":
        parts = np.split(weight, groups, axis=0)
        parts = [np.moveaxis(part, 1, 0) for part in parts]
    else:
        rows = np.moveaxis(weight, output_axis(graph, node), 0)
        parts = np.split(rows, groups, axis=0)
    parts = [part.reshape(part.shape[0], part.shape[1], -1) for part in parts]
    squares = np.zeros((each.after.size, each.before.size))
    largest = np.zeros_like(squares)
    row = column = 0
    for part in parts:
        place = slice(row, row + part.shape[0]), slice(column, column + part.shape[1])
        squares[place], largest[place] = (part**2).sum(axis=2), np.abs(part).max(axis=2)
        row, column = row + part.shape[0], column + part.shape[1]
    return squares, largest, parts[0].shape[2]


class Noise:
    """The noise of convolutions as a function of the factors, an array by class.

    per_channel  one weight scale per output channel (above L1).
    corrected    biases remove the mean error.
    exact        tensors that are not rounded, such as images.
    """

    def __init__(
        self,
        figures: Mapping[str, ChannelFigures],
        per_channel: bool = True,
        corrected: bool = False,
        exact: frozenset[str] = frozenset(),
    ):
        self.figures, self.per_channel, self.corrected, self.exact = figures, per_channel, corrected, exact

    def of(self, layer: Layer, factors: np.ndarray) -> float:
        return float(self.by_channel(layer, factors).sum(axis=0) @ layer.counts)

    def parts(self, layer: Layer, factors: np.ndarray) -> tuple[float, ...]:
        """Return the weighted noise of rounding a layer's input, weights and sums."""
        return tuple(float(part @ layer.counts) for part in self.by_channel(layer, factors))

    def added(self, layer: Layer) -> np.ndarray:
        """Return the noise [O] that weight noise of each channel's own size adds to the channel."""
        size = layer.squares.sum(axis=1) / ((layer.largest > 0).sum(axis=1) * layer.taps).clip(1)
        return size * ((layer.largest > 0) @ self.figures[layer.node.input[0]].power) * layer.taps

    def power(self, layer: Layer) -> np.ndarray:
        """Return the power [I] of the layer's input that multiplies the rounding error of the weights."""
        read = self.figures[layer.node.input[0]]
        return np.maximum(read.power - read.mean**2, 0) if self.corrected else read.power

    def by_channel(self, layer: Layer, factors: np.ndarray) -> np.ndarray:
        """Return the noise of input, weights and sums in each output channel, [3, O], in unscaled units."""
        a, b = factors[layer.before], factors[layer.after]
        read = self.figures[layer.node.input[0]]
        step = (max((a * read.high).max(), 0.0) - min((a * read.low).min(), 0.0)) / UINT8_STEPS
        reads = (layer.largest > 0) @ (a**2 * self.power(layer)) * layer.taps
        scales = weight_scales((layer.largest / a).max(axis=1) * b, self.per_channel) / b
        rounded = sums_step(scales * step, layer.reach) * scales * step
        inputs = 0.0 if layer.node.input[0] in self.exact else step**2 * layer.apart
        return np.stack([inputs * (layer.squares @ a**-2.0), scales**2 * reads, rounded**2 * layer.apart]) / 12


def weight_scales(tops: np.ndarray, per_channel: bool) -> np.ndarray:
    """Return the weight steps of each output channel from its largest magnitude (``quant_plan.weight_quant``)."""
    tops = tops if per_channel else np.full_like(tops, tops.max())
    empty = tops <= EMPTY
    tops = np.where(empty, EMPTY_TOP, tops)
    if tops.max() > WIDEST_RATIO * tops.min():
        tops = np.full_like(tops, tops.max())
    return tops / INT8_STEPS


def sums_step(steps: np.ndarray, reach: np.ndarray) -> float:
    """Return the rounding step of a layer's sums, in units of the product of both steps; 0 if sums are exact."""
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = np.nanmax(np.where(reach > 0, reach / steps, 0.0))
    bits = log2_ceiling(float(largest)) - BIAS_BITS if largest > 0 else 0
    return 2.0**bits if bits > 0 else 0.0
