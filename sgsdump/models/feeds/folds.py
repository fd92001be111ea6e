"""Divide images into folds by their content, so that the result depends on neither their names nor their order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np


def content_key(*feeds: Mapping[str, np.ndarray]) -> bytes:
    """Return a hash of the names, types, shapes and values of the arrays of one run."""
    digest = hashlib.blake2b(digest_size=16)
    for feed in feeds:
        for name in sorted(feed):
            array = np.ascontiguousarray(feed[name])
            digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode("utf-8", "surrogatepass"))
            digest.update(array.tobytes())
    return digest.digest()


def folds_of(keys: Sequence[bytes], count: int) -> list[list[int]]:
    """Return the indices of each of ``count`` folds, in the order of their keys; equal images share a fold."""
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    order = sorted(range(len(keys)), key=lambda index: ranks[keys[index]])
    return [[index for index in order if ranks[keys[index]] % count == fold] for fold in range(count)]
