"""Which causes blame layers of the model, and what the page marks then."""

from types import SimpleNamespace

import pytest

from sgsdump.comparison.finding import Finding
from sgsdump.fixedpoint.reports.command_reports import _with_measured
from sgsdump.fixedpoint.reports.diagnosis import Diagnosis
from sgsdump.fixedpoint.tuning import examined
from sgsdump.reports.report import Figures, Layer

BLAMES = {
    examined.WEIGHTS: True,
    examined.CLIPPED: True,
    examined.WIDE: True,
    examined.OPERATOR: True,
    examined.ODD: False,
    examined.UNLIKE: False,
    examined.FLAT: False,
    examined.NORMALISATION: False,
    examined.ORDER: False,
    examined.STILL: False,
    examined.UNTRAINED: False,
}


def blames(root) -> bool:
    return Diagnosis.blames_layers.fget(SimpleNamespace(root=root))  # type: ignore[attr-defined]


@pytest.mark.parametrize("reason", examined.REASONS)
def test_only_causes_inside_the_model_blame_layers(reason):
    assert blames(SimpleNamespace(finding=Finding("cause", "x", facts={"reason": reason}))) is BLAMES[reason]


def test_without_a_cause_in_the_data_layers_are_blamed():
    assert blames(None)


@pytest.mark.parametrize("blamed", [True, False])
def test_without_measurements_layers_are_marked_by_their_figures_unless_none_is_blamed(blamed):
    layers = [
        Layer("a", "Conv", 0, Figures(0.1, 0.9, 0.3, None), rises=True),
        Layer("b", "Conv", 1, Figures(0.1, 0.9, 0.3, None)),
    ]
    found = _with_measured(layers, SimpleNamespace(advice=None, measured={}, blames_layers=blamed))
    assert [layer.rises for layer in found] == [blamed, False]
