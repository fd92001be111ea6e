"""The quant plan: for every tensor of the fixed model its type, scale and zero point; for every convolution its bits.

The rules are those of the SDK's fixed simulator (docs/formats/sigmastar.md#the-fixed-model, checked against its dumps):

* a tensor that feeds a convolution or fully connected operator is UINT8, every other one INT16;
* operators that only move values (pooling, reshape, nearest upsampling, concat …) share one domain with their
  operands: one type, one range (the union; the inputs of a Concat take its output's);
* the picture input is always UINT8; a raised tensor (ALL_INT16, tensor_arrays …) takes its whole domain to INT16;
* weights are symmetric, of as many bits as the convolution's input, one scale per tensor, output channel or group;
* UINT8: scale = (hi - lo) / 255, zero point = round(-lo / scale), the range extended to include 0;
  INT16: scale = max(|lo|, |hi|) / 32767, zero point 0;
* an INT16 sigmoid puts out scale 1/32767 and a softmax 1/32768, unless its domain's range goes beyond 1; a softmax
  input's range includes -10;
* what a sigmoid puts out, what a large average pool reads and puts out, a Concat that does not fit UINT8 and the
  graph's outputs are INT16 whatever reads them: a convolution that does is INT16 itself, a mover on the way to a
  convolution goes on as UINT8 (see ``analysis``).

Words of ``tensor_arrays``: SDK 1.1.5 raises every convolution whose first input's name *begins* with the word: ``c1``
raises c1_xx and c10 alike. So a Caffe blob stands for all its stages that a convolution reads, as long as no other name
begins with it. The input of a Caffe InnerProduct is the converter's own ``LAYER_reshape#1_output``, so the word is the
layer's name; the blob that it reads raises nothing. Of several InnerProducts that read one tensor each is raised by
itself: what is not named reads a copy in 8 bits. Source: small networks through the SDK, see docs/caffe.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError, hint, listed
from sgsdump.models.graph import Graph, attribute
from sgsdump.models.model import read_stages
from sgsdump.quantisation.analysis import (
    AVERAGE_POOLS,
    Analysis,
    Operator,
    analyse,
    is_depthwise,
    moves_values,
    output_axis,
)
from sgsdump.quantisation.scales import INT8, INT16, TINIEST_SCALE, UINT8, int16_quant, joined, uint8_quant
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_RESHAPED = "_reshape#1_output"
# Channels whose scales are further apart than this do not fit the multipliers of one convolution: the largest holds.
WIDEST_RATIO = 1024
SOFTMAX_INPUT_MIN = -10.0


@dataclass(frozen=True)
class Choice:
    """Which convolutions get INT16 inputs and weights: the words of ``[CONV_CONFIG]``.

    input_format is ALL_UINT8, ALL_INT16, CONV2D_INT16 or DEPTHWISE_INT16; ``tensors`` are the first inputs of
    further convolutions to raise, or words that raise some (``RaisedInputs``). per_channel gives weights whose range is
    not per channel already one scale per output channel (levels above L1).
    """

    input_format: str = "ALL_UINT8"
    tensors: tuple[str, ...] = ()
    per_channel: bool = False


@dataclass(frozen=True)
class QuantPlan:
    """The decisions: operators in order, a Quant per stored tensor, a Quant per convolution's weights.

    Tensors without a calibrated range (integers, and what the ranges leave out) are in none and keep the float
    model's type. ``weights`` is keyed by the name of the convolution node's output; ``bounds`` has the range of every
    stored tensor's domain.
    """

    operators: tuple[Operator, ...]
    tensors: dict[str, Quant]
    weights: dict[str, Quant]
    bounds: dict[str, Range] = field(default_factory=dict)


def plan(
    proto: ModelProto,
    ranges: Mapping[str, Range],
    choice: Choice = Choice(),
    pictures: Iterable[str] = (),
    fuse: bool = True,
) -> QuantPlan:
    """``decide`` on a model that is analysed for this one plan."""
    return decide(analyse(proto, pictures, fuse), ranges, choice)


def decide(analysis: Analysis, ranges: Mapping[str, Range], choice: Choice = Choice()) -> QuantPlan:
    """Types, scales and zero points of a float model.

    ranges  calibrated range of every float tensor and, to override plain max|w|, of the weights: one value or one
            per output channel.
    Raises ConfigError when ``choice`` names a tensor that is not a convolution's first input.
    """
    bounds = _domain_bounds(analysis, ranges, _int16_domains(analysis, choice))
    tensors = decide_tensors(analysis, ranges, choice)
    weights = {
        node.output[0]: weight_quant(analysis.graph, node, dtype, weight_range(node, ranges), choice.per_channel)
        for node, dtype in weight_types(analysis, tensors)
    }
    tensor_bounds = {name: Range.of(*bounds[analysis.domain[name]]) for name in tensors}
    return QuantPlan(analysis.operators, tensors, weights, tensor_bounds)


def decide_tensors(analysis: Analysis, ranges: Mapping[str, Range], choice: Choice) -> dict[str, Quant]:
    """Of a plan the part without the weights; see ``decide``."""
    domain, wide = analysis.domain, _int16_domains(analysis, choice)
    bounds = _domain_bounds(analysis, ranges, wide)
    tensors = {n: _quant(bounds[domain[n]], domain[n] in wide) for n in analysis.stored if domain[n] in bounds}
    _apply_fixed_scales(analysis, ranges, bounds, tensors)
    return tensors


def weight_types(analysis: Analysis, tensors: Mapping[str, Quant]) -> Iterator[tuple[NodeProto, np.dtype]]:
    """Every convolution whose input is stored, and the type of its weights."""
    for name, nodes in analysis.first_inputs.items():
        if name in tensors:
            dtype = INT16 if tensors[name].dtype == INT16 else INT8
            yield from ((node, dtype) for node in nodes)


def weight_quant(graph: Graph, node: NodeProto, dtype: np.dtype, calibrated: Range | None, per_channel: bool) -> Quant:
    """Symmetric weights: scale = max(|min|, |max|) / 127 or 32767, per output channel where the range is.

    Without a range, or with one for the whole tensor when ``per_channel``, the weights themselves give it. With groups
    there is a scale for each: the SDK's converter makes them as many convolutions.
    """
    limit = np.iinfo(dtype).max
    calibrated = calibrated.at(dtype) if calibrated is not None else None
    axis = output_axis(graph, node)
    channels = graph.constants[node.input[1]].dims[axis]
    groups = 1 if is_depthwise(graph, node) or axis else attribute(node, "group", 1)
    if calibrated is not None and calibrated.min.size == channels and (per_channel or channels > 1):
        top = np.maximum(np.abs(calibrated.min), np.abs(calibrated.max))
    elif calibrated is not None and not per_channel and (groups == 1 or calibrated.min.size == groups):
        top = np.maximum(np.abs(calibrated.min), np.abs(calibrated.max)).reshape(groups, -1).max(axis=1)
    else:
        weight = np.abs(graph.value(node.input[1]).astype(np.float64))
        other = tuple(i for i in range(weight.ndim) if i != axis)
        top = weight.max(axis=other) if per_channel or groups > 1 else weight.max().reshape(1)
    if groups > 1 and not per_channel:
        top = np.repeat(top.reshape(groups, -1).max(axis=1), channels // groups)
    scale = top.astype(np.float32).astype(np.float64) / limit
    largest = scale.max()
    scale = np.where(scale >= TINIEST_SCALE, scale, largest if largest >= TINIEST_SCALE else 1.0)
    if scale.size > 1 and top.any() and scale.max() > WIDEST_RATIO * scale[top > 0].min():
        scale = scale.max().reshape(1)
    if scale.size == 1:
        return Quant(dtype, float(scale[0]), 0, exact=True)
    return Quant(dtype, scale, 0, axis, exact=True)


def weight_range(node: NodeProto, ranges: Mapping[str, Range]) -> Range | None:
    """The calibrated range of a convolution's weights; of groups, those of the convolutions the SDK makes of them, one
    value per output channel."""
    name = node.output[0]
    if f"{name}_conv#0_filter#0" not in ranges or attribute(node, "group", 1) == 1:
        return ranges.get(node.input[1])
    return joined(ranges, f"{name}_conv#{{0}}_filter#{{0}}", attribute(node, "group"), 1)


@dataclass(frozen=True, eq=False)
class RaisedInputs:
    """The words of ``tensor_arrays`` for one network."""

    analysis: Analysis

    @cached_property
    def blobs(self) -> dict[str, str]:
        """For each stage of a Caffe blob the blob."""
        return {stage.name: stage.blob for stage in read_stages(self.analysis.graph.proto)}

    @cached_property
    def sdk_names(self) -> dict[str, tuple[str, ...]]:
        """For each first input the names that the SDK has for it: its own, and one for each InnerProduct reading it."""
        reshaped = ("Gemm", "MatMul") if self.blobs else ()
        return {
            name: tuple(
                dict.fromkeys(f"{node.name}{_RESHAPED}" if node.op_type in reshaped else name for node in nodes)
            )
            for name, nodes in self.analysis.first_inputs.items()
        }

    @cached_property
    def words(self) -> dict[str, tuple[str, ...]]:
        """For each first input the words to write: its own, and those of InnerProducts whose inputs share its domain.

        A word is the first of a blob (or layer) and the SDK's name that raises nothing of another domain, or the SDK's
        name where each would.
        """
        domain = self.analysis.domain
        layers: dict[str, list[str]] = {}
        for name, aliases in self.sdk_names.items():
            layers.setdefault(domain[name], []).extend(alias for alias in aliases if alias != name)
        return {
            name: tuple(self._word(alias, domain[name]) for alias in dict.fromkeys([*aliases, *layers[domain[name]]]))
            for name, aliases in self.sdk_names.items()
        }

    def _word(self, alias: str, root: str) -> str:
        """The word for one of the SDK's names, of a domain."""
        short = alias.removesuffix(_RESHAPED) if alias.endswith(_RESHAPED) else self.blobs.get(alias, alias)
        raised = ((word, {self.analysis.domain[name] for name in self.raised_by(word)}) for word in (short, alias))
        return next((word for word, domains in raised if domains == {root}), alias)

    def raised_by(self, word: str) -> tuple[str, ...]:
        """The first inputs that the SDK raises for a word, in execution order; the graph's own only by its name."""
        pictures = self.analysis.graph.inputs
        return tuple(
            name
            for name, aliases in self.sdk_names.items()
            if word in aliases or (name not in pictures and any(alias.startswith(word) for alias in aliases))
        )

    def inputs_of(self, chosen: Iterable[str]) -> tuple[str, ...]:
        """The first inputs that words raise. Raises ConfigError for a word that raises none."""
        inputs: dict[str, None] = {}
        for word in chosen:
            raised = self.raised_by(word)
            if not raised:
                raise ConfigError(self._raises_none(word))
            inputs.update(dict.fromkeys(raised))
        return tuple(inputs)

    def beside(self, chosen: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """For each word of a list what it raises without naming it: inputs of domains that no word names."""
        chosen, domain = tuple(chosen), self.analysis.domain
        named = {domain[name] for word in chosen for name in self.sdk_names if self._names(word, name)}
        raised = {word: tuple(n for n in self.raised_by(word) if domain[n] not in named) for word in chosen}
        return {word: names for word, names in raised.items() if names}

    def left_at_8(self, chosen: Iterable[str]) -> tuple[str, ...]:
        """InnerProducts that read what words raise and stay at 8 bits in the SDK, since no word is theirs."""
        chosen, domain = tuple(chosen), self.analysis.domain
        raised = {domain[name] for name in self.inputs_of(chosen)}
        layers = (
            alias
            for name, aliases in self.sdk_names.items()
            for alias in aliases
            if domain[name] in raised and alias != name and not any(alias.startswith(word) for word in chosen)
        )
        return tuple(alias.removesuffix(_RESHAPED) for alias in layers)

    def _names(self, word: str, name: str) -> bool:
        """Whether a word is an input's own name, its blob or another stage of it, or the InnerProduct that reads it."""
        blob = self.blobs.get(name, name)
        aliases = (name, blob, *(alias.removesuffix(_RESHAPED) for alias in self.sdk_names[name]))
        return word in aliases or self.blobs.get(word) == blob

    def _raises_none(self, word: str) -> str:
        """Why a word raises nothing; for the blob that an InnerProduct alone reads, what to write."""
        for name, aliases in self.sdk_names.items():
            node = self.analysis.graph.producer.get(name)
            source = node.input[0] if node is not None and name not in self.blobs else name
            if name not in aliases and word in (source, self.blobs.get(source)):
                layer = aliases[0].removesuffix(_RESHAPED)
                return (
                    f"tensor_arrays names {word!r}, which the InnerProduct {layer!r} reads: the SDK knows that input "
                    f"by the layer's name, write {layer}"
                )
        words = chain.from_iterable(self.words.values())
        near = hint(word, list(dict.fromkeys([*words, *self.sdk_names])))
        return f"tensor_arrays names {word!r}, which is not a convolution's first input{near}"


def with_raised_inputs(config: InputConfig, proto: ModelProto) -> tuple[InputConfig, list[str]]:
    """The config with the inputs themselves in ``tensor_arrays``, and sentences on what the SDK raises besides, or does
    not. Raises ConfigError for a word that raises nothing."""
    if not config.tensor_arrays:
        return config, []
    inputs = RaisedInputs(analyse(proto))
    words = config.tensor_arrays
    exact = replace(config, tensor_arrays=inputs.inputs_of(words))
    notes = [wider(word, names) for word, names in inputs.beside(words).items()]
    if unnamed := inputs.left_at_8(words):
        notes.append(
            f"tensor_arrays does not name {listed(unnamed)}, InnerProducts that read a raised tensor: in the SDK they "
            f"stay at 8 bits, here they are raised too; name them"
        )
    return exact, notes


def wider(word: str, names: Iterable[str]) -> str:
    """A note on a word that raises more than it names."""
    return (
        f"tensor_arrays {word!r} raises {listed(tuple(names))} too: the SDK takes every convolution whose first "
        f"input's name begins so"
    )


def _int16_domains(analysis: Analysis, choice: Choice) -> set[str]:
    """Domains of type INT16: those no convolution reads, and the raised ones."""
    domain, first_inputs = analysis.domain, analysis.first_inputs
    raised: set[str] = set()
    for word in choice.tensors:
        names = (word,) if word in first_inputs else RaisedInputs(analysis).inputs_of([word])
        if any(domain[name] in analysis.picture_domains for name in names):
            raise ConfigError(f"tensor_arrays names {word!r}: the picture input cannot be raised to INT16")
        raised.update(domain[name] for name in names)
    for name, readers in first_inputs.items():
        depthwise = [is_depthwise(analysis.graph, node) for node in readers]
        if (
            choice.input_format == "ALL_INT16"
            or (choice.input_format == "CONV2D_INT16" and not all(depthwise))
            or (choice.input_format == "DEPTHWISE_INT16" and any(depthwise))
        ):
            raised.add(domain[name])
    raised |= analysis.forced_domains
    raised -= analysis.picture_domains
    narrow = {domain[name] for name in [*first_inputs, *analysis.pictures]} - raised
    every = {domain[name] for op in analysis.operators for name in (*op.inputs, *op.outputs)}
    return every - narrow


def _domain_bounds(analysis: Analysis, ranges: Mapping[str, Range], wide: set[str]) -> dict[str, tuple[float, float]]:
    """(min, max) by domain: the union of its tensors' ranges, for the type it has."""
    ops, domain = analysis.operators, analysis.domain
    concats = [op for op in ops if op.head.op_type == "Concat" and op.outputs[0] in ranges]
    concatenated = {name for op in concats for name in op.inputs if domain[name] == domain[op.outputs[0]]}
    bounds: dict[str, tuple[float, float]] = {}
    for name in analysis.stored:
        if name in concatenated or name not in ranges:
            continue
        measured = ranges[name].at(INT16 if domain[name] in wide else UINT8)
        lo, hi = measured.low, measured.high
        low, high = bounds.get(domain[name], (lo, hi))
        bounds[domain[name]] = (min(lo, low), max(hi, high))
    for op in ops:
        if moves_values(op) and domain[op.outputs[0]] not in bounds and op.inputs[0] in ranges:
            moved = ranges[op.inputs[0]]
            bounds[domain[op.outputs[0]]] = moved.low, moved.high
        if op.head.op_type in ("Softmax", "LogSoftmax") and domain[op.inputs[0]] in bounds:
            low, high = bounds[domain[op.inputs[0]]]
            bounds[domain[op.inputs[0]]] = (min(low, SOFTMAX_INPUT_MIN), high)
    return bounds


def _quant(bounds: tuple[float, float], wide: bool) -> Quant:
    return int16_quant(*bounds) if wide else uint8_quant(*bounds)


def _apply_fixed_scales(
    analysis: Analysis,
    ranges: Mapping[str, Range],
    bounds: Mapping[str, tuple[float, float]],
    tensors: dict[str, Quant],
) -> None:
    """Operators whose scale does not come from their own range, in execution order (average pools inherit)."""
    domain = analysis.domain

    def give(names: Iterable[str], quant: Quant) -> None:
        tensors.update((name, quant) for name in names if name in tensors)

    for op in analysis.operators:
        name = op.outputs[0] if op.outputs else ""
        if name not in tensors:
            continue
        lo, hi = bounds[domain[name]]
        unit = max(abs(lo), abs(hi)) <= 1.0 and tensors[name].dtype == INT16 and len(op.nodes) == 1
        if op.last.op_type in ("Sigmoid", "Softmax") and unit:
            steps = 32767 if op.last.op_type == "Sigmoid" else 32768
            members = [member for member in tensors if domain[member] == domain[name]]
            give(members, Quant(INT16, 1 / steps, 0, exact=True))
        elif op.last.op_type in AVERAGE_POOLS or (moves_values(op) and domain[name] != domain[op.inputs[0]]):
            inherited = _inherited(op, tensors, ranges)
            if inherited is not None:
                give(_moved_from(analysis, name), inherited)


def _inherited(op: Operator, tensors: Mapping[str, Quant], ranges: Mapping[str, Range]) -> Quant | None:
    """The scale of what an operator only averages or moves: its input's, or of its input's range where that is INT16
    and goes on as UINT8."""
    source, quant = tensors.get(op.inputs[0]), tensors[op.outputs[0]]
    if source is None:
        return None
    if source.dtype == quant.dtype:
        return source
    if source.dtype != INT16 or op.inputs[0] not in ranges:
        return None
    measured = ranges[op.inputs[0]].at(UINT8)
    return uint8_quant(measured.low, measured.high)


def _moved_from(analysis: Analysis, name: str) -> list[str]:
    """A tensor and what operators move from it alone, within its domain: all values that its scale is sure to hold."""
    names = {name: None}
    for op in analysis.operators:
        if op.head.op_type != "Concat" and moves_values(op) and op.inputs[0] in names:
            pieces = op.outputs if op.head.op_type == "Split" else op.outputs[:1]
            names.update((piece, None) for piece in pieces if analysis.domain[piece] == analysis.domain[name])
    return list(names)
