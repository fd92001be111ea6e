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
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.measure import Rows
from sgsdump.comparison.naming.compiled_graphs import of_outermost
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Row
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
    found: Iterable[Finding]
    further: tuple[Finding, ...] = ()
    if all(networks):
        from sgsdump.comparison.programs import of_programs

        rows, found, further = of_programs(pairs, measured)
    else:
        rounding = None
        if any(row.dtype_note for row in rows):
            from sgsdump.comparison.low_precision import Rounding

            rounding = Rounding(rows, aligned.pairs, measured.in_8_bits, ())
        arguments = argument_findings(rows, aligned.pairs, *networks, pairs.settled.places.maker_of, rounding)
        found = causes(rows, arguments)
    unmatched = aligned.only_in_sample, aligned.only_in_benchmark
    one_sided = ((one.record, network) for side, network in zip(unmatched, networks) for one in side)
    found = with_collectives(with_sources(found, rows, one_sided), rows, networks[1])
    return rows, (*of_outermost(found, rows), *further)


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
