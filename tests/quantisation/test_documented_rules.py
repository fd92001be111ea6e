"""Rules that docstrings of this room state: the error of a proposed range is a share, stored scales are exact."""

import numpy as np
import pytest

from sgsdump.quantisation.fixed_facts import StoredTensor, StoredWeights
from sgsdump.quantisation.ranges.range_fit import proposals, squared_error
from sgsdump.quantisation.ranges.value_histogram import count_values


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_error_of_a_proposal_is_a_share_of_the_values_mean_square(scale):
    values = (np.random.default_rng(0).standard_t(3, 20_000) * scale).astype(np.float32)
    histogram = count_values(values)
    middles, counts = histogram.filled()
    made = proposals(histogram, float(values.min()), float(values.max()))
    assert [one.kind for one in made] == ["min_max", "percentile", "entropy", "mse"]
    for one in made:
        share = squared_error(middles, counts, one.low, one.high) / float(counts @ middles**2)
        assert one.error == pytest.approx(share, rel=1e-12) and 0 < one.error < 1
        assert values.min() <= one.low <= 0 <= one.high <= values.max()
    assert made[3].error == min(one.error for one in made)


def test_stored_scales_are_exact():
    tensor = StoredTensor(np.dtype(np.uint8), 0.5, 7, "x_stored", "x").quant
    assert (tensor.dtype, tensor.scale, tensor.zero_point, tensor.axis, tensor.exact) == (np.uint8, 0.5, 7, None, True)
    assert not StoredTensor(np.dtype(np.uint8), 0.5, 7, "x_stored", "x").picture
    weights = StoredWeights("w", np.dtype(np.int8), (0.5, 0.25), 1).quant
    assert (weights.dtype, weights.zero_point, weights.axis, weights.exact) == (np.int8, 0, 1, True)
    assert weights.scale.tolist() == [0.5, 0.25] and weights.scale.dtype == np.float32
