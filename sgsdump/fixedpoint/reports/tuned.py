"""The report of ``tune``: the recommended plan layer by layer, with the search that found it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.fixedpoint.reports.cause_sentences import conv_config
from sgsdump.fixedpoint.reports.command_reports import attributes_of
from sgsdump.fixedpoint.reports.pareto_reports import limits_line
from sgsdump.fixedpoint.tuning.pareto import Pareto
from sgsdump.fixedpoint.tuning.rounds import Round, RoundSearch
from sgsdump.models.model import Model
from sgsdump.reports.report import PLAIN, Context, OtherRun, Plan, Report, Tradeoff, layers_of, report_of
from sgsdump.reports.text import counted
from sgsdump.reports.verdict import Step

# Value of ``raised_by``; the page has a short form (``html/document.py``).
RAISED_BY = "the plan of tune"


def report_of_plan(
    comparison: Comparison,
    model: Model,
    context: Context,
    conclusion: tuple[Iterable[str], Iterable[str], Sequence[str]],
    limits: Thresholds = DOCUMENTED,
    other: OtherRun | None = None,
    tradeoff: Tradeoff | None = None,
) -> Report:
    """Return the report of the recommended plan.

    Parameters
    ----------
    comparison
        The fixed model of the plan against the float model, ``model``.
    context
        Its title, facts, dumps, ranges and bits.
    conclusion
        The first lines of the verdict, the details, and the plan's words of ``tensor_arrays``.
    limits
        The limits of layers.
    other
        The layers of another run, drawn beside.
    tradeoff
        The plans that the search tried.
    """
    verdict, details, words = conclusion
    report = report_of(comparison, limits, replace(context, attributes=attributes_of(model)), [_step(words)])
    view = replace(report.view, other=other)
    further = (*details, *report.details)
    return replace(report, verdict=tuple(verdict), details=further, view=view, tradeoff=tradeoff)


def first_round(rounds: Sequence[Round]) -> OtherRun | None:
    """Return every layer as it was before anything was raised; None if nothing was."""
    if len(rounds) < 2:
        return None
    layers = layers_of(rounds[0].run.layers, DOCUMENTED, PLAIN)
    return OtherRun("before the first round", {layer.name: layer.figures for layer in layers}, is_earlier=True)


def tradeoff_of(result: Pareto) -> Tradeoff:
    """Return all tried plans, those of the table, and the recommended plan with its [CONV_CONFIG] to copy."""
    plans = tuple(
        Plan(row.label, row.rate, row.error, row.asked, conv_config(row.tensors) if row.tensors else "")
        for row in result.rows
    )
    taken = next(plan for plan, row in zip(plans, result.rows) if row is result.taken)
    return Tradeoff(tuple(tried[:2] for tried in result.cloud), plans, taken, f"error, {result.objective}")


def rounds_details(search: RoundSearch) -> str:
    """Return why the rounds ended."""
    return f"The rounds ended: {search.ended}."


def search_details(result: Pareto) -> list[str]:
    """Return the effort of a search for the smallest plan, and the accuracy of its approximation."""
    taken, high = result.taken, result.rows[-1]
    lines = [] if result.limits is None else [f"{limits_line(result.limits)}."]
    lines.append(
        f"{counted(result.effort.plans_tried, 'plan')} tried. With all convolutions at INT16, the output error is "
        f"{high.error:.3g}."
    )
    if result.effort.off:
        searched = "" if math.isnan(taken.searched) else f"; the search estimated {taken.searched:.3g} for this plan"
        lines.append(f"All errors are measured with the chip's integer arithmetic{searched}.")
    return lines


def _step(words: Sequence[str]) -> Step:
    if not words:
        return Step("No INT16 needed: input_config.ini stays as it is.")
    text = (
        "Copy these lines into input_config.ini, and calibrate with --quant-file optimized_quant_info.json of this "
        "folder."
    )
    return Step(text, conv_config(words))
