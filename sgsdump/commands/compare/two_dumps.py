"""``sgsdump compare`` of two dumps, or of two folders of runs: compare, write the files, print."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.compare.on_cluster import measured_on_cluster
from sgsdump.commands.compare.options import ALWAYS
from sgsdump.commands.options import described, stages_of
from sgsdump.errors import ConfigError, ValuesError

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.own_metric import OwnMetric
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump


def compare_two(args: argparse.Namespace, done: list[Comparison] | None = None) -> int:
    """The exit status; ``done`` is given the comparison. Raises ConfigError, and ValuesError where nothing could be
    compared."""
    from sgsdump.commands.compare.files import title_of, write_files
    from sgsdump.commands.compare.printed import print_comparison
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.own_metric import load_own_metrics
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.reports.layers.of_comparison import table_of

    if args.input_tag is not None:
        raise ConfigError("--input-tag belongs to --golden; name the golden dump too")
    own = load_own_metrics(args.metric)
    given = _thresholds(args, tuple(own))
    compared = _comparing(args, own)
    dumps: tuple[Dump, Dump] | None = None
    lines: list[str] = []
    if args.runs:
        comparison, lines = _compared_runs(args, compared)
    else:
        sample, benchmark = described(args, args.sample, args.benchmark)
        dumps = sample, benchmark
        comparison = compared(sample, benchmark, measured_by=measured_on_cluster(args), progress=TERMINAL)
    comparison.check_layers(given)
    if done is not None:
        done.append(comparison)
    if not comparison.rows and not comparison.failed:
        raise ValuesError(_nothing_in_common(args, comparison, dumps))
    limits = given or DOCUMENTED
    table = table_of(comparison, limits, title_of(args))
    lines = [*write_files(args, comparison, limits, table, dumps), *lines]
    print_comparison(args, comparison, limits, table, lines)
    if not comparison.rows:
        raise ValuesError(f"none of {len(comparison.failed)} layers could be compared; the reasons are listed above")
    return 1 if given and not comparison.passes(given) else 0


def _thresholds(args: argparse.Namespace, own: tuple[str, ...]) -> Thresholds:
    """The limits that were given."""
    from sgsdump.comparison.thresholds import Thresholds

    of_all = tuple((name, limit) for layer, name, limit in args.limit if not layer)
    of_layers = tuple(limit for limit in args.limit if limit[0])
    return Thresholds(args.min_cos, args.max_rmse, args.max_mse, of_all, of_layers, own)


def _comparing(args: argparse.Namespace, own: Mapping[str, OwnMetric]) -> Callable[..., Comparison]:
    """``compare`` with what the options say."""
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.metrics import Settings
    from sgsdump.comparison.naming.name_files import read_name_sources

    limited = [name for _, name, _ in args.limit]
    names = read_name_sources(args.name_map, args.name_rule) if args.name_map or args.name_rule else None
    return partial(
        compare,
        inputs=args.inputs,
        name_map=names,
        match_by_value=args.match_by_value,
        stages=stages_of(args.stages) or stages_of(args.annotate and args.annotate[0], required=False),
        exclude=args.exclude,
        metrics={name: own.get(name) for name in [*_extra([*args.metrics, *limited]), *own]},
        settings=Settings(args.th1),
        compatible=args.compatible,
        details=args.html is not None or args.plots is not None,
    )


def _extra(names: list[str]) -> list[str]:
    """The metrics to show beyond those that are shown always."""
    from sgsdump.comparison.metrics import METRICS

    asked = list(METRICS) if "all" in names else names
    return [name for name in dict.fromkeys(asked) if name not in ALWAYS]


def _compared_runs(args: argparse.Namespace, compared: Callable[..., Comparison]) -> tuple[Comparison, list[str]]:
    """The comparisons of all runs, merged, and lines on the dumps that stand on one side only."""
    from sgsdump.commands.compare.run_by_run import of_one_run, paired_trees
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.merge import merge_each
    from sgsdump.dumps.runs import paired_dumps
    from sgsdump.progress import each

    for name in ("write_name_map", "compatible"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} is for one run; leave it out, or --runs")
    runs = paired_trees(args) or paired_dumps(args.sample, args.benchmark)
    pairs = each(TERMINAL, runs.pairs.items(), "compare", "run", len(runs.pairs))

    def of_pair(paths: tuple[Path, Path]) -> Comparison:
        own = of_one_run(args)
        own.sample, own.benchmark = paths
        return compared(*described(own, *paths), measured_by=measured_on_cluster(own))

    comparison = merge_each((name, of_pair(paths)) for name, paths in pairs)
    apart = (("sample", args.benchmark, runs.only_in_sample), ("benchmark", args.sample, runs.only_in_benchmark))
    lines = [
        f"Run not compared: {name} of the {side}, not in {other}" for side, other, names in apart for name in names
    ]
    return comparison, [f"Runs compared: {len(runs.pairs)}.", *lines]


def _nothing_in_common(args: argparse.Namespace, comparison: Comparison, dumps: tuple[Dump, Dump] | None) -> str:
    apart = [*comparison.only_in_benchmark, *comparison.only_in_sample]
    unclear = [one for one in apart if not one.reason.startswith("no ")]
    why = f"; {unclear[0].record.name}: {unclear[0].reason}" if unclear else "; are they dumps of one model?"
    counts = [f"has {len(dump.outputs)} outputs" if dump else "has others" for dump in dumps or (None, None)]
    return f"no layer in common: {args.sample} {counts[0]}, {args.benchmark} {counts[1]}, and no name agrees{why}"
