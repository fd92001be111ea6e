"""Quant plan: type, scale and zero point of every tensor of the fixed model, and the bits of every convolution.

The rules are those of the SDK's fixed simulator (docs/formats/sigmastar.md#the-fixed-model, checked against its dumps):

* A tensor that feeds a convolution or fully connected operator is UINT8; every other tensor is INT16.
* Operators that only move values (pooling, reshape, nearest upsampling, concat …) share one domain with their
  operands: one type, one range, the union (k16_16_L3).
* The plan leaves out tensors that only determine sizes, if images differ in size, and floats that are read as integers
  only (``Analysis.sizes``, ``Analysis.whole``).
* The image input is always UINT8. A raised tensor (ALL_INT16, tensor_arrays …) raises its whole domain to INT16.
* Weights are symmetric and have as many bits as the convolution's input: one scale per tensor, output channel or group.
* UINT8: scale = (hi - lo) / 255, zero point = round(-lo / scale), with the range extended to include 0.
  INT16: scale = max(|lo|, |hi|) / 32767, zero point 0.
* The output of a Softmax has scale 1/32768, but its readers use the scale of its range (``as_read``). The range of a
  Softmax input includes -10.
* The output of a Sigmoid, both sides of a large average pool, a Concat that does not fit UINT8 and the graph outputs
  are INT16 for every reader. A convolution that reads one is INT16 itself. A moving operator on the way to a
  convolution continues as UINT8 (see ``analysis``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.analysis import (
    GROUP_WEIGHTS,
    Analysis,
    analyse,
    is_depthwise,
    of_groups,
    output_axis,
)
from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
from sgsdump.fixedpoint.quantisation.tensor_scales import (
    INT8,
    INT16,
    SOFTMAX_QUANT,
    UINT8,
    TensorScales,
    inner_of_max,
    int16_quant,
    joined,
    raised_concats,
)
from sgsdump.fixedpoint.quantisation.type_rules import Operator
from sgsdump.models.graph import Graph, attribute, is_taken_apart
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# Channel scales further apart than this do not fit the multipliers of one convolution: the largest is used for all.
WIDEST_RATIO = 1024
# If weights are 0 in the decimals of the SDK's files, or the smallest number there, their range is +-0.5.
DECIMALS, EMPTY_TOP = 6, 0.5
# What raises a tensor to INT16: a rule of the SDK, input_config.ini, a quant file, or the calibration level.
RULE, CONFIG, QUANT_FILE, LEVEL = "rule", "config", "quant file", "level"
_WORDS = {CONFIG: "tensor_arrays", QUANT_FILE: "the quant file", LEVEL: "the calibration level"}


@dataclass(frozen=True)
class Choice:
    """The convolutions that get INT16 inputs and weights, in the words of ``[CONV_CONFIG]``.

    input_format   ALL_UINT8, ALL_INT16, CONV2D_INT16 or DEPTHWISE_INT16.
    tensors        first inputs of further convolutions to raise, or words that raise some (``RaisedInputs``).
    per_channel    one scale per output channel for weights whose range is not per channel (levels above L1).
    by_level       members of ``tensors`` that the calibration level raised.
    by_quant_file  members of ``tensors`` that a quant file raised.
    """

    input_format: str = "ALL_UINT8"
    tensors: tuple[str, ...] = ()
    per_channel: bool = False
    by_level: tuple[str, ...] = ()
    by_quant_file: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuantPlan:
    """The decisions: operators in order, one Quant per stored tensor, one Quant per convolution's weights.

    Tensors without a calibration range (integers, and tensors that the ranges omit) are absent; they keep the float
    model's type.

    weights    keyed by the output name of the convolution node.
    bounds     range of every stored tensor's domain (not of a Softmax that is split up), and of the tensor that a Max
               reads inside an operator.
    decided    what gave each stored tensor its type.
    assembled  the UINT8 type in which the inputs of a raised Concat are joined.
    raised_by  RULE, CONFIG, QUANT_FILE or LEVEL for each tensor at INT16.
    """

    operators: tuple[Operator, ...]
    tensors: dict[str, Quant]
    weights: dict[str, Quant]
    bounds: dict[str, Range] = field(default_factory=dict)
    decided: dict[str, str] = field(default_factory=dict)
    assembled: dict[str, Quant] = field(default_factory=dict)
    raised_by: dict[str, str] = field(default_factory=dict)


def as_read(plan: QuantPlan, name: str) -> Quant:
    """Return the scale that readers use for a stored tensor; for a Softmax, the scale of its range."""
    quant = plan.tensors[name]
    if quant == SOFTMAX_QUANT and name in plan.bounds:
        return int16_quant(plan.bounds[name].low, plan.bounds[name].high)
    return quant


def plan(
    proto: ModelProto,
    ranges: Mapping[str, Range],
    choice: Choice = Choice(),
    pictures: Iterable[str] | None = None,
    fuse: bool = True,
) -> QuantPlan:
    """Return the quant plan of a model that is analysed for this one plan."""
    return decide(analyse(proto, pictures, fuse), ranges, choice)


def decide(analysis: Analysis, ranges: Mapping[str, Range], choice: Choice = Choice()) -> QuantPlan:
    """Return types, scales and zero points of a float model.

    ranges  calibration range of every float tensor. A range of weights overrides max|w|: one value, or one per output
            channel.
    Raises ConfigError if ``choice`` names a tensor that is not the first input of a convolution.
    """
    analysis = with_raised(analysis, choice)
    bounds, tensors = TensorScales(analysis).of(analysis, ranges)
    weights = {
        node.output[0]: weight_quant(analysis.graph, node, dtype, weight_range(node, ranges), choice.per_channel)
        for node, dtype in weight_types(analysis, tensors)
    }
    tensor_bounds = {
        name: Range.of(*bounds[analysis.domain[name]]) for name in tensors if not is_taken_apart(analysis.graph, name)
    }
    for op in analysis.operators:
        tensor_bounds |= {name: Range.of(*bounds[name]) for name in inner_of_max(op) if name in bounds}
    assembled = {
        op.outputs[0]: tensors[name]
        for op in raised_concats(analysis)
        for name in op.inputs[::-1]
        if op.outputs[0] in tensors and name in tensors and tensors[name].dtype == UINT8
    }
    decided, raised_by = _decided(analysis, choice, tensors)
    return QuantPlan(analysis.operators, tensors, weights, tensor_bounds, decided, assembled, raised_by)


def _decided(analysis: Analysis, choice: Choice, tensors: Mapping[str, Quant]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what gave each stored tensor its type, and for INT16 tensors which of the four reasons applied.

    Possible causes: an image input, a rule that forces the domain, the user's words, a convolution that reads the
    domain, or no such convolution.
    """
    domain = analysis.domain
    by_rule = {domain[name]: rule for name, rule in analysis.forced.items()}
    by_word: dict[str, tuple[str, str]] = {}
    for word in choice.tensors:
        names = (word,) if word in analysis.first_inputs else RaisedInputs(analysis).inputs_of([word])
        who = LEVEL if word in choice.by_level else QUANT_FILE if word in choice.by_quant_file else CONFIG
        by_word |= {domain[name]: (who, f"{_WORDS[who]}: {word}") for name in names}
    readers = {
        domain[n]: f"the convolution {nodes[0].output[0]} reads it" for n, nodes in analysis.first_inputs.items()
    }
    decided, raised_by = dict[str, str](), dict[str, str]()
    for name, quant in tensors.items():
        of = domain[name]
        rule = analysis.forced.get(name) or by_rule.get(of)
        if of in analysis.picture_domains:
            decided[name] = "image input"
        elif quant.dtype != INT16:
            decided[name] = readers.get(of, "same type as the tensor whose values it moves")
        elif rule:
            raised_by[name], decided[name] = RULE, rule
        elif of in by_word:
            raised_by[name], decided[name] = by_word[of]
        elif of in readers:
            raised_by[name], decided[name] = CONFIG, f"input_format: {choice.input_format}"
        else:
            raised_by[name], decided[name] = RULE, "no convolution reads it"
    return decided, raised_by


class PlanScales:
    """The quants of one graph's stored tensors under many plans.

    Raising a tensor in one part of the graph changes no quant of another part. A plan is therefore assembled from what
    the parts had in earlier plans. Operators that give their inputs and outputs one type, range or scale join a part.
    """

    def __init__(self, analysis: Analysis):
        self._analysis, self._scales = analysis, TensorScales(analysis)
        self._part = self._scales.parts(analysis)
        self._ranges: Mapping[str, Range] = {}
        self._plain: dict[str, Quant] = {}
        self._known: dict[tuple[str, frozenset[str]], dict[str, Quant]] = {}

    def of(self, choice: Choice, ranges: Mapping[str, Range]) -> Mapping[str, Quant]:
        """Return every stored tensor's quant, one object for equal ones.

        A mapping of ranges must not change after the first call with it.
        """
        if ranges is not self._ranges:
            self._ranges, self._known = ranges, {}
            _, self._plain = self._scales.of(self._analysis.raising(()), ranges)
        raised: dict[str, set[str]] = {}
        for name in _raised_inputs(self._analysis, choice):
            raised.setdefault(self._part.get(name, name), set()).add(name)
        wanted = [(part, frozenset(names)) for part, names in raised.items()]
        if not all(key in self._known for key in wanted):
            _, tensors = self._scales.of(with_raised(self._analysis, choice), ranges)
            if list(tensors) != list(self._plain):
                return tensors
            found: dict[str, dict[str, Quant]] = {part: {} for part in raised}
            for name, quant in tensors.items():
                if quant is not self._plain[name]:
                    found[self._part[name]][name] = quant
            self._known |= {key: found[key[0]] for key in wanted}
        tensors = dict(self._plain)
        for key in wanted:
            tensors |= self._known[key]
        return tensors


def with_raised(analysis: Analysis, choice: Choice) -> Analysis:
    """Return the analysis with the chosen domains raised to INT16. Raises ConfigError for an image; see ``decide``."""
    return analysis.raising(_raised_inputs(analysis, choice))


def weight_types(analysis: Analysis, tensors: Mapping[str, Quant]) -> Iterator[tuple[NodeProto, np.dtype]]:
    """Yield every convolution whose input is stored, and the type of its weights."""
    for name, nodes in analysis.first_inputs.items():
        if name in tensors:
            yield from ((node, weight_type(tensors[name])) for node in nodes)


def weight_type(source: Quant) -> np.dtype:
    """Return the type of the weights of a convolution that reads such a tensor."""
    return INT16 if source.dtype == INT16 else INT8


def weight_quant(graph: Graph, node: NodeProto, dtype: np.dtype, calibrated: Range | None, per_channel: bool) -> Quant:
    """Return the quant of symmetric weights: scale = max(|min|, |max|) / 127 or 32767.

    A range per output channel gives one scale per output channel. Without a range, or with one range for the whole
    tensor and ``per_channel``, the weights themselves give the range. Grouped convolutions have one scale per group,
    because the SDK's converter splits them into one convolution per group.
    """
    limit = np.iinfo(dtype).max
    calibrated = calibrated.at(dtype) if calibrated is not None else None
    axis = output_axis(graph, node)
    channels = graph.constants[node.input[1]].dims[axis]
    groups = 1 if is_depthwise(graph, node) or axis else attribute(node, "group", 1)
    by_channel = calibrated is not None and calibrated.min.size == channels and (per_channel or channels > 1)
    if calibrated is not None and by_channel:
        top = np.maximum(np.abs(calibrated.min), np.abs(calibrated.max))
    elif calibrated is not None and not per_channel and (groups == 1 or calibrated.min.size == groups):
        top = np.maximum(np.abs(calibrated.min), np.abs(calibrated.max)).reshape(groups, -1).max(axis=1)
    else:
        weight = np.abs(graph.value(node.input[1]).astype(np.float64))
        other = tuple(i for i in range(weight.ndim) if i != axis)
        top = weight.max(axis=other) if per_channel or groups > 1 else weight.max().reshape(1)
    if groups > 1 and not per_channel and not by_channel:
        top = np.repeat(top.reshape(groups, -1).max(axis=1), channels // groups)
    top = top.astype(np.float32).astype(np.float64)
    empty = np.round(top, DECIMALS) <= 10.0**-DECIMALS
    scale = np.where(empty, EMPTY_TOP, top) / limit
    if scale.size > 1 and scale.max() > WIDEST_RATIO * scale.min():
        scale = np.array([EMPTY_TOP if empty.all() else top.max()]) / limit
    if scale.size == 1:
        return Quant(dtype, float(scale[0]), 0, exact=True)
    return Quant(dtype, scale, 0, axis, exact=True)


def weight_range(node: NodeProto, ranges: Mapping[str, Range]) -> Range | None:
    """Return the calibration range of a convolution's weights.

    A grouped convolution has the ranges of the convolutions that the SDK splits it into, one value per output channel.
    """
    names = of_groups(GROUP_WEIGHTS, node)
    if len(names) == 1 or names[0] not in ranges:
        return ranges.get(node.input[1])
    return joined(ranges, names)


def _raised_inputs(analysis: Analysis, choice: Choice) -> set[str]:
    """Return the first inputs that the choice raises to INT16. Raises ConfigError for an image."""
    first_inputs, raised = analysis.first_inputs, set[str]()
    for word in choice.tensors:
        names = (word,) if word in first_inputs else RaisedInputs(analysis).inputs_of([word])
        if analysis.pictures.intersection(names):
            raise ConfigError(f"tensor_arrays names {word!r}, but the image input cannot be raised to INT16")
        raised.update(names)
    if choice.input_format == "ALL_INT16":
        raised.update(first_inputs)
    elif choice.input_format in ("CONV2D_INT16", "DEPTHWISE_INT16"):
        for name, readers in first_inputs.items():
            depthwise = [is_depthwise(analysis.graph, node) for node in readers]
            if any(depthwise) if choice.input_format == "DEPTHWISE_INT16" else not all(depthwise):
                raised.add(name)
    return raised - analysis.pictures
