"""The report of ``sgsdump repair``: how it ended, what to write into input_config.ini, and every layer as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgsdump.comparison.compare import compare
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump
from sgsdump.models.model import Model
from sgsdump.reports.html.of_comparison import report_of
from sgsdump.reports.html.of_model import attributes_of
from sgsdump.reports.html.report import Report, Step
from sgsdump.reports.tuning.advice_verdict import conv_config
from sgsdump.tuning.repair import Repair, Round


def report_of_repair(
    repair: Repair,
    rounds: Sequence[Round],
    model: Model,
    sample: Dump,
    benchmark: Dump,
    limits: Thresholds = DOCUMENTED,
    *,
    title: str,
    facts: Sequence[tuple[str, str]] = (),
) -> Report:
    """sample  the dump of the repaired fixed model; ``benchmark`` of the float one, ``model``."""
    report = report_of(
        compare(sample, benchmark, details=True),
        limits,
        title=title,
        ranges=repair.ranges,
        sample=sample,
        benchmark=benchmark,
        attributes=attributes_of(model),
        next_steps=[_step(repair)],
        facts=facts,
    )
    return replace(report, verdict=(_verdict(repair, rounds), *report.verdict))


def _verdict(repair: Repair, rounds: Sequence[Round]) -> str:
    first, best = rounds[0], repair.best
    if best is first:
        return f"Nothing was raised: {repair.ended}; the outputs' error is {best.error:.4f}."
    return (
        f"With {len(best.tensor_arrays)} of the convolutions' inputs at INT16 the outputs' error is {best.error:.4f}, "
        f"{first.error:.4f} before; {repair.ended}."
    )


def _step(repair: Repair) -> Step:
    if not repair.best.tensor_arrays:
        return Step("input_config.ini stays as it is.")
    text = "The input_config.ini beside this report has it; this is to put into your own."
    return Step(text, conv_config(repair.config_names(repair.best.tensor_arrays)))
