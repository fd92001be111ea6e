"""Hold a sample dump against a benchmark dump: MSE, COS and RMSE of every layer, and a verdict.

The sample is the run under test (the fixed model), the benchmark the reference (the float or original model).
RMSE is what the SDK calls so: sum |a-b| / sum |b|, a relative error. Exit status: 0 within the thresholds or none
given, 1 past a threshold you gave (NaN, Inf and layers that could not be compared count as past), 2 on trouble.
Thresholds are --min-cos, --max-rmse, --max-mse, and --limit for any other metric.

With --golden a third run judges both: the sample passes where its diff3 error against golden is at most the input tag
times the benchmark's. This prints compare_result.log as the SDAA dump tools write it; exit status 1 when a tensor does
not pass. CSV and JSON give every layer a verdict: pass, warn (types differ, values left out of a metric, another
layout …), fail or not comparable.

Trees of several runs (steps, ranks, graphs) are compared run by run, a table each, and the first run that differs is
named; --csv report.csv then writes report.step0-rank0.csv and so on. --step, --rank or TREE@step=3 choose single runs.

The dump of a watcher (dump_scene: watcher) is compared alone: each watched output as it was after itself and after each
listed operator. The operators that changed it are named; exit status 1 where there is one.

examples:
  sgsdump compare fixed.bin float.bin
  sgsdump compare fixed.bin float.bin --min-cos 0.99 --max-rmse 0.1 --csv report.csv
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
  sgsdump compare fixed.bin float.bin --compatible msaccucmp
  sgsdump compare fixed/ float/ --runs --metrics sqnr
  sgsdump compare fixed.bin int16.bin --golden float.bin --input-tag 5
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_run, described
from sgsdump.files.terminal_text import for_terminal

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump

ALWAYS = ("mse", "cos", "rmse")  # the metrics that are shown whether asked for or not
HELP = "compare two dumps layer by layer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sample", type=Path, help="the dump under test")
    parser.add_argument(
        "benchmark", type=Path, nargs="?", help="the dump to hold it against; none for the dump of a watcher"
    )
    parser.add_argument("--min-cos", type=float, metavar="X", help="exit 1 when a layer's COS is below X")
    parser.add_argument("--max-rmse", type=float, metavar="X", help="exit 1 when a layer's RMSE is above X")
    parser.add_argument("--max-mse", type=float, metavar="X", help="exit 1 when a layer's MSE is above X")
    add_run(parser)
    parser.add_argument("--inputs", action="store_true", help="compare the networks' inputs too")
    parser.add_argument(
        "--tensor-min-max", type=Path, metavar="FILE", help="calibrated ranges, to dequantise integer dumps"
    )
    parser.add_argument(
        "--parse-net",
        type=Path,
        metavar="FILE",
        help="what the SDK's bin/parse_net prints of the fixed model, to unpad and dequantise integer dumps",
    )
    parser.add_argument(
        "--runs",
        action="store_true",
        help="both are folders of dumps, one for each run (picture, step), or trees of runs: compare those of one name "
        "and merge sums, so that every number is that of all runs' values; each layer tells the run it is worst in",
    )
    parser.add_argument(
        "--match-by-value", action="store_true", help="pair tensors of equal values, whatever their names (float runs)"
    )
    parser.add_argument(
        "--name-map",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="how to pair, recognised by content, to be given again for a further file: names as JSON, YAML or CSV "
        '({"benchmark name": "sample name"}), both mapping files of MindIE-Torch, a GE graph as JSON, msprobe\'s '
        "layer mapping, or lines PATTERN -> REPLACEMENT",
    )
    parser.add_argument(
        "--name-rule",
        action="append",
        default=[],
        metavar="PATTERN=REPLACEMENT",
        help="a regular expression that makes benchmark names of sample names; several are applied in turn",
    )
    parser.add_argument(
        "--write-name-map", type=Path, metavar="FILE", help="write the pairs whose names differ as a name map"
    )
    parser.add_argument(
        "--metrics",
        type=_names,
        default=[],
        metavar="NAMES",
        help="show these further metrics, separated by commas, or all of them: diff1 diff2 diff3_max diff3_mean "
        "all_close nan_inf mae mape CosineSimilarity MaxAbsoluteError AccumulatedRelativeError "
        "RelativeEuclideanDistance KullbackLeiblerDivergence StandardDeviation MeanAbsoluteError "
        "RootMeanSquareError MaxRelativeError MeanRelativeError sqnr psnr median_error error_p99 top1 top5",
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="FILE.py:FUNCTION",
        help="show your own metric too, f(sample, benchmark) -> number, both arrays of real values; several times for "
        "several. --limit FUNCTION=X is the least it may be: higher is better",
    )
    parser.add_argument(
        "--limit",
        type=_limits,
        default=[],
        metavar="NAME=X",
        help="exit 1 when such a metric of a layer is past X, separated by commas: diff2=0.001,CosineSimilarity=0.99; "
        "LAYER:NAME=X is for these layers only (* and ? stand for any), where it goes before the others",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="LAYER",
        help="leave out the layers of this name (* and ? stand for any); may be given several times",
    )
    parser.add_argument(
        "--compatible", metavar="TOOL", help="show the metrics as msaccucmp or msprobe prints them, digit by digit"
    )
    parser.add_argument(
        "--golden", type=Path, metavar="DUMP", help="the run that judges both, such as the float32 model's"
    )
    parser.add_argument(
        "--input-tag", type=float, metavar="X", help="how many times the benchmark's error may be (default 10)"
    )
    parser.add_argument(
        "--th1",
        type=float,
        default=1e-6,
        metavar="X",
        help="diff3 is relative where |golden| is above X; all_close's tolerances (default 1e-6)",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as CSV, in full precision")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON; NaN and Inf are strings")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the same as a page to look at, as sgsdump report")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.run_by_run import compare_runs, pairs_of_trees
    from sgsdump.commands.watcher_tree import compare_watched
    from sgsdump.files.atomic_write import together

    if args.benchmark is None:
        return compare_watched(args)
    with together():
        pairs = None if args.runs else pairs_of_trees(args)
        return compare_runs(args, pairs, _run) if pairs else _run(args)


def _run(args: argparse.Namespace, done: list[Comparison] | None = None) -> int:
    """The comparison of two dumps, or of three; ``done`` is given that of two."""
    from sgsdump.commands.compare_golden import compare_golden
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.comparison import compare
    from sgsdump.comparison.metrics.base import Settings
    from sgsdump.comparison.naming.sources import read_name_sources
    from sgsdump.comparison.own_metric import load_own_metrics
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.dumps.notes import note_lines
    from sgsdump.dumps.trees import tree_of
    from sgsdump.errors import ConfigError, ValuesError
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.reports.comparison import REPORTS

    read = [args.sample, args.benchmark, args.golden, args.tensor_min_max, args.parse_net, *args.name_map]
    check_outputs([args.csv, args.json, args.html, args.write_name_map], [tree_of(path) for path in read if path])
    if args.golden is not None:
        return compare_golden(args)
    if args.input_tag is not None:
        raise ConfigError("--input-tag belongs to --golden; name the golden dump too")
    of_all = tuple((name, limit) for layer, name, limit in args.limit if not layer)
    of_layers = tuple(limit for limit in args.limit if limit[0])
    own = load_own_metrics(args.metric)
    given = Thresholds(args.min_cos, args.max_rmse, args.max_mse, of_all, of_layers, tuple(own))
    shown = given or DOCUMENTED
    limited = [name for _, name, _ in args.limit]
    names = read_name_sources(args.name_map, args.name_rule) if args.name_map or args.name_rule else None
    compared = partial(
        compare,
        inputs=args.inputs,
        name_map=names,
        match_by_value=args.match_by_value,
        exclude=args.exclude,
        metrics={name: own.get(name) for name in [*_extra([*args.metrics, *limited]), *own]},
        settings=Settings(args.th1),
        compatible=args.compatible,
        details=args.html is not None,
    )
    if args.runs:
        comparison, notes = _compared_runs(args, compared)
        sample = benchmark = None
    else:
        sample, benchmark = described(args, args.sample, args.benchmark)
        comparison, notes = compared(sample, benchmark, progress=TERMINAL), []
    comparison.check_layers(given)
    if done is not None:
        done.append(comparison)
    if not comparison.rows and not comparison.failed:
        apart = [*comparison.only_in_benchmark, *comparison.only_in_sample]
        unclear = [one for one in apart if not one.reason.startswith("no ")]
        why = f"; {unclear[0].record.name}: {unclear[0].reason}" if unclear else "; are they dumps of one model?"
        counts = [f"has {len(dump.outputs)} outputs" if dump else "has others" for dump in (sample, benchmark)]
        raise ValuesError(
            f"no layer in common: {args.sample} {counts[0]}, {args.benchmark} {counts[1]}, and no name agrees{why}"
        )
    for name, path in (("csv", args.csv), ("json", args.json)):
        if path:
            replace_text(path, REPORTS[name](comparison, shown))
    if args.html:
        replace_text(args.html, _page(args, comparison, shown, sample, benchmark))
    name_map = ""
    if args.write_name_map and sample and benchmark:
        name_map = _write_names(args.write_name_map, comparison, sample, benchmark)
    table = REPORTS["sdk_table"](comparison, shown)
    verdict = REPORTS["verdict"](comparison, shown)
    notes += [
        *note_lines(args.sample, comparison.sample_notes),
        *note_lines(args.benchmark, comparison.benchmark_notes),
    ]
    print(for_terminal((f"{table}\n{verdict}" if table else verdict) + name_map), end="")
    print(for_terminal("".join(f"{line}\n" for line in notes)), end="")
    if not comparison.rows:
        raise ValuesError(f"none of {len(comparison.failed)} layers could be compared; the reasons are listed above")
    return 1 if given and not comparison.passes(given) else 0


def _compared_runs(args: argparse.Namespace, compared: Callable[..., Comparison]) -> tuple[Comparison, list[str]]:
    """The comparisons of all runs, merged, and lines on the dumps that stand on one side only."""
    from sgsdump.commands.run_by_run import of_one_run, paired_trees
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.merge import merge
    from sgsdump.dumps.paired_dumps import paired_dumps
    from sgsdump.errors import ConfigError
    from sgsdump.progress import each

    for name in ("write_name_map", "compatible"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} is for one run; leave it out, or --runs")
    runs = paired_trees(args) or paired_dumps(args.sample, args.benchmark)
    pairs = each(TERMINAL, runs.pairs.items(), "compare", "run", len(runs.pairs))
    comparison = merge({name: compared(*described(of_one_run(args), *paths)) for name, paths in pairs})
    apart = (("sample", args.benchmark, runs.only_in_sample), ("benchmark", args.sample, runs.only_in_benchmark))
    lines = [
        f"Run not compared: {name} of the {side}, not in {other}" for side, other, names in apart for name in names
    ]
    return comparison, [f"Runs compared: {len(runs.pairs)}.", *lines]


def _names(text: str) -> list[str]:
    """What commas separate."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _limits(text: str) -> list[tuple[str, str, float]]:
    """Layers ("" for all), names and numbers of ``NAME=X,LAYER:NAME=X``."""
    limits = []
    for part in _names(text):
        what, sign, limit = part.rpartition("=")
        layer, _, name = what.rpartition(":")
        if not sign:
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=X")
        if name in ALWAYS and not layer:
            raise argparse.ArgumentTypeError(f"{name} has an option of its own: --min-cos, --max-rmse or --max-mse")
        try:
            limits.append((layer, name, float(limit)))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{limit!r} in {part!r} is not a number") from None
    return limits


def _extra(names: list[str]) -> list[str]:
    """The metrics to show beyond those that are shown always."""
    from sgsdump.comparison.metrics import METRICS

    asked = list(METRICS) if "all" in names else names
    return [name for name in dict.fromkeys(asked) if name not in ALWAYS]


def _page(
    args: argparse.Namespace, comparison: Comparison, shown: Thresholds, sample: Dump | None, benchmark: Dump | None
) -> str:
    """The comparison as HTML."""
    from sgsdump.reports.html.document import render
    from sgsdump.reports.html.of_comparison import report_of
    from sgsdump.sidecars.tensor_min_max import read_ranges

    return render(
        report_of(
            comparison,
            shown,
            title=f"{args.sample.name} against {args.benchmark.name}",
            ranges=read_ranges(args.tensor_min_max) if args.tensor_min_max else None,
            sample=sample,
            benchmark=benchmark,
            facts=[("sample", str(args.sample)), ("benchmark", str(args.benchmark))],
        )
    )


def _write_names(path: Path, comparison: Comparison, sample: Dump, benchmark: Dump) -> str:
    from sgsdump.comparison.naming import name_map
    from sgsdump.comparison.naming.pairs_by_map import names_of

    pairs = [(row.sample_name, row.name) for row in comparison.rows]
    pairs += [(failed.pair.sample.name, failed.pair.benchmark.name) for failed in comparison.failed]
    names, left_out = names_of(pairs, sample, benchmark)
    name_map.write(names, path)
    text = f"Name map {path}: {len(names)} pairs whose names differ.\n"
    for sample_name, benchmark_name in left_out:
        text += f"  not in it: {benchmark_name} with {sample_name}: one of these names is not unique in its dump\n"
    return text
