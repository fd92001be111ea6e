"""The third stage of ``compare``: say what the figures and the recordings of two runs mean."""

from __future__ import annotations

from sgsdump.comparison.align import Pairs
from sgsdump.comparison.causes import argument_findings, causes, with_collectives, with_sources
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.environment import environment_findings, other_inputs, other_runs
from sgsdump.comparison.low_precision import Rounding, TwoRuns, of_low_precision, types_of_products
from sgsdump.comparison.measure import Rows
from sgsdump.comparison.quantisation_change import change_findings


def conclude(pairs: Pairs, measured: Rows) -> Comparison:
    networks, whole, rows, alignment = pairs.networks, pairs.whole, measured.rows, measured.alignment
    places = pairs.settled.places
    products = types_of_products(pairs.dumps, networks) if all(networks) else ()
    may_round = all(networks) or any(row.dtype_note for row in rows)
    rounding = Rounding(rows, alignment.pairs, measured.in_8_bits, products) if may_round else None
    arguments = argument_findings(rows, alignment.pairs, *networks, places.maker_of, rounding)
    found = causes(rows, arguments)
    unmatched = alignment.only_in_sample, alignment.only_in_benchmark
    if rounding is not None and rounding.is_low and all(networks):
        runs = TwoRuns(whole, networks, alignment.pairs, unmatched, places.maker_of)
        found = of_low_precision(rows, arguments, found, runs, rounding)
    unmatched_records = ((side.record, network) for sides, network in zip(unmatched, networks) for side in sides)
    found = tuple(with_collectives(with_sources(found, rows, unmatched_records), rows, networks[1]))
    are_other_weights = any(finding.facts.get("what") in ("weight", "input") for finding in found)
    sample, benchmark = pairs.dumps
    return Comparison(
        rows,
        *unmatched,
        measured.failed,
        sample.notes,
        benchmark.notes,
        pairs.excluded,
        pairs.unwritten,
        pairs.completeness,
        causes=(*found, *(change_findings(networks) if all(networks) else ())),
        environment=(
            *environment_findings((sample.environment(), benchmark.environment()), networks, are_other_weights),
            *(other_inputs(rows, alignment.pairs, networks) or other_runs(whole, (*rows, *measured.failed))),
        ),
    )
