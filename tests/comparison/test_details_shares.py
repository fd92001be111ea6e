"""What the details say of a layer's clipping and of its shift, against the values themselves."""

from dataclasses import replace

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor


def details(sample, benchmark):
    sides = [Dump([Record("out", 0, 0, "Conv", Tensor.of("x", values))]) for values in (sample, benchmark)]
    return compare(*sides, details=True).rows[0].details


def test_shares_are_those_of_the_values_to_a_bin():
    benchmark = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    sample = benchmark + np.float32(0.05) + np.float32(0.1) * np.random.default_rng(1).normal(size=benchmark.shape)
    found = replace(details(sample.astype(np.float32), benchmark), low=-1.0, high=2.0)
    assert found.mean_shift == pytest.approx((sample - benchmark).mean() / abs(benchmark).mean(), rel=0.02)
    assert found.outside == pytest.approx(((benchmark < -1) | (benchmark > 2)).mean(), rel=0.02)


def test_what_cannot_be_told():
    equal = details(np.ones(4, np.float32), np.ones(4, np.float32))
    assert equal.outside is None  # no range
    assert replace(equal, low=0.0, high=2.0).outside == 0 and replace(equal, low=2.0, high=3.0).outside == 1
    assert abs(equal.mean_shift) < 1e-6
    nothing = details(np.full(4, np.nan, np.float32), np.full(4, np.nan, np.float32))
    assert np.isnan(nothing.mean_shift) and replace(nothing, low=0.0, high=1.0).outside is None
