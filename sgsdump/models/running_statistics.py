"""What BatchNormalizations say of the data that a network was trained on: the running mean and variance of each channel
that they read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgsdump.models.graph import Graph, attribute


@dataclass(frozen=True, eq=False)
class RunningStatistics:
    """Of one BatchNormalization, float64 [C]; ``spread`` is the standard deviation that it divides by, with epsilon.

    source  the tensor that it reads, channels on axis 1.
    output  what it puts out, and is called by.
    """

    source: str
    output: str
    mean: np.ndarray
    spread: np.ndarray
    epsilon: float


def running_statistics(graph: Graph) -> tuple[RunningStatistics, ...]:
    """Of each in execution order; none of those that are as they began, mean 0 and variance 1. Raises ModelError for
    damaged weights."""
    found = []
    for node in graph.nodes:
        if node.op_type != "BatchNormalization" or not all(name in graph.constants for name in node.input[3:5]):
            continue
        mean, variance = (graph.value(name).astype(np.float64).reshape(-1) for name in node.input[3:5])
        epsilon = float(attribute(node, "epsilon", 1e-5))
        if (mean.any() or not (variance == 1).all()) and (variance >= 0).all():
            spread = np.sqrt(variance + epsilon)
            found.append(RunningStatistics(node.input[0], node.output[0], mean, spread, epsilon))
    return tuple(found)
