"""Tune's plans in the report: all that were tried, the one to take with its section to copy."""

from sgsdump.fixedpoint.reports.tuned import tradeoff_of
from sgsdump.fixedpoint.tuning.pareto import Effort, OutputFigures, Pareto, Row


def row(label, rate, error, tensors=(), asked=None):
    return Row(label, asked, rate, 0, tensors, tensors, None, error, error, 0.0, OutputFigures({}, {}, {}))


def test_the_plan_to_take_and_every_plan_tried():
    rows = (row("INT8", 0.5, 0.3), row("0.7", 0.69, 0.02, ("conv1", "conv2"), 0.7), row("INT16", 1.0, 1e-6, ("all",)))
    cloud = ((0.5, 0.3), (0.6, 0.1), (0.69, 0.02), (1.0, 1e-6))
    pareto = Pareto(rows, cloud, rows[1], ("prob",), ("prob",), "mean of prob", (), Effort(4, 4, 4, True, True))
    tradeoff = tradeoff_of(pareto)
    assert tradeoff.tried == cloud
    assert [(plan.label, plan.rate, plan.error, plan.asked) for plan in tradeoff.plans] == [
        (each.label, each.rate, each.error, each.asked) for each in rows
    ]
    assert tradeoff.taken == tradeoff.plans[1]
    assert tradeoff.taken.copy == "[CONV_CONFIG]\ntensor_arrays='conv1,conv2';"
    assert tradeoff.plans[0].copy == ""
