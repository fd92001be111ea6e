"""Quant parameters, which SDK tools exchange: a list of entries {name, min, max, bit[, data]}.

The list is JSON, or a pickle (protocol 2 or higher) that is read as plain data and never executed. ``min`` and ``max``
are lists of one number per tensor or C per channel; the SDK's Python API writes a number instead of a list, both are
accepted. ``bit`` is an int. ``data`` is an array of new weights (pickle only). Entries with empty min and max have no
range.

The module also handles ranges of other side files: a list of minima and a list of maxima, separated by commas.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files import pickles
from sgsdump.files.escaping import quoted
from sgsdump.tensors.types import Range

_NUMBERED = re.compile(r"(.+)#\d+")

# Bytes; a pickle may contain weights as arrays.
PICKLE_LIMIT = 1 << 30


@dataclass(frozen=True, eq=False)
class QuantParam:
    """One entry; ``range`` includes the bit width, ``data`` is the new weight."""

    name: str
    range: Range | None
    bit: int | None = None
    data: np.ndarray | None = None


def is_pickle(data: bytes) -> bool:
    return data.startswith(b"\x80")


def parse_pickle(data: bytes, path: Path) -> list[QuantParam]:
    """Parse a pickle; raise FormatError if it is damaged, has more than plain data, or fails ``_parse``."""
    return _parse(pickles.loads(data, str(path)), path)


def parse_json(text: str, path: Path) -> list[QuantParam]:
    """Parse a JSON text; raise FormatError if it is not JSON or fails ``_parse``."""
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise FormatError(f"{path}: not valid JSON: {str(error)[:100]}") from error
    return _parse(entries, path)


def as_entries(params: Iterable[QuantParam]) -> list[OrderedDict[str, Any]]:
    """Return the list as the SDK writes it: plain Python types, keys in the SDK's order."""
    entries = []
    for param in params:
        assert param.range is not None
        entry: OrderedDict[str, Any] = OrderedDict(
            name=param.name, min=param.range.min.tolist(), max=param.range.max.tolist()
        )
        if param.bit is not None:
            entry["bit"] = param.bit
        entries.append(entry)
    return entries


def check_range(name: str, bounds: Range, where: str) -> None:
    """Raise FormatError for NaN, infinity, a min above its max, and a width beyond float32."""
    if not (np.isfinite(bounds.min).all() and np.isfinite(bounds.max).all()):
        raise FormatError(f"{where}: the range of {quoted(name)} is NaN or infinite; calibrate again")
    if (bounds.min > bounds.max).any():
        raise FormatError(f"{where}: the range of {quoted(name)} has its min above its max")
    with np.errstate(over="ignore"):
        width = np.maximum(bounds.max, 0) - np.minimum(bounds.min, 0)
    if (width > np.finfo(np.float32).max).any():
        raise FormatError(f"{where}: the range of {quoted(name)} is wider than float32 holds; calibrate again")


def _parse(entries: Any, path: Path) -> list[QuantParam]:
    """Check and convert the entries; checks and messages are those of the SDK's check_quant_param."""
    if not isinstance(entries, list):
        raise FormatError(f"{path}: quant_param must be a `list`, this is a {type(entries).__name__}")
    params = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise FormatError(f"{path}: quant_param[{index}] must be a `dict`, this is a {type(entry).__name__}")
        name = entry.get("name")
        if not isinstance(name, str):
            raise FormatError(f"{path}: name of each quant_param[{index}] must be `str`")
        where = f"quant_param[{index}]: {name[:80]}"
        bit, data = entry.get("bit"), entry.get("data")
        if bit is not None and type(bit) is not int:
            raise FormatError(f"{path}: bit of {where} must be `int`")
        if not isinstance(data, (pickles.PlainArray, type(None))):
            raise FormatError(f"{path}: data of {where} must be `numpy.ndarray`")
        low, high = (_numbers(entry, end, f"{path}: {end} of {where}") for end in ("min", "max"))
        if low.size != high.size:
            raise FormatError(f"{path}: min of {where} has {low.size} values, but max has {high.size}")
        bounds = Range(low, high, bit) if low.size else None
        if bounds is not None:
            check_range(name, bounds, f"{path}: {where}")
        params.append(QuantParam(name, bounds, bit, None if data is None else data.array))
    return params


def _numbers(entry: Mapping[str, Any], key: str, where: str) -> np.ndarray:
    """Return a list, an array or one number as a float64 array."""
    value = entry.get(key)
    if isinstance(value, pickles.PlainArray):
        return np.atleast_1d(value.array.astype(np.float64)).reshape(-1)
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in values):
        raise FormatError(f"{where} must be a `list` of numbers")
    try:
        return np.array(values, np.float64)
    except OverflowError as error:
        raise FormatError(f"{where} holds a number out of range") from error


def numbers_range(low: str, high: str, where: str, count: int | None = None) -> Range:
    """Return the Range of two lists of ``count`` numbers each. Raises FormatError, beginning with ``where``."""
    try:
        ends = [np.array([float(word) for word in text.split(",") if word.strip()]) for text in (low, high)]
    except ValueError as error:
        raise FormatError(f"{where}: {error}") from None
    sizes = {end.size for end in ends} | ({count} if count is not None else set())
    if len(sizes) != 1 or not ends[0].size or not (ends[0] <= ends[1]).all() or not np.isfinite(ends).all():
        raise FormatError(f"{where}: the minima and maxima do not give one valid range per channel")
    return Range(ends[0], ends[1])


def numbers_text(values: np.ndarray) -> str:
    """Format numbers as a list with six decimals each."""
    return ", ".join(f"{value:f}" for value in values.tolist())


def model_name(name: str, model_names: Collection[str]) -> str | None:
    """Return a tensor's name in the model, or None if the model has none."""
    if name in model_names:
        return name
    while (numbered := _NUMBERED.fullmatch(name)) is not None:
        name = numbered[1]
        if name in model_names:
            return name
    return None


def with_model_names(params: Iterable[QuantParam], model_names: Collection[str]) -> list[QuantParam]:
    """Rename the entries to the model's names; a numbered entry is dropped if its plain name has an entry."""
    params = list(params)
    present = {param.name for param in params if param.name in model_names}
    renamed = []
    for param in params:
        name = model_name(param.name, model_names)
        if name is None or name == param.name:
            renamed.append(param)
        elif name not in present:
            renamed.append(replace(param, name=name))
    return renamed
