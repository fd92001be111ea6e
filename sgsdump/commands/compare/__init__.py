"""Compare a dump under test with a reference dump: the errors of every layer, and a verdict.

The sample is the run under test (the fixed model), the benchmark the reference (the float or original model). MSE, COS
and RMSE are always shown; RMSE is what the SDK calls so: sum |a-b| / sum |b|, a relative error.

The first line says PASS or FAIL, the layer and the number that decided, and its limit; without limits EQUAL, WITHIN
ROUNDING or DIFFERS.

Thresholds are --min-cos, --max-rmse, --max-mse, and --limit for any other metric. Exit status: 0 within the thresholds
or none given, 1 past one of them (NaN, Inf and layers that could not be compared count as past), 2 on trouble. With
--fail-on cause it is 1 too where a cause is named.

The table is as wide as the window, with bars and colours (NO_COLOR switches them off); a pipe gets it with whole names,
and --format sdk prints the lines of the SDK's tools. --sort, --top and --only-bad choose the layers listed there and in
--markdown; the other files hold every layer. Two ONNX models are compared by their weights.

examples:
  sgsdump compare fixed.bin float.bin
  sgsdump compare fixed.bin float.bin --min-cos 0.99 --max-rmse 0.1 --csv report.csv
  sgsdump compare fixed.bin float.bin --top 10
  sgsdump compare fixed.bin float.bin --max-rmse 0.1 --junit layers.xml --markdown summary.md
  sgsdump compare fixed.bin float.bin --plots pictures_of_it --tensor-min-max log/tensor_min_max.txt
  sgsdump compare fixed.bin float.bin --annotate net.onnx net_errors.onnx
  sgsdump compare integers.bin float.bin --tensor-min-max log/tensor_min_max.txt
  sgsdump compare padded.bin float.bin --parse-net parse_net.txt
  sgsdump compare dump_a/ dump_b/ --step 3
  sgsdump compare watcher_dump/
  sgsdump compare caffe.bin onnx.bin --match-by-value --write-name-map names.json
  sgsdump compare fixed.bin onnx.bin --name-map names.json
  sgsdump compare npu_dump/ torch_dump/ --name-map mindie_torch_op_mapping.json --name-map mindie_rt_op_mapping.json
  sgsdump compare npu_dump/ onnx_dump/ --name-map ge_graph.json --name-rule '^/=' --name-rule '/=.'
  sgsdump compare fixed.bin float.bin --metrics diff2,MaxRelativeError,mae
  sgsdump compare fixed.bin float.bin --limit diff2=0.05,CosineSimilarity=0.99
  sgsdump compare fixed.bin float.bin --limit 'sqnr=20,conv1:diff2=0.1,head*:cos=0.95' --exclude 'data*'
  sgsdump compare fixed.bin float.bin --metric angle.py:angle --limit angle=0.99
  sgsdump compare fixed.bin float.bin --metrics msaccucmp
  sgsdump compare fixed.bin float.bin --format sdk > compare.log
  sgsdump compare fixed/ float/ --runs --metrics sqnr
  sgsdump compare output/Result_0 float.npz --raw-dtype float32
  sgsdump compare net.onnx fine_tuned.onnx
  sgsdump compare board_prob.bin fixed.bin
  sgsdump compare log/tensor_min_max.txt older/tensor_min_max.txt --limit apart=1.5
  sgsdump compare /shared/fixed.bin /shared/float.bin --scheduler tcp://host:8786

a board's raw buffers:
  Files without a header before the last, an integer dump (DebugConfig.txt without dequantFixed) of the same picture:
  each is held against an output of the network, aligned or not. Says "identical", or where the first integer differs
  and which of the usual causes it looks like; the exit status is 1 then (docs/board_against_pc.md).

two models:
  Their initializers and constants are compared by name: which differ and by how much, the largest difference first, and
  what only one of them has. --match-by-value pairs what was only renamed. How what they compute is compared stands at
  the end.

three runs:
  Whether a run is as good as an accepted one, both compared with a golden run, is said by sgsdump judge.

trees of several runs (steps, ranks, graphs):
  They are compared run by run, a table for each, and the first run that differs is named. Of more than four rounds of a
  program, or of rounds of more than 500 tensors, one screen tells the rounds that differ, the layers of the first of
  them, and the operators of the first of these; --top, --sort or --only-bad give a table for each. From the round on in
  which the programs were fed other tokens nothing is compared: it would be no error of that round. --csv report.csv
  then writes report.step0-rank0.csv and so on, and so do the other files. --step, --rank or TREE@step=3 choose a single
  run.

the dump of a watcher (dump_scene: watcher):
  It is compared alone: each watched output as it was after its own operator and after each listed one. The operators
  that changed it are named; the exit status is 1 where there is one.

a cluster (--scheduler):
  The layers are measured on a Dask cluster (pip install 'sgsdump[cluster]') whose workers read both dumps from a shared
  file system, under the same paths on every machine. The result is the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sgsdump.commands.compare.kinds import are_models, holds_ranges, is_no_dump
from sgsdump.commands.compare.options import (
    BOARD,
    GOLDEN,
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

__all__ = ["MODES", "add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import together

    paths = [path for path in (args.sample, args.benchmark, *args.further) if path is not None]
    if len(paths) == 2 and any(map(holds_ranges, paths)) and args.golden is None:
        from sgsdump.commands.compare.ranges import compare_ranges_of

        options = options_of(args)
        MODES.check(RANGES, options.given)
        return compare_ranges_of(options)
    if len(paths) > 1 and not args.raw_dtype and is_no_dump(paths[0]):
        from sgsdump.commands.compare.board import compare_board, is_board

        if is_board(paths):
            MODES.check(BOARD, MODES.given(args))
            return compare_board(paths[:-1], paths[-1])
    if len(paths) == 2 and args.golden is None and are_models(*paths):
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

    if options.golden is not None:
        MODES.check(GOLDEN, options.given)
        return _judge(options, options.golden)
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


def _judge(options: Options, golden: Path) -> int:
    from sgsdump.commands.compare.judge import ThreeRuns, Tolerance, judge

    measuring = options.measuring
    tolerance = Tolerance(measuring.input_tag, measuring.th1, measuring.allow_missing)
    runs = options.sample, options.benchmark, golden
    return judge(ThreeRuns(*runs, options.reading, options.inputs, tolerance, options.output))


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
