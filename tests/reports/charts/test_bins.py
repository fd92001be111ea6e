"""In how many bins histograms are drawn, and which layers are copies of others."""

import numpy as np
import pytest

from sgsdump.comparison.details import details_of
from sgsdump.comparison.distribution import distributions
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.charts.bins import FEWEST, Copies, drawn_values, is_comb, joined, moves, of_details, of_errors
from sgsdump.tensors.tensor import Tensor, Values

RANDOM = np.random.default_rng(3)
MANY = RANDOM.normal(size=100_000)


def counts_of(values, bins=256):
    return np.histogram(values, bins)[0]


@pytest.mark.parametrize(
    ("values", "most", "least"),
    [
        (MANY, 256, 256),
        (np.concatenate([MANY, [90.0]]), 256, 256),
        (np.concatenate([np.zeros(50_000), np.abs(MANY)]), 256, 256),
        (np.concatenate([RANDOM.uniform(0, 1, 50_000), RANDOM.uniform(7, 8, 50_000)]), 256, 256),
        (np.round(MANY * 20), 128, 16),
        (np.round(MANY * 10), 64, 16),
        (RANDOM.integers(0, 10, 10_000), FEWEST, FEWEST),
        (RANDOM.normal(size=10), FEWEST, FEWEST),
        (RANDOM.normal(size=1000), 64, 64),
    ],
    ids=["smooth", "outlier", "relu", "two humps", "176 levels", "88 levels", "10 levels", "10 values", "1000 values"],
)
def test_few_values_and_few_levels_get_few_bins(values, most, least):
    counts = counts_of(values)
    fewer = joined(counts, 256)
    assert least <= len(fewer) <= most
    # nothing is lost, and every column is that of as many neighbours
    assert (fewer == counts.reshape(len(fewer), -1).sum(axis=1)).all()
    assert len(fewer) == FEWEST or not is_comb(fewer)


def test_no_values_and_one_value():
    assert joined(np.zeros(256, np.int64), 64).sum() == 0
    assert joined(counts_of([3.0]), 64).sum() == 1


def test_a_pair_is_in_bins_that_suit_both_sides():
    benchmark = MANY.astype(np.float32)
    sample = (np.round(MANY * 12) / 12).astype(np.float32)
    details = details_of(Values(sample), Values(benchmark))
    bins = of_details(details, 256)
    assert FEWEST // 2 <= bins.rows.shape[1] <= 128 and not is_comb(bins.rows[0])
    assert bins.rows[0].sum() == bins.rows[1].sum() == len(MANY)
    assert of_errors(details, 64).rows.sum() == len(MANY)
    smooth = of_details(details_of(Values(benchmark), Values(benchmark)), 256)
    assert smooth.rows.shape[1] > 128


def layers(*records):
    return list(
        distributions(Dump([Record("out", 0, 0, op, Tensor.of(name, values)) for op, name, values in records]), {})
    )


def test_a_moving_operator_of_the_same_values_is_a_copy():
    a = RANDOM.normal(size=(4, 6)).astype(np.float32)
    found = layers(
        ("CONV_2D", "conv", a),
        ("TRANSPOSE", "turned", a.T.copy()),
        ("Reshape", "flat", a.reshape(-1)),
        ("Relu", "relu", a),
        ("Transpose", "other", a.T + 1),
        ("Reshape", "empty", a[:0]),
        ("Reshape", "also empty", a[:0]),
    )
    copies = Copies()
    added = [copies.add(place, layer.op_type, drawn_values(layer)) for place, layer in enumerate(found)]
    assert added == [False, True, True, False, False, False, False]
    assert copies.of == {1: 0, 2: 0}


def test_operators_that_move():
    assert all(map(moves, ("Transpose", "RESHAPE", "EXPAND_DIMS", "Identity")))
    assert not any(map(moves, ("Relu", "", "CONV_2D", "Concat")))
