"""Pictures as a sequence of feeds that worker processes can take by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from sgsdump.models.feeds.feeds import Feed, expand, feed_maker
from sgsdump.models.input_spec import InputSpec
from sgsdump.sidecars.input_config import InputConfig

LabelledFeed = tuple[str, Feed]


@dataclass(frozen=True)
class PictureFeeds(Sequence[LabelledFeed]):
    """``feeds[i]`` is (label, feed) of the i-th run, made anew each time; see ``feeds.feeds`` for the parameters.

    Sent to another process it takes the file names along, and imports the user's preprocess file there.
    Raises what ``feeds.feeds`` raises, at once for what can be known at once.
    """

    images: str
    preprocess: str | None
    specs: tuple[InputSpec, ...]
    config: InputConfig | None = None

    def __post_init__(self) -> None:
        _ = self._make, self.runs

    @cached_property
    def runs(self) -> list[tuple[str, ...]]:
        """The files of each run."""
        return expand(self.images, len(self.specs))

    @cached_property
    def _make(self) -> Callable[[tuple[str, ...]], Feed]:
        return feed_maker(self.preprocess, self.specs, self.config)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> LabelledFeed: ...
    @overload
    def __getitem__(self, index: slice) -> list[LabelledFeed]: ...
    def __getitem__(self, index: int | slice) -> LabelledFeed | list[LabelledFeed]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        files = self.runs[index]
        return ",".join(files), self._make(files)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_make"}
