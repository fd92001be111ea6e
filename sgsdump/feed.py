"""Checking a feed against the inputs a model declares, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sgsdump.errors import InputError
from sgsdump.family import hint
from sgsdump.input_spec import InputSpec, shape_text


def check_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> None:
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


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(size in (own, None) for own, size in zip(shape, wanted))


def _describe(dtype: np.dtype, shape: Sequence[int | None]) -> str:
    return f"{dtype} {shape_text(shape)}"
