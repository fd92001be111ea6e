"""Which compared tensors feed which, from the input records of a dump.

A simulator's dump repeats every input of an operator, which gives the data flow; a framework's dump holds outputs only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import replace

from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump


def has_flow(dump: Dump) -> bool:
    """True when the dump records the inputs of its operators."""
    return any(r.io == "in" and not r.constant for r in dump.records)


def nearest_sources(dump: Dump, wanted: Set[str]) -> dict[str, tuple[str, ...]]:
    """Output name -> the nearest tensors upstream of it that are in ``wanted``, in the order of their use.

    A tensor in between that is not wanted (fused away on the other side, say) is looked through.
    """
    inputs: dict[int, list[str]] = defaultdict(list)
    outputs: dict[int, list[str]] = defaultdict(list)
    for record in dump.records:
        if not record.constant:
            (inputs if record.io == "in" else outputs)[record.op_index].append(record.name)
    nearest: dict[str, tuple[str, ...]] = {}
    for index in sorted(outputs):
        sources: dict[str, None] = {}
        for name in inputs[index]:
            sources.update(dict.fromkeys([name] if name in wanted else nearest.get(name, ())))
        for name in outputs[index]:
            nearest.setdefault(name, tuple(sources))
    return nearest


def with_rises(rows: list[Row], sample: Dump, benchmark: Dump) -> list[Row]:
    """The rows with their ``sources`` and ``rise``, by the benchmark's data flow, else the sample's, else by order.

    Rows that hold two different tensors (``misnamed``) feed nothing.
    """
    trusted = [row for row in rows if not row.misnamed]
    errors = {row.name: row.error for row in trusted}
    if has_flow(benchmark):
        flow = nearest_sources(benchmark, errors.keys())
        sources = [flow.get(row.name, ()) for row in rows]
    elif has_flow(sample):
        benchmark_names = {row.sample_name: row.name for row in trusted}
        flow = nearest_sources(sample, benchmark_names.keys())
        sources = [tuple(benchmark_names[name] for name in flow.get(row.sample_name, ())) for row in rows]
    else:
        sources = _rows_before(rows)
    return [_risen(row, names, errors) for row, names in zip(rows, sources)]


def risen_again(rows: list[Row]) -> list[Row]:
    """The rows with the ``rise`` that their errors and their ``sources`` give."""
    errors = {row.name: row.error for row in rows if not row.misnamed}
    return [_risen(row, tuple(name for name in row.sources if name in errors), errors) for row in rows]


def _rows_before(rows: list[Row]) -> list[tuple[str, ...]]:
    sources: list[tuple[str, ...]] = []
    before: tuple[str, ...] = ()
    for row in rows:
        sources.append(before)
        before = before if row.misnamed else (row.name,)
    return sources


def _risen(row: Row, sources: tuple[str, ...], errors: dict[str, float]) -> Row:
    before = max((errors[name] for name in sources), default=0.0)
    # an error that was infinite before cannot rise
    return replace(row, sources=sources, rise=row.error - before if before < float("inf") else 0.0)
