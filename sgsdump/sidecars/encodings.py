"""Ranges in the JSON objects of other quantisation tools.

AIMET, ``model.encodings`` of ``QuantizationSimModel.export``, in three versions::

    0.6.1  {"activation_encodings": {"conv1": [{"bitwidth": 8, "dtype": "int", "min": -1.0, "max": 0.99, …}]},
            "param_encodings": {"w1": [one entry per channel]}}
    1.0.0  {"activation_encodings": [{"name": "conv1", "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR",
            "scale": [0.0078], "offset": [-128]}], "param_encodings": [the same, "PER_CHANNEL"]}
    2.0.0  {"encodings": [{"name": "conv1", "output_dtype": "uint8", "y_scale": 0.0078, "y_zero_point": 128},
            {"name": "w1", "output_dtype": "int8", "y_scale": [one per channel], "axis": 0}]}

The integers of version 1.0.0 are 0 … 2^bw - 1, and ``offset`` is the integer of the minimum: ``min = offset * scale``,
``max = (offset + 2^bw - 1) * scale``. Those of version 2.0.0 are the integers of ``output_dtype``:
``min = (lowest - y_zero_point) * y_scale``. Encodings of blocks are merged into one range. Encodings without integers
(float types), without ``y_scale`` (scales of blocks in two factors) and of 32 bits (biases) are skipped.

AMD Quark, the file of the option ``SaveAndRestore``: ``{"tensors_range": {"conv1": [[-1.0], [0.99]]}}``.

AIMET's QuantAnalyzer, and anyone's own list: ``{"conv1": [-1.0, 0.99]}``, per channel
``{"w1": {"w1_0": [-1.0, 0.99], "w1_1": [0.0, 1.0]}}``.

Sources: files of aimet-onnx 2.42.0 and amd-quark 0.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of
from sgsdump.tensors.types import Range

MOST_BITS, MOST_DEPTH = 32, 4
_TEXT, _NUMBER = rb'"(?:[^"\\]|\\.)*"', rb"-?[0-9][-+.eE0-9]*"
_PAIR = re.compile(
    rb"\{\s*%b\s*:\s*(?:\{\s*%b\s*:\s*)?\[\s*%b\s*,\s*%b\s*\]" % (_TEXT, _TEXT, _NUMBER, _NUMBER), re.DOTALL
)
_KEYS = (b'"activation_encodings"', b'"param_encodings"', b'"tensors_range"')
_INTEGER = re.compile(r"(u?)int([0-9]{1,2})")


def recognises(head: bytes) -> bool:
    """Return whether a file with these first bytes holds ranges in one of the forms."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith(b"{"):
        return False
    if any(key in text for key in _KEYS) or (b'"encodings"' in text and b'"output_dtype"' in text):
        return True
    return _PAIR.match(text) is not None


def parse(text: str, path: Path) -> Iterator[tuple[str, Range]]:
    """Yield the name and the range of each tensor. Raises FormatError for any other form."""
    document = json_of(text, path)
    if not isinstance(document, dict):
        raise FormatError(f"{path}: expected a JSON object of ranges, this is a {type(document).__name__}")
    if isinstance(document.get("encodings"), list):
        yield from _listed(document["encodings"], path, _of_version_2)
    elif "activation_encodings" in document or "param_encodings" in document:
        for key in ("activation_encodings", "param_encodings"):
            entries = document.get(key, [])
            if isinstance(entries, list):
                yield from _listed(entries, path, _of_version_1)
            else:
                yield from _by_name(entries, f"{path}: {key}", _of_version_0)
    else:
        yield from _by_name(document.get("tensors_range", document), str(path), _of_ends)


def _listed(entries: list[Any], path: Path, read: Any) -> Iterator[tuple[str, Range]]:
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise FormatError(f"{path}: encoding {index} has no name")
        bounds = read(entry, f"{path}: {entry['name'][:80]}")
        if bounds is not None:
            yield entry["name"], bounds


def _by_name(entries: Any, where: str, read: Any) -> Iterator[tuple[str, Range]]:
    if not isinstance(entries, dict):
        raise FormatError(f"{where}: expected ranges by tensor name, this is a {type(entries).__name__}")
    for name, entry in entries.items():
        bounds = read(entry, f"{where}: {name[:80]}")
        if bounds is not None:
            yield name, bounds


def _of_version_0(entry: Any, where: str) -> Range | None:
    if not isinstance(entry, list) or not entry or not all(isinstance(each, dict) for each in entry):
        raise FormatError(f"{where}: expected a list of encodings. Encodings of aimet-torch are not supported")
    if any(str(each.get("dtype", "int")).lower() != "int" for each in entry):
        return None
    low, high = (np.concatenate([_numbers(each.get(end), f"{where}: {end}") for each in entry]) for end in _ENDS)
    return Range(low, high, _bits(entry[0].get("bitwidth"), where))


def _of_version_1(entry: dict[str, Any], where: str) -> Range | None:
    if str(entry.get("dtype", "INT")).upper() != "INT":
        return None
    bits = _bits(entry.get("bw"), where)
    if bits == MOST_BITS:
        return None
    scale, offset = (_numbers(entry.get(key), f"{where}: {key}") for key in ("scale", "offset"))
    bounds = _scaled(scale, offset, offset + (2.0**bits - 1), bits, where)
    return bounds if entry.get("enc_type", "PER_TENSOR") in ("PER_TENSOR", "PER_CHANNEL") else _merged(bounds)


def _of_version_2(entry: dict[str, Any], where: str) -> Range | None:
    kind = _INTEGER.fullmatch(str(entry.get("output_dtype", "")))
    if kind is None or "y_scale" not in entry:
        return None
    bits = _bits(int(kind[2]), where)
    if bits == MOST_BITS:
        return None
    lowest = 0.0 if kind[1] else -(2.0 ** (bits - 1))
    zero = entry.get("y_zero_point")
    scale = _numbers(entry["y_scale"], f"{where}: y_scale")
    offset = lowest - (_numbers(zero, f"{where}: y_zero_point") if zero is not None else np.zeros(1))
    bounds = _scaled(scale, offset, offset + (2.0**bits - 1), bits, where)
    return _merged(bounds) if "block_size" in entry else bounds


def _of_ends(entry: Any, where: str) -> Range | None:
    if isinstance(entry, dict) and entry:
        ends = [_of_ends(each, where) if isinstance(each, list) else None for each in entry.values()]
        ranges = [each for each in ends if each is not None]
        if len(ranges) == len(ends):
            return Range(np.concatenate([each.min for each in ranges]), np.concatenate([each.max for each in ranges]))
    if not isinstance(entry, list) or len(entry) != 2:
        raise FormatError(f"{where}: expected [min, max], or such pairs by channel")
    low, high = (_numbers(end, where) for end in entry)
    if low.size != high.size:
        raise FormatError(f"{where}: min has {low.size} values, but max has {high.size}")
    return Range(low, high)


def _scaled(scale: np.ndarray, low: np.ndarray, high: np.ndarray, bits: int, where: str) -> Range:
    if low.size not in (1, scale.size):
        raise FormatError(f"{where}: there are {scale.size} scales, but {low.size} offsets")
    with np.errstate(over="ignore", invalid="ignore"):
        return Range(scale * low, scale * high, bits)


def _merged(bounds: Range) -> Range:
    """Return the range of a whole tensor."""
    return Range.of(bounds.low, bounds.high, bounds.bit)


def _bits(value: Any, where: str) -> int:
    if type(value) is not int or not 1 <= value <= MOST_BITS:
        raise FormatError(f"{where}: the bit width {quoted(str(value)[:20])} is not a number from 1 to {MOST_BITS}")
    return value


def _numbers(value: Any, where: str) -> np.ndarray:
    """Return a number, or the numbers of a list of at most ``MOST_DEPTH`` levels, as a flat float64 array."""
    numbers = list(_flat(value, where, MOST_DEPTH))
    try:
        array = np.array(numbers, np.float64)
    except OverflowError:
        raise FormatError(f"{where} holds a number out of range") from None
    if not array.size:
        raise FormatError(f"{where} is an empty list")
    return array


def _flat(value: Any, where: str, depth: int) -> Iterator[float]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _flat(item, where, depth - 1)
    else:
        raise FormatError(f"{where} must be numbers, this is a {type(value).__name__}")


_ENDS = ("min", "max")
