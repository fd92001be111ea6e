"""Compare two dumps, or the weights of two models, layer by layer, and print a verdict.

examples:
  sgsdump compare fixed.bin float.bin
  sgsdump compare fixed.bin float.bin --min-cos 0.99 --max-rmse 0.1 --csv layers.csv
  sgsdump compare fixed/ float/ --runs --top 10
  sgsdump compare integers.bin float.bin --ranges log/tensor_min_max.txt
  sgsdump compare fixed.bin float.bin --limit 'diff2=0.05,head*:cos=0.95' --exclude 'data*'

the verdict:
  The first line of the output gives PASS or FAIL, the value that decided, and
  the limit for this value. If no limit is given, the first line of the output
  gives EQUAL, WITHIN ROUNDING or DIFFERS. MSE, COS and RMSE are always shown.
  RMSE is the SDK's relative error: sum |a-b| / sum |b|.

exit status:
  0 if all limits hold or no limit is given. 1 if a limit is exceeded, or if a
  layer has NaN or Inf or cannot be compared. 2 on errors. With --fail-on cause,
  also 1 if a cause is named.

the table:
  On a terminal, the table fits the window and has bars and colours; NO_COLOR
  switches the colours off. In a pipe, the table shows full names. --sort,
  --top and --only-bad select the layers of the table and of --markdown. All
  other files contain every layer.

a third run:
  sgsdump judge SAMPLE BENCHMARK GOLDEN compares two runs with a golden run and
  judges whether SAMPLE is as good as BENCHMARK, the accepted run.

two models (ONNX):
  Initializers and constants are compared by name, the largest difference
  first. --match-by-value pairs renamed weights. The last lines of the output
  show how to compare the results of the models.

two range files (tensor_min_max.txt, quant files, or ranges of AIMET, Quark or
NNCF, docs/formats/vendors.md):
  The ranges are compared tensor by tensor; --limit apart=X limits the width of
  the union of both ranges, divided by the width of the narrower range.

raw output buffers of a board:
  Give the buffers, which have no header, then an integer dump of the same
  image (DebugConfig.txt without dequantFixed). If all integers are equal, the
  result says "identical". Otherwise, the result shows the first integer that
  differs and the likely cause, and the exit status is 1
  (docs/board_against_pc.md).

trees of several runs (steps, ranks, graphs):
  compare pairs the runs of both trees and prints a separate table for each pair
  of runs. The summary names the first run that differs. A program with more
  than 4 rounds, or with rounds of more than 500 tensors, gets a summary only;
  --top, --sort or --only-bad add the tables. The comparison ends at the first
  round in which the two programs have different input tokens. Files get the run
  in their name: report.step0-rank0.csv.

a watcher dump (dump_scene: watcher):
  Compare the dump alone. The operators that changed a watched output are
  named; the exit status is 1 if there is such an operator.

a cluster (--scheduler):
  The workers of a Dask cluster (pip install 'sgsdump[cluster]') read both
  dumps from a shared file system, with the same paths on every machine. The
  result is the same.

more examples:
  sgsdump compare fixed.bin float.bin --plots charts --ranges log/tensor_min_max.txt
  sgsdump compare fixed.bin float.bin --annotate net.onnx net_errors.onnx
  sgsdump compare dump_a/ dump_b/ --step 3
  sgsdump compare caffe.bin onnx.bin --match-by-value --write-name-map names.json
  sgsdump compare fixed.bin onnx.bin --name-map names.json
  sgsdump compare npu_dump/ onnx_dump/ --name-map ge_graph.json --name-rule '^/=' --name-rule '/=.'
  sgsdump compare fixed.bin float.bin --metric angle.py:angle --limit angle=0.99
  sgsdump compare fixed.bin float.bin --metrics msaccucmp
  sgsdump compare fixed.bin float.bin --format sdk
  sgsdump compare output/Result_0 float.npz --raw-dtype float32
  sgsdump compare net.onnx fine_tuned.onnx
  sgsdump compare board_prob.bin fixed.bin
  sgsdump compare log/tensor_min_max.txt older/tensor_min_max.txt --limit apart=1.5
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sgsdump.commands.compare.kinds import are_models, holds_ranges, is_no_dump
from sgsdump.commands.compare.options import (
    BOARD,
    MODELS,
    MODES,
    RANGES,
    RUNS,
    TREES,
    TWO,
    WATCHER,
    Options,
    add_arguments,
    options_of,
)
from sgsdump.commands.compare.trees import (
    compare_tokens,
    compare_trees,
    paired_trees,
    pairs_of_trees,
    print_summary,
    whole_round,
)
from sgsdump.commands.compare.two_dumps import compare_merged, compare_two
from sgsdump.commands.terminal import print_lines
from sgsdump.files.escaping import for_terminal

__all__ = ["MODES", "MOVED", "RARE", "add_arguments", "run"]
RARE = (
    *("--rank", "--raw-dtype", "--files", "--inputs", "--scheduler", "--stages", "--name-rule", "--write-name-map"),
    *("--max-mse", "--max-channel-rmse", "--format", "--suite", "--annotate"),
)
MOVED = {
    "--golden": "sgsdump judge SAMPLE BENCHMARK GOLDEN compares with a golden run",
    "--input-tag": "sgsdump judge SAMPLE BENCHMARK GOLDEN --times X does this",
    "--th1": "sgsdump judge has this option",
    "--compatible": "use --metrics TOOL",
}


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import together

    paths = [path for path in (args.sample, args.benchmark, *args.further) if path is not None]
    if len(paths) == 2 and any(map(holds_ranges, paths)):
        from sgsdump.commands.compare.ranges import compare_ranges_of

        options = options_of(args)
        MODES.check(RANGES, options.given)
        return compare_ranges_of(options)
    if len(paths) > 1 and not (args.raw_dtype or args.reader) and is_no_dump(paths[0]):
        from sgsdump.commands.compare.board import compare_board, is_board

        if is_board(paths):
            MODES.check(BOARD, MODES.given(args))
            return compare_board(paths[:-1], paths[-1])
    if len(paths) == 2 and are_models(*paths):
        from sgsdump.commands.compare.models import compare_models

        options = options_of(args)
        MODES.check(MODELS, options.given)
        with together():
            return compare_models(options, options.measuring.thresholds())
    if args.benchmark is None:
        MODES.check(WATCHER, MODES.given(args))
        return _compare_watched(args.sample, args.step, args.rank)
    with together():
        return _compare(options_of(args))


def _compare(options: Options) -> int:
    """The exit status of the comparison, in the mode that the options and the dumps ask for."""
    from sgsdump.dumps.runs import paired_dumps

    if options.runs:
        MODES.check(RUNS, options.given)
        return compare_merged(options, paired_trees(options) or paired_dumps(options.sample, options.benchmark))
    pairs = pairs_of_trees(options)
    MODES.check(TREES if pairs else TWO, options.given)
    if pairs:
        return compare_trees(options, pairs, compare_two)
    run = whole_round(options)
    if run is None:
        return compare_two(options, True)[0]
    results = compare_tokens([(options, run, run)], (options.sample, options.benchmark), compare_two)
    print_summary(results, True)
    return results[0].status


def _compare_watched(path: Path, step: int | None, rank: int | None) -> int:
    """For each run of a watcher's dump, which operator changed which watched output; 1 where one was changed.

    Raises ConfigError, ValuesError.
    """
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.runs import Run
    from sgsdump.dumps.trees import list_runs, tree_of
    from sgsdump.dumps.watched_changes import watched_changes
    from sgsdump.reports.dump_tables import watched_lines as render

    runs = list_runs(path, step, rank)
    status = 0
    for run in runs or [Run()]:
        with open_dump(tree_of(path) / run.place) as dump:
            watched = watched_changes(dump)
            if len(runs) > 1:
                print(for_terminal(f"== {run}"))
            print(for_terminal(render(watched)), end="")
            print_lines(dump.notes, "note: ")
        status = max(status, bool(watched.changes))
    return int(status)
