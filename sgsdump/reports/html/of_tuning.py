"""The report of ``sgsdump tune``: the trade-off of its plans, and the plan to take, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sgsdump.models.model import Model
from sgsdump.quantisation.diagnosis.compared_pictures import Compared
from sgsdump.reports.html.of_comparison import report_of
from sgsdump.reports.html.of_model import attributes_of
from sgsdump.reports.html.report import Plan, Report, Step, Tradeoff
from sgsdump.reports.tuning.advice_verdict import conv_config
from sgsdump.tensors.types import Range
from sgsdump.tuning.pareto import Pareto, Row


def report_of_tuning(
    result: Pareto,
    compared: Compared,
    model: Model,
    ranges: Mapping[str, Range],
    *,
    title: str,
    facts: Sequence[tuple[str, str]] = (),
) -> Report:
    """compared  the fixed model of the plan to take against the float one, ``model``."""
    report = report_of(
        compared.comparison,
        title=title,
        ranges=ranges,
        sample=compared.sample,
        benchmark=compared.benchmark,
        attributes=attributes_of(model),
        next_steps=tuple(_steps(result.taken)),
        facts=facts,
    )
    return replace(report, verdict=(*_verdict(result), *report.verdict), tradeoff=tradeoff_of(result))


def tradeoff_of(result: Pareto) -> Tradeoff:
    """Every plan tried, those of the table, and the one to take, with its [CONV_CONFIG] to copy."""
    plans = tuple(_plan(row) for row in result.rows)
    taken = next(plan for plan, row in zip(plans, result.rows) if row is result.taken)
    return Tradeoff(result.cloud, plans, taken, f"error, {result.objective}")


def _plan(row: Row) -> Plan:
    return Plan(row.label, row.rate, row.error, row.asked, conv_config(row.tensors) if row.tensors else "")


def _verdict(result: Pareto) -> Iterator[str]:
    taken, low, high = result.taken, result.rows[0], result.rows[-1]
    count = len(taken.raised)
    yield (
        f"With {count} convolution{'' if count == 1 else 's'} at INT16 the weights take {100 * taken.rate:.0f} % of "
        f"their bytes at 16 bits, and the outputs' error is {taken.error:.3g}: {low.error:.3g} with all at INT8, "
        f"{high.error:.3g} with all at INT16 ({result.effort.plans_tried} plans tried)."
    )
    if result.verified is not None:
        yield f"In the hardware's integers it is {result.verified.error:.3g}."


def _steps(taken: Row) -> Iterator[Step]:
    if taken.tensors:
        yield Step("Put this into input_config.ini and calibrate again.", conv_config(taken.tensors))
    else:
        yield Step("Nothing has to be raised to INT16.")
