"""The lower envelope of a trade-off, alone and as the picture of tune's plans draws it."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from sgsdump.fixedpoint.reports.pareto_chart import figure_of, pareto_png
from sgsdump.fixedpoint.tuning.pareto import Effort, OutputFigures, Pareto, Row
from sgsdump.reports.report import lower_envelope


def test_the_envelope_is_below_every_plan():
    random = np.random.default_rng(0)
    plans = [tuple(plan) for plan in random.uniform(0.1, 1, (200, 2))]
    envelope = lower_envelope(plans)
    for rate, error in plans:
        assert min(e for r, e in envelope if r <= rate) <= error
    assert all(plan in plans for plan in envelope)
    assert lower_envelope([(0.5, math.nan)]) == []


def row(label, rate, error, cos=0.9):
    one = {"y": cos}
    return Row(label, None, rate, 1, (), (), rate - 0.1, error * 1.1, error, 0.5, OutputFigures(one, one, one))


def result(cloud, *rows, taken):
    cloud = tuple((rate, error, rate) for rate, error in cloud)
    return Pareto(rows, cloud, rows[taken], ("y",), ("y",), "mean of y", (), Effort(1, len(cloud), 1, True, True))


@pytest.fixture
def plans():
    """The table's plans are not the best of their size everywhere: at 0.72 one is better than that of 0.8."""
    random = np.random.default_rng(1)
    cloud = [(rate, 0.06 + error) for rate, error in random.uniform(0.5, 1, (300, 2))]
    cloud += [(0.5, 1.0), (0.72, 0.05), (0.8, 0.1), (1.0, 1e-4)]
    rows = [row("INT8", 0.5, 1.0), row("smallest", 0.72, 0.05), row("0.8", 0.8, 0.1), row("INT16", 1.0, 1e-4)]
    return result(cloud, *rows, taken=1)


def line(figure, start):
    (found,) = [line for line in figure.axes[0].lines if str(line.get_label()).startswith(start)]
    return found


def test_the_line_passes_above_no_plan_and_through_the_one_to_take(plans):
    steps = line(figure_of(plans), "smallest error")
    assert steps.get_drawstyle() == "steps-post"
    rates, errors = steps.get_data()
    for rate, error, _ in plans.cloud:
        assert errors[np.searchsorted(rates, rate, "right") - 1] <= error
    assert (plans.taken.rate, plans.taken.error) in set(zip(rates, errors))


def test_the_plan_to_take_is_marked(plans):
    figure = figure_of(plans)
    rings = [each for each in figure.axes[0].lines if each.get_color() == "none"]
    assert [(each.get_xdata()[0], each.get_ydata()[0]) for each in rings] == [(0.72, 0.05)]
    assert "recommended: 0.720" in [text.get_text() for text in figure.axes[0].texts]
    assert "recommended: 0.620" in [text.get_text() for text in figure.axes[1].texts]


def test_no_word_lies_over_an_axis(plans):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = figure_of(plans)
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes[:2]:
        box = axes.get_window_extent()
        for text in axes.texts:
            words = text.get_window_extent()
            assert box.x0 < words.x0 and words.x1 < box.x1 and box.y0 < words.y0 and words.y1 < box.y1


def test_without_known_shapes_there_are_two_panels(plans):
    rows = tuple(replace(row, macs16=None) for row in plans.rows)
    assert len(figure_of(replace(plans, rows=rows, taken=rows[1])).axes) == 2


@pytest.mark.parametrize(
    "cloud", [[(0.5, 0.0)], [(0.5, math.nan), (0.6, math.inf)], [(0.5, 0.3), (0.9, 0.0)]], ids=["zero", "nan", "both"]
)
def test_errors_without_a_logarithm_still_give_a_picture(cloud):
    rows = [row(f"<i>{rate}", rate, error, math.nan if math.isnan(error) else 1.0) for rate, error in cloud]
    with Image.open(io.BytesIO(pareto_png(result(cloud, *rows, taken=-1)))) as picture:
        assert picture.width > 800
