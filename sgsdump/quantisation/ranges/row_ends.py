"""Lowest and highest values of many tensors at once: those of some are known by channel, of others as a whole.

All lie in two arrays, one row after the other, so that two pictures' are merged in two steps, whatever the number of
tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sgsdump.errors import InputError
from sgsdump.quantisation.ranges.statistics import ChannelExtremes, Extremes


class Rows(NamedTuple):
    """How many rows a tensor has, and of how many channels they are, in turn; 0 where channels do not matter."""

    name: str
    rows: int
    channels: int


@dataclass(frozen=True, eq=False)
class RowEnds:
    """``low`` and ``high``: float64, of the tensors' rows, one tensor after the other."""

    tensors: tuple[Rows, ...]
    low: np.ndarray
    high: np.ndarray

    def merged(self, other: RowEnds) -> RowEnds:
        """Both pictures' together. Raises InputError for a tensor whose number of channels changes."""
        if self.tensors is other.tensors or self.tensors == other.tensors:
            return RowEnds(self.tensors, np.minimum(self.low, other.low), np.maximum(self.high, other.high))
        mine, theirs = self._by_tensor(), other._by_tensor()
        both = {name: _together(name, mine.get(name), theirs.get(name)) for name in {**mine, **theirs}}
        tensors = tuple(Rows(name, ends.low.size, channels) for name, (channels, ends) in both.items())
        low, high = (np.concatenate([ends[end] for _, ends in both.values()]) for end in (0, 1))
        return RowEnds(tensors, low, high)

    def followed_by(self, other: RowEnds) -> RowEnds:
        """Of more tensors of the same picture."""
        low, high = np.concatenate([self.low, other.low]), np.concatenate([self.high, other.high])
        return RowEnds((*self.tensors, *other.tensors), low, high)

    def tensor_at(self, row: int) -> str:
        """The name of the tensor to which a row belongs."""
        behind = np.cumsum([tensor.rows for tensor in self.tensors])
        return self.tensors[int(np.searchsorted(behind, row, side="right"))].name

    @property
    def whole(self) -> dict[str, Extremes]:
        """Of every tensor."""
        ends = ((name, ends) for name, (_, ends) in self._by_tensor().items())
        return {name: Extremes(float(low.min()), float(high.max())) for name, (low, high) in ends}

    @property
    def channels(self) -> dict[str, ChannelExtremes]:
        """Of each channel, where channels matter."""
        return {name: ends for name, (channels, ends) in self._by_tensor().items() if channels}

    def _by_tensor(self) -> Mapping[str, tuple[int, ChannelExtremes]]:
        """The channels, or 0, and the ends of each; of the tensor as a whole where channels do not matter."""
        found, start = {}, 0
        for name, count, channels in self.tensors:
            rows = slice(start, start + count)
            start += count
            low, high = self.low[rows].reshape(-1, channels or count), self.high[rows].reshape(-1, channels or count)
            found[name] = channels, ChannelExtremes(low.min(axis=0), high.max(axis=0))
        return found


def _together(
    name: str, mine: tuple[int, ChannelExtremes] | None, theirs: tuple[int, ChannelExtremes] | None
) -> tuple[int, ChannelExtremes]:
    if mine is None or theirs is None:
        return mine or theirs  # type: ignore[return-value]
    if mine[0] != theirs[0]:
        raise InputError(
            f"tensor {name!r} has another number of channels on another picture: {mine[0]} and {theirs[0]}"
        )
    return mine[0], mine[1].merged(theirs[1])
