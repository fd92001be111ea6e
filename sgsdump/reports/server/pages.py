"""Contents of the local server for two dumps, one dump, and the folder of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from sgsdump.comparison.align import align_names
from sgsdump.comparison.alignment import Pair, has_own_inputs
from sgsdump.dumps.dump import Dump
from sgsdump.errors import ValuesError
from sgsdump.files.bounded_read import read_bytes
from sgsdump.progress import Progress
from sgsdump.reports.report import Context, report_of
from sgsdump.reports.server.contents import Contents, Page, Shown
from sgsdump.reports.server.unmeasured import outputs_of, report_of_dump, report_of_pairs
from sgsdump.reports.tensors.planes import pair_of, records_of
from sgsdump.tensors.stages import Stage
from sgsdump.tensors.types import Range

PAGE = "report.html"
_START = b"<!doctype html>"


def of_dumps(
    sample: Dump,
    benchmark: Dump,
    stages: Sequence[Stage],
    ranges: Mapping[str, Range],
    title: str,
    facts: Sequence[tuple[str, str]],
) -> Contents:
    """Return the contents for two dumps: first their tensors by name, later the comparison.

    Raises ValuesError if the dumps have no tensor in common.
    """
    pairs = align_names(sample, benchmark, any(map(has_own_inputs, (sample, benchmark)))).pairs
    context = Context(title, facts, ranges=ranges, sample=sample, benchmark=benchmark)
    first = Shown(report_of_pairs(title, pairs, sample, benchmark), pairs)
    return Contents(first, partial(_compared, context, stages))


def _compared(context: Context, stages: Sequence[Stage], progress: Progress) -> Shown:
    from sgsdump.comparison.compare import compare  # imported while the page is already open

    sample, benchmark = context.sample, context.benchmark
    assert sample is not None and benchmark is not None
    comparison = compare(sample, benchmark, stages=stages, details=True, progress=progress)
    if not comparison.rows:
        raise ValuesError(f"no layer in common: {sample.path}, {benchmark.path}; are both dumps of the same model?")
    sides = records_of(sample), records_of(benchmark)
    pairs: list[Pair | None] = [pair_of(row, *sides) for row in comparison.rows]
    retried = frozenset(place for place, row in enumerate(comparison.rows) if row.retried)
    return Shown(report_of(comparison, context=context), pairs, retried)


def of_dump(dump: Dump, title: str) -> Contents:
    """Return the contents for a single dump."""
    pairs = [Pair(record, record, "name") for record in outputs_of(dump)]
    return Contents(Shown(report_of_dump(title, dump), pairs), single=True)


def page_in(path: Path) -> Path | None:
    """Return the page in the folder of a diagnosis or of plans; None for any other path."""
    page = path / PAGE
    return page if page.is_file() else None


def of_folder(page: Path) -> Page:
    """Return the contents for a page that another command wrote. Raises FormatError if it is no page."""
    data = read_bytes(page)
    if not data.startswith(_START):
        raise ValuesError(f"{page} is not a page of sgsdump; give a dump, or the folder that diagnose wrote")
    return Page(data)
