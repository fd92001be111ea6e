"""tensor_min_max files: the calibration range of every tensor, in forms that are recognised by content.

text     tensor_min_max.txt (and softmax_lut_range.txt) of the old SDK: ``Name:conv1, min: -4.527316, max: 4.386048;``,
         one tensor per line in graph order, ``%f`` numbers; a name may contain anything except a line end
json     quant_param of the newer SDK: a list of {"name": str, "min": [numbers], "max": [numbers], "bit": 8}, with one
         number per tensor or per channel; the SDK's API writes a number instead of a list, both are accepted
pickle   the same list, pickled (protocol 2 or higher), possibly with ``data`` arrays; read as plain data, not executed
others   files of AIMET and AMD Quark (``encodings.py``), and a folder of NNCF (``nncf_statistics.py``)

Entries with empty min and max (tensors without a range, which the SDK drops when it saves) are skipped. The SDK lists a
tensor once per convolution that reads the tensor, with the same range. Different ranges of one tensor are an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.atomic_write import replace_text
from sgsdump.files.bounded_read import TEXT_LIMIT, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.sidecars import encodings, nncf_statistics
from sgsdump.sidecars.quant_param_entries import (
    PICKLE_LIMIT,
    QuantParam,
    check_range,
    is_pickle,
    parse_json,
    parse_pickle,
)
from sgsdump.tensors.types import Range

HEAD_BYTES = 4096
# Only one way to match a run of digits: two ways would need quadratic time to fail.
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"
_LINE = re.compile(rf"Name:(.*), min: ({_NUMBER}), max: ({_NUMBER});\s*")


def read_ranges(path: Path | str) -> dict[str, Range]:
    """Return tensor name -> Range, in file order.

    Raises FormatError, with the line or entry, for another file type, NaN or infinity, or a min above its max. A
    repeated name with another range, and a pickle with more than plain data, are FormatErrors too. Raises ConfigError
    if the file cannot be read.
    """
    path = Path(path)
    if nncf_statistics.recognises(path):
        return _from_tool(nncf_statistics.read(path), path)
    data = read_bytes(path, PICKLE_LIMIT)
    if is_pickle(data):
        return _from_params(parse_pickle(data, path), path)
    text = _decode(data, path)
    start = text[:4096].lstrip()
    if encodings.recognises(data[:HEAD_BYTES]):
        return _from_tool(encodings.parse(text, path), path)
    if start.startswith(("[", "{")):
        return _from_params(parse_json(text, path), path)
    if start.startswith("Name:"):
        return _from_lines(text, path)
    raise FormatError(
        f"{path} is not a tensor_min_max file: expected lines such as 'Name:x, min: a, max: b;', "
        "a quant file (JSON or pickle), or ranges of AIMET, AMD Quark or NNCF"
    )


def holds_ranges(path: Path, head: bytes = b"") -> bool:
    """Return whether a file or folder is of one of the forms, by its first bytes; a pickle by its ending."""
    if nncf_statistics.recognises(path):
        return True
    if is_pickle(head):
        return path.suffix.lower() in (".pkl", ".pickle")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_list = text.startswith(b"[") and b'"name"' in text and b'"min"' in text
    return text.startswith(b"Name:") or is_list or encodings.recognises(head)


def write_ranges(ranges: Mapping[str, Range], path: Path | str, form: str = "text") -> None:
    """Write the ``text`` form (per-channel ranges are merged) or the ``json`` form, atomically.

    Raises ValuesError for NaN or infinity, and for a name with a line end in the text form. Raises OutputError if the
    file cannot be written.
    """
    for name, bounds in ranges.items():
        if not (np.isfinite(bounds.min).all() and np.isfinite(bounds.max).all()):
            raise ValuesError(
                f"the range of {quoted(name)} is {bounds.low} to {bounds.high}, because the model computes NaN or Inf"
            )
    text = _to_json(ranges) if form == "json" else _to_text(ranges)
    replace_text(Path(path), text)


def _decode(data: bytes, path: Path) -> str:
    if b"\0" in data[:4096]:
        raise FormatError(f"{path} is a binary file, not a tensor_min_max file")
    if len(data) > TEXT_LIMIT:
        raise FormatError(f"{path} is larger than {TEXT_LIMIT >> 20} MiB, too large for a tensor_min_max file")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _from_lines(text: str, path: Path) -> dict[str, Range]:
    ranges: dict[str, Range] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise FormatError(f"{path}:{number}: {quoted(line)} is not 'Name:x, min: a, max: b;'")
        _add(ranges, match[1], Range.of(float(match[2]), float(match[3])), f"{path}:{number}")
    return ranges


def _to_text(ranges: Mapping[str, Range]) -> str:
    for name in ranges:
        if "\n" in name or "\r" in name:
            raise ValuesError(
                f"the name {quoted(name)} has a line break, which the text form of the file cannot hold; "
                "write the JSON form"
            )
    return "".join(f"Name:{name}, min: {bounds.low:f}, max: {bounds.high:f};\n" for name, bounds in ranges.items())


def _to_json(ranges: Mapping[str, Range]) -> str:
    entries = []
    for name, bounds in ranges.items():
        entry: dict[str, Any] = {"name": name, "min": bounds.min.tolist(), "max": bounds.max.tolist()}
        entries.append(entry if bounds.bit is None else {**entry, "bit": bounds.bit})
    return json.dumps(entries, indent=4) + "\n"


def _from_tool(found: Iterable[tuple[str, Range]], path: Path) -> dict[str, Range]:
    ranges: dict[str, Range] = {}
    for name, bounds in found:
        _add(ranges, name, bounds, str(path))
    if not ranges:
        raise FormatError(f"{path} holds no range of a tensor. Calibrate again, or give another file")
    return ranges


def _from_params(params: Iterable[QuantParam], path: Path) -> dict[str, Range]:
    ranges: dict[str, Range] = {}
    for index, param in enumerate(params):
        if param.range is not None:
            _add(ranges, param.name, param.range, f"{path}: quant_param[{index}]: {param.name[:80]}")
    return ranges


def _add(ranges: dict[str, Range], name: str, bounds: Range, where: str) -> None:
    if name in ranges and not ranges[name].same(bounds):
        raise FormatError(f"{where}: the tensor {quoted(name)} occurs twice, with different ranges")
    check_range(name, bounds, where)
    ranges[name] = bounds
