"""Order the runs of a command by their content, so that names, order and place of the files decide nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.models.feeds.feeds import ChosenFeeds, Feeds
from sgsdump.models.feeds.folds import content_key

AnyRun = tuple[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class FeedsByContent(ChosenFeeds):
    """All runs of ``every`` in the order of their ``keys``, which equal runs share; labels stay those of the files."""

    keys: tuple[bytes, ...] = ()


def by_content(feeds: Feeds) -> FeedsByContent:
    """Return the runs in the order of their content. Raises what making the float model's feeds raises."""
    if isinstance(feeds, FeedsByContent):
        return feeds
    keys = _keys(feeds)
    order = _order(keys)
    return FeedsByContent(feeds, tuple(order), tuple(keys[index] for index in order))


def runs_by_content(runs: Sequence[AnyRun]) -> Sequence[AnyRun]:
    """Return the runs of any sequence in the order of their content."""
    return by_content(runs) if isinstance(runs, Feeds) else [runs[index] for index in _order(_keys(runs))]


def _keys(runs: Sequence[AnyRun]) -> list[bytes]:
    return [content_key(runs[index][1]) for index in range(len(runs))]


def _order(keys: Sequence[bytes]) -> list[int]:
    return sorted(range(len(keys)), key=lambda index: keys[index])
