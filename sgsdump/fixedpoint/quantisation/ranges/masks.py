"""Masks of attention: limit the ranges of Softmax inputs and of the tensors that carry a mask to them.

A mask is -10000, -1e9, the lowest float or -infinity, added to the scores or written in their place. A value 11 below
the largest of its row is 0 after the Softmax: exp(-t) is 0 from there in the hardware's own arithmetic,
docs/formats/fixed_arithmetic.md#softmax. A range therefore need not reach further. A range that reaches -1e9 has steps
of 30 000, in which the scores are lost.

Going backwards from the Softmax, each tensor gets ends beyond which all values act alike (``Ends``). The input of the
Softmax ends at the smallest row maximum minus 11 and a margin. Each operand of a + b ends at the end of the sum minus
the largest value of the other. A choice, a constant factor and moving operators pass the ends on. A tensor with any
other reader has no ends. A range that exceeds its end by more than ``BEYOND`` is cut at its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgsdump.models.graph import MAIN_DOMAINS, REARRANGING, Graph, attribute, captured
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

    from sgsdump.fixedpoint.quantisation.ranges.statistics import Extremes

# exp(-t) is 0 from here on; the row maxima of other data may be lower by the margin.
EXP_IS_ZERO, MARGIN = 11.0, 5.0
# Ranges that exceed their end by less than this stay as observed: their steps are fine enough.
BEYOND = 32.0
# A row whose maximum is this far below 0, or below that of another row, holds only masked values.
MASKED = 1000.0
_PASSING = REARRANGING | {
    *("Cast", "Clip", "Concat", "Dropout", "Expand", "Gather", "GatherElements", "GatherND", "Max", "Min", "Pad"),
    *("Slice", "Split", "Tile", "Where"),
}
# Operators whose input ends are computed from the ends of their output.
_COMPUTING = frozenset(("Add", "Sub", "Mul", "Div", "Neg"))
# First input that holds values; for other operators that pass values on, only the first input does.
_SEVERAL = {"Concat": 0, "Max": 0, "Min": 0, "Where": 1}


class Ends(NamedTuple):
    """Limits of a tensor: values below ``low`` count as ``low``, values above ``high`` as ``high``."""

    low: float
    high: float

    @property
    def any(self) -> bool:
        return self.low > -np.inf or self.high < np.inf


NO_ENDS, UNREAD = Ends(-np.inf, np.inf), Ends(np.inf, -np.inf)


def softmax_inputs(graph: Graph) -> dict[str, int]:
    """Return the inputs of the graph's Softmaxes, with the axis of each."""
    return {node.input[0]: attribute(node, "axis", -1) for node in graph.nodes if node.op_type == "Softmax"}


def masking(graph: Graph) -> dict[str, Ends]:
    """Return the tensors whose values all reach Softmaxes as masks; beyond a finite end, values may be infinite."""
    return ends_of(graph, dict.fromkeys(softmax_inputs(graph), 0.0), {})


def guarded(graph: Graph) -> frozenset[str]:
    """Return the Softmaxes whose NaN (from fully masked rows) an IsNaN and a Where remove, without other readers."""
    return frozenset(
        node.output[0] for node in graph.nodes if node.op_type == "Softmax" and _is_guarded(graph, node.output[0])
    )


def _is_guarded(graph: Graph, name: str) -> bool:
    readers = graph.consumers.get(name, [])
    tests = {reader.output[0] for reader in readers if reader.op_type == "IsNaN"}
    others = [reader for reader in readers if reader.op_type != "IsNaN"]
    return bool(tests) and all(reader.op_type == "Where" and reader.input[0] in tests for reader in others)


def cut(graph: Graph, ranges: Mapping[str, Range], tops: Mapping[str, Extremes]) -> dict[str, Range]:
    """Return the ranges, cut where a mask extends them beyond their ends (``Range.uncut``).

    ranges  of every float tensor; an end may be infinite.
    tops    by input of a Softmax, the lowest and the highest row maximum.
    """
    inputs = [name for name in softmax_inputs(graph) if name in ranges]
    # If all rows are masked, only an infinite range needs an end.
    lowest = {name: tops[name].low for name in inputs if name in tops}
    lowest |= {name: 0.0 for name in inputs if name not in tops and np.isinf(ranges[name].low)}
    ends = ends_of(graph, {name: top - EXP_IS_ZERO - MARGIN for name, top in lowest.items()}, ranges)
    result = dict(ranges)
    for name, (low, high) in ends.items():
        if name not in ranges:
            continue
        seen = ranges[name]
        new_low = low if seen.low < low - BEYOND else seen.low
        new_high = high if seen.high > high + BEYOND else seen.high
        if (new_low, new_high) != (seen.low, seen.high):
            result[name] = replace(Range.of(new_low, max(new_low, new_high)), uncut=(seen.low, seen.high))
    return result


def ends_of(graph: Graph, lowest: Mapping[str, float], ranges: Mapping[str, Range]) -> dict[str, Ends]:
    """Return the tensors that have ends, with these; ``lowest``: of the inputs of Softmaxes."""
    found: defaultdict[str, list[Ends]] = defaultdict(list)
    found.update((name, [NO_ENDS]) for name in graph.outputs)
    for node in reversed(graph.nodes):
        made = _widest(ends for name in node.output if name for ends in found.get(name, ()))
        for name, ends in _of_inputs(graph, node, made, lowest, ranges):
            found[name].append(ends)
        for name in captured(node):
            found[name].append(NO_ENDS)
    widest = ((name, _widest(each)) for name, each in found.items())
    return {name: ends for name, ends in widest if ends.any and ends != UNREAD}


def _widest(ends: Iterable[Ends]) -> Ends:
    low, high = UNREAD
    for each in ends:
        low, high = min(low, each.low), max(high, each.high)
    return Ends(low, high)


def _of_inputs(
    graph: Graph, node: NodeProto, made: Ends, lowest: Mapping[str, float], ranges: Mapping[str, Range]
) -> Iterator[tuple[str, Ends]]:
    """Yield a node's inputs with the ends that follow from the ends ``made`` of its output."""
    kind, names = node.op_type, node.input
    if node.domain not in MAIN_DOMAINS:
        kind = ""
    if kind in ("Shape", "Size"):
        return
    if kind == "Softmax":
        yield names[0], Ends(lowest[names[0]], np.inf) if names[0] in lowest else NO_ENDS
    elif kind in _COMPUTING and made == NO_ENDS:
        yield from ((name, NO_ENDS) for name in names)
    elif kind in ("Add", "Sub") and len(names) == 2:
        yield from _of_sum(kind == "Sub", names, made, [_reach(graph, name, ranges) for name in names])
    elif kind in ("Mul", "Div", "Neg"):
        yield from _of_product(graph, node, made)
    else:
        first = _SEVERAL.get(kind, 0)
        stop = len(names) if kind in _SEVERAL else 1
        for index, name in enumerate(names):
            if name and not (kind == "Where" and index == 0):
                yield name, made if kind in _PASSING and first <= index < stop else NO_ENDS


def _of_sum(minus: bool, names: Iterable[str], made: Ends, reach: list[Ends]) -> Iterator[tuple[str, Ends]]:
    a, b = names
    (a_low, a_high), (b_low, b_high) = reach
    if a == b:
        yield a, NO_ENDS
    elif minus:
        yield a, Ends(made.low + b_low, made.high + b_high)
        yield b, Ends(a_low - made.high, a_high - made.low)
    else:
        yield a, Ends(made.low - b_high, made.high - b_low)
        yield b, Ends(made.low - a_high, made.high - a_low)


def _of_product(graph: Graph, node: NodeProto, made: Ends) -> Iterator[tuple[str, Ends]]:
    """Yield the ends for a constant factor of one sign; products of two tensors have no known ends."""
    names = list(node.input)
    factors = np.array([-1.0])
    of = 0
    if node.op_type != "Neg":
        constants = [index for index, name in enumerate(names) if name in graph.constants]
        of = 0 if constants == [1] else 1
        if len(constants) != 1 or (node.op_type == "Div" and of == 1):
            yield from ((name, NO_ENDS) for name in names)
            return
        factors = graph.value(names[1 - of]).astype(np.float64).reshape(-1)
        if node.op_type == "Div" and factors.all():
            factors = 1 / factors
        yield names[1 - of], NO_ENDS
    if not factors.size or not np.isfinite(factors).all() or not ((factors > 0).all() or (factors < 0).all()):
        yield names[of], NO_ENDS
        return
    ends = np.array(made)[:, None] / factors
    low, high = ends if factors[0] > 0 else ends[::-1]
    yield names[of], Ends(float(low.min()), float(high.max()))


def _reach(graph: Graph, name: str, ranges: Mapping[str, Range]) -> Ends:
    """Return the lowest and the highest finite value of a tensor, as far as known."""
    if name in graph.constants:
        values = graph.value(name).astype(np.float64)
        values = values[np.isfinite(values)]
        return Ends(float(values.min()), float(values.max())) if values.size else Ends(0.0, 0.0)
    if name not in ranges:
        return Ends(0.0, 0.0)
    low, high = ranges[name].low, ranges[name].high
    return Ends(low if np.isfinite(low) else 0.0, high if np.isfinite(high) else 0.0)
