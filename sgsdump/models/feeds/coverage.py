"""Whether the runs that are given can speak for others: enough different ones, and no noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sgsdump.models.feeds.by_content import by_content
from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.feeds.folds import FEWEST_HELD_OUT

# Up to so many different runs say nothing of others.
FEW = 3
# Values of neighbours in an image correlate by more than this; less than two standard errors above is noise too.
CORRELATED, ERRORS = 0.1, 2.0
# Images looked at, and the least height and width of what can be one.
LOOKED_AT, LEAST_SIDE = 16, 8
CHANNELS = (1, 3, 4)


def different(feeds: Feeds) -> int:
    """Return the number of different runs."""
    return len(set(by_content(feeds).keys))


def coverage_warnings(feeds: Feeds) -> tuple[str, ...]:
    """Return one sentence if the runs speak for no others, else nothing. Raises what making the feeds raises."""
    feeds = by_content(feeds)
    count, noise = different(feeds), is_noise(feeds)
    if count > FEW and not noise:
        return ()
    images = "one image" if count == 1 else f"{count} different images"
    what = (f"only {images} given" if count <= FEW else "") + (" and " if noise and count <= FEW else "")
    what += "the images look like noise (neighbouring values are uncorrelated)" if noise else ""
    return (f"{what}: no figure here speaks for other images; give {FEWEST_HELD_OUT} or more real images",)


def is_noise(feeds: Feeds) -> bool:
    """Return whether neighbouring values of an image input are uncorrelated: the lag-1 autocorrelation along height and
    width, pooled over channels and runs, is at most CORRELATED and ERRORS standard errors."""
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
    """Yield along height and width the sum of the products of neighbours about the channel's mean, the sum that it
    would be if they were equal, and the number of pairs; nothing of what is no image."""
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
    """Return the axes of height and width, None for what is no image."""
    if array.ndim != 4:
        return None
    for channels, axes in ((1, (2, 3)), (3, (1, 2))):
        if array.shape[channels] in CHANNELS and min(array.shape[axis] for axis in axes) >= LEAST_SIDE:
            return axes
    return None
