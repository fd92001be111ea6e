"""Ranges in a folder of statistics that NNCF's ``dump_statistics`` wrote.

::

    statistics_metadata.json                             {"mapping": {file name: key}, "backend": "ONNX", …}
    MinMaxTensorStatistic__conv1_Conv_4_0_1.safetensors  min_values and max_values, one per tensor or per channel

A key is ``MinMaxTensorStatistic_NODE_TYPE_PORT``. TYPE tells which tensor of the node was measured; PORT is the number
of the node's input or output. NNCF knows nodes and no tensors, so the names are made from the node:

====  ==============================  ====================
type  tensor                          name
====  ==============================  ====================
3     input before the node           ``NODE_input_PORT``
4     output of the node              ``NODE_output_PORT``
5     weight of the node              ``NODE_weight_PORT``
====  ==============================  ====================

Models that PyTorch exported name an output ``NODE_output_0``, too. ``nncf_model_input_0`` is the first input of the
model. Other statistics (means, variances, Hessians) have no range and are skipped.

Sources: files of nncf 3.4.0; https://github.com/huggingface/safetensors for the files of values.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import TEXT_LIMIT, is_file, read_all, read_start
from sgsdump.files.folder import inside
from sgsdump.files.json_yaml import json_of
from sgsdump.tensors.types import Range

METADATA = "statistics_metadata.json"
KIND = "MinMaxTensorStatistic"
MOST_BYTES = 16 << 20
_HEAD = 4096
_KEY = re.compile(rf"{KIND}_(.+)_([0-9])_([0-9]{{1,4}})", re.DOTALL)
_PLACES = {"3": "input", "4": "output", "5": "weight"}
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_LENGTH = struct.Struct("<Q")


def recognises(path: Path) -> bool:
    """Return whether a folder, or the list in it, describes statistics with minima and maxima."""
    place = path / METADATA if path.name != METADATA else path
    try:
        return is_file(place) and f"{KIND}_".encode() in read_start(place, _HEAD)
    except (OSError, FormatError):
        return False


def read(path: Path) -> Iterator[tuple[str, Range]]:
    """Yield the name and the range of each tensor. Raises FormatError for damage and for a folder without ranges."""
    folder = path if path.name != METADATA else path.parent
    place = inside(folder, METADATA)
    text = read_all(place, TEXT_LIMIT, "a list of statistics").decode("utf-8", "surrogateescape")
    document = json_of(text, place)
    mapping = document.get("mapping") if isinstance(document, dict) else None
    if not isinstance(mapping, dict):
        raise FormatError(f"{place} has no mapping of files. Let NNCF write the statistics again")
    for file, key in mapping.items():
        name = _name_of(key) if isinstance(key, str) else None
        if name is not None:
            yield name, _range_of(inside(folder, file))


def _name_of(key: str) -> str | None:
    """Return the name of the tensor that a key means; None for statistics without a range."""
    match = _KEY.fullmatch(key)
    place = None if match is None else _PLACES.get(match[2])
    return None if match is None or place is None else f"{match[1]}_{place}_{match[3]}"


def _range_of(path: Path) -> Range:
    data = read_all(path, MOST_BYTES, "a file of statistics")
    header = _header(data, path)
    low, high = (_values(data, header, name, path) for name in ("min_values", "max_values"))
    if low.size != high.size:
        raise FormatError(f"{path} has {low.size} minima, but {high.size} maxima. Let NNCF write the statistics again")
    return Range(low, high)


def _header(data: bytes, path: Path) -> dict[str, Any]:
    """Return the description of the tensors in a safetensors file, with the offset of the values as ``start``."""
    length = _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else len(data)
    start = _LENGTH.size + length
    header = json_of(data[_LENGTH.size : start].decode("utf-8", "replace"), path) if start <= len(data) else None
    if not isinstance(header, dict):
        raise FormatError(f"{path} is cut off. Let NNCF write the statistics again")
    return {**header, "": start}


def _values(data: bytes, header: dict[str, Any], name: str, path: Path) -> np.ndarray:
    """Return the values of one tensor as a flat float64 array."""
    entry: Any = header.get(name)
    try:
        dtype = np.dtype(_TYPES[entry["dtype"]])
        first, last = entry["data_offsets"]
        shape = entry["shape"]
        whole = all(type(size) is int and size >= 0 for size in (first, last, *shape))
        if not whole or last - first != math.prod(shape) * dtype.itemsize or header[""] + last > len(data):
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise FormatError(
            f"{path} has no values {name!r} of a float type. Let NNCF write the statistics again"
        ) from None
    if last == first:
        raise FormatError(f"{path} has no {name!r}: it is empty. Let NNCF write the statistics again")
    return np.frombuffer(data, dtype, math.prod(shape), header[""] + first).astype(np.float64)
