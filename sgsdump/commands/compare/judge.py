"""Judge whether a run is as good as an accepted run; both are compared with a golden run.

examples:
  sgsdump judge fixed.bin int16.bin float.bin
  sgsdump judge float16.npz accepted_float16.npz float32.npz --times 5
  sgsdump judge new.bin old.bin float.bin --csv layers.csv --junit layers.xml

the verdict:
  A tensor passes if its diff3 error against the golden run is at most --times
  the diff3 error of the benchmark. The golden run is the most exact of the
  three, such as the float32 model.

exit status:
  0 if every tensor passes and no tensor of the golden run is missing; 1
  otherwise; 2 on errors.

output files:
  In CSV and JSON, the verdict of each layer is "pass", "warn" (the layer
  passes, but has NaN, Inf or a note, such as different types or layouts),
  "fail" or "not comparable".
  --format sdk prints compare_result.log in the form of the SDAA dump tool.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from sgsdump.commands.compare.options import Output, add_listing, add_reading, add_tables
from sgsdump.commands.compare.output import check_files, damage_text, print_golden, write_tables
from sgsdump.commands.opening import described
from sgsdump.commands.options import Reading, add_allow_missing, add_th1, record
from sgsdump.commands.terminal import TERMINAL, print_error

RARE = ("--rank", "--raw-dtype", "--files", "--inputs", "--format", "--suite", "--annotate")
INPUT_TAG, TH1 = 10.0, 1e-6
# What compare writes and judge does not.
_NO_OUTPUT = dict.fromkeys(("html", "plots", "write_name_map"))


@dataclass(frozen=True)
class Tolerance:
    """How many ``times`` the benchmark's error may be, the |golden| above which diff3 is relative, and whether tensors
    may be missing."""

    times: float
    th1: float
    allow_missing: bool


@dataclass(frozen=True)
class ThreeRuns:
    """What is judged, what it is compared with, the run that judges both, and how."""

    sample: Path
    benchmark: Path
    golden: Path
    reading: Reading
    inputs: bool
    tolerance: Tolerance
    output: Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sample", type=Path, metavar="SAMPLE", help="dump under test")
    parser.add_argument("benchmark", type=Path, metavar="BENCHMARK", help="dump of the accepted run")
    parser.add_argument(
        "golden",
        type=Path,
        metavar="GOLDEN",
        help="dump of the golden run, the reference for both SAMPLE and BENCHMARK",
    )
    add_reading(parser.add_argument_group("input dumps"))
    tolerance = parser.add_argument_group("limits")
    tolerance.add_argument(
        "--times",
        type=float,
        default=INPUT_TAG,
        metavar="X",
        help="highest allowed ratio of the sample's error to the benchmark's error (default: %(default)g)",
    )
    add_th1(
        tolerance,
        text=(
            "diff3 is the relative error if |golden| exceeds this value, else the absolute error (default: %(default)g)"
        ),
        default=TH1,
    )
    add_allow_missing(tolerance, "do not exit with status 1 because tensors are missing")
    add_listing(parser.add_argument_group("table"), "that do not pass")
    add_tables(parser.add_argument_group("output files"))


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import together

    three = record(
        ThreeRuns,
        args,
        reading=record(Reading, args, raw_shape=()),
        tolerance=record(Tolerance, args),
        output=record(Output, args, annotate=args.annotate and tuple(args.annotate), begun=monotonic(), **_NO_OUTPUT),
    )
    with together():
        return judge(three)


def judge(three: ThreeRuns) -> int:
    """Write the files and print; the exit status."""
    from sgsdump.comparison.golden import GoldenSettings, compare_golden
    from sgsdump.dumps.dump import note_lines
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.golden import golden_csv, golden_json
    from sgsdump.reports.layers.table import golden_table_of

    output, paths, tolerance = three.output, (three.sample, three.benchmark, three.golden), three.tolerance
    check_files(output, [*paths, three.reading.ranges, three.reading.parse_net])
    sample, benchmark, golden = dumps = described(three.reading, *paths)
    titles = str(three.sample), str(three.benchmark), str(three.golden)
    settings = GoldenSettings(tag=tolerance.times, th1=tolerance.th1, titles=titles)
    comparison = compare_golden(sample, benchmark, golden, settings, inputs=three.inputs, progress=TERMINAL)
    if output.csv:
        replace_text(output.csv, golden_csv(comparison))
    if output.json:
        replace_text(output.json, golden_json(comparison, tolerance.allow_missing))
    table = golden_table_of(comparison, tolerance.allow_missing)
    lines = write_tables(output, table)
    notes = [line for path, dump in zip(paths, dumps) for line in note_lines(path, dump.notes)]
    print_golden(output, comparison, table, [*lines, *notes])
    damaged = [f"{path}: {note}" for path, dump in zip(paths, dumps) for note in dump.damage]
    if damaged:
        print_error(damage_text("the three dumps", damaged))
        return 2
    return comparison.verdict(tolerance.allow_missing).exit_status()
