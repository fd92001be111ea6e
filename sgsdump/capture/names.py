"""The words of the vendors' options for what is dumped: ids (``2, 3_1``), devices, true and false."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import quoted

_ID = re.compile(r"[0-9]{1,9}(_[0-9]{1,9})*")


def read_ids(text: str) -> tuple[str, ...]:
    """``2, 3_1``: operators by their number in a step, children of operators behind ``_``. Raises ConfigError."""
    ids = _parts(text)
    for id in ids:
        if not _ID.fullmatch(id):
            raise ConfigError(f"operation id {quoted(id)} is no id; write them as 2,3_1")
    return ids


def read_devices(text: str, what: str = "device") -> tuple[int, ...]:
    """``0,1``. Raises ConfigError."""
    numbers = _parts(text)
    for number in numbers:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise ConfigError(f"{what} {quoted(number)} is no number; write numbers from 0, as in 0,1")
    return tuple(map(int, numbers))


def read_truth(text: str, what: str) -> bool:
    """``true`` or ``false`` in any case. Raises ConfigError."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{what} is {quoted(text)}; it must be true or false")
    return word == "true"


def read_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Names with commas between. Raises ConfigError where one is empty."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"operator names {quoted(','.join(texts))} leave one out; write them as A,B")
    return tuple(dict.fromkeys(parts))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in (part.strip() for part in text.split(",")) if part))
