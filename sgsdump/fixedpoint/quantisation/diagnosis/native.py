"""Comparison of a quantised model that only its own framework can run with its float model.

Both run on the same inputs and are compared layer by layer. The weights of a TFLite file are compared with the float
weights.

Such a model cannot be changed, so the effect of quantising one tensor alone on the outputs is not measured. Weights are
judged directly: a code is wrong if it is neither the nearest to the float weight nor next to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from sgsdump.comparison.compare import compare
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.merge import Compared, merge_each
from sgsdump.comparison.naming.pairs_by_quantisation import ACTIVATIONS
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.onnx_network import FUSED, of_nodes
from sgsdump.dumps.quantised_graph import Node
from sgsdump.errors import InputError
from sgsdump.executors.table import open_runner
from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import spooled
from sgsdump.models.graph import Graph, values_of
from sgsdump.models.model import Model, fit, graph_inputs
from sgsdump.models.quantised_model import nodes_of, quants_of
from sgsdump.models.tflite import constant
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.tensor import Tensor, checked_scale, real_values, scale_fits
from sgsdump.tensors.types import NCHW, NHWC, Quant, TensorInfo, to_nchw, to_nhwc

LabelledFeed = tuple[str, Mapping[str, np.ndarray]]
SLACK = 1.02  # steps that a correct code may differ by: rounding the other way, and float32
_ORDERS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    4: ((0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0)),
    2: ((0, 1), (1, 0)),
}
MANY = 0.5  # share of the weights; above it, the float model is not the original, or its weights were folded


@dataclass(frozen=True, eq=False)
class ComparedModels:
    """The comparison of two models.

    compared  over all inputs, with the dumps of one input for facts.
    weights   by name in the quantised model, the share of wrong codes.
    unknown   reason why weights are not judged, or "".
    worst     position of the input with the largest error, and its float outputs by name: of the quantised and of the
              float model. None if there is no error.
    """

    compared: Compared
    weights: Mapping[str, float]
    unknown: str = ""
    worst: tuple[int, Mapping[str, tuple[np.ndarray, np.ndarray]]] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.compared.comparison.completeness.outputs


def compared_models(
    models: tuple[Model, Model], feeds: Sequence[LabelledFeed], folder: Path, progress: Progress = SILENT
) -> ComparedModels:
    """Compare the models layer by layer.

    models  the float model, whose inputs the feeds belong to, and the quantised model.
    folder  holds the values of one input at a time.

    Raises InputError for models with different inputs, and what running the models raises.
    """
    inputs = _Inputs(*models)
    runners = [_Dumped(model) for model in models]
    dumps: list[Dump] = []
    worst = _Worst()

    def each_compared() -> Iterator[tuple[str, Comparison]]:
        for label, feed in each(progress, feeds, "compare", "input", len(feeds)):
            for before in dumps:  # the dumps of the last input stay open for the report
                before.close()
            benchmark, sample = runners[0].dump(feed, folder), runners[1].dump(inputs.of_quantised(feed), folder)
            dumps[:] = [sample, benchmark]
            comparison = compare(sample, benchmark, details=True)
            worst.add(comparison, sample, benchmark)
            yield label, comparison

    comparison = merge_each(each_compared())
    weights = {found.name: found for found in _weights(models, comparison)}
    wrong = {name: found.wrong for name, found in weights.items() if found.wrong}
    unknown = "" if weights else "no weight of the quantised model matches the float model"
    if len(wrong) > MANY * len(weights):
        wrong, unknown = (
            {},
            "most differ from the rounded weights of this float model. Was the model quantised from it?",
        )
    findings = [_finding(found, comparison) for found in weights.values() if found.name in wrong]
    comparison = replace(comparison, causes=(*findings, *comparison.causes))
    return ComparedModels(Compared(comparison, dumps[0], dumps[1], feeds[-1][0]), wrong, unknown, worst.found)


class _Worst:
    """The input whose outputs have the largest mean error so far, with its values."""

    def __init__(self) -> None:
        self.found: tuple[int, Mapping[str, tuple[np.ndarray, np.ndarray]]] | None = None
        self._error, self._seen = 0.0, 0

    def add(self, comparison: Comparison, sample: Dump, benchmark: Dump) -> None:
        outputs = set(comparison.completeness.outputs)
        rows = [row for row in comparison.rows if row.name in outputs and row.io == "out"]
        error = float(np.mean([np.inf if np.isnan(row.rmse) else row.rmse for row in rows])) if rows else 0.0
        if error > self._error:
            sides = ((row.name, sample[row.sample_name or row.name], benchmark[row.name]) for row in rows)
            floats = ((name, own, other) for name, own, other in sides if other.dtype.kind == "f" or other.info.quant)
            held = {name: (_laid_as(own, other), np.array(other.real())) for name, own, other in floats}
            self._error, self.found = error, (self._seen, held)
        self._seen += 1


def _laid_as(tensor: Tensor, other: Tensor) -> np.ndarray:
    """Return a tensor's real values in the axis order of another tensor."""
    values, layouts = np.array(tensor.real()), (tensor.info.layout, other.info.layout)
    if layouts == (NHWC, NCHW):
        return to_nchw(values)
    return to_nhwc(values) if layouts == (NCHW, NHWC) else values


class _Inputs:
    """The float model's inputs as the quantised model takes them: matched by name, otherwise by position."""

    def __init__(self, float_model: Model, quantised: Model):
        self._layout = float_model.layout
        own, others = graph_inputs(float_model.proto), {spec.name: spec for spec in graph_inputs(quantised.proto)}
        if len(own) != len(others):
            raise InputError(
                f"{quantised.path} has {len(others)} inputs, but {float_model.path} has {len(own)}. Give the float "
                f"model that was quantised"
            )
        named = [spec.name for spec in own] if others.keys() == {spec.name for spec in own} else [*others]
        self._specs = {spec.name: others[name] for spec, name in zip(own, named)}

    def of_quantised(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {self._specs[n].name: fit(a, self._specs[n], self._layout, f"input {n!r}") for n, a in feed.items()}


class _Dumped:
    """A model of which every run is a dump that includes the network."""

    def __init__(self, model: Model):
        self._runner = open_runner(model, keep_sessions=True)
        self._layout, self._quants = model.layout, quants_of(model)
        self._nodes = [*_nodes(model)]
        self._slots = {name: slot for node in model.proto.graph.node for slot, name in enumerate(node.output)}

    def dump(self, feed: Mapping[str, np.ndarray], folder: Path) -> Dump:
        """Return a dump of every tensor with values in a file in ``folder``."""
        dump = spooled(self._records(feed), folder)
        network = cache(partial(of_nodes, dump.records, self._nodes, self._quants))
        return Dump(dump.records, network=network)

    def _records(self, feed: Mapping[str, np.ndarray]) -> Iterator[Record]:
        for index, layer in enumerate(self._runner.run(feed)):
            layout = self._layout if layer.array.ndim == 4 else None
            quant = self._quants.get(layer.name)
            tensor = Tensor.of(layer.name, layer.array, layout=layout, quant=quant, op_type=layer.op_type)
            yield Record("out", self._slots[layer.name], index, layer.node or layer.op_type, tensor)


def _nodes(model: Model) -> Iterator[Node]:
    """Yield the nodes in the form of a dump's network, with activations that operators contain."""
    for known, node in zip(nodes_of(model.proto), model.proto.graph.node):
        fused = {each.name: each.s.decode() for each in node.attribute if each.name == FUSED}
        yield (*known[:5], fused)


@dataclass(frozen=True)
class _Weight:
    """A weight of the quantised model, read by the operator of ``layer``.

    wrong  share of wrong codes.
    error  error relative to the float weight.
    """

    name: str
    layer: str
    wrong: float = 0.0
    error: float = 0.0


def _weights(models: tuple[Model, Model], comparison: Comparison) -> Iterator[_Weight]:
    """Yield the weights of operators whose outputs were compared."""
    float_model, quantised = models
    if quantised.native is None or quantised.native.runtime != "tflite":
        return
    makers = [{name: node for node in model.proto.graph.node for name in node.output} for model in models]
    for row in comparison.rows:
        node, own = makers[0].get(row.name), makers[1].get(row.sample_name)
        if node is not None and node.op_type in ACTIVATIONS:  # operators of TFLite contain their activation
            node = makers[0].get(node.input[0], node)
        if node is None or own is None or row.io != "out":
            continue
        for slot, name in enumerate(own.input):
            quant = quantised.native.quants.get(name)
            codes = constant(quantised, name) if slot and quant is not None else None
            real, coarse = _float_weight(float_model, node.input, slot)
            if codes is None or real is None or quant is None or codes.ndim < 2:
                continue
            if scale_fits(TensorInfo(name, codes.shape, codes.dtype, quant=quant)):
                weight = _Weight(name, row.name)
                judged = [_judged(weight, codes, quant, r, coarse) for r in _as_stored(real, codes.shape)]
                yield from sorted(judged, key=lambda weight: weight.error)[:1]


def _judged(weight: _Weight, codes: np.ndarray, quant: Quant, real: np.ndarray, coarse: float) -> _Weight:
    """Return the weight with its figures.

    coarse  tolerance of the float weight, which may be stored in codes if only the weights of the model were quantised.
    """
    info = TensorInfo(weight.name, codes.shape, codes.dtype, quant=quant)
    off = np.abs(real_values(codes, info).astype(np.float64) - real)
    size = float(np.linalg.norm(real))
    error = float(np.linalg.norm(off)) / size if size else 0.0
    right = SLACK * checked_scale(info, codes.shape).astype(np.float64) + coarse
    return replace(weight, wrong=float(np.mean(off > right)), error=error)


def _float_weight(model: Model, reads: Sequence[str], slot: int) -> tuple[np.ndarray | None, float]:
    """Return a weight of the float model, and half a step if it is stored in codes; None if the input is no weight."""
    if slot >= len(reads):
        return None, 0.0
    if model.native is None:
        tensor = Graph(model.proto).constants.get(reads[slot])
        return (None if tensor is None or model.folder is not None else values_of(tensor)), 0.0
    values = constant(model, reads[slot]) if model.native.runtime == "tflite" else None
    quant = model.native.quants.get(reads[slot])
    if values is None or quant is None:
        return values, 0.0
    info = TensorInfo(reads[slot], values.shape, values.dtype, quant=quant)
    return (real_values(values, info), SLACK / 2 * float(np.max(quant.scale))) if scale_fits(info) else (None, 0.0)


def _as_stored(real: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield a float weight in TFLite's axis order, in each way that fits the shape.

    ONNX has O, I, H, W (depthwise C, 1, H, W), TFLite O, H, W, I and 1, H, W, C.
    """
    for order in _ORDERS.get(real.ndim, ()):
        turned = real.transpose(order)
        if turned.shape == shape:
            yield turned.astype(np.float64)


def _finding(weight: _Weight, comparison: Comparison) -> Finding:
    row = comparison[weight.layer]
    facts = {
        "what": "weight",
        "argument": weight.name,
        "sample": "",
        "benchmark": "",
        "source": "",
        "module": row.module,
    }
    figures = {"error": weight.error, "rmse": weight.error, "cos": row.cos, "wrong": weight.wrong}
    return Finding("argument", row.name, row.op_type, figures, "by value", names=(weight.name,), facts=facts)
