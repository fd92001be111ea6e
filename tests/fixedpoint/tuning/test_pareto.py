"""The table of tuned plans: rates, bytes, and how far each goes from INT8's error to INT16's."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from json_documents import checked

from sgsdump.errors import ConfigError
from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.quantisation.objective import score
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain
from sgsdump.fixedpoint.reports.pareto_reports import pareto_cells
from sgsdump.fixedpoint.tuning import pareto as module
from sgsdump.fixedpoint.tuning.criteria import Objective
from sgsdump.fixedpoint.tuning.pareto import as_document, pareto
from sgsdump.fixedpoint.tuning.plan_costs import MACS, PlanCosts, Sizes, macs_of
from sgsdump.fixedpoint.tuning.search import Proposed, SearchResult
from sgsdump.fixedpoint.tuning.setup import Setup

NONE, ONE, BOTH, OTHER = frozenset(), frozenset("a"), frozenset("ab"), frozenset("b")
FIGURES = score({"y": np.ones(1), "logits": 2 * np.ones(1)}, {"y": np.ones(1), "logits": np.ones(1)})


def laid_out(errors, monkeypatch, smallest=ONE, within=None, exact=None):
    """The plans none, a, a+b with these errors; the search proposed a for the rate 0.7."""
    monkeypatch.setattr(module, "watched_by_output", lambda proto: {"y": "logits", "y2": "logits", "z": "mask"})
    monkeypatch.setattr(module, "words_of", lambda trial, plan: tuple(sorted(plan)))
    plans = dict(zip((NONE, ONE, BOTH), errors))
    pool = SimpleNamespace(
        scores=dict.fromkeys(plans, FIGURES),
        error=plans.__getitem__,
        outputs=["y"],
        watched=["logits"],
        objective=Objective("mean", ("logits",)),
        combined=SimpleNamespace(left_out=("mask",)),
        pictures=[None],
        runs=3,
        metric=None,
    )
    costs = PlanCosts(Sizes(("a", "b"), np.array([100, 300]), 100), Sizes(("a", "b"), np.array([30, 10]), 10))
    trial = SimpleNamespace(
        proto=None, analysis=None, domains=[Domain(name, (name,), (f"{name}.out",), 1) for name in "ab"]
    )
    ends = (Proposed(0.5, NONE, 0.0), Proposed(0.9, BOTH, 0.0))
    found = SearchResult((Proposed(0.7, ONE, 0.25),), Proposed(0.6, smallest, 0.25), ends, True, True)
    if within is not None:
        found = replace(found, within=Proposed(0.55, within, 0.0))
    return pareto(found, Setup(trial, pool, costs), exact)


@pytest.mark.parametrize(
    ("errors", "way"),
    [((0.5, 0.2, 0.1), 0.75), ((0.5, 0.5, 0.1), 0.0), ((0.5, 0.05, 0.1), 1.125), ((0.5, 0.9, 0.1), -1)],
)
def test_the_way_is_0_for_int8_and_1_for_int16(errors, way, monkeypatch):
    rows = laid_out(errors, monkeypatch).rows
    assert [row.label for row in rows] == ["INT8", "0.7", "INT16"]
    assert [row.way for row in rows] == pytest.approx([0.0, way, 1.0])
    assert [row.error for row in rows] == list(errors)


def test_there_is_no_way_when_int16_is_no_better(monkeypatch):
    result = laid_out((0.1, 0.1, 0.1), monkeypatch)
    assert all(math.isnan(row.way) for row in result.rows)
    assert [row["way"] for row in checked(json_text(as_document(result)))["rows"]] == ["nan"] * 3


def test_bytes_rates_and_multiplications(monkeypatch):
    rows = laid_out((0.5, 0.2, 0.1), monkeypatch).rows
    assert [row.bytes for row in rows] == [500, 600, 900]
    assert [row.rate for row in rows] == pytest.approx([0.5, 0.6, 0.9])
    assert [row.macs16 for row in rows] == pytest.approx([0.0, 0.6, 0.8])
    assert [row.raised for row in rows] == [(), ("a.out",), ("a.out", "b.out")]


def test_errors_are_told_by_the_outputs_names(monkeypatch):
    """Of the tensors that are watched in their place, each once."""
    result = laid_out((0.5, 0.2, 0.1), monkeypatch)
    assert result.objective == "mean of y" and result.left_out == ("z",)
    assert [row.outputs.errors for row in result.rows] == [{"y": 1.0}] * 3


def test_a_plan_that_was_run_in_integers_alone_has_a_row(monkeypatch):
    """Within the limits, a domain left out of a plan that the search tried."""
    exact = SimpleNamespace(error=lambda plan: 0.3, score=lambda plan: FIGURES, ran={}, off=dict)
    result = laid_out((0.5, 0.2, 0.1), monkeypatch, within=OTHER, exact=exact)
    assert result.taken.label == "in limits" and result.taken.error == 0.3 and math.isnan(result.taken.searched)
    cells = dict(zip(*(pareto_cells(result)[at] for at in (0, 1 + result.rows.index(result.taken)))))
    assert cells["searched"] == "-" and checked(json_text(as_document(result)))["rows"][1]["searched"] == "nan"


@pytest.mark.parametrize(("smallest", "labels", "taken"), [(ONE, 3, "0.7"), (BOTH, 4, "smallest")])
def test_the_plan_to_take_has_a_row_of_its_own_unless_a_rate_has_it(smallest, labels, taken, monkeypatch):
    result = laid_out((0.5, 0.2, 0.1), monkeypatch, smallest)
    assert len(result.rows) == labels and result.taken.label == taken


@pytest.mark.parametrize(
    ("op", "weight", "attributes", "source", "macs"),
    [
        ("Conv", (8, 3, 3, 3), {"pads": [1, 1, 1, 1]}, (1, 3, 4, 4), 8 * 3 * 9 * 16),
        ("Conv", (6, 1, 1, 1), {"group": 6}, (1, 6, 4, 4), 6 * 16),
        ("Conv", (8, 3, 1, 1), {}, (2, 3, 4, 4), 2 * 8 * 3 * 16),
        ("ConvTranspose", (3, 8, 2, 2), {"strides": [2, 2]}, (1, 3, 4, 4), 3 * 8 * 4 * 16),
        ("MatMul", (5, 7), {}, (2, 5), 2 * 5 * 7),
    ],
)
def test_multiplications_of_a_convolution(op, weight, attributes, source, macs):
    from small_nets import model, node

    from sgsdump.fixedpoint.quantisation.analysis import analyse

    net = model([node(op, ["x", "w"], "y", **attributes)], {"w": np.ones(weight, np.float32)}, {"x": source}, ["y"])
    assert macs_of(analyse(net.proto)) == {"y": macs}


def test_what_steers_a_search():
    weights, macs = Sizes(("a",), np.array([3]), 1), Sizes(("a",), np.array([50]), 50)
    assert PlanCosts(weights, macs).steering(MACS) is macs and PlanCosts(weights, macs).steering("bytes") is weights
    with pytest.raises(ConfigError, match="--cost macs"):
        PlanCosts(weights).steering(MACS)
