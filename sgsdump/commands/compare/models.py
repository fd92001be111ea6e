"""Two ONNX models: their weights, tensor by tensor. Apart: a mode of its own, which runs nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgsdump.commands.terminal import TERMINAL, print_lines, window
from sgsdump.errors import ValuesError, listed

if TYPE_CHECKING:
    from sgsdump.commands.compare.options import Options
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds

MOST_LISTED, MOST_NAMES = 20, 10


def compare_models(options: Options, limits: Thresholds) -> int:
    """Print and write the comparison; 1 where a weight is past a limit or, with limits, one is missing.

    Raises ModelError for what is no model, ValuesError where no weight is in both.
    """
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.naming.name_sources import read_name_sources
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.models.weights_dump import open_weights
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.layers.table import table_of
    from sgsdump.reports.layers.terminal import render

    output, pairing = options.output, options.pairing
    check_outputs([output.csv, output.json], [options.sample, options.benchmark, *pairing.name_map])
    names = read_name_sources(pairing.name_map, pairing.name_rule) if pairing.name_map or pairing.name_rule else None
    sample, benchmark = open_weights(options.sample), open_weights(options.benchmark)
    comparison = compare(
        sample,
        benchmark,
        name_map=names,
        match_by_value=pairing.match_by_value,
        exclude=options.measuring.exclude,
        progress=TERMINAL,
    )
    if not comparison.rows and not comparison.failed:
        diagnose = _diagnose(options)
        hint = f"to find where it loses accuracy: {diagnose}" if diagnose else "--match-by-value pairs weights by value"
        raise ValuesError(
            f"none of the {len(sample)} weights of {options.sample} has the name of a weight of {options.benchmark} "
            f"({len(benchmark)} weights); {hint}"
        )
    comparison.check_layers(limits)
    for name, path in (("csv", output.csv), ("json", output.json)):
        if path:
            replace_text(path, REPORTS[name](comparison, limits or DOCUMENTED))
    unlike = [row for row in comparison.worst_first() if row.error > 0]
    entries = table_of(comparison, limits or DOCUMENTED, options.title).compared
    places = {id(row): place for place, row in enumerate(comparison.rows)}
    few = unlike[: output.top or MOST_LISTED]
    print(render([entries[places[id(row)]] for row in few], window()), end="")
    print_lines(_lines(options, comparison, len(unlike), len(few)))
    is_whole = options.measuring.allow_missing or not comparison.only_in_benchmark
    return 1 if limits and not (comparison.passes(limits) and is_whole) else 0


def _diagnose(options: Options) -> str:
    """What tells where a quantised copy loses accuracy; "" where not one of the two alone is quantised."""
    from sgsdump.models.model import open_model
    from sgsdump.models.quantised_model import QuantisedModel

    paths = options.sample, options.benchmark
    quantised = [QuantisedModel(open_model(path).proto).is_quantised for path in paths]
    if all(quantised) or not any(quantised):
        return ""
    fixed, model = paths if quantised[0] else paths[::-1]
    return f"sgsdump diagnose -m {shlex.quote(str(model))} --fixed {shlex.quote(str(fixed))} -i INPUTS"


def _lines(options: Options, comparison: Comparison, unlike: int, shown: int) -> Iterator[str]:
    """What differs, what is missing, and how what the models compute is compared."""
    count = len(comparison.rows)
    if not unlike:
        yield (f"All {count} common weights are equal." if count > 1 else "The only common weight is equal.")
    else:
        yield f"{unlike} of {count} weights differ, {count - unlike} {'is' if count - unlike == 1 else 'are'} equal."
    if shown < unlike:
        yield (
            f"{unlike - shown} more weights have smaller differences. --top {unlike} lists all "
            "weights that differ, and --csv FILE writes all of them to a file."
        )
    for failed in comparison.failed:
        yield f"Not compared: {failed.pair.benchmark.name}: {failed.reason}"
    for path, lacking in (
        (options.benchmark, comparison.only_in_benchmark),
        (options.sample, comparison.only_in_sample),
    ):
        if lacking:
            yield (
                f"Weights only in {path} ({len(lacking)}): {listed([one.record.name for one in lacking], MOST_NAMES)}"
            )
    if comparison.only_in_benchmark and comparison.only_in_sample and not options.pairing.match_by_value:
        yield "--match-by-value finds renamed weights."
    yield from (f"{options.sample}: {note}" for note in comparison.sample_notes)
    yield from (f"{options.benchmark}: {note}" for note in comparison.benchmark_notes)
    if diagnose := _diagnose(options):
        yield "One of the models is quantised. To find where it loses accuracy:"
        yield f"  {diagnose}"
    models = [shlex.quote(str(path)) for path in (options.sample, options.benchmark)]
    yield "To compare the results of the models, dump both on the same input:"
    yield from (
        f"  sgsdump dump -m {model} -i INPUT -o {side}.bin" for model, side in zip(models, ("sample", "benchmark"))
    )
    yield "  sgsdump compare sample.bin benchmark.bin"
