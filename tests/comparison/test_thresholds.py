"""Every limit exactly at, just within and just past its value; what no limit can be; how limits read."""

import math

import pytest

from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import ConfigError

GOOD = {"cos": 1.0, "rmse": 0.0, "mse": 1e-3}
ABOVE, BELOW = (lambda x: math.nextafter(x, math.inf)), (lambda x: math.nextafter(x, -math.inf))


@pytest.mark.parametrize(
    ("limits", "metric", "value", "holds"),
    [
        (DOCUMENTED, "cos", 0.99, True),
        (DOCUMENTED, "cos", BELOW(0.99), False),
        (DOCUMENTED, "rmse", 0.1, True),
        (DOCUMENTED, "rmse", ABOVE(0.1), False),
        (DOCUMENTED, "mse", 1e30, True),
        (Thresholds(min_cos=-1), "cos", -1.0, True),
        (Thresholds(min_cos=-1), "cos", math.nan, False),
        (Thresholds(max_rmse=0), "rmse", 0.0, True),
        (Thresholds(max_rmse=0), "rmse", 5e-324, False),
        (Thresholds(max_rmse=1), "rmse", math.nan, False),
        (Thresholds(max_mse=0.25), "mse", 0.25, True),
        (Thresholds(max_mse=0.25), "mse", ABOVE(0.25), False),
        (Thresholds(max_mse=0.25), "mse", math.nan, False),
        (Thresholds(), "cos", math.nan, True),
        # two tensors of zeros have neither COS nor RMSE, and are equal
        (Thresholds(min_cos=1, max_rmse=0, max_mse=0), "mse", 0.0, True),
    ],
)
def test_a_limit_is_within(limits, metric, value, holds):
    others = {"cos": math.nan, "rmse": math.nan} if value == 0.0 and metric == "mse" else {}
    assert limits.hold(**GOOD | {metric: value} | others) is holds


@pytest.mark.parametrize(
    ("name", "limit", "value", "holds"),
    [
        ("diff2", 0.05, 0.05, True),
        ("diff2", 0.05, ABOVE(0.05), False),
        ("CosineSimilarity", 0.99, 0.99, True),
        ("CosineSimilarity", 0.99, BELOW(0.99), False),
        ("all_close", 1.0, 1.0, True),
        ("all_close", 1.0, 0.0, False),
        ("mae", 1.0, math.nan, False),
        ("mae", 1.0, None, False),
    ],
)
def test_a_further_limit_is_the_least_where_higher_is_better_else_the_most(name, limit, value, holds):
    metrics = {} if value is None else {name: value}
    assert Thresholds(further=((name, limit),)).hold(**GOOD, further=metrics) is holds


def test_a_limit_that_everything_is_within_is_refused():
    for limits in ({"max_rmse": math.inf}, {"max_mse": math.inf}, {"max_channel_rmse": math.inf}):
        with pytest.raises(
            ConfigError, match=r"must be finite, not inf\. If the metric needs no limit, omit the limit"
        ):
            Thresholds(**limits)


@pytest.mark.parametrize(
    ("possible", "impossible"),
    [
        ({"min_cos": 1.0}, {"min_cos": ABOVE(1.0)}),
        ({"min_cos": -1.0}, {"min_cos": BELOW(-1.0)}),
        ({"min_cos": 0.0}, {"min_cos": math.nan}),
        ({"max_rmse": 0.0}, {"max_rmse": -5e-324}),
        ({"max_rmse": 2.0}, {"max_rmse": math.nan}),
        ({"max_mse": 0.0}, {"max_mse": -5e-324}),
        ({"max_mse": 1e300}, {"max_mse": math.nan}),
        ({"further": (("mae", 0.0),)}, {"further": (("mae", -5e-324),)}),
        ({"further": (("CosineSimilarity", -1.0),)}, {"further": (("CosineSimilarity", math.nan),)}),
    ],
)
def test_limits_that_nothing_could_be_within_are_refused(possible, impossible):
    Thresholds(**possible)
    with pytest.raises(ConfigError, match=r"the limit on .* must be|can be within the limit"):
        Thresholds(**impossible)


def test_an_unknown_metric_and_a_string_of_limits_are_refused():
    with pytest.raises(ConfigError, match="unknown metric 'dif2'; did you mean 'diff2'"):
        Thresholds(further=(("dif2", 0.1),))
    with pytest.raises(ConfigError, match="further must be a list of pairs"):
        Thresholds(further="diff2=0.1")


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (DOCUMENTED, "COS < 0.99 or RMSE > 0.1"),
        (Thresholds(max_mse=0.001), "MSE > 0.001"),
        (Thresholds(min_cos=0.0), "COS < 0"),
        (Thresholds(further=(("mae", 0.5), ("CosineSimilarity", 0.9))), "mae > 0.5 or CosineSimilarity < 0.9"),
    ],
)
def test_they_read_as_what_is_past_them(limits, text):
    assert str(limits) == text and limits


def test_no_limit_is_none_given():
    assert not Thresholds() and Thresholds(min_cos=0.0) and Thresholds(max_mse=0.0)
    assert Thresholds(further=(("mae", 1.0),))


def test_limits_of_single_layers_go_before_those_of_all():
    limits = Thresholds(min_cos=0.9, further=(("diff2", 0.1),), layers=(("conv*", "diff2", 0.5), ("conv1", "cos", 0.5)))
    assert limits.of_layer("relu") == Thresholds(min_cos=0.9, further=(("diff2", 0.1),))
    assert limits.of_layer("conv2") == Thresholds(min_cos=0.9, further=(("diff2", 0.5),))
    assert limits.of_layer("conv1") == Thresholds(min_cos=0.5, further=(("diff2", 0.5),))
    with pytest.raises(ConfigError, match=r"unknown metric 'dif2'.*diff2"):
        Thresholds(layers=(("conv1", "dif2", 0.5),))
