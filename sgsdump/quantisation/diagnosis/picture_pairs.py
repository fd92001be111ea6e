"""The pictures that a diagnosis looks at, each as the float and as the fixed model takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sgsdump.models.feeds.feeds import expand, feed_maker
from sgsdump.models.feeds.image_list import evenly
from sgsdump.models.input_spec import InputSpec
from sgsdump.sidecars.input_config import InputConfig


@dataclass(frozen=True, eq=False)
class PicturePair:
    """``feed`` is the float model's, ``raw`` the same run with pictures as bytes 0 to 255."""

    label: str
    feed: Mapping[str, np.ndarray]
    raw: Mapping[str, np.ndarray]

    def fixed_feed(self, pictures: Collection[str]) -> dict[str, np.ndarray]:
        """What the fixed model takes, whose quantised picture inputs are these."""
        return {name: self.raw[name] if name in pictures else self.feed[name] for name in self.feed}


@dataclass(frozen=True)
class PicturePairs:
    """``pairs.make(i)`` makes the i-th of at most ``most`` runs, evenly chosen; see ``feeds.feeds`` for the others.

    Raises what ``feeds.feeds`` raises, at once for what can be known at once.
    """

    images: str
    preprocess: str | None
    specs: tuple[InputSpec, ...]
    config: InputConfig
    most: int

    def __post_init__(self) -> None:
        _ = self._makers, self.runs

    @cached_property
    def runs(self) -> list[tuple[str, ...]]:
        """The files of each run."""
        every = expand(self.images, len(self.specs))
        return evenly(every, self.most)

    @cached_property
    def labels(self) -> list[str]:
        """The files' names, with their folders where names alone are not unique."""
        labels = [",".join(Path(file).name for file in files) for files in self.runs]
        return labels if len(set(labels)) == len(labels) else [",".join(files) for files in self.runs]

    @cached_property
    def _makers(self) -> tuple:
        return tuple(feed_maker(self.preprocess, self.specs, self.config, normalised) for normalised in (True, False))

    def __len__(self) -> int:
        return len(self.runs)

    def make(self, index: int) -> PicturePair:
        feed, raw = (maker(self.runs[index]) for maker in self._makers)
        return PicturePair(self.labels[index], feed, raw)
