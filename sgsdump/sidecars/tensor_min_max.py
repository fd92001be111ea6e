"""tensor_min_max: the range of every tensor, found by calibration. Three forms, recognised by content.

text     the old SDK's tensor_min_max.txt (and softmax_lut_range.txt): ``Name:conv1, min: -4.527316, max: 4.386048;``,
         one tensor per line in graph order, ``%f`` numbers; names may hold anything but a line end
json     the newer SDK's quant_param: a list of {"name": str, "min": [numbers], "max": [numbers], "bit": 8}, one
         number per tensor or per channel; its API writes plain numbers for the lists, both are read
pickle   the same list, pickled (protocol 2 up), perhaps with ``data`` arrays; read as plain data only, nothing is run

Entries with empty min and max (tensors without a range, which the SDK drops when it saves) are left out. A tensor that
several convolutions read stands in the SDK's lists once for each, with the same range; different ranges are an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump import plain_pickle
from sgsdump.errors import FormatError, ValuesError
from sgsdump.output import replacing
from sgsdump.sidecar import TEXT_LIMIT, printable, read_bytes
from sgsdump.tensor_range import Range

# pickles may carry the weights as arrays
PICKLE_LIMIT = 1 << 30

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_LINE = re.compile(rf"Name:(.*), min: ({_NUMBER}), max: ({_NUMBER});\s*")


def read_ranges(path: Path | str) -> dict[str, Range]:
    """Tensor name -> Range, in the file's order.

    Raises FormatError, naming the line or entry, for a file of none of the three forms, a name given twice, NaN or
    infinity, a min above its max, or a pickle that holds more than plain data; ConfigError when it cannot be read.
    """
    path = Path(path)
    data = read_bytes(path, PICKLE_LIMIT)
    if data.startswith(b"\x80"):
        return _from_list(plain_pickle.loads(data, str(path)), path)
    text = _decode(data, path)
    start = text[:4096].lstrip()
    if start.startswith(("[", "{")):
        return _from_list(_parse_json(text, path), path)
    if start.startswith("Name:"):
        return _from_lines(text, path)
    raise FormatError(
        f"{path} is not a tensor_min_max file: it is neither lines of 'Name:x, min: a, max: b;', nor the JSON or "
        f"pickle list of a quant_param"
    )


def write_ranges(ranges: Mapping[str, Range], path: Path | str, form: str = "text") -> None:
    """Write the ``text`` form (per-channel ranges become one) or the ``json`` form; whole or not at all.

    Raises ValuesError for NaN or infinity and for a name with a line end in the text form, OutputError when the file
    cannot be written.
    """
    for name, found in ranges.items():
        if not (np.isfinite(found.min).all() and np.isfinite(found.max).all()):
            raise ValuesError(
                f"the range of {printable(name)} is {found.low} to {found.high}; the model computes NaN or Inf"
            )
    text = _to_json(ranges) if form == "json" else _to_text(ranges)
    with replacing(Path(path)) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def _decode(data: bytes, path: Path) -> str:
    if b"\0" in data[:4096]:
        raise FormatError(f"{path} is a binary file, not a tensor_min_max file")
    if len(data) > TEXT_LIMIT:
        raise FormatError(f"{path} is larger than {TEXT_LIMIT >> 20} MiB, so it is not a tensor_min_max file")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _from_lines(text: str, path: Path) -> dict[str, Range]:
    ranges: dict[str, Range] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise FormatError(f"{path}:{number}: {printable(line)} is not 'Name:x, min: a, max: b;'")
        _add(ranges, match[1], Range.of(float(match[2]), float(match[3])), f"{path}:{number}")
    return ranges


def _to_text(ranges: Mapping[str, Range]) -> str:
    for name in ranges:
        if "\n" in name or "\r" in name:
            raise ValuesError(f"the name {printable(name)} has a line end, which the text form cannot hold; write JSON")
    return "".join(f"Name:{name}, min: {found.low:f}, max: {found.high:f};\n" for name, found in ranges.items())


def _to_json(ranges: Mapping[str, Range]) -> str:
    entries = []
    for name, found in ranges.items():
        entry: dict[str, Any] = {"name": name, "min": found.min.tolist(), "max": found.max.tolist()}
        entries.append(entry if found.bit is None else {**entry, "bit": found.bit})
    return json.dumps(entries, indent=4) + "\n"


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise FormatError(f"{path}: not valid JSON: {str(error)[:100]}") from error


def _from_list(entries: Any, path: Path) -> dict[str, Range]:
    """The checks are those of the SDK's check_quant_param, in its words."""
    if not isinstance(entries, list):
        raise FormatError(f"{path}: quant_param must be a `list`, this is a {type(entries).__name__}")
    ranges: dict[str, Range] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise FormatError(f"{path}: quant_param[{index}] must be a `dict`, this is a {type(entry).__name__}")
        name = entry.get("name")
        if not isinstance(name, str):
            raise FormatError(f"{path}: name of each quant_param[{index}] must be `str`")
        where = f"quant_param[{index}]: {name[:80]}"
        bit = entry.get("bit")
        if bit is not None and type(bit) is not int:
            raise FormatError(f"{path}: bit of {where} must be `int`")
        if not isinstance(entry.get("data"), (plain_pickle.PlainArray, type(None))):
            raise FormatError(f"{path}: data of {where} must be `numpy.ndarray`")
        low, high = (_numbers(entry, end, f"{path}: {end} of {where}") for end in ("min", "max"))
        if low.size != high.size:
            raise FormatError(f"{path}: min of {where} has {low.size} values, max has {high.size}")
        if low.size:
            _add(ranges, name, Range(low, high, bit), f"{path}: {where}")
    return ranges


def _numbers(entry: Mapping[str, Any], key: str, where: str) -> np.ndarray:
    """A list, an array or one number, as float64."""
    value = entry.get(key)
    if isinstance(value, plain_pickle.PlainArray):
        return np.atleast_1d(value.array.astype(np.float64)).reshape(-1)
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in values):
        raise FormatError(f"{where} must be a `list` of numbers")
    try:
        return np.array(values, np.float64)
    except OverflowError as error:
        raise FormatError(f"{where} holds a number out of range") from error


def _add(ranges: dict[str, Range], name: str, found: Range, where: str) -> None:
    if name in ranges and not ranges[name].same(found):
        raise FormatError(f"{where}: the tensor {printable(name)} stands in the file twice, with different ranges")
    if not (np.isfinite(found.min).all() and np.isfinite(found.max).all()):
        raise FormatError(f"{where}: the range of {printable(name)} is NaN or infinite; calibrate again")
    if (found.min > found.max).any():
        raise FormatError(f"{where}: the range of {printable(name)} has its min above its max")
    ranges[name] = found
