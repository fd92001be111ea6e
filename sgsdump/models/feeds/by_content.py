"""Order, folds and number of a command's runs by content, and pairs of float and fixed model feeds.

File names, file order and location have no influence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sgsdump.models.feeds.feeds import ChosenFeeds, Feed, Feeds
from sgsdump.models.feeds.image_list import evenly

# With fewer different images, none is held out.
FEWEST_HELD_OUT = 12
# From MANY images on, OF_MANY folds leave enough images to fit to.
FOLDS, MANY, OF_MANY = 3, 24, 2
# Held-out images of a fold that are used to judge.
JUDGED = 16
# Images are cached up to this size; several times as fast as decoding and resizing them again.
HELD_BYTES = 32 << 20
AnyRun = tuple[str, Mapping[str, np.ndarray]]
# Up to this number of different runs, results do not generalise.
FEW = 3
# Neighbouring values in an image correlate by more than this; less than two standard errors above is noise too.
CORRELATED, ERRORS = 0.1, 2.0
# Number of images examined, and the minimum height and width of an image.
LOOKED_AT, LEAST_SIDE = 16, 8
CHANNELS = (1, 3, 4)


def content_key(feed: Mapping[str, np.ndarray]) -> bytes:
    """Return a hash of the names, types, shapes and values of the arrays of one run."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(feed):
        array = np.ascontiguousarray(feed[name])
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode("utf-8", "surrogatepass"))
        digest.update(array.tobytes())
    return digest.digest()


def folds_of(keys: Sequence[bytes]) -> list[list[int]]:
    """Return the indices of each fold, in the order of their keys; equal images share a fold. [] for too few."""
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    if len(ranks) < FEWEST_HELD_OUT:
        return []
    count = FOLDS if len(ranks) < MANY else OF_MANY
    order = sorted(range(len(keys)), key=lambda index: ranks[keys[index]])
    return [[index for index in order if ranks[keys[index]] % count == fold] for fold in range(count)]


def judging(fold: Sequence[int]) -> list[int]:
    """Return the images of a fold that are used to judge, at most JUDGED."""
    return list(evenly(fold, JUDGED))


def share(fitted: int, given: int) -> float:
    """Return the fraction of the held-out error increase that counts if ``fitted`` of ``given`` images are kept.

    A value is beyond the calibration range of m images in one of m + 1 cases, so fewer images clip more.
    """
    return (fitted + 1) / (given + 1)


@dataclass(frozen=True, eq=False)
class FeedsByContent(ChosenFeeds):
    """All runs of ``every`` in the order of their ``keys``, which equal runs share; labels are those of the files."""

    keys: tuple[bytes, ...] = ()


def by_content(feeds: Feeds) -> FeedsByContent:
    """Return the runs in the order of their content. Raises the errors of the float model's feeds."""
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


def different(feeds: Feeds) -> int:
    """Return the number of different runs."""
    return len(set(by_content(feeds).keys))


def coverage_warnings(feeds: Feeds) -> tuple[str, ...]:
    """Return one sentence if the results do not generalise to other images, else (). Raises the errors of the feeds."""
    feeds = by_content(feeds)
    count, noise = different(feeds), is_noise(feeds)
    if count > FEW and not noise:
        return ()
    images = "one image" if count == 1 else f"{count} different images"
    what = (f"only {images} given" if count <= FEW else "") + (" and " if noise and count <= FEW else "")
    what += "the images look like noise (neighbouring values are uncorrelated)" if noise else ""
    return (f"{what}: results do not generalise to other images; give {FEWEST_HELD_OUT} or more real images",)


def is_noise(feeds: Feeds) -> bool:
    """Return whether neighbouring values of an image input are uncorrelated.

    The lag-1 autocorrelation along height and width, pooled over channels and runs, is compared with CORRELATED plus
    ERRORS standard errors.
    """
    products: dict[str, list[float]] = {}
    for index in range(min(LOOKED_AT, len(feeds))):
        for name, array in feeds[index][1].items():
            for one in _pairs(array):
                sums = products.setdefault(name, [0.0, 0.0, 0.0])
                products[name] = [have + more for have, more in zip(sums, one)]
    correlations = [
        (product / square, ERRORS / np.sqrt(count)) for product, square, count in products.values() if square > 0
    ]
    return any(correlation <= CORRELATED + error for correlation, error in correlations)


def _pairs(array: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Yield for height and width the neighbour product sum, its value for equal neighbours, and the number of pairs.

    Products are about the channel's mean. An array that is not an image yields nothing.
    """
    axes = _plane(array)
    if axes is None or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        return
    values = array.astype(np.float64)
    values = values - values.mean(axis=axes, keepdims=True)
    for axis in axes:
        ends = np.split(values, [1, values.shape[axis] - 1], axis)
        before, after = np.concatenate(ends[:2], axis), np.concatenate(ends[1:], axis)
        yield float((before * after).sum()), float((before**2 + after**2).sum() / 2), float(before.size)


def _plane(array: np.ndarray) -> tuple[int, int] | None:
    """Return the axes of height and width, or None if the shape is not that of an image."""
    if array.ndim != 4:
        return None
    for channels, axes in ((1, (2, 3)), (3, (1, 2))):
        if array.shape[channels] in CHANNELS and min(array.shape[axis] for axis in axes) >= LEAST_SIDE:
            return axes
    return None


@dataclass(frozen=True, eq=False)
class PicturePair:
    """One run. ``feed`` is for the float model; ``raw`` has the same images as grey levels 0 to 255."""

    label: str
    feed: Mapping[str, np.ndarray]
    raw: Mapping[str, np.ndarray]

    def fixed_feed(self, pictures: Collection[str]) -> dict[str, np.ndarray]:
        """Return the feed of a fixed model whose quantised image inputs are ``pictures``."""
        return {name: self.raw[name] if name in pictures else self.feed[name] for name in self.feed}


class HeldPictures:
    """A cache of runs by index, limited to HELD_BYTES; grey levels take one byte."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Feed, dict[str, tuple[np.ndarray, np.dtype]]]] = {}
        self._room = HELD_BYTES

    def get(self, index: int) -> tuple[Feed, Feed] | None:
        if index not in self._made:
            return None
        feed, levels = self._made[index]
        return feed, {name: array.astype(dtype, copy=False) for name, (array, dtype) in levels.items()}

    def keep(self, index: int, made: tuple[Feed, Feed]) -> None:
        feed, raw = made
        levels = {name: (_as_bytes(array), array.dtype) for name, array in raw.items()}
        apart = {id(array): array for array in (*feed.values(), *(array for array, _ in levels.values()))}
        self._room -= sum(array.nbytes for array in apart.values())
        if self._room >= 0:
            self._made[index] = feed, levels


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """Return the array as bytes if it has grey levels only, else the array."""
    if array.dtype != np.float32 or not (~np.signbit(array) & (array <= 255)).all():
        return array
    levels = array.astype(np.uint8)
    return levels if np.array_equal(levels, array) else array


@dataclass(frozen=True, eq=False)
class PicturePairs:
    """Pairs of feeds for the float and the fixed model, made by ``pairs.make(i)``.

    The runs are ``chosen``, or at most ``most`` evenly spaced ones (None: all). Runs in ``held`` are not made again,
    also by copies with the same feeds (``dataclasses.replace``).
    """

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
        """Return the labels of these runs in ``others``, which contains them."""
        names = dict(zip(others.indices, others.labels))
        return [names[index] for index in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def make(self, index: int) -> PicturePair:
        """Return one run. Raises the errors of the feeds."""
        run = self.indices[index]
        made = self.held.get(run)
        if made is None:
            _, *both = self.feeds.both(run)
            made = both[0], both[1]
            self.held.keep(run, made)
        return PicturePair(self.labels[index], *made)
