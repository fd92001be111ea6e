"""Compare a dump under test with a reference dump: the errors of every layer, and a verdict.

The sample is the run under test (the fixed model), the benchmark the reference (the float or original model). MSE, COS
and RMSE are always shown; RMSE is what the SDK calls so: sum |a-b| / sum |b|, a relative error.

Thresholds are --min-cos, --max-rmse, --max-mse, and --limit for any other metric. Exit status: 0 within the thresholds
or none given, 1 past one of them (NaN, Inf and layers that could not be compared count as past), 2 on trouble.

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
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.compare.board import compare_board, is_board
from sgsdump.commands.compare.cluster import measured_on_cluster
from sgsdump.commands.compare.models import are_models, compare_models
from sgsdump.commands.compare.options import (
    ALWAYS,
    BOARD,
    GOLDEN,
    MODELS,
    MODES,
    RANGES,
    RUNS,
    TREES,
    TWO,
    WATCHER,
    Measuring,
    Options,
    add_arguments,
    options_of,
)
from sgsdump.commands.compare.output import check_files, print_comparison, write_files
from sgsdump.commands.compare.ranges import compare_ranges_of, holds_ranges
from sgsdump.commands.options import described, reads_raw, stages_of
from sgsdump.commands.terminal import TERMINAL, print_lines
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.files.escaping import for_terminal, shown

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.own_metric import OwnMetric
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.runs import PairedDumps, Run, RunPairs

__all__ = ["MODES", "add_arguments", "run"]

Dumps = tuple["Dump", "Dump"]
MOST_TABLES, MOST_ROWS = 4, 500


@dataclass(frozen=True)
class _ComparedRun:
    """A pair of runs and its result: ``differs`` says where and is "" where every value that was compared is equal,
    ``unmatched`` how many layers only one side has, ``blamed`` what explains it, a line each: arguments, weights, an
    operator; ``fed`` the first input of whole numbers that differs, "" where both were fed the same.
    ``by_collective``: the first difference came from another rank."""

    run: Run
    status: int
    differs: str
    by_rounding: bool = False
    unmatched: int = 0
    blamed: tuple[str, ...] = ()
    fed: str = ""
    by_collective: bool = False


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import together

    paths = [path for path in (args.sample, args.benchmark, *args.further) if path is not None]
    if len(paths) == 2 and any(map(holds_ranges, paths)) and args.golden is None:
        options = options_of(args)
        MODES.check(RANGES, options.given)
        return compare_ranges_of(options)
    if len(paths) > 1 and not args.raw_dtype and is_board(paths):
        MODES.check(BOARD, MODES.given(args))
        return compare_board(paths[:-1], paths[-1])
    if len(paths) == 2 and args.golden is None and are_models(*paths):
        options = options_of(args)
        MODES.check(MODELS, options.given)
        with together():
            return compare_models(options, _thresholds(options.measuring, ()))
    if args.benchmark is None:
        MODES.check(WATCHER, MODES.given(args))
        return _compare_watched(args.sample, args.step, args.rank)
    with together():
        return _compare(options_of(args))


def _compare(options: Options) -> int:
    """The exit status of the comparison, in the mode that the options and the dumps ask for."""
    if options.golden is not None:
        MODES.check(GOLDEN, options.given)
        return _judge(options, options.golden)
    if options.runs:
        MODES.check(RUNS, options.given)
        return _compare_merged(options)
    pairs = _pairs_of_trees(options)
    MODES.check(TREES if pairs else TWO, options.given)
    if pairs:
        return _compare_trees(options, pairs)
    run = _whole_round(options)
    if run is None:
        return _compare_two(options)[0]
    results = _compare_tokens([(options, run, run)], (options.sample, options.benchmark))
    _print_summary(results, True)
    return results[0].status


def _judge(options: Options, golden: Path) -> int:
    from sgsdump.commands.compare.judge import ThreeRuns, Tolerance, judge

    measuring = options.measuring
    tolerance = Tolerance(options.input_tag, measuring.th1, measuring.allow_missing)
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


def _compare_two(options: Options, in_full: bool = True) -> tuple[int, Comparison]:
    """Prints the comparison where it is told ``in_full``. Raises ConfigError, and ValuesError where nothing could be
    compared."""
    from sgsdump.comparison.own_metric import load_own_metrics

    check_files(options.output, options.files)
    own = load_own_metrics(options.measuring.metric)
    compared = _comparing(options, own)
    sample, benchmark = described(options.reading, options.sample, options.benchmark)
    comparison = compared(sample, benchmark, measured_by=measured_on_cluster(options), progress=TERMINAL)
    return _conclude(options, comparison, tuple(own), (sample, benchmark), in_full=in_full), comparison


def _compare_merged(options: Options) -> int:
    """The comparisons of all runs, merged."""
    from sgsdump.comparison.merge import merge_each
    from sgsdump.comparison.own_metric import load_own_metrics
    from sgsdump.dumps.runs import paired_dumps
    from sgsdump.progress import each

    check_files(options.output, options.files)
    own = load_own_metrics(options.measuring.metric)
    compared = _comparing(options, own)
    runs = _paired_trees(options) or paired_dumps(options.sample, options.benchmark)

    def of_pair(sample: Path, benchmark: Path) -> Comparison:
        pair = options.of_pair(sample, benchmark)
        return compared(*described(pair.reading, sample, benchmark), measured_by=measured_on_cluster(pair))

    pairs = each(TERMINAL, runs.pairs.items(), "compare", "run", len(runs.pairs))
    comparison = merge_each((name, of_pair(*paths)) for name, paths in pairs)
    comparison = replace(comparison, completeness=replace(comparison.completeness, runs=runs.only_in_benchmark))
    sides = (
        ("sample", options.benchmark, runs.only_in_sample),
        ("benchmark", options.sample, runs.only_in_benchmark),
    )
    lines = [
        f"Run not compared: {name} of the {side}, not in {other}" for side, other, names in sides for name in names
    ]
    return _conclude(options, comparison, tuple(own), None, [f"Runs compared: {len(runs.pairs)}.", *lines])


def _conclude(
    options: Options,
    comparison: Comparison,
    own: tuple[str, ...],
    dumps: Dumps | None,
    lines: list[str] | None = None,
    in_full: bool = True,
) -> int:
    """Write the files, print, and give the exit status; ``dumps`` are None of several runs."""
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.reports.layers.table import table_of

    given = _thresholds(options.measuring, own)
    comparison.check_layers(given)
    if not comparison.rows and not comparison.failed:
        raise ValuesError(_nothing_in_common(options, comparison, dumps))
    limits = given or DOCUMENTED
    table = table_of(comparison, limits, options.title)
    lines = [*write_files(options, comparison, limits, table, dumps), *(lines or [])]
    if in_full:
        print_comparison(options, comparison, limits, table, lines)
    if not comparison.rows:
        raise ValuesError(f"none of {len(comparison.failed)} layers could be compared; the reasons are listed above")
    is_whole = options.measuring.allow_missing or comparison.is_complete
    return 1 if given and not (comparison.passes(given) and is_whole) else 0


def _thresholds(measuring: Measuring, own: tuple[str, ...]) -> Thresholds:
    """The limits that were given; ``own``: the names of the user's metrics."""
    from sgsdump.comparison.thresholds import Thresholds

    of_all = tuple((name, limit) for layer, name, limit in measuring.limit if not layer)
    of_layers = tuple(limit for limit in measuring.limit if limit[0])
    limits = measuring.min_cos, measuring.max_rmse, measuring.max_mse
    return Thresholds(*limits, of_all, of_layers, own, measuring.max_channel_rmse)


def _comparing(options: Options, own: Mapping[str, OwnMetric]) -> Callable[..., Comparison]:
    """``compare`` of the library with these options."""
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.metrics import Settings
    from sgsdump.comparison.naming.name_sources import read_name_sources

    pairing, measuring, output = options.pairing, options.measuring, options.output
    limited = [name for _, name, _ in measuring.limit]
    has_names = pairing.name_map or pairing.name_rule
    annotated = output.annotate[0] if output.annotate else None
    return partial(
        compare,
        inputs=options.inputs,
        name_map=read_name_sources(pairing.name_map, pairing.name_rule) if has_names else None,
        match_by_value=pairing.match_by_value,
        stages=stages_of(pairing.stages) or stages_of(annotated, required=False),
        exclude=measuring.exclude,
        metrics={name: own.get(name) for name in [*_extra([*measuring.metrics, *limited]), *own]},
        settings=Settings(measuring.th1),
        compatible=measuring.compatible,
        details=output.html is not None or output.plots is not None,
    )


def _extra(names: list[str]) -> list[str]:
    """The metrics to show beyond those that are always shown."""
    from sgsdump.comparison.metrics import METRICS

    names = list(METRICS) if "all" in names else names
    return [name for name in dict.fromkeys(names) if name not in ALWAYS]


def _nothing_in_common(options: Options, comparison: Comparison, dumps: Dumps | None) -> str:
    unmatched = [*comparison.only_in_benchmark, *comparison.only_in_sample]
    unclear = next((record for record in unmatched if not record.unnamed), None)
    why = f"; {unclear.record.name}: {unclear.reason}" if unclear else "; are they dumps of one model?"
    counts = [f"has {len(dump.outputs)} outputs" if dump else "has others" for dump in dumps or (None, None)]
    return f"no layer in common: {options.sample} {counts[0]}, {options.benchmark} {counts[1]}, and no name agrees{why}"


def _pairs_of_trees(options: Options) -> RunPairs | None:
    """The runs to compare; None where neither side is left with several, and where a comparison of one says what is
    wrong. Raises ConfigError where none pair."""
    from sgsdump.dumps.runs import pair_runs
    from sgsdump.dumps.trees import list_runs

    reading, paths = options.reading, (options.sample, options.benchmark)
    if any(reads_raw(reading, path) for path in paths):
        return None
    try:
        sides = [list_runs(path, reading.step, reading.rank) for path in paths]
    except FormatError:
        return None
    if not all(sides) or all(len(runs) == 1 for runs in sides):
        return None
    pairs = pair_runs(*sides)
    if not pairs.pairs:
        raise ConfigError(
            f"no run of {options.sample} ({sides[0][0]} …) is of the step and rank of one of {options.benchmark} "
            f"({sides[1][0]} …); choose one of each: TREE@step=N"
        )
    return pairs


def _paired_trees(options: Options) -> PairedDumps | None:
    """The same pairs as ``--runs`` takes them, by what is known of the benchmark's run; None as above."""
    from sgsdump.dumps.runs import PairedDumps
    from sgsdump.dumps.trees import tree_of

    runs = _pairs_of_trees(options)
    if runs is None:
        return None
    sample_tree, benchmark_tree = tree_of(options.sample), tree_of(options.benchmark)
    names = [str(run) for _, run in runs.pairs]
    return PairedDumps(
        {
            name if names.count(name) == 1 else benchmark.place: (
                sample_tree / sample.place,
                benchmark_tree / benchmark.place,
            )
            for name, (sample, benchmark) in zip(names, runs.pairs)
        },
        tuple(map(str, runs.only_in_sample)),
        tuple(map(str, runs.only_in_benchmark)),
    )


def _compare_trees(options: Options, pairs: RunPairs) -> int:
    """Compare the pairs one after the other and print a summary. The status is the worst of theirs: trouble with one
    pair is reported in its place and does not keep the others from being compared."""
    from sgsdump.dumps.trees import tree_of
    from sgsdump.reports.text import counted

    trees = tree_of(options.sample), tree_of(options.benchmark)
    labels = [_label(run) for _, run in pairs.pairs]
    results: list[_ComparedRun] = []
    if pairs.only_in_benchmark:
        missing = "; ".join(shown(str(run)) for run in pairs.only_in_benchmark)
        print(for_terminal(f"Missing in the sample: {counted(len(pairs.only_in_benchmark), 'run')}: {missing}"))
    for run in pairs.only_in_benchmark:
        _write_missing(options, run)
    of_pairs: list[tuple[Options, Run, Run]] = []
    for sample, run in pairs.pairs:
        label = _label(run) if labels.count(_label(run)) == 1 else _in_a_name(run.place)
        pair = options.of_pair(trees[0] / sample.place, trees[1] / run.place)
        of_pairs.append((replace(pair, output=options.output.labelled(label)), sample, run))
    is_by_token = _is_by_token(options, pairs)
    if is_by_token:
        results = _compare_tokens(of_pairs, trees)
    else:
        for pair, sample, run in of_pairs:
            print(for_terminal(_title(sample, run)))
            results.append(_compare_pair(pair, run)[0])
            print()
    for side, runs in (("sample", pairs.only_in_sample), ("benchmark", pairs.only_in_benchmark)):
        if runs:
            print(for_terminal(f"Only in the {side}: {'; '.join(shown(str(run)) for run in runs)}"))
    _print_summary(results, is_by_token)
    measuring = options.measuring
    lacks = bool(pairs.only_in_benchmark and _has_limits(measuring) and not measuring.allow_missing)
    return max(lacks, *(result.status for result in results))


def _write_missing(options: Options, run: Run) -> None:
    """The files of a run that the sample lacks, which say so."""
    from sgsdump.comparison.comparison import Comparison, Completeness
    from sgsdump.comparison.own_metric import load_own_metrics
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.reports.layers.table import table_of

    output = replace(options.output, html=None, plots=None, annotate=None, write_name_map=None)
    missing = replace(options, output=output.labelled(_label(run)))
    comparison = Comparison((), (), (), (), completeness=Completeness(runs=(str(run),)))
    limits = _thresholds(options.measuring, tuple(load_own_metrics(options.measuring.metric))) or DOCUMENTED
    write_files(missing, comparison, limits, table_of(comparison, limits, str(run)), None)


def _has_limits(measuring: Measuring) -> bool:
    limits = (measuring.min_cos, measuring.max_rmse, measuring.max_mse, measuring.max_channel_rmse)
    return bool(measuring.limit) or any(limit is not None for limit in limits)


def _print_summary(results: list[_ComparedRun], by_token: bool) -> None:
    """``by_token``: it stands above from where on the programs were fed other inputs, and no layer is listed."""
    after = _fed_others(results)
    different = [result for result in results if result.differs and result not in after]
    real = [result for result in different if not result.by_rounding]
    rounded = f", by rounding alone: {len(different) - len(real)}" if len(real) < len(different) else ""
    others = f"; not judged, as they were fed other inputs: {len(after)}" if after else ""
    print(f"Runs compared: {len(results)}, of which differ: {len(different)}{rounded}{others}.")
    if after and not by_token:
        first = after[0]
        print(
            for_terminal(
                f"From {shown(str(first.run))} on the programs were fed other whole numbers ({shown(first.fed)}), as "
                f"where another token was chosen before: what differs there is no error of its own."
            )
        )
    if different:
        first = _first_of(real or different)
        more = " by more" if real and rounded else ""
        print(for_terminal(f"The first that differs{more} is {shown(str(first.run))}: {first.differs}"))
        print_lines(map(shown, first.blamed), "  ")
    one_sided = [result for result in results if result.unmatched]
    if one_sided:
        where = f"first in {shown(str(one_sided[0].run))}, {one_sided[0].unmatched}"
        listed = "TREE@step=N on both sides lists them" if by_token else "they are listed there"
        print(for_terminal(f"Runs with layers that only one side has: {len(one_sided)}, {where}; {listed}."))


def _first_of(different: list[_ComparedRun]) -> _ComparedRun:
    """The first run that differs; of one step a rank that has the error of itself, not by a collective."""
    of_step = [result for result in different if result.run.step == different[0].run.step]
    return next((result for result in of_step if not result.by_collective), different[0])


def _fed_others(results: list[_ComparedRun]) -> list[_ComparedRun]:
    """The runs from the first on in which the programs were fed other whole numbers, where they began with the same;
    those of one rank follow one another."""
    diverged: list[_ComparedRun] = []
    began: dict[int | None, bool] = {}
    for result in results:
        same_so_far = began.setdefault(result.run.rank, not result.fed)
        if same_so_far and (result.fed or any(other.run.rank == result.run.rank for other in diverged)):
            diverged.append(result)
    return diverged


def _is_by_token(options: Options, pairs: RunPairs) -> bool:
    """Whether a table for each run is more than anyone reads: of many rounds of a program, or of large ones, where no
    list was asked for."""
    are_rounds = all(map(_is_round, (run for pair in pairs.pairs for run in pair)))
    if not are_rounds or _asks_for_list(options):
        return False
    return len(pairs.pairs) > MOST_TABLES or _is_large(options.sample, pairs.pairs[0][0])


def _whole_round(options: Options) -> Run | None:
    """The one round that each side is left with, where its table is more than anyone reads, and neither the round nor a
    list was asked for."""
    from sgsdump.dumps.trees import list_runs, tree_of

    paths = options.sample, options.benchmark
    reading = options.reading
    is_chosen = reading.step is not None or any(tree_of(path) != path for path in paths)
    if is_chosen or _asks_for_list(options) or any(reads_raw(reading, path) for path in paths):
        return None
    try:
        (sample,), (benchmark,) = (list_runs(path, None, reading.rank) for path in paths)
    except (FormatError, ValueError):
        return None
    is_large = _is_round(sample) and _is_round(benchmark) and _is_large(options.sample, sample)
    return benchmark if is_large else None


def _asks_for_list(options: Options) -> bool:
    return bool(set(options.given) & {"sort", "top", "only_bad"})


def _is_round(run: Run) -> bool:
    from sgsdump.dumps.formats.rounds.round_file import INDEX_ENDING

    return run.place.endswith(INDEX_ENDING)


def _is_large(path: Path, run: Run) -> bool:
    """Whether a round of a tree has more tensors than a table that is read."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.trees import tree_of

    try:
        with open_dump(tree_of(path) / run.place) as dump:
            return len(dump.records) > MOST_ROWS
    except (FormatError, ValuesError):
        return False


def _compare_tokens(pairs: list[tuple[Options, Run, Run]], trees: tuple[Path, Path]) -> list[_ComparedRun]:
    """Compare the rounds and print, on one screen, which differ, which layers of the first that does, and which
    operators of the first of these. Where the programs went on with other inputs, later rounds are not compared."""
    from sgsdump.dumps.dump import note_lines
    from sgsdump.reports.comparison import tokens
    from sgsdump.reports.sentences import environment_lines

    results: list[_ComparedRun] = []
    rounds: list[tokens.ComparedRound] = []
    detailed: tuple[tokens.ComparedRound, Comparison] | None = None
    environment: Sequence[Finding] = ()
    notes: tuple[dict[str, None], dict[str, None]] = {}, {}
    remaining = list(pairs)
    while remaining:
        pair, _, run = remaining.pop(0)
        result, comparison = _compare_pair(pair, run, in_full=False)
        results.append(result)
        if comparison is None:
            continue
        environment = environment or comparison.environment
        for of_side, told in zip(notes, (comparison.sample_notes, comparison.benchmark_notes)):
            of_side.update(dict.fromkeys(told))
        rounds.append(tokens.compared_round(run, comparison))
        first = tokens.first_of(rounds)
        if first is rounds[-1]:
            detailed = first, comparison
        if tokens.diverged_line(rounds, []):
            break
    lines = [
        *environment_lines(environment),
        *tokens.all_lines(rounds, detailed, [run for _, _, run in remaining]),
    ]
    print(for_terminal("".join(f"{line}\n" for line in lines)), end="")
    for tree, of_tree in zip(trees, notes):
        print_lines(note_lines(tree, [*of_tree]))
    print("All layers of a round: TREE@step=N on both sides; a table for each: --top N, --sort, --only-bad.")
    return results


def _compare_pair(options: Options, run: Run, in_full: bool = True) -> tuple[_ComparedRun, Comparison | None]:
    try:
        status, comparison = _compare_two(options, in_full)
    except (FormatError, ValuesError) as error:
        print(for_terminal(f"not compared: {error}"))
        where = f"{run}, {options.sample} against {options.benchmark}"
        print(for_terminal(f"sgsdump: not compared: {where}: {error}"), file=sys.stderr)
        return _ComparedRun(run, 2, f"not compared: {error}"), None
    from sgsdump.reports.comparison.tokens import other_input
    from sgsdump.reports.sentences import blamed_lines

    unmatched = len(comparison.only_in_sample) + len(comparison.only_in_benchmark)
    fed, blamed = other_input(comparison), tuple(blamed_lines(comparison))
    by_collective = any("collective" in finding.facts for finding in comparison.causes)
    result = _ComparedRun(run, status, *_difference(comparison), unmatched, blamed, fed, by_collective)
    return result, comparison


def _difference(comparison: Comparison) -> tuple[str, bool]:
    """Where two runs are not equal, the first layer that is not, and whether it is all by rounding; else "". NaN and
    Inf in the same places are equal."""
    from sgsdump.comparison.dataflow import first_difference
    from sgsdump.comparison.finding import NO_FAULT
    from sgsdump.comparison.row import differs, is_rounding

    first = first_difference(comparison)
    if first is not None:
        count = sum(map(differs, comparison))
        more = first_difference(comparison, beyond_rounding=True)
        if more is None:
            blamed = any(finding.kind not in NO_FAULT for finding in comparison.causes)
            how = "" if blamed else ", by rounding alone"
            return f"{count} of {len(comparison)} layers{how}, first {shown(first.where)}", not blamed
        named = next((finding.layer for finding in comparison.causes if finding.kind == "argument"), None)
        if named not in (None, more.output.name):  # what differs first by more than rounding is made by it
            return f"{count} of {len(comparison)} layers", False
        by = " beyond rounding" if is_rounding(first.output) else ""
        of = f"{shown(more.where)}, {more}" if more.is_placed else shown(more.output.name)
        return f"{count} of {len(comparison)} layers, first{by} {of}", False
    if not comparison.failed:
        return "", False
    failed = comparison.failed[0]
    of = f"{len(comparison.failed)} of {len(comparison.failed) + len(comparison)}"
    where = f"{shown(failed.pair.benchmark.name)}: {shown(failed.reason)}"
    return f"{of} layers cannot be compared, first {where}", False


def _title(sample: Run, benchmark: Run) -> str:
    return shown(f"== {benchmark}" if str(sample) == str(benchmark) else f"== {sample} against {benchmark}")


def _label(run: Run) -> str:
    """The label of a run's files, ``step3-rank0``; its folder where nothing else is known of it."""
    facts = [("step", run.step), ("rank", run.rank), ("", run.graph)]
    return _in_a_name("-".join(f"{name}{value}" for name, value in facts if value not in (None, "")) or run.place)


def _in_a_name(text: str) -> str:
    return text.replace("/", "_")
