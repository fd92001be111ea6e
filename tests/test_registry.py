import pytest

from sgsdump.comparison.metrics import METRICS
from sgsdump.errors import ConfigError, hint, listed


def test_names_near_a_wrong_one():
    assert hint("conv2", ["conv1", "relu"]) == "; did you mean 'conv1'?"
    assert hint("zzz", ["conv1", "relu"]) == "; choose one of: conv1, relu"


def test_names_without_end_cost_nothing():
    """They took the product of both lengths."""
    assert hint("a" * 1_000_000, ["a" * 1_000_000, *map(str, range(20))]) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("COS", "'cos'"),
        ("max_abs", "'MaxAbsoluteError'"),
        ("max-relative", "'MaxRelativeError'"),
        ("CosSim", "'cos'"),
        ("SQNR", "'sqnr'"),
    ],
)
def test_a_metric_in_another_spelling_is_found(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown metric '{name}'; did you mean {said}"):
        METRICS[name]


def test_of_many_names_the_first_are_listed():
    assert listed(["a", "b", "c"]) == "a, b, c" and listed([]) == ""
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert listed(["a", "b"], 1, repr) == "'a' and 1 more"
