"""Findings from the recordings of two programs: calls, arguments, weights and recomputed operators.

``conclude`` imports this module only if both dumps are of programs.
"""

from __future__ import annotations

from sgsdump.comparison.align import Pairs
from sgsdump.comparison.causes import argument_findings, causes
from sgsdump.comparison.exact_causes import names_the_operator, of_exact
from sgsdump.comparison.exact_differences import exact_runs, may_help, with_exact
from sgsdump.comparison.exact_sides import ExactSides
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.fused_weights import fused_modules
from sgsdump.comparison.low_precision import Rounding, TwoRuns, first_outside, of_low_precision, types_of_products
from sgsdump.comparison.measure import Rows
from sgsdump.comparison.quantisation_change import change_findings
from sgsdump.comparison.row import Row, differs


def of_programs(pairs: Pairs, measured: Rows) -> tuple[tuple[Row, ...], tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the rows with their exact values, the causes in execution order, and findings on types and weights."""
    networks, rows, aligned = pairs.networks, measured.rows, measured.alignment
    maker_of = pairs.settled.places.maker_of
    rounding = Rounding(rows, aligned.pairs, measured.in_8_bits, types_of_products(pairs.dumps, networks))
    sides = None
    if may_help(pairs, measured):
        runs = exact_runs(pairs, rows, rounding)
        records = pairs.whole[0].records, pairs.whole[1].records
        exact = tuple(with_exact(pairs, measured, runs, rounding))
        sides = ExactSides(exact, aligned.pairs, networks, runs, records)
        sides, rows = (sides, exact) if sides.are_known else (None, rows)
    arguments = argument_findings(rows, aligned.pairs, *networks, maker_of, rounding)
    found = tuple(causes(rows, arguments))
    if sides is not None or rounding.is_low:
        unmatched = aligned.only_in_sample, aligned.only_in_benchmark
        two_runs = TwoRuns(pairs.whole, networks, aligned.pairs, unmatched, maker_of)
        if sides is None:
            found = of_low_precision(rows, arguments, found, two_runs, rounding)
        else:
            found = of_exact(sides, arguments, found, rounding)
            is_open = not found or not names_the_operator(found[0])
            outside = first_outside([row for row in rows if differs(row)], two_runs) if is_open else None
            found = found if outside is None else (outside,)
    further = [*change_findings(networks)]
    if pairs.dumps == pairs.whole:  # false if a name map splits modules
        further += fused_modules(pairs.whole, networks)
    return rows, found, tuple(further)
