"""The report of ``sgsdump diagnose``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.quantisation.diagnosis.compared_pictures import Compared
from sgsdump.quantisation.diagnosis.subject import Subject
from sgsdump.reports.html.of_advice import steps_of, with_measured
from sgsdump.reports.html.of_comparison import report_of
from sgsdump.reports.html.of_model import attributes_of
from sgsdump.reports.html.report import Report
from sgsdump.tuning.advice import MeasuredAdvice


def report_of_diagnosis(
    subject: Subject,
    compared: Compared,
    advice: MeasuredAdvice | None,
    limits: Thresholds = DOCUMENTED,
    *,
    title: str,
    assumptions: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
) -> Report:
    """advice  None where none could be measured."""
    report = report_of(
        compared.comparison,
        limits,
        title=title,
        ranges=subject.ranges,
        sample=compared.sample,
        benchmark=compared.benchmark,
        attributes=attributes_of(subject.float_model),
        assumptions=assumptions,
        next_steps=tuple(steps_of(advice)) if advice is not None else None,
        facts=facts,
    )
    return report if advice is None else replace(report, layers=with_measured(report.layers, advice))
