"""The quant plan: for every tensor of the fixed model its type, scale and zero point; for every convolution its bits.

The rules are those of the SDK's fixed simulator (docs/formats/sigmastar.md#the-fixed-model, checked against its dumps):

* a tensor that feeds a convolution or fully connected operator is UINT8, every other one INT16;
* operators that only move values (pooling, reshape, nearest upsampling, concat …) share one domain with their
  operands: one type, one range, the union (k16_16_L3);
* what only sizes follow from, where pictures are of several sizes, and floats that are read as integers alone, are in
  no plan (``Analysis.sizes``, ``Analysis.whole``);
* the picture input is always UINT8; a raised tensor (ALL_INT16, tensor_arrays …) takes its whole domain to INT16;
* weights are symmetric, of as many bits as the convolution's input, one scale per tensor, output channel or group;
* UINT8: scale = (hi - lo) / 255, zero point = round(-lo / scale), the range extended to include 0;
  INT16: scale = max(|lo|, |hi|) / 32767, zero point 0;
* a softmax puts out scale 1/32768, which those that read it take for the scale of its range (``as_read``); a softmax
  input's range includes -10;
* what a sigmoid puts out, what a large average pool reads and puts out, a Concat that does not fit UINT8 and the
  graph's outputs are INT16 whatever reads them: a convolution that does is INT16 itself, a mover on the way to a
  convolution goes on as UINT8 (see ``analysis``).
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

# Channels whose scales are further apart than this do not fit the multipliers of one convolution: the largest holds.
WIDEST_RATIO = 1024
# The range of weights that are 0 in the decimals of the SDK's files, or the smallest number there, is +-0.5.
DECIMALS, EMPTY_TOP = 6, 0.5
# Who raises a tensor to INT16: the SDK's own rules, input_config.ini, a quant file, or the level of calibration.
RULE, CONFIG, QUANT_FILE, LEVEL = "rule", "config", "quant file", "level"
_WORDS = {CONFIG: "tensor_arrays", QUANT_FILE: "the quant file", LEVEL: "the calibration level"}


@dataclass(frozen=True)
class Choice:
    """Which convolutions get INT16 inputs and weights: the words of ``[CONV_CONFIG]``.

    input_format is ALL_UINT8, ALL_INT16, CONV2D_INT16 or DEPTHWISE_INT16; ``tensors`` are the first inputs of
    further convolutions to raise, or words that raise some (``RaisedInputs``), ``by_level`` those of them that the
    calibration level raised, ``by_quant_file`` those that a quant file did. per_channel gives weights whose range is
    not per channel already one scale per output channel (levels above L1).
    """

    input_format: str = "ALL_UINT8"
    tensors: tuple[str, ...] = ()
    per_channel: bool = False
    by_level: tuple[str, ...] = ()
    by_quant_file: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuantPlan:
    """The decisions: operators in order, a Quant per stored tensor, a Quant per convolution's weights.

    Tensors without a calibrated range (integers, and what the ranges leave out) are in none and keep the float
    model's type. ``weights`` is keyed by the name of the convolution node's output; ``bounds`` has the range of every
    stored tensor's domain (not of a Softmax that is taken apart), and of what a Max reads inside an operator;
    ``decided`` says who or what gave each stored tensor its type, and ``raised_by`` of those at INT16 which of
    RULE, CONFIG, QUANT_FILE and LEVEL it was; ``assembled`` has of a raised Concat the UINT8 in
    which its inputs are put together.
    """

    operators: tuple[Operator, ...]
    tensors: dict[str, Quant]
    weights: dict[str, Quant]
    bounds: dict[str, Range] = field(default_factory=dict)
    decided: dict[str, str] = field(default_factory=dict)
    assembled: dict[str, Quant] = field(default_factory=dict)
    raised_by: dict[str, str] = field(default_factory=dict)


def as_read(plan: QuantPlan, name: str) -> Quant:
    """A stored tensor's scale as the operators that read it take it, which of a Softmax's is that of its range."""
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
    """``decide`` on a model that is analysed for this one plan."""
    return decide(analyse(proto, pictures, fuse), ranges, choice)


def decide(analysis: Analysis, ranges: Mapping[str, Range], choice: Choice = Choice()) -> QuantPlan:
    """Types, scales and zero points of a float model.

    ranges  calibrated range of every float tensor and, to override plain max|w|, of the weights: one value or one
            per output channel.
    Raises ConfigError when ``choice`` names a tensor that is not a convolution's first input.
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
    """By stored tensor who or what gave it its type: the picture, the rule that forces its domain, the user's words, a
    convolution that reads the domain, or that none does; and of those at INT16 which of the four it was."""
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
            decided[name] = "a picture"
        elif quant.dtype != INT16:
            decided[name] = readers.get(of, "the type of what it moves")
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
    """The quants of one graph's stored tensors under many plans. What is raised in one part of the graph changes no
    quant of another, so those of a plan are put together of what parts had in plans before, as far as they had it.

    A part is what operators join that give what they read and put out one type, range or scale.
    """

    def __init__(self, analysis: Analysis):
        self._analysis, self._scales = analysis, TensorScales(analysis)
        self._part = self._scales.parts(analysis)
        self._ranges: Mapping[str, Range] = {}
        self._plain: dict[str, Quant] = {}
        self._known: dict[tuple[str, frozenset[str]], dict[str, Quant]] = {}

    def of(self, choice: Choice, ranges: Mapping[str, Range]) -> Mapping[str, Quant]:
        """Every stored tensor's quant, one object for equal ones. A mapping of ranges does not change after the first
        call with it."""
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
    """With the domains that the choice raises to INT16. Raises ConfigError for a picture's; see ``decide``."""
    return analysis.raising(_raised_inputs(analysis, choice))


def weight_types(analysis: Analysis, tensors: Mapping[str, Quant]) -> Iterator[tuple[NodeProto, np.dtype]]:
    """Every convolution whose input is stored, and the type of its weights."""
    for name, nodes in analysis.first_inputs.items():
        if name in tensors:
            yield from ((node, weight_type(tensors[name])) for node in nodes)


def weight_type(source: Quant) -> np.dtype:
    """Of a convolution that reads such a tensor."""
    return INT16 if source.dtype == INT16 else INT8


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
    """The calibrated range of a convolution's weights; of groups, those of the convolutions the SDK makes of them, one
    value per output channel."""
    names = of_groups(GROUP_WEIGHTS, node)
    if len(names) == 1 or names[0] not in ranges:
        return ranges.get(node.input[1])
    return joined(ranges, names)


def _raised_inputs(analysis: Analysis, choice: Choice) -> set[str]:
    """The first inputs that are INT16 by choice. Raises ConfigError for a picture's."""
    first_inputs, raised = analysis.first_inputs, set[str]()
    for word in choice.tensors:
        names = (word,) if word in first_inputs else RaisedInputs(analysis).inputs_of([word])
        if analysis.pictures.intersection(names):
            raise ConfigError(f"tensor_arrays names {word!r}: the picture input cannot be raised to INT16")
        raised.update(names)
    if choice.input_format == "ALL_INT16":
        raised.update(first_inputs)
    elif choice.input_format in ("CONV2D_INT16", "DEPTHWISE_INT16"):
        for name, readers in first_inputs.items():
            depthwise = [is_depthwise(analysis.graph, node) for node in readers]
            if any(depthwise) if choice.input_format == "DEPTHWISE_INT16" else not all(depthwise):
                raised.add(name)
    return raised - analysis.pictures
