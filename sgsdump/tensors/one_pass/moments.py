"""The sum of each row's values, and of their squares, in one pass where the kernel is installed.

They add up in float64, in an order that depends on nothing but the length of a row, so the digits are the same
everywhere: value i belongs to lane i % LANES, each lane is summed from its first value on, and then the lanes are, the
first one first.
"""

from __future__ import annotations

import numpy as np

from sgsdump.tensors.one_pass import compiled

LANES = 16


def moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums and sums of squares, float64, of the rows of a float table [rows, columns]."""
    if compiled.takes(rows):
        sums, squares = np.empty((2, len(rows)))
        compiled.moments_of_rows(rows, sums, squares)
        return sums, squares
    wide = rows.astype(np.float64)
    return _by_lanes(wide), _by_lanes(wide * wide)


def _by_lanes(values: np.ndarray) -> np.ndarray:
    rows, columns = values.shape
    full, rest = divmod(columns, LANES)
    lanes = np.zeros((rows, LANES))
    if full:  # an axis that is not the last is added up value by value
        lanes += np.add.reduce(values[:, : full * LANES].reshape(rows, full, LANES), axis=1)
    lanes[:, :rest] += values[:, full * LANES :]
    total: np.ndarray = np.add.accumulate(lanes, axis=1)[:, -1]
    return total
