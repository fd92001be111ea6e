"""Tensors whose lowest and highest values follow from another tensor's, exactly, so that their values need not be read.

What only moves values keeps both ends; a Relu takes what lies below 0 to 0. A third of most networks' tensors is such.
"""

from __future__ import annotations

from collections.abc import Mapping

from sgsdump.models.graph import REARRANGING, Graph
from sgsdump.quantisation.ranges.statistics import Extremes


def followed(graph: Graph) -> dict[str, str]:
    """Each such tensor and what it is made of, in execution order; none that is made of a constant."""
    return {
        node.output[0]: node.input[0]
        for node in graph.nodes
        if node.op_type in {"Relu", *REARRANGING}
        and node.domain in ("", "ai.onnx")
        and node.input[0] not in graph.constants
    }


def with_followers(graph: Graph, extremes: Mapping[str, Extremes]) -> dict[str, Extremes]:
    """The extremes, and those that follow from them."""
    complete = dict(extremes)
    for name, source in followed(graph).items():
        if source in complete:
            low, high = complete[source]
            rectified = graph.producer[name].op_type == "Relu"
            complete[name] = Extremes(max(low, 0.0), max(high, 0.0)) if rectified else Extremes(low, high)
    return complete
