"""The search over both ends of a range, against the same search spelt out."""

import numpy as np
import pytest

from sgsdump.quantisation.ranges.range_fit import GRID, _least_error, squared_error


def spelt_out(values, counts, low, high):
    """Both ends together, then twice the low end and the high end alone, keeping what is there when nothing is less."""

    def least(ends):
        return min(ends, key=lambda each: squared_error(values, counts, *each))

    ends = least([(low * part, high * part) for part in GRID])
    for _ in range(2):
        ends = least([ends, *((low * part, ends[1]) for part in GRID)])
        ends = least([ends, *((ends[0], high * part) for part in GRID)])
    return ends


@pytest.mark.parametrize("seed", [29, 36, 38, 156, *range(8)])
def test_the_ends_are_drawn_in_together_and_then_each_twice(seed):
    """In the first four the second round finds less where the first has raised the low end."""
    rng = np.random.default_rng(seed)
    count = rng.integers(3, 9)
    values = np.sort(rng.uniform(-1, 1, count) * rng.uniform(0.1, 1, count))
    counts = (10 ** rng.uniform(0, 5, count)).astype(np.int64)
    low, high = min(values[0] - 0.01, 0.0), max(values[-1] + 0.01, 0.0)
    assert _least_error(values, counts, low, high) == spelt_out(values, counts, low, high)
