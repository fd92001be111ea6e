"""Masked values of attention, which two runs may hold as they like. Apart: a rule of its own, before rows are judged.

A mask is -10000, -1e9, the lowest float or -Inf; a fixed model has the least that its range reaches instead, and after
the Softmax all of them are 0. Left out of a pair, and counted in its row, are

- values that are -Inf on both sides, of any tensor;
- of a tensor that nothing but Softmaxes gets in the end, by the model's graph: values that lie MASKED below the
  benchmark's largest, and so far below the sample's of their rows that exp of the difference is 0.

NaN, +Inf and a value that only one side masks are never left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Failed, Row
from sgsdump.dumps.dump import Dump
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.dumps.quantised_graph import MOVES, Node, is_edge
from sgsdump.errors import FileChanged, SgsdumpError

MASKED, EXP_IS_ZERO = 1000.0, 11.0  # docs/formats/fixed_arithmetic.md#softmax
_SUMS = frozenset(("Add", "Where", "Max", "Min"))
_PASSING = MOVES | _SUMS | {"Cast", "Expand", "Identity", "Tile", "Slice", "Concat", "Dropout", "Clip"}
_SOFTMAX = frozenset(("Softmax", "QLinearSoftmax"))
_UNREAD = frozenset(("Shape", "Size"))  # of these readers values do not count


def brought_to_softmax(dump: Dump) -> frozenset[str] | None:
    """The tensors of the dump's model whose every reader, through sums, choices and moves, is a Softmax; None where no
    graph is known."""
    network = dump.network()
    if not isinstance(network, OnnxNetwork) or not network.quantised.nodes:
        return None
    nodes = network.quantised.nodes
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in node[2]:
            readers[name].append(node)
    found: set[str] = set()
    for node in reversed(nodes):  # a model's nodes stand in the order in which they can run
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


def without_masked(
    sample: Dump, benchmark: Dump, pairs: Sequence[Pair], results: Sequence[Row | Failed], measures: Measures
) -> list[Row | Failed]:
    """The results, those of pairs with masked values measured without these."""
    brought = brought_to_softmax(benchmark)
    of_sample = brought_to_softmax(sample) if brought is None else None
    measured = list[Row | Failed]()
    for pair, row in zip(pairs, results):
        known = pair.benchmark.name in (brought or ()) or pair.sample.name in (of_sample or ())
        measured.append(_measured(pair, row, known, measures) if isinstance(row, Row) and _may_be(row, known) else row)
    return measured


def _may_be(row: Row, known: bool) -> bool:
    """Whether the row can be of masked values, by its sums."""
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
    """What a masked value has to lie below: the largest of those that are not masked along an axis, of the axes that
    have any the least. (Along which axis the Softmax goes is not known of a dump's layout.)"""
    counting = np.where(masked | ~np.isfinite(values), -np.inf, values)
    least = np.full(values.shape, np.inf)
    for axis in range(values.ndim):
        tops = counting.max(axis=axis, keepdims=True)
        least = np.minimum(least, np.where(tops == -np.inf, np.inf, tops))
    return np.where(np.isinf(least), 0.0, least)
