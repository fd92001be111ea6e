"""How far a quant plan's outputs are from the float model's: what ``tune`` minimises.

error of a watched tensor = Σ(fixed - float)² / Σ float²,  both sums over all pictures.

``tuning.combined_error`` makes one number of several tensors' errors. The watched tensors are the network's outputs,
but where a Softmax makes an output, its input (the logits): a softmax that is nearly one-hot hides every error until it
flips.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.metrics import Sums, cos, merged_sums, ratio, rmse
from sgsdump.comparison.sums.summation import pair_sums
from sgsdump.models.graph import REARRANGING, Graph
from sgsdump.tensors.tensor import Values

if TYPE_CHECKING:
    from onnx import ModelProto, TypeProto

# Operators that pass a Softmax's values through unchanged.
_PASSING_THROUGH = REARRANGING | {"Cast"}
_SOFTMAX = ("Softmax", "LogSoftmax")


def watched_tensors(proto: ModelProto) -> list[str]:
    """The tensors the error is measured on, each once, in the order of the outputs they represent."""
    return list(dict.fromkeys(watched_by_output(proto).values()))


def watched_by_output(proto: ModelProto) -> dict[str, str]:
    """For each output of the network the tensor that the error is measured on in its place. What no operator makes has
    no error, and of sequences, maps and text none is measured."""
    graph = Graph(proto)
    outputs = [info.name for info in proto.graph.output if info.name in graph.producer and _is_of_numbers(info.type)]
    return {name: _watched(graph, name) for name in outputs}


def _is_of_numbers(kind: TypeProto) -> bool:
    from onnx import TensorProto

    if kind.WhichOneof("value") == "tensor_type":
        return bool(kind.tensor_type.elem_type != TensorProto.STRING)
    return kind.WhichOneof("value") is None


def _watched(graph: Graph, output: str) -> str:
    name = output
    while (node := graph.producer.get(name)) is not None:
        if node.op_type in _SOFTMAX:
            return node.input[0]
        if node.op_type not in _PASSING_THROUGH:
            break
        name = node.input[0]
    return output


@dataclass(frozen=True)
class Score:
    """A plan on some pictures: for each tensor the sums over all of them, and the sum of the user's metric."""

    pictures: int
    sums: Mapping[str, Sums]
    metric: float = 0.0

    def error(self, name: str) -> float:
        """See the module's formula; infinite when a plan gives NaN or infinity. Raises nothing."""
        sums = self.sums[name]
        error = ratio(sums.dd, sums.bb) if sums.dd else 0.0
        return error if np.isfinite(error) else float("inf")

    def cos(self, name: str) -> float:
        return cos(self.sums[name])

    def rmse(self, name: str) -> float:
        return rmse(self.sums[name])

    @property
    def mean_metric(self) -> float:
        return self.metric / self.pictures


def score(outputs: Mapping[str, np.ndarray], floats: Mapping[str, np.ndarray], metric: float = 0.0) -> Score:
    """One picture's outputs against the float model's."""
    return Score(1, {name: pair_sums(Values(outputs[name]), Values(floats[name])) for name in floats}, metric)


def total(scores: Iterable[Score]) -> Score:
    """All pictures together; at least one."""
    scores = list(scores)
    sums = {name: merged_sums(s.sums[name] for s in scores) for name in scores[0].sums}
    return Score(sum(s.pictures for s in scores), sums, sum(s.metric for s in scores))
