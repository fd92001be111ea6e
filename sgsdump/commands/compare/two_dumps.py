"""Two dumps compared, and many pairs of them merged into one comparison (``--runs``). Apart: of trees of runs each pair
is compared so, by ``trees.py``, which is given ``compare_two``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.compare.options import ALWAYS, Options
from sgsdump.commands.compare.output import check_files, damage_text, print_comparison, write_files
from sgsdump.commands.opening import described
from sgsdump.commands.options import stages_of
from sgsdump.commands.terminal import TERMINAL, print_error
from sgsdump.errors import ValuesError

if TYPE_CHECKING:
    from sgsdump.comparison.between_rounds import Before
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.measure import MeasuredBy
    from sgsdump.comparison.own_metric import OwnMetric
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.runs import PairedDumps

Dumps = tuple["Dump", "Dump"]


def compare_two(options: Options, in_full: bool, before: Before = None) -> tuple[int, Comparison]:
    """Prints the comparison where it is told ``in_full``; ``before`` is of the rounds before this one.

    Raises ConfigError, and ValuesError where nothing could be compared."""
    from sgsdump.comparison.between_rounds import between_findings

    check_files(options.output, options.files)
    own = options.measuring.own_metrics()
    compared = _comparing(options, own)
    sample, benchmark = described(options.reading, options.sample, options.benchmark)
    comparison = compared(sample, benchmark, measured_by=_measured_by(options), progress=TERMINAL)
    between = between_findings((sample, benchmark), comparison.rows, before)
    comparison = replace(comparison, causes=(*comparison.causes, *between))
    return _conclude(options, comparison, tuple(own), (sample, benchmark), in_full=in_full), comparison


def compare_merged(options: Options, runs: PairedDumps) -> int:
    """The comparisons of all runs, merged."""
    from sgsdump.comparison.merge import merge_each
    from sgsdump.progress import each

    check_files(options.output, options.files)
    own = options.measuring.own_metrics()
    compared = _comparing(options, own)

    def of_pair(sample: Path, benchmark: Path) -> Comparison:
        pair = options.of_pair(sample, benchmark)
        return compared(*described(pair.reading, sample, benchmark), measured_by=_measured_by(pair))

    pairs = each(TERMINAL, runs.pairs.items(), "compare", "run", len(runs.pairs))
    comparison = merge_each((name, of_pair(*paths)) for name, paths in pairs)
    comparison = replace(comparison, completeness=replace(comparison.completeness, runs=runs.only_in_benchmark))
    sides = (
        ("sample", options.benchmark, runs.only_in_sample),
        ("benchmark", options.sample, runs.only_in_benchmark),
    )
    lines = [
        f"Run not compared: {name} of the {side} is missing from {other}"
        for side, other, names in sides
        for name in names
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

    given = options.measuring.thresholds(own)
    comparison.check_layers(given)
    if not comparison.rows and not comparison.failed:
        raise ValuesError(_nothing_in_common(options, comparison, dumps))
    limits = given or DOCUMENTED
    paths = f"{options.sample} against {options.benchmark}"
    verdict = options.measuring.verdict_on(comparison, limits)
    table = replace(table_of(comparison, limits, options.title, verdict), suite=paths)
    lines = [*write_files(options, comparison, limits, table, dumps), *(lines or [])]
    if in_full:
        print_comparison(options, comparison, limits, table, lines)
    if not comparison.rows:
        raise ValuesError(f"none of {len(comparison.failed)} layers could be compared; the reasons are listed above")
    if comparison.damaged:
        print_error(damage_text("both dumps", comparison.damaged))
    return verdict.exit_status(bool(options.measuring.fail_on))


def _measured_by(options: Options) -> MeasuredBy | None:
    """What measures the pairs on a cluster; None without ``--scheduler``."""
    if options.scheduler is None:
        return None
    from sgsdump.commands.compare.cluster import measured_on_cluster

    return measured_on_cluster(options, options.scheduler)


def _comparing(options: Options, own: Mapping[str, OwnMetric]) -> Callable[..., Comparison]:
    """``compare`` of the library with these options."""
    from sgsdump.comparison.compare import compare
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
    why = f"; {unclear.record.name}: {unclear.reason}" if unclear else "; are both dumps of the same model?"
    told = options.pairing.match_by_value or options.pairing.name_map
    fix = "" if told else "pair equal values with --match-by-value, or name the pairs with --name-map"
    fix = fix and f"{'; ' if unclear else ' If so, '}{fix}"
    counts = [f"has {len(dump.outputs)} outputs" if dump else "has outputs" for dump in dumps or (None, None)]
    return (
        f"no layer in common: {options.sample} {counts[0]} and {options.benchmark} {counts[1]}, but no "
        f"output names match{why}{fix}"
    )
