"""The numbers of the SDK's MUL and ADD: variance + epsilon is a sum of float32, all else double precision."""

import numpy as np

from sgsdump.models.caffe.layers.product_and_sum import gain_and_offset


def test_variance_and_epsilon_are_added_in_single_precision():
    variance = np.array([1000.0], np.float32)  # a single 1000 + 1e-5 is 1000
    one, mean = np.ones(1, np.float32), np.full(1, 3.0, np.float32)
    gain, offset = gain_and_offset(one, one, mean, variance, epsilon=1e-5)
    assert gain[0] == 1 / np.sqrt(1000.0) != 1 / np.sqrt(1000.0 + 1e-5)
    assert offset is not None and offset[0] == 1 - 3.0 * gain[0] and offset.dtype == np.float64
