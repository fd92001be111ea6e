"""Parser of tensor slices and axis permutations: ``[0:2,3]``, ``(0,2,3,1)``.

The notation is that of msit's tensor-view. Operations are separated by ``;`` and applied in order. ``[…]`` accepts
integers, ``start:stop:step``, and ``...`` for the leading axes. ``(…)`` is a permutation of all axes. The text is
parsed by hand: nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import EllipsisType

import numpy as np

from sgsdump.errors import ConfigError

_NUMBER = re.compile(r"[+-]?\d{1,18}")
_HOW = "write [0:2,3] for a slice, (0,2,3,1) for a permutation, and ; between operations"

Operation = Callable[[np.ndarray], np.ndarray]


def parse(text: str) -> list[Operation]:
    """Return the operations of a text; raise ConfigError if it cannot be parsed.

    An operation raises ConfigError for an array that it does not fit.
    """
    return [_operation(part.strip()) for part in text.split(";") if part.strip()]


def viewed(array: np.ndarray, operations: str) -> np.ndarray:
    """Return a view of an array after the operations of a text."""
    for operation in parse(operations):
        array = operation(array)
    return array


def _operation(text: str) -> Operation:
    if text.startswith("[") and text.endswith("]"):
        return _part(tuple(_index(item, text) for item in _items(text)), text)
    if text.startswith("(") and text.endswith(")"):
        order = [item for item in _items(text) if item]
        if all(_NUMBER.fullmatch(item) for item in order):
            return _permutation(tuple(map(int, order)), text)
    raise ConfigError(f"cannot parse the operation {text[:60]!r}; {_HOW}")


def _items(text: str) -> list[str]:
    inside = text[1:-1].strip()
    return [item.strip() for item in inside.split(",")] if inside else []


def _index(item: str, text: str) -> int | slice | EllipsisType:
    if item == "...":
        return ...
    parts = [part.strip() for part in item.split(":")]
    if len(parts) == 1 and _NUMBER.fullmatch(item):
        return int(item)
    if 2 <= len(parts) <= 3 and all(not part or _NUMBER.fullmatch(part) for part in parts):
        span = slice(*(int(part) if part else None for part in parts))
        if span.step != 0:
            return span
    raise ConfigError(f"cannot parse {item[:40]!r} in {text[:60]!r}; {_HOW}")


def _part(index: tuple[int | slice | EllipsisType, ...], text: str) -> Operation:
    def take(array: np.ndarray) -> np.ndarray:
        try:
            return np.asarray(array[index])
        except IndexError:
            raise ConfigError(f"{text[:60]} does not fit a tensor of shape {list(array.shape)}") from None

    return take


def _permutation(order: tuple[int, ...], text: str) -> Operation:
    def permute(array: np.ndarray) -> np.ndarray:
        if sorted(order) != list(range(array.ndim)):
            raise ConfigError(f"{text[:60]} is not a permutation of the axes of a tensor of shape {list(array.shape)}")
        return array.transpose(order)

    return permute
