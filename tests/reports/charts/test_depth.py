"""The picture of the error over depth: every layer at its own figures, and what is past a threshold or rises marked."""

import math

import numpy as np
import pytest

from sgsdump.reports.charts.depth import DECADES, PANELS, figure_of, render, span_of
from sgsdump.reports.report import Figures, Layer, Report


def layer(name, rmse, verdict="pass", index=0, **further):
    figures = {"mse": rmse**2, "cos": 1 - rmse**2, "sqnr": -20 * math.log10(rmse) if rmse > 0 else math.inf}
    figures |= {key: further.pop(key) for key in ("mse", "cos", "sqnr", "rise") if key in further}
    return Layer(name, "Conv", index, Figures(rmse=rmse, **figures), verdict=verdict, **further)


LAYERS = (
    layer("a", 0.01),
    layer("b", 0.2, "fail", 7, rises=True, rise=0.19),
    layer("nan", math.nan, "fail", mse=math.nan, cos=math.nan, sqnr=math.nan),
    layer("equal", 0.0, "pass", cos=math.nan),
)


def drawn(axes, label):
    return [
        (x, y) for line in axes.lines if line.get_label() == label for x, y in zip(line.get_xdata(), line.get_ydata())
    ]


def test_every_layer_stands_at_its_figures():
    axes = figure_of(Report("title", ("verdict",), layers=LAYERS, limits={"rmse": 0.1})).axes
    assert [a.get_ylabel() for a in axes] == [panel.label for panel in PANELS]
    assert [a.get_yscale() for a in axes] == ["log", "log", "log", "linear"]
    low, high = axes[0].get_ylim()
    assert drawn(axes[0], "within the limits") == [(0, 0.01), (3, low)]
    assert drawn(axes[0], "exceeds a limit, NaN or Inf") == [(1, 0.2)]
    assert drawn(axes[0], "NaN or infinite") == [(2, high)]
    assert [x for x, _ in drawn(axes[0], "the error rises here")] == [1]
    assert {y for _, y in drawn(axes[0], "limit")} == {0.1}
    assert drawn(axes[1], "exceeds a limit, NaN or Inf") == [(1, pytest.approx(0.04))]
    assert [x for x, _ in drawn(axes[1], "NaN or infinite")] == [2]
    assert [x for x, _ in drawn(axes[3], "within the limits")] == [0, 3]
    assert "7" in [text.get_text() for text in axes[0].texts]
    assert [tick.get_text() for tick in axes[3].get_xticklabels()] == ["0. a", "7. b", "0. nan", "0. equal"]


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1e-3, 0.1], 5e-4, 0.2), ([0.0, math.nan], 1e-6, 1.0), ([1e-30, 1.0], 10.0**-DECADES / 2, 2.0)],
)
def test_the_axis_holds_all_but_the_very_smallest(values, low, high):
    assert span_of(PANELS[0], values) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("count", [1, 101, 500])
def test_few_layers_and_many(count):
    errors = np.random.default_rng(0).uniform(1e-9, 1, count)
    layers = tuple(layer(f"$_{{{i}}}<b>\u202e" + "x" * 300, float(error)) for i, error in enumerate(errors))
    assert render(Report("title", ("one", "two"), layers=layers)).startswith(b"\x89PNG")
