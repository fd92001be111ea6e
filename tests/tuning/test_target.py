"""What a target asks for, at its limit."""

import math

import numpy as np
import pytest

from sgsdump.errors import ConfigError
from sgsdump.quantisation.objective import score
from sgsdump.tuning.search.target import parse_target

# y: cos 0.8, rmse 0.5, error 0.4; z is as it should be
VALUES = {"y": np.array([2.0, 1.0]), "z": np.array([1.0, 1.0])}
FLOATS = {"y": np.array([1.0, 2.0]), "z": np.array([1.0, 1.0])}
SCORE = score(VALUES, FLOATS, 0.75)


@pytest.mark.parametrize(
    ("text", "value", "reached"),
    [
        *(("output-cos>=0.79", 0.8, True), ("output-cos>=0.81", 0.8, False)),
        *(("output-rmse<=0.67", 2 / 3, True), ("output-rmse<=0.66", 2 / 3, False)),
        *(("error<=0.4", 0.4, True), ("error<=0.39", 0.4, False), (" error <= 4e-1 ", 0.4, True)),
        *(("metric>=0.75", 0.75, True), ("metric>=0.76", 0.75, False), ("metric>=-1", 0.75, True)),
    ],
)
def test_a_target_is_reached_at_its_value(text, value, reached):
    """The lowest COS and the highest RMSE of any output count; the error is that of the objective."""
    target = parse_target(text)
    assert target.of(SCORE, ["y", "z"], 0.4) == pytest.approx(value)
    assert target.reached(SCORE, ["y", "z"], 0.4) == reached


def test_without_outputs_no_cos_is_good_enough():
    assert math.isnan(parse_target("output-cos>=0").of(SCORE, [], 0.4))
    assert not parse_target("output-cos>=0").reached(SCORE, [], 0.4)
    assert not parse_target("output-rmse<=9").reached(SCORE, [], 0.4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output-cos<=0.9", "output-cos is better when higher"),
        ("metric<=0.9", "metric is better when higher"),
        ("output-rmse>=0.9", "output-rmse is better when lower"),
        ("error>=0.9", "error is better when lower"),
        ("error>0.9", "is not NAME>=NUMBER"),
        ("cos>=0.9", "names are output-cos, output-rmse, error, metric"),
        ("error<=inf", "is not NAME>=NUMBER"),
    ],
)
def test_a_target_names_what_is_better(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_target(text)
