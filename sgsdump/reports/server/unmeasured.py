"""Pages of layers that were not compared: of one dump, or of a pair whose comparison still runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.dataflow import has_reads, known_sources, nearest_sources
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.code import code_of
from sgsdump.reports.graph.parts import direct_reads, parts_of
from sgsdump.reports.report import Facts, Figures, Layer, Report, View

UNKNOWN = Figures(math.nan, math.nan, math.nan, None, math.nan)


def report_of_pairs(title: str, pairs: Sequence[Pair], sample: Dump, benchmark: Dump) -> Report:
    """Return the page of pairs that are not yet compared."""
    sources = known_sources((sample, benchmark), pairs)
    if not sources and has_reads(benchmark):
        sources = nearest_sources(benchmark, {pair.benchmark.name for pair in pairs})
    return _report(title, [pair.benchmark for pair in pairs], sources, benchmark, "The comparison is running.")


def report_of_dump(title: str, dump: Dump) -> Report:
    """Return the page of a single dump."""
    records = outputs_of(dump)
    pairs = [Pair(record, record, "name") for record in records]
    sources = known_sources((dump, dump), pairs) or nearest_sources(dump, {record.name for record in records})
    return _report(title, records, sources, dump, f"{len(records)} tensors.")


def outputs_of(dump: Dump) -> list[Record]:
    """Return the output tensors of a dump, each name once."""
    return list({record.name: record for record in dump.records if record.io == "out" and not record.constant}.values())


def _report(
    title: str, records: Sequence[Record], sources: Mapping[str, tuple[str, ...]], dump: Dump, text: str
) -> Report:
    names = [record.name for record in records]
    parts, network = parts_of(names, dump), dump.network() or {}
    direct = direct_reads(parts, dump)
    known = set(names)
    layers = [
        Layer(
            record.name,
            record.op_type,
            record.op_index,
            UNKNOWN,
            sources=tuple(name for name in sources.get(record.name, ()) if name in known),
            facts=Facts(record.tensor.info.shape, str(record.tensor.info.dtype), code=code_of(dump, record.op_index)),
            module=operator.module if (operator := network.get(record.op_index)) else "",
            parts=parts.get(record.name, ()),
            reads=direct.get(record.name, ()),
        )
        for record in records
    ]
    by_flow = any(layer.sources for layer in layers)
    return Report(title, (text,), layers=tuple(layers), good=True, view=View(by_flow=by_flow, measured=False))
