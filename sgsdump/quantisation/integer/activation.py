"""A ReLU or Clip directly behind a convolution: no operator of its own, but limits of the convolution's output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph
from sgsdump.quantisation.fusion import Operator, is_convolution
from sgsdump.quantisation.integer.rounding import step
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class Step:
    """One node that computes, the name of what it puts out (an activation's where that is only its limits), and these
    limits of the real values."""

    node: NodeProto
    name: str
    low: float = -np.inf
    high: float = np.inf

    def limits(self, quant: Quant) -> tuple[float, float]:
        """The lowest and the highest stored value."""
        low, high = (end / step(quant) + quant.zero_point for end in (self.low, self.high))
        return float(np.ceil(low - 0.5)), float(np.floor(high + 0.5))


def steps_of(graph: Graph, operator: Operator) -> list[Step]:
    """The nodes of a chain that compute."""
    steps = [Step(node, node.output[0]) for node in operator.nodes]
    if len(steps) < 2 or not is_convolution(graph, operator.head):
        return steps
    activation = operator.nodes[1]
    # What makes an output of the graph stays an operator of its own.
    ends = None if activation.output[0] in graph.outputs else _ends(graph, activation, len(steps) == 2)
    return steps if ends is None else [Step(operator.head, activation.output[0], *ends), *steps[2:]]


def _ends(graph: Graph, node: NodeProto, last: bool) -> tuple[float, float] | None:
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip" or not last:
        return None
    ends = []
    for name, otherwise in zip((*node.input[1:3], "", "")[:2], (-np.inf, np.inf), strict=True):
        if name and name not in graph.constants:
            return None
        ends.append(float(graph.value(name).reshape(-1)[0]) if name else otherwise)
    return ends[0], ends[1]
