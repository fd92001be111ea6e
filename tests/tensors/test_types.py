"""Quantisations, layouts and ranges: what their docstrings state, a row each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sgsdump import Quant
from sgsdump.tensors.types import Origin, Range, nchw_shape, nhwc_shape, same_quant, to_nchw, to_nhwc

U8, I16 = np.dtype(np.uint8), np.dtype(np.int16)


QUANT = Quant(U8, np.array([0.5, np.nan]), 3, 1, True, "word")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": I16},
        {"dtype": None},
        {"zero_point": 2},
        {"axis": 0},
        {"axis": None},
        {"exact": False},
        {"type_name": ""},
        {"scale": np.array([0.5, 0.5])},
        {"scale": np.array([0.25, np.nan])},
        {"scale": 0.5},
    ],
    ids=str,
)
def test_two_quantisations_are_the_same_in_every_field_or_not_at_all(change):
    assert same_quant(QUANT, replace(QUANT, scale=QUANT.scale.copy()))
    assert not same_quant(QUANT, replace(QUANT, **change)) and not same_quant(replace(QUANT, **change), QUANT)
    assert not same_quant(QUANT, None) and not same_quant(None, QUANT) and same_quant(None, None)


def test_nhwc_and_nchw_against_numpy():
    nchw = np.arange(120).reshape(2, 3, 4, 5)
    nhwc = np.moveaxis(nchw, 1, -1)
    np.testing.assert_array_equal(to_nhwc(nchw), nhwc)
    np.testing.assert_array_equal(to_nchw(nhwc), nchw)
    assert nhwc_shape([2, 3, 4, 5]) == (2, 4, 5, 3) and nchw_shape([2, 4, 5, 3]) == (2, 3, 4, 5)
    assert np.shares_memory(to_nhwc(nchw), nchw) and np.shares_memory(to_nchw(nhwc), nchw)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 3, 4), (2, 3, 4, 5, 6)])
def test_other_ranks_have_no_layout(shape):
    array = np.zeros(shape)
    assert to_nhwc(array) is array is to_nchw(array)
    assert nhwc_shape(list(shape)) == shape == nchw_shape(list(shape))


def test_a_range_and_what_holds_for_wider_integers():
    wide = Range.of(-9, 9, 16)
    found = Range(np.array([-1.0, -4.0]), np.array([3.0, 2.0]), 8, wide)
    assert (found.low, found.high) == (-4.0, 3.0)
    assert found.at(U8) is found and found.at(I16) is wide and Range.of(0, 1).at(I16).high == 1
    assert Range.of(0, 1).min.dtype == np.float64 and Range.of(0, 1).bit is None


@pytest.mark.parametrize(
    "other", [Range.of(-1, 3, 8), Range.of(-2, 2, 8), Range.of(-2, 3, 16), Range.of(-2, 3)], ids=str
)
def test_ranges_are_the_same_in_numbers_and_bits(other):
    assert Range.of(-2, 3, 8).same(Range.of(-2, 3, 8))
    assert not Range.of(-2, 3, 8).same(other) and not other.same(Range.of(-2, 3, 8))


def test_an_origin_is_of_one_group_and_of_no_known_layout():
    origin = Origin((4, 3, 1, 1))
    assert (origin.layout, origin.groups) == (None, 1)
