"""Third stage of ``compare``: collect evidence beyond the figures of the pairs.

The recordings of two programs (calls, weights, environments, recomputed operators) are read once, while both dumps are
open. The rules in ``rules.py`` are applied later, when the limits are known: ``Comparison.findings`` and
``Comparison.verdict``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np

from sgsdump.comparison.agreement import MOST_VALUES, Agreement, agreement_of
from sgsdump.comparison.align import Pairs
from sgsdump.comparison.causes import argument_findings, causes, with_collectives, with_sources
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.environment import environment_findings, other_inputs, other_runs
from sgsdump.comparison.exact_causes import names_the_operator, of_exact
from sgsdump.comparison.exact_differences import exact_runs, may_help, with_exact
from sgsdump.comparison.exact_sides import ExactSides
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.fused_weights import fused_modules
from sgsdump.comparison.low_precision import Rounding, TwoRuns, first_outside, of_low_precision, types_of_products
from sgsdump.comparison.measure import Rows
from sgsdump.comparison.naming.compiled_graphs import of_outermost
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.quantisation_change import change_findings
from sgsdump.comparison.row import Row, differs
from sgsdump.errors import SgsdumpError

PLAIN = Measures.of((), None, None, crop=True)


def conclude(pairs: Pairs, measured: Rows, measures: Measures = PLAIN) -> Comparison:
    """Return the comparison of two dumps from the results of the first two stages."""
    rows, causes = recorded(pairs, measured)
    measured = replace(measured, rows=rows)
    sample, benchmark = pairs.dumps
    return Comparison(
        measured.rows,
        measured.alignment.only_in_sample,
        measured.alignment.only_in_benchmark,
        measured.failed,
        sample.notes,
        benchmark.notes,
        pairs.excluded,
        pairs.unwritten,
        pairs.completeness,
        causes=causes,
        environment=around(pairs, measured, causes),
        agreement=agreement(pairs, measures),
    )


def agreement(pairs: Pairs, measures: Measures = PLAIN) -> Agreement | None:
    """Return how many answers of the outputs agree; None for programs, and for outputs without a template.

    measures  fits the values of both sides: without padding, in one order of axes.
    """
    outputs = set(pairs.completeness.outputs)
    if not outputs or all(pairs.networks):
        return None
    sides: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = {}, {}
    for pair in pairs.alignment.pairs:
        if pair.benchmark.io != "out" or pair.benchmark.name not in outputs:
            continue
        shape = pair.benchmark.tensor.shape
        if shape is None or prod(shape) > MOST_VALUES:
            return None
        try:
            fitted = measures.fitted(pair)
        except SgsdumpError:  # the pair is among those that could not be compared
            return None
        for side, values in zip(sides, fitted):
            array = values.array if values.to_real is None else values.to_real(values.array)
            side[pair.benchmark.name] = array.reshape(shape) if array.size == prod(shape) else array
    return agreement_of(*sides)


def recorded(pairs: Pairs, measured: Rows) -> tuple[tuple[Row, ...], tuple[Finding, ...]]:
    """Return the rows with their exact values, and the findings from the recordings, in execution order.

    Findings: calls of operators that differ, the first operator that differs or exceeds its bound, and rounding.
    """
    networks, rows, aligned = pairs.networks, measured.rows, measured.alignment
    maker_of = pairs.settled.places.maker_of
    products = types_of_products(pairs.dumps, networks) if all(networks) else ()
    may_round = all(networks) or any(row.dtype_note for row in rows)
    rounding = Rounding(rows, aligned.pairs, measured.in_8_bits, products) if may_round else None
    sides = None
    if rounding is not None and all(networks) and may_help(pairs, measured):
        runs = exact_runs(pairs, rows, rounding)
        records = pairs.whole[0].records, pairs.whole[1].records
        exact = tuple(with_exact(pairs, measured, runs, rounding))
        sides = ExactSides(exact, aligned.pairs, networks, runs, records)
        sides, rows = (sides, exact) if sides.are_known else (None, rows)
    arguments = argument_findings(rows, aligned.pairs, *networks, maker_of, rounding)
    found = causes(rows, arguments)
    unmatched = aligned.only_in_sample, aligned.only_in_benchmark
    if rounding is not None and all(networks) and (sides is not None or rounding.is_low):
        two_runs = TwoRuns(pairs.whole, networks, aligned.pairs, unmatched, maker_of)
        if sides is None:
            found = of_low_precision(rows, arguments, found, two_runs, rounding)
        else:
            found = of_exact(sides, arguments, found, rounding)
            is_open = not found or not names_the_operator(found[0])
            outside = first_outside([row for row in rows if differs(row)], two_runs) if is_open else None
            found = found if outside is None else (outside,)
    one_sided = ((one.record, network) for side, network in zip(unmatched, networks) for one in side)
    found = tuple(with_collectives(with_sources(found, rows, one_sided), rows, networks[1]))
    found = tuple(of_outermost(found, rows))
    if all(networks):
        found += tuple(change_findings(networks))
        if pairs.dumps == pairs.whole:  # false if a name map splits modules
            found += tuple(fused_modules(pairs.whole, networks))
    return rows, found


def around(pairs: Pairs, measured: Rows, recorded: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the differences between the two runs other than tensors: environments, inputs, identical files."""
    sample, benchmark = pairs.dumps
    are_other_weights = any(finding.facts.get("what") in ("weight", "input") for finding in recorded)
    environments = sample.environment(), benchmark.environment()
    return (
        *environment_findings(environments, pairs.networks, are_other_weights),
        *(
            other_inputs(measured.rows, measured.alignment.pairs, pairs.networks)
            or other_runs(pairs.whole, (*measured.rows, *measured.failed))
        ),
    )
