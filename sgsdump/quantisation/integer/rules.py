"""Which rule computes which kind of node: what the walk over the operators looks up.

A rule gives the value before its last rounding. What has no rule here is computed another way (see ``writer``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.integer.add import add
from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.multiply import multiply
from sgsdump.quantisation.integer.relu import relu
from sgsdump.quantisation.integer.softmax import softmax
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.value_range import Range

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True, eq=False)
class Call:
    """One node to compute. ``operands``: its inputs as integers; ``output``, ``range``: the scale that its result has
    to have, and the result's calibrated range."""

    emit: Emitter
    graph: Graph
    node: NodeProto
    operands: tuple[Integers, ...]
    output: Quant
    range: Range


def _add(call: Call) -> Unrounded:
    return add(call.emit, call.operands[0], call.operands[1], call.output)


def _subtract(call: Call) -> Unrounded:
    return add(call.emit, call.operands[0], call.operands[1], call.output, -1)


def _multiply(call: Call) -> Unrounded:
    largest = max(abs(call.range.low), abs(call.range.high))
    return multiply(call.emit, call.operands[0], call.operands[1], call.output, largest)


def _maximum(call: Call) -> Unrounded:
    """Its operands share one scale."""
    return Unrounded(call.emit.add("Max", [call.emit.doubles(operand) for operand in call.operands]))


def _relu(call: Call) -> Unrounded:
    return relu(call.emit, call.operands[0], call.output, call.range)


def _leaky(call: Call) -> Unrounded:
    return relu(call.emit, call.operands[0], call.output, call.range, attribute(call.node, "alpha", 0.01))


def _prelu(call: Call) -> Unrounded:
    slope = call.graph.value(call.node.input[1]).astype(np.float64)
    return relu(call.emit, call.operands[0], call.output, call.range, slope)


def _softmax(call: Call) -> Unrounded:
    return softmax(call.emit, call.operands[0], attribute(call.node, "axis", -1))


RULES: Mapping[str, Callable[[Call], Unrounded]] = {
    "Add": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "Max": _maximum,
    "Relu": _relu,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Softmax": _softmax,
}
# Whose second input is a parameter and no operand.
PARAMETRIC = ("PRelu",)
# Whose result is right for most values only.
NEARLY = {"Softmax": "a table that is right for 95 % of its values and within 1/32767 else"}
