"""A ReLU or Clip directly behind a convolution: no operator of its own, but limits of the convolution's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph
from sgsdump.quantisation.fusion import Operator, is_convolution
from sgsdump.quantisation.integer.rounding import step
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import NodeProto


def without_limits(
    graph: Graph, operator: Operator, quant: Quant
) -> tuple[list[NodeProto], tuple[float, float] | None]:
    """The nodes of a chain that compute, and the limits that a ReLU directly behind a convolution sets instead."""
    nodes = list(operator.nodes)
    if len(nodes) != 2 or not is_convolution(graph, nodes[0]):
        return nodes, None
    if nodes[1].op_type == "Relu":
        return nodes[:1], (quant.zero_point, np.inf)
    if nodes[1].op_type != "Clip":
        return nodes, None
    ends = []
    for name, otherwise in zip((*nodes[1].input[1:3], "", "")[:2], (-np.inf, np.inf), strict=True):
        if name and name not in graph.constants:
            return nodes, None
        ends.append(float(graph.value(name).reshape(-1)[0]) if name else otherwise)
    low, high = (end / step(quant) + quant.zero_point for end in ends)
    return nodes[:1], (float(np.ceil(low - 0.5)), float(np.floor(high + 0.5)))
