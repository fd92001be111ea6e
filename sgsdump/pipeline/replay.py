"""Find the operators that cause an error by recomputing each operator from its recorded inputs.

An inherited error is contained in the recorded inputs, and thus in the recomputed result; an error of the operator
itself is not. This holds even if the error does not reach the outputs (a Relu hides it), and for any number of faulty
operators. onnxruntime recomputes one operator at a time; the reference evaluator confirms its findings if it can run
the operator.

Two correct ways of computing the same function differ by rounding. For an output y = f(x) whose elements each sum k
products, two results count as different if they differ by more than ::

    32 eps max|y|  +  32 sqrt(k) |f(x ± eps max|x|) - f(x)|        (float32 and wider)
     4 eps max|y|  +   4         |f(x ± eps max|x|) - f(x)|        (16 bits: sums are kept in float32)

Here eps is that of the coarsest type among x and y, with a further term for values below its smallest normal number.
The maxima are per channel, and the signs are random. The second term is the amplification of input rounding by f (a
difference of close values, a steep function); it is computed per element, and for k > 1 as the channel's maximum.
Functions that are computed as 1 / (1 + e^-x) or similar are accurate to eps of 1, however small their values. Integer
results count as different if more of them differ than the rounding of the inputs changes; quantised results if they
differ by more than one step.

Tensors between recorded tensors are recomputed too: for a dump of every tenth tensor, the ten operators before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from sgsdump.executors.runner import Layer
from sgsdump.models.graph import infer_types
from sgsdump.pipeline.run import run
from sgsdump.pipeline.steps import Engine, Failed, Lineage, ReadyExecutor
from sgsdump.progress import Advance, Progress, unwatched
from sgsdump.tensors.dtypes import is_complex, is_float

if TYPE_CHECKING:
    import onnx

    from sgsdump.models.model import Model

SAMPLE, BENCHMARK = "sample", "benchmark"
_JUDGES = ("ort", "reference")
_SLACK, _SLACK_OF_16_BITS = 32, 4
_OF_ONE = frozenset("Sigmoid HardSigmoid Softmax LogSoftmax Tanh Erf Sin Cos Softsign".split())
_QUANTISING = frozenset("QuantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul QLinearAdd QLinearMul".split())
_RANDOM = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout".split()
)
_OVER_AN_AXIS = frozenset(
    "Softmax LogSoftmax LayerNormalization InstanceNormalization GroupNormalization RMSNormalization CumSum LRN "
    "LpNormalization MeanVarianceNormalization DFT STFT Attention SkipLayerNormalization MultiHeadAttention".split()
)


@dataclass(frozen=True)
class OwnError:
    """Error that an operator made in one of its outputs.

    side      ``sample`` or ``benchmark``.
    error     max|recorded - recomputed| / max|recomputed| of the worst channel; infinite for NaN or Inf that the inputs
              do not contain.
    bound     ratio of the error to the rounding bound.
    finite    False if the operator made a NaN or Inf, or removed one.
    inputs    recorded tensors from which it was recomputed.
    """

    name: str
    node: str
    op_type: str
    side: str
    error: float
    bound: float
    finite: bool
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """Result of recomputing the operators of two runs.

    errors     tensors whose own operator is at fault, in the order of the graph.
    differing  tensors that are not equal.
    unknown    differing tensors that could not be recomputed, with the reason.
    """

    errors: tuple[OwnError, ...]
    differing: tuple[str, ...]
    unknown: Mapping[str, str]


@dataclass(frozen=True)
class _Again:
    """Recomputed tensor with its bound: larger differences are more than rounding."""

    array: np.ndarray
    bound: np.ndarray | float
    flips: int = 0


def judge(
    model: Model,
    sample: Mapping[str, np.ndarray],
    benchmark: Mapping[str, np.ndarray],
    names: Collection[str],
    advance: Advance = unwatched,
) -> Judgement:
    """Find where the difference of two runs of one model on the same inputs is made.

    sample, benchmark  recorded tensors by name, including inputs of the model; arrays are loaded on demand.
    names              tensors to check.
    """
    lineage = Lineage(model.proto)
    ordered = [name for name in lineage.maker if name in names and name in sample and name in benchmark]
    errors: list[OwnError] = []
    differing: list[str] = []
    unknown: dict[str, str] = {}
    with ExitStack() as stack:
        replays = [
            Replay(lineage, stack.enter_context(Engine(judge).opened(model.folder)), side, recorded)
            for side, recorded in ((SAMPLE, sample), (BENCHMARK, benchmark))
            for judge in _JUDGES
        ]
        for number, name in enumerate(ordered):
            advance(number, len(ordered))
            ours, theirs = sample[name], benchmark[name]
            if same(ours, theirs):
                continue
            differing.append(name)
            outcome = _own_error(name, ours, theirs, replays)
            if isinstance(outcome, Failed):
                unknown[name] = outcome.reason
            elif outcome is not None:
                errors.append(outcome)
    advance(len(ordered), len(ordered))
    return Judgement(tuple(errors), tuple(differing), unknown)


def _own_error(name: str, ours: np.ndarray, theirs: np.ndarray, replays: Sequence[Replay]) -> OwnError | Failed | None:
    """Return the error of the operator at fault; the sample is checked first, then the benchmark."""
    ort_sample, reference_sample, ort_benchmark, reference_benchmark = replays
    again = ort_sample.again(name)
    if isinstance(again, Failed):
        return again
    found = ort_sample.compared(name, ours, again)
    if found is not None:
        confirmed = reference_sample.verdict(name, ours)
        return found if confirmed is not None and isinstance(confirmed, Failed) else confirmed
    if ort_sample.compared(name, theirs, again) is None:
        return None
    found_there = ort_benchmark.verdict(name, theirs)
    if found_there is None or isinstance(found_there, Failed):
        return found_there
    confirmed = reference_benchmark.verdict(name, theirs)
    if confirmed is None:  # only onnxruntime, and executors that compute like it, disagree
        own = reference_sample.verdict(name, ours)
        return None if isinstance(own, Failed) else own
    return found_there if isinstance(confirmed, Failed) else confirmed


class Replay:
    """Operators of a graph recomputed by one executor from the recording of one run."""

    def __init__(self, lineage: Lineage, ready: ReadyExecutor, side: str, recorded: Mapping[str, np.ndarray]):
        self._lineage = lineage
        self._ready = ready
        self._side = side
        self._recorded = recorded
        self._types = infer_types(
            lineage.proto,
            {info.name: recorded[info.name].shape for info in lineage.proto.graph.input if info.name in recorded},
        )

    def verdict(self, name: str, array: np.ndarray) -> OwnError | Failed | None:
        """Return the error of a recorded tensor's operator; None if it is correct."""
        again = self.again(name)
        return again if isinstance(again, Failed) else self.compared(name, array, again)

    def again(self, name: str) -> _Again | Failed:
        """Recompute the tensor from the nearest recorded tensors upstream, or return why this is impossible."""
        nodes, reads = self._part(name)
        if any(node.op_type in _RANDOM for node in nodes):
            return Failed("its values are random")
        lacking = [read for read in reads if read not in self._recorded]
        if lacking:
            return Failed(f"{lacking[0]!r} was not recorded")
        arrays = {read: self._recorded[read] for read in reads}
        if any(_is_odd(array) for array in arrays.values()):
            return Failed("it is computed from NaN or Inf")
        try:
            proto = self._lineage.cut(reads, [name], arrays, self._types)
        except Exception as error:
            return Failed(str(error))
        values = self._ready.attempt(proto, [name], arrays)
        if isinstance(values, Failed):
            return values
        if not isinstance(values[0], np.ndarray | np.generic):
            return Failed("not a tensor")
        first = np.asarray(values[0])
        eps = max((_eps(array.dtype) for array in (first, *arrays.values())), default=0.0)
        shaken = self._shaken(name, first, arrays, eps)
        if not is_float(first.dtype) and not is_complex(first.dtype):
            step = 1 if any(node.op_type in _QUANTISING for node in nodes) else 0
            return _Again(first, float(step), 0 if shaken is None else int((shaken != first).sum()))
        return _Again(first, _bound(first, shaken, eps, nodes, arrays, self._lineage))

    def compared(self, name: str, array: np.ndarray, again: _Again) -> OwnError | None:
        """Return the error of a result against the recomputed one; None within rounding."""
        node = self._lineage.nodes[self._lineage.maker[name]]
        own = OwnError(name, node.name, node.op_type, self._side, 0.0, 0.0, True, self._part(name)[1])
        right = again.array
        if array.shape != right.shape or array.dtype != right.dtype:
            return replace(own, error=math.inf, bound=math.inf)
        given, expected = _wide(array), _wide(right)
        odd = ~np.isfinite(expected)
        if not np.array_equal(given[odd], expected[odd], equal_nan=True) or not np.isfinite(given[~odd]).all():
            return replace(own, error=math.inf, bound=math.inf, finite=False)
        difference = np.where(odd, 0, np.abs(np.where(odd, 0, given) - np.where(odd, 0, expected)))
        if isinstance(again.bound, float):  # whole numbers
            wrong = int((difference > again.bound).sum())
            if wrong <= _SLACK * again.flips:
                return None
            return replace(own, error=worst_by_channel(difference, expected), bound=math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = float(np.nan_to_num(difference / again.bound, nan=0.0, posinf=math.inf).max(initial=0.0))
        return replace(own, error=worst_by_channel(difference, expected), bound=times) if times > 1 else None

    def _part(self, name: str) -> tuple[list[onnx.NodeProto], tuple[str, ...]]:
        nodes, met = self._lineage.back([name], self._recorded, 1)
        reads = sorted(n for n in met if self._lineage.maker.get(n, -1) not in nodes and n not in self._lineage.weights)
        return [self._lineage.nodes[index] for index in sorted(nodes)], tuple(reads)

    def _shaken(self, name: str, first: np.ndarray, feed: Mapping[str, np.ndarray], eps: float) -> np.ndarray | None:
        """Return the tensor computed from inputs that are off by eps of their channel's largest value."""
        signs = np.random.default_rng(0)
        moved = {key: _moved(array, eps, signs) for key, array in feed.items()}
        if all(moved[key] is array for key, array in feed.items()):
            return None
        try:
            array = np.asarray(self._ready.executor.execute([name], moved, self._ready.configs.execute)[0])
        except Exception:
            return None
        return array if array.shape == first.shape else None


class Recorded(Mapping[str, np.ndarray]):
    """Recorded tensors by name, loaded on access; the last one is kept in memory."""

    def __init__(self, loads: Mapping[str, Any]):
        self._loads = loads
        self._last: tuple[str, np.ndarray] | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        if self._last is None or self._last[0] != name:
            self._last = name, self._loads[name]()
        return self._last[1]

    def __contains__(self, name: object) -> bool:
        return name in self._loads

    def __iter__(self) -> Iterator[str]:
        return iter(self._loads)

    def __len__(self) -> int:
        return len(self._loads)


def recorded_run(
    model: Model, engine: Engine, feed: Mapping[str, np.ndarray], folder: Path, progress: Progress
) -> Recorded:
    """Return all tensors that an engine computes for a model, with the inputs.

    Arrays are stored in files of a new folder.
    """
    folder.mkdir()
    loads: dict[str, Callable[[], np.ndarray]] = {name: partial(np.asarray, array) for name, array in feed.items()}
    with progress.bar(f"dump by {engine.name}", "step") as advance:
        for number, outcome in enumerate(run(model, engine, feed, None, advance)):
            if isinstance(outcome, Layer):
                path, array = folder / str(number), outcome.array
                path.write_bytes(array.tobytes())
                loads[outcome.name] = partial(_read, path, array.dtype, array.shape)
    return Recorded(loads)


def _read(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(path.read_bytes(), dtype).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays hold the same values; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.array_equal(a, b)) or bool(np.array_equal(_wide(a), _wide(b), equal_nan=True))


def worst_by_channel(difference: np.ndarray, values: np.ndarray) -> float:
    """Return max|difference| / max|values| of the channel with the largest ratio.

    Channels are taken along axis 1 (as in ONNX) and, for three axes, along the last axis, where detectors and token
    embeddings have coordinates beside scores. A channel with tiny values is compared with 1/256 of the tensor's largest
    value.
    """
    if not difference.any():
        return 0.0
    return max(_worst_along(axis, difference, values) for axis in _channel_axes(values))


def _worst_along(axis: int | None, difference: np.ndarray, values: np.ndarray) -> float:
    size = np.abs(np.where(np.isfinite(values), values, 0))
    others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
    worst, largest = difference.max(axis=others), size.max(axis=others)
    scale = np.maximum(largest, size.max() / 256)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(worst > 0, worst / scale, 0.0).max())


def _channel_axes(values: np.ndarray) -> tuple[int | None, ...]:
    if values.ndim < 2:
        return (None,)
    return (1, values.ndim - 1) if values.ndim == 3 else (1,)


def _bound(
    array: np.ndarray,
    shaken: np.ndarray | None,
    eps: float,
    nodes: Sequence[onnx.NodeProto],
    arrays: Mapping[str, np.ndarray],
    lineage: Lineage,
) -> np.ndarray:
    values = _wide(array)
    size = np.abs(np.where(np.isfinite(values), values, 0))
    others = tuple(i for i in range(values.ndim) if i != 1) if values.ndim >= 2 else None
    largest = size.max(axis=others, keepdims=True, initial=0.0)
    if any(node.op_type in _OF_ONE for node in nodes):
        largest = np.maximum(largest, 1.0)
    short = eps >= float(ml_dtypes.finfo(np.float16).eps)
    slack = _SLACK_OF_16_BITS if short else _SLACK
    length = 1 if short else sum(_sum_length(node, arrays, array, lineage) for node in nodes)
    bound = np.broadcast_to(slack * (eps * largest + length * _smallest(array.dtype)), values.shape)
    if shaken is None:
        return bound
    with np.errstate(invalid="ignore"):
        amplified = np.nan_to_num(np.abs(_wide(shaken) - values), nan=0.0, posinf=0.0)
    if length > 1:
        amplified = amplified.max(axis=others, keepdims=True, initial=0.0)
    return bound + slack * math.sqrt(length) * amplified


def _sum_length(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray], output: np.ndarray, lineage: Lineage) -> int:
    """Return how many products or terms each output element sums; 1 if it is no sum."""

    def shape(index: int) -> tuple[int, ...]:
        name = node.input[index] if index < len(node.input) else ""
        if name in arrays:
            return arrays[name].shape
        return lineage.weight_shapes.get(name, ())

    if node.op_type in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"):
        weight = shape(1)
        own = 1 if node.op_type == "ConvTranspose" else 0
        return max(1, math.prod(weight) // max(1, weight[own])) if len(weight) > 1 else 1
    sources = [shape(index) for index in range(len(node.input))]
    if node.op_type in ("MatMul", "Gemm", "MatMulInteger", "Einsum"):
        return max((size for source in sources[:2] for size in source), default=1)
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return max(1, sum(source[-1] for source in sources[:3] if source) * (sources[0][0] if sources[0] else 1))
    if node.op_type in _OVER_AN_AXIS:
        return max((size for source in sources[:1] for size in source), default=1)
    read = max((math.prod(source) for source in sources), default=1)
    return max(1, read // max(1, output.size))


def _moved(array: np.ndarray, eps: float, signs: np.random.Generator) -> np.ndarray:
    if not is_float(array.dtype) or not array.size:
        return array
    values = _wide(array)
    others = tuple(i for i in range(values.ndim) if i != 1) if values.ndim >= 2 else None
    step = eps * np.abs(values).max(axis=others, keepdims=True)
    return (values + step * signs.choice([-1.0, 1.0], values.shape)).astype(array.dtype)


def _is_odd(array: np.ndarray) -> bool:
    return (is_float(array.dtype) or is_complex(array.dtype)) and not np.isfinite(_wide(array)).all()


def _eps(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).eps) if is_float(dtype) else 0.0


def _smallest(dtype: np.dtype) -> float:
    """Return the smallest normal number; smaller values may be flushed to zero."""
    return float(ml_dtypes.finfo(dtype).smallest_normal) if is_float(dtype) else 0.0


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if is_complex(array.dtype) else np.float64)
