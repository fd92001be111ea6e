"""Ranges written as a list of minima and one of maxima, separated by commas."""

from __future__ import annotations

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.tensors.types import Range


def numbers_range(low: str, high: str, where: str, count: int | None = None) -> Range:
    """The Range of two lists of numbers, ``count`` each. Raises FormatError, beginning with ``where``."""
    try:
        ends = [np.array([float(word) for word in text.split(",") if word.strip()]) for text in (low, high)]
    except ValueError as error:
        raise FormatError(f"{where}: {error}") from None
    sizes = {end.size for end in ends} | ({count} if count is not None else set())
    if len(sizes) != 1 or not ends[0].size or not (ends[0] <= ends[1]).all() or not np.isfinite(ends).all():
        raise FormatError(f"{where}: the minima and maxima are no ranges of as many channels")
    return Range(ends[0], ends[1])
