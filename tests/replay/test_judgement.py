"""Recorded results compared with exact ones, in units of the last place: against numbers worked out by hand."""

import math

import ml_dtypes
import numpy as np
import pytest

from sgsdump.replay.bounds import float_type, terms
from sgsdump.replay.judgement import CHUNK, Reference, judge


@pytest.mark.parametrize(
    ("dtype", "digits", "largest"),
    [
        (ml_dtypes.bfloat16, 8, 3.3895313892515355e38),
        (np.float16, 11, 65504.0),
        (np.float32, 24, 3.4028234663852886e38),
    ],
)
def test_float_types_are_those_of_the_standard(dtype, digits, largest):
    kind = float_type(np.dtype(dtype))
    assert (kind.digits, kind.largest, kind.u) == (digits, largest, 2.0**-digits)


def test_units_of_the_last_place():
    output = np.array([1.0, 1.0078125, 2.03125], ml_dtypes.bfloat16)  # a unit is 2**-7 from 1 on, 2**-6 from 2 on
    judged = judge(output, [Reference(np.array([1.0, 1.0, 2.0]), None, 0.0, 1.0)])
    assert (judged.outside, judged.index, judged.error) == (2, 2, 2.0)
    assert judged.bound == pytest.approx(0.5, rel=1e-2)


def test_half_a_unit_is_rounding():
    exact = np.float64(1 + 2**-8)  # between two numbers
    for value in (1.0, 1 + 2**-7):
        assert not judge(np.array([value], ml_dtypes.bfloat16), [Reference(np.array([exact]))]).outside


def test_a_value_that_is_only_moved_is_equal_or_wrong():
    assert judge(np.float32([0.1]), [Reference(np.float64(np.float32([0.1])))]).outside == 0
    near = np.nextafter(np.float32(0.1), np.float32(1))
    judged = judge(np.array([near]), [Reference(np.float64(np.float32([0.1])))])
    assert (judged.outside, judged.error, judged.bound) == (1, 1.0, 0.0)


def test_magnitude_and_units_widen_the_bound():
    output, exact = np.float32([1e-3]), np.float64([0.0])
    assert judge(output, [Reference(exact, np.array([1.0]), 10.0, 1.0)]).outside
    assert not judge(output, [Reference(exact, np.array([1.0]), 1e-3 * 2**24 * 1.1, 1.0)]).outside


@pytest.mark.parametrize(
    ("value", "exact", "outside"),
    [
        (math.nan, math.nan, 0),
        (math.inf, math.inf, 0),
        (math.inf, -math.inf, 1),
        (math.nan, 1.0, 1),
        (1.0, math.nan, 1),
        (math.inf, 1.0, 1),
        (math.inf, 70000.0, 0),
        (math.inf, 65519.0, 1),
        (65504.0, 65519.0, 0),
        (-math.inf, -1e300, 0),
    ],
)
def test_values_that_are_not_finite(value, exact, outside):
    judged = judge(np.array([value], np.float16), [Reference(np.array([exact]), None, 0.0, 1.0)])
    assert judged.outside == outside


def test_of_two_references_the_nearer_one_counts_for_each_element():
    references = [Reference(np.array([1.0, 1.0]), None, 0.0, 1.0), Reference(np.array([2.0, 2.0]), None, 0.0, 1.0)]
    assert judge(np.float16([1.0, 2.0]), references).outside == 0
    assert judge(np.float16([1.0, 3.0]), references).outside == 1


def test_whole_numbers_and_truth_values_are_equal_or_wrong():
    assert judge(np.int32([1, 2]), [Reference(np.int64([1, 2]))]).outside == 0
    judged = judge(np.int32([1, 5]), [Reference(np.int64([1, 2]))])
    assert (judged.outside, judged.index, judged.error) == (1, 1, 3.0)
    assert judge(np.array([True, False]), [Reference(np.array([True, True]))]).outside == 1


def test_the_worst_of_all_chunks_is_found():
    output = np.zeros(CHUNK + 10, np.float32)
    output[CHUNK + 3] = 1.0
    judged = judge(output, [Reference(np.zeros(CHUNK + 10))])
    assert (judged.count, judged.outside, judged.index) == (CHUNK + 10, 1, CHUNK + 3)


def test_no_elements_and_another_number_of_them():
    assert judge(np.zeros((0, 3), np.float32), [Reference(np.zeros((0, 3)))]).outside == 0
    with pytest.raises(ValueError, match="number of elements"):
        judge(np.zeros(3, np.float32), [Reference(np.zeros(2))])


def test_the_factor_of_a_sum_grows_as_the_theorems_say():
    assert terms(10) == 12.0
    assert terms(10_000) == 8 * 100 + 2  # not 10002
