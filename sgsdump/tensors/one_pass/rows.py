"""Ends of table rows in one pass.

low, high = extremes([conv.reshape(64, -1), relu.reshape(1, -1)])     # 64 + 1 values each

A call of numpy's for each end of each tensor takes longer than reading the tensor; of the kernel's one does for all of
them, and it reads once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgsdump.tensors.one_pass import compiled


def extremes(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """float64, one value for each row of each float table [rows, columns], one table after the other.

    A row that holds NaN gives NaN twice; zeros come without a sign. No table is empty.
    """
    watch = RowWatch([tables])
    watch.look(0)
    return watch.ends()


class RowWatch:
    """Tables whose values change while they stay where they are: looked at again and again, a group at a time.

    What the kernel, or numpy, has to know of a table is found out once.
    """

    def __init__(self, groups: Sequence[Sequence[np.ndarray]]):
        self._groups: list[tuple[np.ndarray, list[tuple[np.ndarray, slice]]]] = []
        exact: list[bool] = []
        for tables in groups:
            described, others = [], []
            for table in tables:
                taken, first = compiled.takes(table), len(exact)
                if taken:
                    described.append((compiled.address(table), *table.shape, first))
                else:
                    others.append((table, slice(first, first + len(table))))
                exact += [not taken] * len(table)
            self._groups.append((np.array(described, np.int64), others))
        self._tables = groups  # the kernel reads them, by their addresses
        self._is_exact = np.array(exact, bool)
        self._found, self._exact = np.zeros((2, len(exact)), np.float32), np.zeros((2, len(exact)))

    def look(self, group: int) -> None:
        """Find the ends of a group's rows."""
        described, others = self._groups[group]
        if len(described):
            compiled.ends_of_rows(described, *self._found)
        with np.errstate(invalid="ignore"):  # some NaNs would complain of being made float64
            for table, rows in others:
                self._exact[0, rows], self._exact[1, rows] = table.min(axis=1), table.max(axis=1)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Of all rows, as ``extremes`` gives them."""
        low, high = np.where(self._is_exact, self._exact, self._found) + 0.0
        return low, high
