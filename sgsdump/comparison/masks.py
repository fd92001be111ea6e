"""Masked values of attention, which two runs may represent differently; they are left out before rows are judged.

A mask is -10000, -1e9, the lowest float or -Inf. A fixed model has the lowest value of its range instead. After the
Softmax all masked values are 0. Left out of a pair, and counted in its row, are:

- values that are -Inf on both sides, in any tensor;
- in a tensor that feeds only Softmax operators, directly or indirectly (from the model's graph or a program's recorded
  operators): values that lie MASKED below the benchmark's largest value, and so far below the sample's largest value
  of their row that exp of the difference is 0.

NaN, +Inf and values that only one side masks are never left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Sequence

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.naming.network import only_moves, plain
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Failed, Row
from sgsdump.dumps.dump import Dump, Network, Operator
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.dumps.quantised_graph import MOVES, Node, is_edge
from sgsdump.errors import FileChanged, SgsdumpError

MASKED, EXP_IS_ZERO = 1000.0, 11.0  # docs/formats/fixed_arithmetic.md#softmax
_SUMS = frozenset(("Add", "Where", "Max", "Min"))
_PASSING = MOVES | _SUMS | {"Cast", "Expand", "Identity", "Tile", "Slice", "Concat", "Dropout", "Clip"}
_SOFTMAX = frozenset(("Softmax", "QLinearSoftmax"))
_UNREAD = frozenset(("Shape", "Size"))  # readers that do not use the values
# The same for torch operators.
_TORCH_SUMS = frozenset("add where masked_fill maximum minimum".split())
_TORCH_SOFTMAX = frozenset("softmax safe_softmax".split())
_TORCH_MASKS = frozenset(("attn_mask", "attn_bias"))


def brought_to_softmax(dump: Dump) -> frozenset[str] | None:
    """Return the tensors that feed only Softmax operators through sums, choices and moves.

    None if no graph is known.
    """
    network = dump.network()
    if not isinstance(network, OnnxNetwork) or not network.quantised.nodes:
        return None
    nodes = network.quantised.nodes
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in node[2]:
            readers[name].append(node)
    found: set[str] = set()
    for node in reversed(nodes):  # nodes of a model are in execution order
        found.update(name for name in {*node[2], *node[3]} if name and _is_brought(name, readers[name], found))
    return frozenset(found)


def _is_brought(name: str, readers: Iterable[Node], found: Container[str]) -> bool:
    counting = [node for node in readers if node[1] not in _UNREAD]
    return bool(counting) and all(_brings(name, node, found) for node in counting)


def _brings(name: str, node: Node, found: Container[str]) -> bool:
    kind, reads = node[1], node[2]
    if kind in _SOFTMAX:
        return reads[0] == name
    if kind == "Where" and reads[0] == name:
        return False
    is_value = kind in _SUMS or kind == "Concat" or reads[0] == name
    return is_value and (kind in _PASSING or is_edge(kind)) and all(made in found for made in node[3] if made)


def values_for_softmax(network: Network) -> frozenset[Hashable]:
    """Return the values of a torch program that feed only softmax operators through sums, choices and moves."""
    readers: defaultdict[Hashable, list[tuple[Operator, int]]] = defaultdict(list)
    operators = [network[index] for index in sorted(network, reverse=True) if not network[index].is_module]
    for operator in operators:
        for (io, slot), number in operator.values.items():
            if io == "in" and number not in _given(operator):
                readers[number].append((operator, slot))
    found: set[Hashable] = set()
    for operator in operators:
        for number in operator.values.values():
            if number not in found and readers[number] and all(_reads_for_softmax(*r, found) for r in readers[number]):
                found.add(number)
    return frozenset(found)


def _given(operator: Operator) -> list[Hashable]:
    """Return the outputs of an operator; a view of the same memory and shape returns its input."""
    return [number for (io, _), number in operator.values.items() if io == "out"]


def _reads_for_softmax(operator: Operator, slot: int, found: Container[Hashable]) -> bool:
    kind = plain(operator.kind)
    name = operator.call.inputs[slot] if operator.call is not None and slot < len(operator.call.inputs) else ""
    if kind in _TORCH_SOFTMAX or name in _TORCH_MASKS:
        return slot == 0 or name in _TORCH_MASKS
    if kind in ("where", "masked_fill") and name in ("condition", "mask"):
        return False
    made = _given(operator)
    is_passing = kind in _TORCH_SUMS or kind == "cat" or only_moves(operator.kind)
    return is_passing and bool(made) and all(number in found for number in made)


def without_masked(
    sample: Dump, benchmark: Dump, pairs: Sequence[Pair], results: Sequence[Row | Failed], measures: Measures
) -> list[Row | Failed]:
    """Return the results; pairs with masked values are measured without them."""
    brought = brought_to_softmax(benchmark)
    of_sample = brought_to_softmax(sample) if brought is None else None
    network = benchmark.network()
    of_program = frozenset[Hashable]() if isinstance(network, OnnxNetwork) else values_for_softmax(network)
    measured = list[Row | Failed]()
    for pair, row in zip(pairs, results):
        operator = network.get(pair.benchmark.op_index) if of_program else None
        number = None if operator is None else operator.values.get((pair.benchmark.io, pair.benchmark.slot))
        known = pair.benchmark.name in (brought or ()) or pair.sample.name in (of_sample or ()) or number in of_program
        measured.append(_measured(pair, row, known, measures) if isinstance(row, Row) and _may_be(row, known) else row)
    return measured


def _may_be(row: Row, known: bool) -> bool:
    """Return whether the sums of a row allow masked values."""
    if row.equal or row.sums is None or row.statistics or row.checksums:
        return False
    counts = row.counts
    return bool(counts.sample_minus_inf and counts.benchmark_minus_inf) or (known and not row.sums.bb < MASKED**2)


def _measured(pair: Pair, row: Row, known: bool, measures: Measures) -> Row:
    try:
        result = measures.of_selected(pair, lambda a, b: ~_masked(a, b, known))
    except FileChanged:
        raise
    except SgsdumpError:
        return row
    if not isinstance(result, Row) or result.count == row.count:
        return row
    note = f"without {row.count - result.count:,} of {row.count:,} values, which both sides mask"
    note = "; ".join(filter(None, [row.note, note]))
    kept = {"details": row.details, "vendor": row.vendor, "retried": row.retried}
    return result.replaced(note=note, equal=result.equal or not result.count, **kept)


def _masked(a: np.ndarray, b: np.ndarray, known: bool) -> np.ndarray:
    masked: np.ndarray = (a == -np.inf) & (b == -np.inf)
    if known:
        finite = b[np.isfinite(b)]
        of_benchmark = b <= (float(finite.max()) if finite.size else np.inf) - MASKED
        masked |= of_benchmark & (a <= _tops(a, of_benchmark) - EXP_IS_ZERO)
    return masked


def _tops(values: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Return the value below which a masked value must lie.

    This is the largest unmasked value along an axis, minimised over all axes with unmasked values. The axis of the
    Softmax is unknown for a dump's layout.
    """
    counting = np.where(masked | ~np.isfinite(values), -np.inf, values)
    least = np.full(values.shape, np.inf)
    for axis in range(values.ndim):
        tops = counting.max(axis=axis, keepdims=True)
        least = np.minimum(least, np.where(tops == -np.inf, np.inf, tops))
    return np.where(np.isinf(least), 0.0, least)
