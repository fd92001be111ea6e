"""Parser of long lists of numbers in text, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

_PART = 1 << 18


def floats(data: bytes, separator: bytes | None = None) -> np.ndarray:
    """Return the numbers of a text as float32; numbers beyond its range become infinite.

    Parameters
    ----------
    data : bytes
        Numbers as C and Python print them, ``nan`` and ``inf`` included.
    separator : bytes, optional
        A single byte between the numbers. Default: any whitespace.

    Raises
    ------
    ValueError
        If a part of the text is not a number.
    """
    parts = [_parsed(part.split(separator)) for part in _parts(data, separator)]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _parsed(words: list[bytes]) -> np.ndarray:
    values = np.array(words, np.float64) if words else np.empty(0, np.float64)
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _parts(data: bytes, separator: bytes | None) -> Iterator[bytes]:
    """Yield parts of the text that end before a separator."""
    pattern = re.compile(rb"\s" if separator is None else re.escape(separator))
    start = 0
    while (match := pattern.search(data, start + _PART)) is not None:
        yield data[start : match.start()]
        start = match.end()
    if data[start:].strip():
        yield data[start:]
