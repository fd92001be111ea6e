"""Hardware rounding on the way to a stored tensor, for the float approximation of a plan.

A convolution's accumulator is cut to some 14 bits before bias and multiplier (``integer/convolution.py``). Compared
with 8 bits this is little, but it decides their rounding direction. In a model at 16 bits it is most of the error, 10
to 40 times that of INT16 itself. The graph of all plans does the same; with g the step of the cut accumulator,

    out = round(conv(x, w / g) + zero) * gain + addend              see ``Accumulated``

Constant factors and addends of a tensor (a separate BatchNormalization) are fed as the hardware stores them. The addend
of a UINT8 tensor is a number of whole half steps plus a quarter step (``_constants``).

A product is cut to 15 bits (``integer/arithmetic.py``), and each operator inside a fused chain to INT16 over its own
range. Each rounding to a grid of g adds noise with variance g^2 / 12, which later operators scale. A tensor stored as
INT16 with the scale s is therefore rounded in steps of

    s' = sqrt(s^2 + 12 * sum of the variances)

instead of s, and so has the same noise without a further pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import GROUP_OUTPUT, is_convolution, of_groups
from sgsdump.fixedpoint.quantisation.integer import rule_of
from sgsdump.fixedpoint.quantisation.integer.arithmetic import PRODUCT_BITS
from sgsdump.fixedpoint.quantisation.integer.convolution import Quants, kernel_of, requantisation
from sgsdump.fixedpoint.quantisation.integer.emitter import (
    half_away,
    log2_ceiling,
    ratio,
    reach,
    shift,
    step,
    steps,
    store_weight,
)
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges
from sgsdump.fixedpoint.quantisation.tensor_scales import INT8, INT16, int16_quant, joined
from sgsdump.fixedpoint.quantisation.type_rules import SPREAD
from sgsdump.models.graph import Graph, attribute, dtype_of
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

    from sgsdump.fixedpoint.quantisation.type_rules import Operator

# Operators whose accumulator the graph of all plans rounds; for others it counts as noise.
ACCUMULATING = ("Conv", "ConvTranspose")
ACTIVATIONS = ("Relu", "Clip")
# The accumulator rounds halves away from zero, Round to even: values are moved past the middle.
TIES = 1 + 2.0**-21


@dataclass(frozen=True, eq=False)
class Rounded:
    """The rounding of an operator under one plan.

    head       the convolution at its start, or None.
    constants  constants that its nodes multiply by or add, by output.
    quant      quant with steps that give the noise of the hardware; None for its own.
    """

    head: Accumulated | None = None
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    quant: Quant | None = None


@dataclass(frozen=True, eq=False)
class Accumulated:
    """A convolution under one plan, in float32, one value per output channel.

    grid    real step of the cut accumulator; weights are divided by it.
    zero    contribution of the input's zero point, in such steps.
    gain    real value of a step after the hardware's multiplier.
    addend  real value that is added then.
    key     differs if the grid differs.
    """

    grid: np.ndarray
    zero: np.ndarray
    gain: np.ndarray
    addend: np.ndarray
    key: bytes

    def in_steps(self, node: NodeProto, weight: np.ndarray) -> np.ndarray:
        """Return a convolution's weights divided by the grid of its accumulator."""
        kernel = kernel_of(node, "", weight)
        assert kernel is not None, "of a convolution"
        return weight / kernel.per_channel(self.grid)


@dataclass(frozen=True)
class OnHardware:
    """Makes a trial round like the hardware; ``side``: the side ranges of calibration."""

    side: SideRanges = NOTHING_BESIDE

    def rounding(
        self, graph: Graph, ranges: Mapping[str, Range], weight: Callable[[NodeProto, np.dtype], Quant]
    ) -> HardwareRounding:
        return HardwareRounding(graph, ranges, self.side.channels, weight)


@dataclass(frozen=True, eq=False)
class HardwareRounding:
    """Hardware rounding of one float model.

    ranges    of every tensor, including those inside chains.
    channels  by output of a convolution, the ranges of its channels.
    weight    returns the quant of a convolution's weights for a type.
    """

    graph: Graph
    ranges: Mapping[str, Range]
    channels: Mapping[str, Range]
    weight: Callable[[NodeProto, np.dtype], Quant]
    _known: dict[tuple[object, ...], Rounded] = field(default_factory=dict)
    _same: dict[tuple[object, ...], tuple[tuple[Quant | None, ...], Rounded]] = field(default_factory=dict)
    _sums: dict[tuple[str, np.dtype], np.ndarray | None] = field(default_factory=dict)

    def of(self, operator: Operator, tensors: Mapping[str, Quant]) -> Rounded:
        """Return the rounding of an operator for these quants; cached by identity, because most plans share them."""
        quants = (*map(tensors.get, operator.inputs), *map(tensors.get, operator.outputs))
        same = (operator.outputs[0], *map(id, quants))
        if same not in self._same:
            key = (operator.outputs[0], *map(_facts, quants))
            if key not in self._known:
                self._known[key] = self._rounded(operator, tensors)
            self._same[same] = quants, self._known[key]  # keep the quants, so that no other object gets their identity
        return self._same[same][1]

    @staticmethod
    def accumulates(node: NodeProto) -> bool:
        """Return whether the graph of all plans rounds the node's accumulator."""
        return node.op_type in ACCUMULATING

    def spread(self, operators: Iterable[Operator]) -> dict[str, int]:
        """Return the nodes that multiply by or add a constant, by output, with the index of the constant."""
        return {
            node.output[0]: place
            for operator in operators
            for node in operator.nodes
            if (place := self._place(node)) is not None
        }

    def _rounded(self, operator: Operator, tensors: Mapping[str, Quant]) -> Rounded:
        found = Rounded(self._accumulated(operator, tensors), self._constants(operator, tensors))
        own = tensors.get(operator.outputs[0])
        if own is None or own.dtype != INT16:
            return found
        variance = self._variance(operator, tensors, found.head)
        scale = float(np.sqrt(step(own) ** 2 + 12 * variance))
        return replace(found, quant=replace(own, scale=scale)) if variance > 0 else found

    def _variance(self, operator: Operator, tensors: Mapping[str, Quant], head: Accumulated | None) -> float:
        """Return the noise of all roundings except the last one and those that the graph performs."""
        nodes = list(operator.nodes)
        if len(nodes) > 1 and nodes[1].op_type in ACTIVATIONS and is_convolution(self.graph, nodes[0]):
            del nodes[1]  # the limits of the convolution's output
        variance = 0.0
        for index, node in enumerate(nodes):
            variance *= self._gain(node)
            if node is operator.head and head is not None and node.op_type not in ACCUMULATING:
                variance += float(np.mean(head.grid.astype(np.float64) ** 2)) / 6  # the bias is rounded too
            elif node.op_type == "Mul" and not self._constant(node):
                variance += self._product_grid(node, tensors) ** 2 / 12
            if index < len(nodes) - 1:
                variance += step(self._inner(node.output[0], nodes[index + 1])) ** 2 / 12
        return variance

    def _gain(self, node: NodeProto) -> float:
        """Return the factor by which a node scales the energy of earlier noise."""
        if node.op_type == "Mul" and (constant := self._constant(node)):
            return float(np.mean(np.square(self.graph.value(constant).astype(np.float64))))
        return 1 / 16 if node.op_type == "Sigmoid" else 1.0

    def _constant(self, node: NodeProto) -> str:
        place = self._place(node)
        return "" if place is None else node.input[place]

    def _place(self, node: NodeProto) -> int | None:
        """Return the index of the constant that a node multiplies by or adds, per channel or for all, or None."""
        if node.op_type not in SPREAD:
            return None
        places = [place for place, name in enumerate(node.input) if name in self.graph.constants]
        if len(places) != 1 or (node.op_type == "Sub" and places == [0]):
            return None
        tensor, shape = (
            self.graph.constants[node.input[places[0]]],
            self.graph.shapes.get(node.input[1 - places[0]], ()),
        )
        size = math.prod(tensor.dims)
        spread = max(tensor.dims, default=1) == size and (size == 1 or math.prod(n or 1 for n in shape[1:]) != size)
        return places[0] if spread and dtype_of(tensor.data_type) == np.float32 else None

    def _constants(self, operator: Operator, tensors: Mapping[str, Quant]) -> dict[str, np.ndarray]:
        """Return the constants as the hardware stores them; see ``arithmetic``.

        A factor becomes a 15-bit multiplier, an addend a number of half steps of the output. The sum is in half steps
        too; the final halving rounds up, which adds a quarter step on average.
        """
        found: dict[str, np.ndarray] = {}
        for index, node in enumerate(operator.nodes):
            place = self._place(node)
            if place is None:
                continue
            output = self._quant_of(operator, index, tensors)
            values = self.graph.value(node.input[place])
            found[node.output[0]] = values
            if output is None or not np.isfinite(values).all():
                continue
            if node.op_type != "Mul":
                sign = -1.0 if node.op_type == "Sub" else 1.0
                halves = half_away(np.asarray(2 * sign * np.float32(values) / np.float32(step(output))))
                found[node.output[0]] = (sign * (halves / 2 + 0.25) * step(output)).astype(np.float32)
            elif (source := self._source(operator, index, place, tensors)) is not None:
                times = (np.float32(ratio(step(source), output)) * np.float32(values)).astype(np.float64)
                if largest := float(np.abs(times).max(initial=0.0)):
                    whole = half_away(times * 2.0 ** shift(largest)) * 2.0 ** -shift(largest)
                    found[node.output[0]] = (whole * step(output) / step(source)).astype(np.float32)
        return found

    def _quant_of(self, operator: Operator, index: int, tensors: Mapping[str, Quant]) -> Quant | None:
        """Return the quant of the output of one of an operator's nodes."""
        following = operator.nodes[index + 1 :]
        if not following:
            return tensors.get(operator.outputs[0])
        return self._inner(operator.nodes[index].output[0], following[0])

    def _source(self, operator: Operator, index: int, place: int, tensors: Mapping[str, Quant]) -> Quant | None:
        node = operator.nodes[index]
        name = node.input[1 - place]
        return tensors.get(name) or (self._inner(name, node) if index else None)

    def _product_grid(self, node: NodeProto, tensors: Mapping[str, Quant]) -> float:
        """Return the step of a product; see ``arithmetic``: s_a * s_b * 2^h."""
        scale = 1.0
        for name in node.input[:2]:
            scale *= step(tensors[name]) if name in tensors else step(self._inner(name, node))
        bounds = self.ranges.get(node.output[0])
        if bounds is None or not scale:
            return 0.0
        largest = max(abs(bounds.low), abs(bounds.high)) / scale
        return scale * 2.0 ** max(log2_ceiling(largest) - PRODUCT_BITS, 0) if largest else 0.0

    def _inner(self, name: str, following: NodeProto) -> Quant:
        """Return the quant of a tensor inside a chain."""
        rule, bounds = rule_of(following.op_type), self.ranges.get(name)
        if bounds is None:
            return int16_quant(0.0, 0.0)
        bounds = bounds.at(INT16)
        return int16_quant(bounds.low, max(bounds.high, rule.reach if rule else 0.0))

    def _accumulated(self, operator: Operator, tensors: Mapping[str, Quant]) -> Accumulated | None:
        """Return the accumulator of an operator's first convolution; None if there is no such rule."""
        node = operator.head
        source = tensors.get(node.input[0]) if is_convolution(self.graph, node) else None
        kept = [each for each in operator.nodes[1:] if each.op_type not in ACTIVATIONS]
        output = self._inner(node.output[0], kept[0]) if kept else tensors.get(operator.outputs[0])
        if source is None or output is None:
            return None
        weights = self.weight(node, INT16 if source.dtype == INT16 else INT8)
        sums = self._channel_sums(node, weights)
        bias = None if sums is None else self._bias(node, sums.size)
        if sums is None or bias is None:
            return None
        groups = attribute(node, "group", 1) if node.op_type == "Conv" else 1
        groups = 1 if groups == sums.size else groups
        name = node.output[0]
        parts = joined(self.channels, of_groups(GROUP_OUTPUT, node)) if groups > 1 else None
        channels = self.channels.get(name) or parts or self.ranges.get(name) or reach(output)
        numbers = requantisation(sums, bias, channels, Quants(source, weights, output), groups)
        grid = step(source) * steps(weights, sums.size) * 2.0**numbers.k
        gain = numbers.mul * 2.0 ** (numbers.k - numbers.n) * step(output)
        addend = numbers.bias * gain - output.zero_point * step(output)
        key = np.array([step(source), *np.unique(numbers.k)]).tobytes()
        return Accumulated(
            (grid / TIES).astype(np.float32),
            (numbers.zero / 2.0**numbers.k * TIES).astype(np.float32),
            gain.astype(np.float32),
            addend.astype(np.float32),
            key,
        )

    def _channel_sums(self, node: NodeProto, quant: Quant) -> np.ndarray | None:
        key = (node.output[0], np.dtype(quant.dtype))
        if key not in self._sums:
            kernel = kernel_of(node, "", store_weight(self.graph.value(node.input[1]), quant))
            self._sums[key] = None if kernel is None else kernel.sums()
        return self._sums[key]

    def _bias(self, node: NodeProto, count: int) -> np.ndarray | None:
        """Return the bias; zeros if absent, None if it is not a constant with one value per output channel."""
        if len(node.input) < 3 or not node.input[2]:
            return np.zeros(count)
        if node.input[2] not in self.graph.constants:
            return None
        values = self.graph.value(node.input[2]).astype(np.float64).reshape(-1)
        values = values * (attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0)
        return np.broadcast_to(values, (count,)) if values.size in (1, count) else None


def _facts(quant: Quant | None) -> tuple[object, ...]:
    return () if quant is None else (quant.dtype, quant.scale, quant.zero_point)
