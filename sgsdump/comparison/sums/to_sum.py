"""A pair whose sums are wanted."""

from __future__ import annotations

from typing import NamedTuple

from sgsdump.comparison.sums.picked import Picked
from sgsdump.tensors.tensor import Values


class ToSum(NamedTuple):
    """Two sides of equal shape, whether the kernel takes them, and values of either to be picked up where it reads both
    in the order in which they are stored."""

    sample: Values
    benchmark: Values
    by_kernel: bool
    picked: tuple[Picked, Picked] | None = None

    @property
    def is_flat(self) -> bool:
        """Whether the values of both lie one after the other."""
        flat: bool = self.sample.array.flags.c_contiguous and self.benchmark.array.flags.c_contiguous
        return flat
