"""The trade-off of tune's plans, for the report."""

from __future__ import annotations

from sgsdump.reports.html.report import Plan, Tradeoff
from sgsdump.reports.tuning.advice_verdict import conv_config
from sgsdump.tuning.pareto import Pareto, Row


def tradeoff_of(result: Pareto) -> Tradeoff:
    """Every plan tried, those of the table, and the one to take, with its [CONV_CONFIG] to copy."""
    plans = tuple(_plan(row) for row in result.rows)
    taken = next(plan for plan, row in zip(plans, result.rows) if row is result.taken)
    return Tradeoff(result.cloud, plans, taken, f"error, {result.objective}")


def _plan(row: Row) -> Plan:
    return Plan(row.label, row.rate, row.error, row.asked, conv_config(row.tensors) if row.tensors else "")
