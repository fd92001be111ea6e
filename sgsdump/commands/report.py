"""Write the comparison of two dumps as a single self-contained HTML file.

examples:
  sgsdump report fixed.bin float.bin
  sgsdump report fixed.bin float.bin --ranges log/tensor_min_max.txt -o r.html
  sgsdump report fixed/ float/ --runs -o images.html
  sgsdump report diagnosis --before diagnosis_of_monday -o since_monday.html
  sgsdump report fixed.bin float.bin --serve

the file:
  You can open or email the HTML file; the file loads nothing from the network.
  It has the verdict, the error over the depth of the model, a drawing of the
  model with the error of each operator, and a table of all layers to sort and
  search. For a selected layer, it shows both tensors and their difference as
  images, histograms, and the error per channel. --ranges adds the minimum, the
  maximum and the 256 levels between them to the histograms.

with --serve:
  The page is not written to a file. A local server shows all tensors at full
  resolution, at an address with a secret token that only works on this
  computer. SAMPLE may also be a single dump or the folder of a diagnosis.
  Ctrl-C stops the server.

exit status:
  0, or 2 on errors. To fail a build, use sgsdump compare --html FILE, which
  writes the same file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.opening import has_no_runs, opened
from sgsdump.commands.options import (
    Reading,
    add_output,
    add_page_budget,
    add_ranges,
    add_readers,
    add_run,
    add_runs,
    add_stages,
    record,
    stages_of,
)
from sgsdump.commands.terminal import TERMINAL, print_lines

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.dumps.dump import Dump
    from sgsdump.reports.report import Report
    from sgsdump.reports.server.contents import Contents, Page


RARE = ("--rank", "--files", "--stages", "--page-budget")


@dataclass(frozen=True)
class Options:
    sample: Path
    benchmark: Path | None
    before: Path | None
    ranges: Path | None
    runs: bool
    reading: Reading
    stages: Path | None
    page_budget: int
    serve: int | None
    output: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sample",
        type=Path,
        metavar="SAMPLE",
        help="dump under test; with --before, the output folder of sgsdump diagnose",
    )
    parser.add_argument("benchmark", type=Path, nargs="?", metavar="BENCHMARK", help="reference dump")
    dumps = parser.add_argument_group("input dumps")
    add_ranges(dumps, "calibration ranges to show, such as log/tensor_min_max.txt of calibrate")
    add_runs(dumps)
    add_run(dumps)
    add_readers(dumps)
    add_stages(dumps)
    diagnoses = parser.add_argument_group("two diagnoses")
    diagnoses.add_argument(
        "--before",
        type=Path,
        metavar="DIAGNOSIS",
        help=("output folder of an older sgsdump diagnose run of this model; the report compares both diagnoses"),
    )
    output = parser.add_argument_group("output")
    add_output(output, "HTML file to write (default: %(default)s)", default=Path("report.html"))
    add_page_budget(output)
    output.add_argument(
        "--serve",
        type=int,
        nargs="?",
        const=0,
        metavar="PORT",
        help="serve the page on this local port instead of writing a file; without PORT, on any free port",
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.dumps.trees import tree_of
    from sgsdump.errors import ConfigError, ValuesError
    from sgsdump.files.atomic_write import check_outputs
    from sgsdump.reports.made_by import typed, versions
    from sgsdump.reports.report import Context, report_of
    from sgsdump.sidecars.tensor_min_max import read_ranges

    options = record(Options, args, reading=Reading(args.step, args.rank, reader=args.reader, files=args.files))
    if options.serve is not None:
        return _served(options, options.serve, typed(args))
    if options.before is not None:
        return _report_of_two(options, options.before, typed(args))
    if options.benchmark is None:
        raise ConfigError(
            f"no benchmark is given for {options.sample}; name the benchmark dump, or give --before OLDER_DIAGNOSIS"
        )
    read = [path for path in (options.sample, options.benchmark, options.ranges, options.stages) if path]
    check_outputs([options.output], [tree_of(path) for path in read])
    ranges = read_ranges(options.ranges) if options.ranges else {}
    comparison, sample, benchmark, pictures = _compared(options, options.benchmark)
    if not comparison.rows and not comparison.failed:
        raise ValuesError(
            f"no layer in common: {options.sample}, {options.benchmark}; do both dumps belong to the same model?"
        )
    facts = [("sample", str(options.sample)), ("benchmark", str(options.benchmark))]
    facts += [("ranges", str(options.ranges))] if options.ranges else []
    facts += [("pictures", str(pictures))] if pictures else []
    facts += [versions(), *typed(args)]
    title = f"{options.sample.name} against {options.benchmark.name}"
    context = Context(title, facts, ranges=ranges, sample=sample, benchmark=benchmark, page_budget=options.page_budget)
    return _written(report_of(comparison, context=context), options.output)


def _served(options: Options, port: int, facts: Sequence[tuple[str, str]]) -> int:
    """Serve the page of two dumps, of one dump, or of a diagnosis, until interrupted. Raises ConfigError."""
    from sgsdump.errors import ConfigError
    from sgsdump.reports.server.pages import of_dump, of_dumps, of_folder, page_in
    from sgsdump.reports.server.serve import PageServer
    from sgsdump.sidecars.tensor_min_max import read_ranges

    contents: Contents | Page
    refused = {"--before": options.before, "--runs": options.runs}
    for name, value in refused.items():
        if value:
            raise ConfigError(f"{name} cannot be combined with --serve; omit one of them")
    if options.benchmark is not None:
        sample, benchmark = opened(options.reading, options.sample, options.benchmark)
        ranges = read_ranges(options.ranges) if options.ranges else {}
        contents = of_dumps(sample, benchmark, stages_of(options.stages), ranges, _title(options), facts)
    elif not has_no_runs(options.reading, options.sample) and (page := page_in(options.sample)) is not None:
        contents = of_folder(page)
    else:
        contents = of_dump(opened(options.reading, options.sample)[0], options.sample.name)
    server = PageServer(contents, port)
    print_lines([f"Serving {server.url} (Ctrl-C to stop)"])
    server.run()
    return 0


def _title(options: Options) -> str:
    """Return the title of the page of two dumps."""
    return f"{options.sample.name} against {options.benchmark.name if options.benchmark else ''}"


def _written(report: Report, path: Path) -> int:
    from sgsdump.files.atomic_write import replacing
    from sgsdump.reports.html.document import render

    with replacing(path) as file:
        file.write(render(report).encode())
    print_lines([*report.verdict, *report.details, f"Report: {path}"])
    return 0


def _report_of_two(options: Options, before: Path, facts: Sequence[tuple[str, str]]) -> int:
    """Report the changes between two diagnoses. Raises ConfigError for options of dumps, FormatError."""
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_outputs
    from sgsdump.reports.two_diagnoses import FILE, read_diagnosis, report_of_two

    asked: dict[str, object] = {"a second dump": options.benchmark, "--ranges": options.ranges}
    asked |= {"--stages": options.stages}
    asked |= {"--runs": options.runs, "--step": options.reading.step, "--rank": options.reading.rank}
    asked |= {"--reader": options.reading.reader or None, "--files": options.reading.files or None}
    for name, value in asked.items():
        if value not in (None, False):
            raise ConfigError(f"{name} applies to dumps, but --before compares two diagnoses; omit {name} or --before")
    check_outputs([options.output], [options.sample / FILE, before / FILE])
    report = report_of_two(read_diagnosis(options.sample), read_diagnosis(before))
    return _written(replace(report, facts=(*report.facts, *facts)), options.output)


def _compared(options: Options, reference: Path) -> tuple[Comparison, Dump, Dump, int]:
    """Return the comparison with details, the dumps of the first pair, and the number of pairs (0 without --runs)."""
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.merge import merge_each
    from sgsdump.dumps.runs import paired_dumps
    from sgsdump.progress import each

    stages = stages_of(options.stages)
    if not options.runs:
        sample, benchmark = opened(options.reading, options.sample, reference)
        return compare(sample, benchmark, stages=stages, details=True, progress=TERMINAL), sample, benchmark, 0
    pairs = paired_dumps(options.sample, reference).pairs
    dumps = {name: opened(options.reading, *paths) for name, paths in pairs.items()}
    runs = each(TERMINAL, dumps.items(), "compare", "run", len(dumps))
    merged = merge_each((name, compare(*both, stages=stages, details=True)) for name, both in runs)
    sample, benchmark = next(iter(dumps.values()))
    return merged, sample, benchmark, len(pairs)
