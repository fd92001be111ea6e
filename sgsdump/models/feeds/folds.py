"""Divide images into folds by content: neither names nor order matter."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from sgsdump.models.feeds.image_list import evenly

# Fewer different images are not divided: none of them is held out.
FEWEST_HELD_OUT = 12
# From MANY images on there are enough to fit to in OF_MANY folds.
FOLDS, MANY, OF_MANY = 3, 24, 2
# Images of a fold that judge.
JUDGED = 16


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
    """Return the images of a fold that judge: JUDGED at most."""
    return list(evenly(fold, JUDGED))


def share(fitted: int, given: int) -> float:
    """Return how much of the error that holding images out adds counts, when ``fitted`` of ``given`` images are kept.

    A value is beyond the calibration range of m images in one of m + 1 cases, so fewer images clip more.
    """
    return (fitted + 1) / (given + 1)
