"""Checking a feed against the inputs a model declares, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sgsdump.errors import InputError
from sgsdump.family import hint
from sgsdump.model import GraphInput


def check_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[GraphInput]) -> None:
    """Raises InputError, naming what is expected and what was given, when a feed does not fit the inputs."""
    known = {each.name: each for each in inputs}
    for name in feed:
        if name not in known:
            raise InputError(f"the model has no input {name!r}{hint(name, known)}")
    for name, wanted in known.items():
        if name not in feed:
            raise InputError(
                f"the model's input {name!r} is not fed; it expects {_describe(wanted.dtype, wanted.shape)}"
            )
        array = feed[name]
        if array.dtype != wanted.dtype or not _fits(array.shape, wanted.shape):
            raise InputError(
                f"the model's input {name!r} expects {_describe(wanted.dtype, wanted.shape)}, "
                f"got {_describe(array.dtype, array.shape)}"
            )


def _fits(shape: Sequence[int], wanted: Sequence[int | None] | None) -> bool:
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted))


def _describe(dtype: np.dtype, shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return f"{dtype} of any shape"
    return f"{dtype} [{', '.join('?' if s is None else str(s) for s in shape)}]"
