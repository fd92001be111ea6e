"""What --help states of quantising and tuning (defaults, thresholds, rules) is what the code does."""

import argparse
import re
from pathlib import Path

import numpy as np
import pytest

from sgsdump.commands import COMMANDS
from sgsdump.commands.parser import build_parser
from sgsdump.comparison.distribution import LEVELS as QUANTISER_LEVELS
from sgsdump.comparison.distribution import WIDE
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.calibration import LEVELS, THRESHOLD
from sgsdump.fixedpoint.quantisation.calibration_log import WEIGHTS_LIMIT
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.tuning import integer_choice, rounds, search, setup
from sgsdump.fixedpoint.tuning.rules_of_thumb import RMSE_OVER
from sgsdump.fixedpoint.tuning.search import most_evaluations
from sgsdump.fixedpoint.verbs.first_plan import MOST_ROUNDS
from sgsdump.fixedpoint.verbs.judges import JUDGING
from sgsdump.fixedpoint.verbs.plan_search import BUDGET, parse_rates, parse_seconds
from sgsdump.models.feeds.image_list import evenly

COMMON = ["-m", "net.onnx", "--input-config", "input_config.ini"]
LEAST = {
    "calibrate": [*COMMON, "-i", "pictures"],
    "simulate": ["-m", "net.onnx", "-t", "Float", "-i", "cat.jpg"],
    "tune": [*COMMON, "-i", "pictures", "-o", "out"],
}


def words(command):
    """The command's whole help on one line."""
    parser = argparse.ArgumentParser(description=COMMANDS[command].__doc__)
    COMMANDS[command].add_arguments(parser)
    return " ".join(parser.format_help().split())


@pytest.mark.parametrize(
    ("command", "option", "value", "stated"),
    [
        ("calibrate", "quant_level", "L5", "(default: L5)"),
        ("calibrate", "sensitivity_threshold", 0.002, "(default: 0.002)"),
        ("calibrate", "num_process", 1, "(default: 1)"),
        ("tune", "quant_level", "L5", "(default: L5"),
    ],
)
def test_defaults_of_options(command, option, value, stated):
    assert getattr(build_parser().parse_args([command, *LEAST[command]]), option) == value
    assert stated in words(command)


@pytest.mark.parametrize(
    ("command", "stated", "done"),
    [
        ("calibrate", "models with more than four million weights", round(WEIGHTS_LIMIT / 1e6) == 4),
        ("calibrate", "(default: 0.002)", THRESHOLD == 0.002),
        ("tune", "calibration range (maximum - minimum) is wider than 30", WIDE == 30),
        ("tune", "layers whose RMSE exceeds 0.5", RMSE_OVER == 0.5),
        ("tune", "(default: 0.99)", DOCUMENTED.min_cos == 0.99),
        ("tune", "(default: 0.1)", DOCUMENTED.max_rmse == 0.1),
        (
            "tune",
            "(default: 10 images of -i; 4 images with --first or --explain)",
            (setup.PICTURES, JUDGING) == (10, 4),
        ),
        (
            "tune",
            "maximum number of rounds, each of which raises convolutions to INT16 (default: 10)",
            MOST_ROUNDS == 10,
        ),
        ("tune", "(default: 10m)", BUDGET == "10m"),
        ("tune", "(default: 0.65,0.7,…,0.95)", np.allclose(search.RATES, np.arange(0.65, 0.96, 0.05))),
    ],
)
def test_numbers_in_the_help(command, stated, done):
    assert stated in words(command) and done


@pytest.mark.parametrize(
    ("stated", "done"),
    [
        ("at most 12 convolutions are searched exhaustively", search.EXHAUSTIVE == 12),
        ("removes 95 % of the error that INT16 for all convolutions removes", search.ENOUGH == 0.95),
        (
            "each additional 5 % of the INT16 bytes, up to the knee, at least halves the error",
            integer_choice.HALVING == 0.05,
        ),
        ("at L2 or L3", (WITHOUT_BITS["L4"], WITHOUT_BITS["L5"]) == ("L2", "L3")),
    ],
)
def test_numbers_in_the_page(stated, done):
    page = Path(__file__).parents[3] / "docs" / "tune_int16.md"
    assert stated in " ".join(page.read_text(encoding="utf-8").split()) and done


def test_numbers_that_only_comments_state():
    assert (rounds.WORTH_KEEPING, rounds.PATIENCE) == (0.01, 2)
    assert QUANTISER_LEVELS == 256


@pytest.mark.parametrize(("level", "ranges"), [("L1", "L1"), ("L2", "L2"), ("L3", "L3"), ("L4", "L2"), ("L5", "L3")])
def test_where_the_bits_are_decided_otherwise_the_rest_of_a_level_remains(level, ranges):
    assert WITHOUT_BITS[level] == ranges
    assert LEVELS[ranges].weights == LEVELS[level].weights and LEVELS[ranges].activations == LEVELS[level].activations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("5m", 300), ("1h", 3600), ("1.5h", 5400), ("90", 90), (" 2 m ", 120), ("0s", 0)],
)
def test_a_budget_is_a_time(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5s", "5d", "5 m s", "1,5h", "inf", "1e3"])
def test_what_is_not_a_time_is_refused(text):
    with pytest.raises(ConfigError, match="is not a time"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "rates"), [("0.65,0.7", [0.65, 0.7]), ("1,0.51", [0.51, 1.0]), ("0.7, 0.7,", [0.7]), ("0.5001", [0.5001])]
)
def test_rates_are_sorted_and_each_once(text, rates):
    assert parse_rates(text) == tuple(rates)


@pytest.mark.parametrize("text", ["0.5", "1.0001", "0", "nan", "x", ","])
def test_rates_are_above_a_half_and_at_most_1(text):
    with pytest.raises(ConfigError):
        parse_rates(text)


@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (9, 9), (10, 10), (11, 10), (1000, 10)])
def test_ten_pictures_judge_plans_the_first_and_last_among_them(count, chosen):
    found = evenly(range(count), 10)
    assert len(found) == chosen and found == sorted(set(found)) and (found[0], found[-1]) == (0, count - 1)


def test_a_search_without_end_is_bounded():
    """Up to 12 domains every plan; beyond, what the search's limits add up to."""
    assert [most_evaluations(n, 0) for n in (1, 2, 3, 12)] == [4, 6, 8, 4096]
    assert most_evaluations(13, 0) == 2 * 13 + 2 + 10 * 6 + 24 * (8 + 1)
    assert most_evaluations(13, 7) == most_evaluations(13, 0) + 7 * (6 + 8 * 8) + 10


def test_the_kinds_of_a_model_to_simulate():
    stated = re.search(r"-t \{([\w,]+)\}", words("simulate"))
    assert stated and stated[1].split(",") == ["Float", "Fixed", "Offline"]
