"""Which rule computes which kind of node: what the walk over the operators looks up.

A rule gives the value before its last rounding. What has no rule here is computed another way (see ``writer``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rules.add import add
from sgsdump.quantisation.integer.rules.constant import add_to, multiply_by
from sgsdump.quantisation.integer.rules.multiply import multiply
from sgsdump.quantisation.integer.rules.relu import relu
from sgsdump.quantisation.integer.rules.softmax import softmax
from sgsdump.quantisation.integer.scaling import requantise
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True, eq=False)
class Call:
    """One node to compute. ``operands``: its inputs as integers, without the ``constant`` that one is added to or
    multiplied by; ``output``, ``range``: the scale that its result has to have, and the result's calibrated range."""

    emit: Emitter
    graph: Graph
    node: NodeProto
    operands: tuple[Integers, ...]
    output: Quant
    range: Range
    constant: np.ndarray | None = None


def _add(call: Call) -> Unrounded:
    if call.constant is not None:
        return add_to(call.emit, call.operands[0], call.constant, call.output)
    return add(call.emit, call.operands[0], call.operands[1], call.output)


def _subtract(call: Call) -> Unrounded:
    if call.constant is not None:
        return add_to(call.emit, call.operands[0], -call.constant, call.output)
    return add(call.emit, call.operands[0], call.operands[1], call.output, -1)


def _multiply(call: Call) -> Unrounded:
    if call.constant is not None:
        return multiply_by(call.emit, call.operands[0], call.constant, call.output)
    largest = max(abs(call.range.low), abs(call.range.high))
    return multiply(call.emit, call.operands[0], call.operands[1], call.output, largest)


def _maximum(call: Call) -> Unrounded:
    """Its operands share one scale; a constant is brought to it first."""
    operands = [
        operand
        if operand.quant == call.output
        else call.emit.inner(requantise(call.emit, operand, call.output), call.output)
        for operand in call.operands
    ]
    return Unrounded(call.emit.add("Max", [call.emit.doubles(operand) for operand in operands]))


def _relu(call: Call) -> Unrounded:
    return relu(call.emit, call.operands[0], call.output, call.range)


def _leaky(call: Call) -> Unrounded:
    return relu(call.emit, call.operands[0], call.output, call.range, attribute(call.node, "alpha", 0.01))


def _prelu(call: Call) -> Unrounded:
    slope = call.graph.value(call.node.input[1]).astype(np.float64)
    return relu(call.emit, call.operands[0], call.output, call.range, slope)


def _softmax(call: Call) -> Unrounded:
    return softmax(call.emit, call.operands[0], call.output, attribute(call.node, "axis", -1))


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
# Of which one operand may be a constant: either, or the second alone.
EITHER_CONSTANT = ("Add", "Mul")
SECOND_CONSTANT = ("Sub",)


def constant_of(graph: Graph, node: NodeProto) -> str | None:
    """The constant that a node adds or multiplies by; None where both operands are tensors."""
    names = node.input[:2] if node.op_type in EITHER_CONSTANT else ()
    names = node.input[1:2] if node.op_type in SECOND_CONSTANT else names
    constants = [name for name in names if name in graph.constants and graph.value(name).dtype.kind == "f"]
    return constants[0] if len(constants) == 1 else None
