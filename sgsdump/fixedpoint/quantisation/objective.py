"""The error that ``tune`` minimises: how far the outputs of a quant plan are from the float model's.

error of a watched tensor = Σ(fixed - float)² / Σ float²,  both sums over all images.

``tuning.combined_error`` combines the errors of several tensors. The watched tensors are the outputs of the model. If a
Softmax makes an output, its input (the logits) is watched instead, because a nearly one-hot Softmax hides every error
until it flips. If the logits replace only the Softmax, ``by_probability`` weights them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.metrics import Sums, cos, merged_sums, ratio, rmse
from sgsdump.comparison.sums.summation import pair_sums
from sgsdump.errors import ValuesError
from sgsdump.models.graph import REARRANGING, Graph, attribute, needs
from sgsdump.tensors.tensor import Values

if TYPE_CHECKING:
    from onnx import ModelProto, TypeProto

# Operators that pass a Softmax's values through unchanged.
_PASSING_THROUGH = REARRANGING | {"Cast"}
_SOFTMAX = ("Softmax", "LogSoftmax")
# Their outputs are indices, which jump on small changes of the values.
INDEX_OPERATORS = frozenset(("ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "TopK", "Unique"))
# Their outputs depend on values but are not values.
_COMPARING = frozenset("And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor".split())
# A tensor made only by these has the same error as its source.
_TAKING_PARTS = REARRANGING | {"Cast", "Gather", "Slice"}
_NO_AXES: Mapping[str, int] = MappingProxyType({})
ALL_ZERO = "the model's outputs are zero or empty on every image, so no error can be measured. Use other images"
# A logit this far below the maximum of its row has a probability of at most 2e-5; the hardware's Softmax makes it 0.
BELOW_TOP = 11.0
_WHOLE = (2, 3, 4, 5, 6, 7, 9, 12, 13)  # of TensorProto: integers and booleans


def watched_tensors(proto: ModelProto) -> list[str]:
    """Return the tensors that the error is measured on, without duplicates, in the order of the outputs."""
    return list(dict.fromkeys(watched_by_output(proto).values()))


def watched_by_output(proto: ModelProto) -> dict[str, str]:
    """Return, for each output of the model, the tensor that the error is measured on.

    An output without a producer has no error. Sequences, maps and text are not measured. Integers and tensors picked by
    index (``left_out_outputs``) have no meaningful error. The tensors that they are picked from replace them, unless a
    measured output depends on those.
    """
    graph = Graph(proto)
    picked = _picked(graph)
    outputs = [
        info.name
        for info in proto.graph.output
        if info.name in graph.producer and _is_of_numbers(info.type) and info.name not in picked
    ]
    watched = {name: _watched(graph, name) for name in outputs}
    judged = _leading_to(graph, watched.values())
    makers = (node for node in graph.nodes if any(name in picked for name in node.output))
    sources = (source for node in makers for name in node.input for source in _compared(graph, name, picked))
    by_origin = {_origin(graph, name): name for name in reversed(list(sources)) if name not in judged}
    return watched | {name: _watched(graph, name) for name in reversed(by_origin.values())}


def softmax_axes(proto: ModelProto) -> dict[str, int]:
    """Return the Softmax axis for each watched tensor that replaces a Softmax output and is not an output itself."""
    graph, watched = Graph(proto), watched_by_output(proto)
    logits = {name for output, name in watched.items() if output != name} - set(watched)
    return {
        node.input[0]: attribute(node, "axis", -1)
        for node in graph.nodes
        if node.op_type in _SOFTMAX and node.input[0] in logits
    }


def probabilities(logits: np.ndarray, axis: int) -> np.ndarray:
    """Return the Softmax in float64; NaN for rows whose largest value is not finite."""
    with np.errstate(invalid="ignore"):
        exp = np.exp(logits.astype(np.float64) - logits.max(axis=axis, keepdims=True))
        return np.asarray(exp / exp.sum(axis=axis, keepdims=True))


def by_probability(
    values: np.ndarray, against: np.ndarray, axis: int, mean: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of both sides, minus ``mean``, times the probabilities of ``against``.

    Logits BELOW_TOP of their row in ``against`` become 0 on both sides. NaN and +inf stay, and so do rows of
    ``against`` whose largest value is not finite.
    """
    values, real = values.astype(np.float64), against.astype(np.float64)
    top = real.max(axis=axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.where(real >= top - BELOW_TOP, probabilities(real, axis), 0.0)
        weights = np.where(np.isfinite(top), weights, 1.0)
        odd = np.where(np.isnan(values) | (values == np.inf), values, 0.0)
        ours = np.where(weights > 0, (values - mean) * weights, odd)
        return ours, np.where(weights > 0, (real - mean) * weights, 0.0)


def left_out_outputs(proto: ModelProto, judged: Container[str]) -> dict[str, str]:
    """Return the outputs that no error is measured on, and the reasons.

    judged  the tensors that an error was measured on.
    """
    graph = Graph(proto)
    picked, watched = _picked(graph), watched_by_output(proto)
    reasons = {}
    for name in graph.outputs:
        if name in picked:
            reasons[name] = "which holds indices or values picked by index"
        elif watched.get(name, name) not in judged:
            reasons[name] = "whose error cannot be measured (its shape depends on the values, or it is not numeric)"
    return reasons


def _picked(graph: Graph) -> set[str]:
    """Return the integer tensors that depend on values, and all tensors computed from them."""
    picked: set[str] = set()
    for node in graph.nodes:
        if node.op_type in INDEX_OPERATORS or picked & set(node.input):
            outputs = list(node.output)
            picked |= set(outputs[1:] if node.op_type == "TopK" and not picked & set(node.input) else outputs)
    integers = {
        info.name
        for info in graph.proto.graph.output
        if info.type.WhichOneof("value") == "tensor_type" and info.type.tensor_type.elem_type in _WHOLE
    }
    return (picked | integers) - {""}


def _leading_to(graph: Graph, names: Iterable[str]) -> set[str]:
    """Return these tensors and all tensors that they are computed from."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            node = graph.producer.get(name)
            pending += [] if node is None else needs(node)
    return found


def _compared(graph: Graph, name: str, picked: set[str]) -> list[str]:
    """Return the tensor, or the tensors compared if a comparison made it; no sizes and no picked tensors."""
    node = graph.producer.get(_origin(graph, name))
    if node is None or name in picked or node.op_type in ("Shape", "Size"):
        return []
    node = graph.producer[name]
    if node.op_type not in _COMPARING:
        return [name]
    return [source for read in node.input for source in _compared(graph, read, picked)]


def _origin(graph: Graph, name: str) -> str:
    """Return the tensor that this one is a part or a rearrangement of."""
    while (node := graph.producer.get(name)) is not None and node.op_type in _TAKING_PARTS:
        name = node.input[0]
    return name


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
    """The result of a plan on some images: sums for each tensor, and the sum of the user's metric."""

    pictures: int
    sums: Mapping[str, Sums]
    metric: float = 0.0

    def error(self, name: str) -> float:
        """Return the error by the formula of the module; infinite if the plan gives NaN or infinity."""
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


def score(
    outputs: Mapping[str, np.ndarray],
    floats: Mapping[str, np.ndarray],
    metric: float = 0.0,
    axes: Mapping[str, int] = _NO_AXES,
) -> Score:
    """Return the score of one image's outputs against the float model's; ``axes``: see ``softmax_axes``."""
    return Score(1, {name: sums_of(outputs[name], floats[name], axes.get(name)) for name in floats}, metric)


def sums_of(
    values: np.ndarray, against: np.ndarray, axis: int | None = None, mean: np.ndarray | float | None = None
) -> Sums:
    """Return the sums over one tensor, about ``mean`` if given; ``axis``: of the Softmax that reads these logits."""
    if axis is not None and values.size:
        values, against = by_probability(values, against, axis, 0.0 if mean is None else mean)
    elif mean is not None:
        values, against = values - mean, against - mean
    return pair_sums(Values(values), Values(against))


def total(scores: Iterable[Score]) -> Score:
    """Return the score of all images together; at least one."""
    scores = list(scores)
    sums = {name: merged_sums(s.sums[name] for s in scores) for name in scores[0].sums}
    return Score(sum(s.pictures for s in scores), sums, sum(s.metric for s in scores))


Totals = Mapping[str, Sums]


def error_of(sums: Sums) -> float:
    """Return Σ|a-b| / Σ|b|; 0 for equal values, even if all are zero."""
    return 0.0 if sums.d1 == 0 else rmse(sums)


def output_error(totals: Totals) -> float:
    """Return the mean error of the tensors that are not all zero. Raises ValuesError if there is none, or for NaN."""
    if not totals:
        raise ValuesError("no operator of the model computes a numeric output, so no error can be measured")
    errors = [error_of(sums) for sums in totals.values() if sums.b1 != 0]
    if not errors:
        raise ValuesError(ALL_ZERO)
    if not all(map(math.isfinite, errors)):
        name = next(name for name, sums in totals.items() if not math.isfinite(error_of(sums)))
        raise ValuesError(f"tensor {name!r} holds NaN or infinity, so its error cannot be measured")
    return math.fsum(errors) / len(errors)
