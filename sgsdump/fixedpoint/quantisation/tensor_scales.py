"""Types and scales of a plan's stored tensors, by the rules of ``quant_plan``.

One graph is queried for many plans, more than twice as many as it has convolutions. What depends on the graph only,
such as shared ranges and inherited scales, is determined once; each plan then takes a few steps per tensor. The rules
of scale and zero point are the SDK's (docs/formats/sigmastar.md#the-fixed-model).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import (
    FUNCTIONS,
    GROUP_INPUT,
    GROUP_OUTPUT,
    REQUANTISED,
    Analysis,
    is_grouped,
    of_groups,
)
from sgsdump.fixedpoint.quantisation.type_rules import POOLED, Operator, ends_threshold, is_interpolation, keeps_scale
from sgsdump.models.graph import REARRANGING, Graph, is_taken_apart
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto


UINT8 = np.dtype(np.uint8)
INT8 = np.dtype(np.int8)
INT16 = np.dtype(np.int16)
# Scales are float32; a tensor whose range needs a smaller one is zero, and any scale stores zero.
TINIEST_SCALE = float(np.finfo(np.float32).tiny)

# The quant of every Softmax output, regardless of its range.
SOFTMAX_QUANT = Quant(INT16, 1 / 32768, 0, exact=True)
SOFTMAX_INPUT_MIN = -10.0
CURVE_INPUT_MAX = 6.0
# Operators that share one range with their operands.
SHARING = ("Max", "Abs")
Bounds = dict[str, tuple[float, float]]
"""(min, max) by domain."""


def uint8_quant(lo: float, hi: float) -> Quant:
    """Return the asymmetric quant: scale = (hi - lo) / 255, with the range extended to include 0.

    A tensor that is always zero gets the range -0.5 to 0.5.
    """
    lo, hi = min(_single(lo), 0.0), max(_single(hi), 0.0)
    scale = (hi - lo) / 255
    if scale < TINIEST_SCALE:
        return Quant(UINT8, 1 / 255, 128, exact=True)
    return Quant(UINT8, scale, round(-lo / scale), exact=True)


def int16_quant(lo: float, hi: float) -> Quant:
    """Return the symmetric quant: scale = max(|lo|, |hi|) / 32767."""
    scale = max(abs(_single(lo)), abs(_single(hi))) / 32767
    return Quant(INT16, scale if scale >= TINIEST_SCALE else 1.0, 0, exact=True)


def _single(value: float) -> float:
    """Round a range end to float32, as the SDK reads it; later computations use double precision."""
    return float(np.float32(value))


def joined(ranges: Mapping[str, Range], names: Iterable[str]) -> Range | None:
    """Return the concatenated ranges of all groups' tensors; None if one is missing."""
    parts = [ranges.get(name) for name in names]
    if any(part is None for part in parts):
        return None
    low = np.concatenate([part.min for part in parts if part is not None])
    high = np.concatenate([part.max for part in parts if part is not None])
    return Range(low, high)


@dataclass(frozen=True)
class _Fixed:
    """An operator whose scale may not come from its own range, as the graph shows.

    apart     reshapes a Softmax that is split up back into its shape.
    index     outputs integers.
    compared  the comparison that the operator turns into a Threshold, or None.
    averages  has the scale of its input, as an average.
    """

    operator: Operator
    apart: bool
    index: bool
    compared: NodeProto | None
    averages: bool

    @classmethod
    def of(cls, graph: Graph, operator: Operator) -> _Fixed | None:
        """Return the entry, or None if the scale comes from the range in every plan."""
        if not operator.outputs:
            return None
        apart = any(is_taken_apart(graph, name) for name in operator.inputs[:1])
        index, compared = _is_index(graph, operator.outputs[0]), ends_threshold(graph, operator.last)
        averages = keeps_scale(graph, operator.last)
        softmax = operator.last.op_type == "Softmax"
        any_of_these = softmax or apart or index or compared is not None or averages or operator.moves_values
        return cls(operator, apart, index, compared, averages) if any_of_these else None


class TensorScales:
    """Types and scales of a graph's stored tensors under any plan, from an ``analysis`` with anything raised."""

    def __init__(self, analysis: Analysis):
        graph, operators = analysis.graph, analysis.operators
        exact = analysis.sizes | analysis.whole
        self._graph = graph
        self._stored = list(dict.fromkeys(analysis.stored))
        self._kept = [name for name in self._stored if name not in exact]
        self._every = list(dict.fromkeys(name for op in operators for name in (*op.inputs, *op.outputs)))
        self._settled = [*analysis.first_inputs, *analysis.pictures]
        self._grouped = [op for op in operators if is_grouped(graph, op.head)]
        self._moving = [op for op in operators if op.moves_values]
        self._sharing = [op for op in operators if op.moves_values or _shares_range(op)]
        self._reaching = [(op, least) for op in operators if (least := _least_reach(op)) is not None]
        self._fixed = [fixed for op in operators if (fixed := _Fixed.of(graph, op)) is not None]
        self._ends: tuple[Mapping[str, Range], dict[tuple[str, bool], tuple[float, float]]] = {}, {}
        self._quants: dict[tuple[tuple[float, float], bool], Quant] = {}
        self._known: dict[tuple[object, ...], Quant] = {}

    def of(self, analysis: Analysis, ranges: Mapping[str, Range]) -> tuple[Bounds, dict[str, Quant]]:
        """Return every domain's bounds and every stored tensor's quant, one object for equal bounds and types.

        ``analysis`` is the same analysis with the tensors that a plan raises. A mapping of ranges must not change after
        the first call with it.
        """
        domain, wide = analysis.domain, self._int16_domains(analysis)
        bounds = self._domain_bounds(analysis, ranges, wide)
        tensors = {
            name: self._quant(bounds[root], root in wide) for name in self._kept if (root := domain[name]) in bounds
        }
        self._apply_fixed_scales(analysis, ranges, tensors)
        return bounds, tensors

    def parts(self, analysis: Analysis) -> dict[str, str]:
        """Return, by tensor, the representative of the tensors whose quants depend on each other under some plan."""
        root = {name: name for name in self._every} | {name: name for name in self._stored}

        def root_of(name: str) -> str:
            while root[name] != name:
                name = root[name]
            return name

        fixed = [each.operator for each in self._fixed]
        for op in (*self._sharing, *fixed, *(op for op in analysis.operators if op.head.op_type == "Concat")):
            roots = [root_of(name) for name in (*op.inputs, *op.outputs)]
            root.update(dict.fromkeys(roots, roots[0]))
        return {name: root_of(name) for name in root}

    def _int16_domains(self, analysis: Analysis) -> set[str]:
        """Return the INT16 domains: those that no convolution reads, and the raised ones."""
        root_of = analysis.domain.__getitem__
        raised = set(map(root_of, analysis.raised)) | analysis.forced_domains
        return set(map(root_of, self._every)) - (set(map(root_of, self._settled)) - raised)

    def _ends_of(self, ranges: Mapping[str, Range]) -> dict[tuple[str, bool], tuple[float, float]]:
        """Return the cache of (low, high) for these ranges, by name and whether the type is 16 bits."""
        of, known = self._ends
        if of is not ranges:
            known = {}
            self._ends = ranges, known
        return known

    def _domain_bounds(self, analysis: Analysis, ranges: Mapping[str, Range], wide: set[str]) -> Bounds:
        """Return the union of the ranges of each domain's tensors, for the domain's type."""
        domain, known = analysis.domain, self._ends_of(ranges)
        bounds: Bounds = {}
        for name in self._stored:
            if name not in ranges:
                continue
            root = domain[name]
            key = name, root in wide
            ends = known.get(key)
            if ends is None:
                ends = known[key] = _ends(ranges[name], root in wide)
            own = bounds.get(root)
            bounds[root] = ends if own is None else (min(ends[0], own[0]), max(ends[1], own[1]))
        self._extend_by_groups(analysis, ranges, wide, bounds)
        for op in self._sharing:
            if op.moves_values and domain[op.outputs[0]] not in bounds and op.inputs[0] in ranges:
                moved = ranges[op.inputs[0]]
                bounds[domain[op.outputs[0]]] = moved.low, moved.high
            _share_range(analysis, op, ranges, bounds)
        for op in raised_concats(analysis):
            read = [ranges[name].at(UINT8) for name in op.inputs if name in ranges]
            for root in {domain[name] for name in op.inputs} - wide:
                bounds[root] = min(measured.low for measured in read), max(measured.high for measured in read)
        for op, least in self._reaching:
            if domain[op.inputs[0]] in bounds:
                low, high = bounds[domain[op.inputs[0]]]
                bounds[domain[op.inputs[0]]] = (min(low, least[0]), max(high, least[1]))
        return bounds

    def _extend_by_groups(
        self, analysis: Analysis, ranges: Mapping[str, Range], wide: set[str], bounds: Bounds
    ) -> None:
        """Extend the ranges of a grouped convolution's input and output by those of the SDK's parts."""
        for op in self._grouped:
            for name, part in ((op.inputs[0], GROUP_INPUT), (op.outputs[0], GROUP_OUTPUT)):
                root = analysis.domain[name]
                if root not in bounds:
                    continue
                parts = [ranges[each] for each in of_groups(part, op.head) if each in ranges]
                measured = [_ends(each, root in wide) for each in parts]
                low, high = bounds[root]
                bounds[root] = min([low, *(each[0] for each in measured)]), max([high, *(each[1] for each in measured)])

    def _quant(self, bounds: tuple[float, float], wide: bool) -> Quant:
        key = bounds, wide
        if key not in self._quants:
            self._quants[key] = _quant(bounds, wide)
        return self._quants[key]

    def _apply_fixed_scales(self, analysis: Analysis, ranges: Mapping[str, Range], tensors: dict[str, Quant]) -> None:
        """Set the scales that do not come from an operator's own range, in execution order (average pools inherit)."""
        domain, graph = analysis.domain, self._graph
        softmaxes: dict[str, Quant] = {}  # with the scales that their readers use

        def give(names: Iterable[str], quant: Quant) -> None:
            quant = self._known.setdefault((quant.dtype, quant.scale, quant.zero_point), quant)
            tensors.update((name, quant) for name in names if name in tensors)

        for fixed in self._fixed:
            op = fixed.operator
            name = op.outputs[0]
            if name not in tensors:
                continue
            if op.last.op_type == "Softmax" and tensors[name].dtype == INT16:
                if not is_taken_apart(graph, name):
                    softmaxes[name] = tensors[name]
                give([name], SOFTMAX_QUANT)
            elif fixed.apart and tensors.get(op.inputs[0]) == SOFTMAX_QUANT:
                softmaxes[name] = tensors[name]
                give([name], SOFTMAX_QUANT)
            elif fixed.index:
                give([name], Quant(tensors[name].dtype, 1.0, 0, exact=True))
            elif fixed.compared is not None:
                source = fixed.compared.input[0]
                if source in ranges:
                    wide = tensors[name].dtype == INT16
                    give(self._moved_from(analysis, name), self._quant(_ends(ranges[source], wide), wide))
            elif fixed.averages or (op.moves_values and domain[name] != domain[op.inputs[0]]):
                source = op.inputs[0]
                inherited = _inherited(op, softmaxes.get(source, tensors.get(source)), tensors[name], ranges)
                if inherited is not None:
                    give(self._moved_from(analysis, name), inherited)

    def _moved_from(self, analysis: Analysis, name: str) -> list[str]:
        """Return a tensor and the tensors of its domain whose values come from it alone, so that its scale fits."""
        names = {name: None}
        for op in self._moving:
            if op.head.op_type != "Concat" and op.inputs[0] in names:
                pieces = op.outputs if op.head.op_type == "Split" else op.outputs[:1]
                names.update((piece, None) for piece in pieces if analysis.domain[piece] == analysis.domain[name])
        return list(names)


def raised_concats(analysis: Analysis) -> list[Operator]:
    """Return the raised Concats: with a UINT8 input, the SDK joins as UINT8 and requantises the result (cct2_x)."""
    if not analysis.raised:
        return []
    return [op for op in analysis.operators if op.head.op_type == "Concat" and op.outputs[0] in analysis.raised]


def _ends(measured: Range, wide: bool) -> tuple[float, float]:
    measured = measured.at(INT16 if wide else UINT8)
    return measured.low, measured.high


def _quant(bounds: tuple[float, float], wide: bool) -> Quant:
    return int16_quant(*bounds) if wide else uint8_quant(*bounds)


def _shares_range(op: Operator) -> bool:
    return any(node.op_type in SHARING for node in op.nodes)


def _share_range(analysis: Analysis, op: Operator, ranges: Mapping[str, Range], bounds: Bounds) -> None:
    """Give all operands of a Max or Abs, and its output, one range, whatever their types are."""
    domain = analysis.domain
    if not _shares_range(op):
        return
    inner = inner_of_max(op)
    names = [name for name in op.inputs if _meets_max(op, name)]
    names += op.outputs if op.last.op_type in SHARING else ()
    shared = [bounds[domain[name]] for name in names if domain[name] in bounds]
    shared += [_ends(ranges[name], True) for name in inner if name in ranges]
    if not shared:
        return
    whole = min(low for low, _ in shared), max(high for _, high in shared)
    bounds.update((domain[name], whole) for name in names if domain[name] in bounds)
    bounds.update((name, whole) for name in inner)


def _meets_max(op: Operator, name: str) -> bool:
    """Return whether an input is an operand of the operator's Max or Abs, possibly after an initial pool."""
    pooled = op.head.output[0] if op.head.op_type in POOLED and name == op.inputs[0] else name
    return any(node.op_type in SHARING and pooled in node.input for node in op.nodes)


def inner_of_max(op: Operator) -> list[str]:
    """Return the tensors inside a chain of nodes that a Max or Abs reads or writes."""
    inner = {node.output[0] for node in op.nodes[:-1]}
    sharing = [node for node in op.nodes if node.op_type in SHARING]
    return [name for node in sharing for name in (*node.input, *node.output) if name in inner]


def _least_reach(op: Operator) -> tuple[float, float] | None:
    """Return the least range of an operator's stored input that its table needs, or None."""
    head = op.nodes[1] if op.head.op_type in POOLED and len(op.nodes) > 1 else op.head
    if head.op_type in ("Softmax", "LogSoftmax"):
        return SOFTMAX_INPUT_MIN, 0.0
    return (0.0, CURVE_INPUT_MAX) if head.op_type in FUNCTIONS else None


def _is_index(graph: Graph, name: str) -> bool:
    """Return whether a float tensor holds indices, as from an ArgMax, which are stored unscaled."""
    node, cast = graph.producer.get(name), False
    while node is not None and node.op_type in (*REARRANGING, "Cast", "Sub"):
        cast = cast or node.op_type == "Cast"
        name = next(iter(graph.variables(node)), "")
        node = graph.producer.get(name)
    return (
        cast and node is not None and (node.op_type == "ArgMax" or (node.op_type == "TopK" and name in node.output[1:]))
    )


def _inherited(op: Operator, source: Quant | None, quant: Quant, ranges: Mapping[str, Range]) -> Quant | None:
    """Return the scale that an averaging or moving operator inherits from its input.

    If an INT16 input continues as UINT8, the scale comes from the range of the input, or of the requantised input if
    the SDK's files have it.
    """
    if source is None:
        return None
    if source.dtype == quant.dtype:
        return source
    if op.inputs[0] not in ranges:
        return None
    if source.dtype != INT16:
        if not is_interpolation(op.last):
            return None
        return int16_quant(ranges[op.inputs[0]].low, ranges[op.inputs[0]].high)
    measured = [ranges[op.inputs[0]]]
    if REQUANTISED.format(op.inputs[0]) in ranges:
        # Above L2 the SDK fits the requantised tensor and the tensors moved from it separately.
        measured = [ranges[n] for n in (REQUANTISED.format(op.inputs[0]), op.outputs[0]) if n in ranges]
    measured = [each.at(UINT8) for each in measured]
    return uint8_quant(min(each.low for each in measured), max(each.high for each in measured))
