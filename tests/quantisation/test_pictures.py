"""One picture both ways: as the float model takes it, and as the fixed model makes it of the raw bytes."""

import numpy as np
import pytest

from sgsdump.errors import InputError
from sgsdump.quantisation.pictures import Picture, input_differences

PIXELS = np.random.default_rng(0).integers(0, 256, (1, 3, 4, 4)).astype(np.float32)
MEAN = np.array([123.0, 117.0, 104.0], np.float32).reshape(1, 3, 1, 1)
REAL = (PIXELS - MEAN) / 58


def difference(mean, std, make_raw):
    (found,) = input_differences({"data": REAL}, make_raw, {"data": Picture(mean, std)})
    return found


def test_the_same_mean_and_std_agree():
    found = difference((123, 117, 104), (58,) * 3, lambda: {"data": PIXELS})
    assert found.agrees and found.levels < 1e-3 and not found.rounded


def test_a_forgotten_mean_is_said_in_both_units():
    found = difference((0, 0, 0), (58,) * 3, lambda: {"data": PIXELS})
    assert not found.agrees and found.levels == pytest.approx(123, rel=1e-5)
    assert found.largest == pytest.approx(123 / 58, rel=1e-5)
    assert "up to 2.12069, 123 grey levels" in str(found)


def test_a_wrong_std_is_said():
    found = difference((123, 117, 104), (1,) * 3, lambda: {"data": PIXELS})
    assert not found.agrees and found.largest > 100


def not_to_be_had():
    raise InputError("no parameter norm")


@pytest.mark.parametrize("make_raw", [None, not_to_be_had])
def test_without_a_raw_picture_what_bytes_cannot_hold_shows(make_raw):
    assert difference((123, 117, 104), (58,) * 3, make_raw).agrees
    found = difference((0, 0, 0), (58,) * 3, make_raw)
    assert found.rounded and found.levels == pytest.approx(float((-REAL * 58).max()), rel=1e-5)
    assert "is not one of bytes 0 to 255" in str(found)


def test_rounding_is_no_disagreement():
    between = {"data": np.rint(PIXELS * 0.5)}
    ((found),) = input_differences(
        {"data": (PIXELS * 0.5 - MEAN) / 58}, lambda: between, {"data": Picture((123, 117, 104), (58,) * 3)}
    )
    assert found.agrees and found.levels == pytest.approx(0.5, abs=1e-4)
