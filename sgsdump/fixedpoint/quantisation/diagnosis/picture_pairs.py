"""Runs as both models are fed with them, some of a network's feeds, made once where they take little memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.feeds.image_list import evenly

# Pictures are made once where they take so little; several times as fast as decoding and resizing them again.
HELD_BYTES = 64 << 20
Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class PicturePair:
    """``feed`` is the float model's, ``raw`` the same run with pictures as bytes 0 to 255."""

    label: str
    feed: Mapping[str, np.ndarray]
    raw: Mapping[str, np.ndarray]

    def fixed_feed(self, pictures: Collection[str]) -> dict[str, np.ndarray]:
        """The feed of the fixed model, whose quantised picture inputs are these."""
        return {name: self.raw[name] if name in pictures else self.feed[name] for name in self.feed}


class HeldPictures:
    """Runs by their index, as both models are fed with them: as many as HELD_BYTES hold."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Feed, Feed]] = {}
        self._room = HELD_BYTES

    def get(self, index: int) -> tuple[Feed, Feed] | None:
        return self._made.get(index)

    def keep(self, index: int, made: tuple[Feed, Feed]) -> None:
        self._room -= sum(array.nbytes for feed in made for array in feed.values())
        if self._room >= 0:
            self._made[index] = made


@dataclass(frozen=True, eq=False)
class PicturePairs:
    """``pairs.make(i)`` makes the i-th of at most ``most`` runs, evenly chosen, or of those ``chosen``; ``most`` None:
    all. What is ``held`` is not made again, by another of the same feeds either (``dataclasses.replace``)."""

    feeds: Feeds
    most: int | None = None
    chosen: tuple[int, ...] = ()
    held: HeldPictures = field(default_factory=lambda: HeldPictures(), repr=False)

    @cached_property
    def indices(self) -> list[int]:
        every = range(len(self.feeds))
        return list(self.chosen or (every if self.most is None else evenly(every, self.most)))

    @cached_property
    def labels(self) -> list[str]:
        names = self.feeds.labels
        return [names[index] for index in self.indices]

    def labels_in(self, others: PicturePairs) -> list[str]:
        """What ``others`` call these runs, which are some of theirs."""
        names = dict(zip(others.indices, others.labels))
        return [names[index] for index in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def make(self, index: int) -> PicturePair:
        """Raises what making feeds raises."""
        run = self.indices[index]
        made = self.held.get(run)
        if made is None:
            _, *both = self.feeds.both(run)
            made = both[0], both[1]
            self.held.keep(run, made)
        return PicturePair(self.labels[index], *made)
