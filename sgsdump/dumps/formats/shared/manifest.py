"""The manifest ``sgsdump.json``: the facts of a dump's records, for formats that store only arrays (.npy, .npz, …).

::

    {"sgsdump": 1, "records": [{
        "name": "conv1/Relu:0", "io": "out", "slot": 0, "op_index": 3, "operator": "conv1", "op_type": "CONV_2D",
        "constant": false, "cut": false, "shape": [1, 2, 2, 8], "dtype": "bfloat16", "layout": "NHWC",
        "origin": null,
        "quant": {"dtype": "int8", "scale": [0.5, 0.25], "scale_dtype": "float32", "zero_point": 0, "axis": 3,
                  "exact": true, "type_name": ""},
        "values": "conv1_Relu_0.npy"}, …]}

shape   null if unknown.
origin  logical tensor of a device layout, ``{"shape": [1, 5, 2, 2], "layout": "NCHW", "groups": 1}``; null for other
        layouts or if unknown.
quant   null for plain numbers. ``scale`` is a number or a list per channel; the strings "nan", "inf" and "-inf" stand
        for numbers that JSON lacks.
values  position of the stored values; each format defines the meaning. The values have the carrier type of ``dtype``
        (``tensors.dtypes``). They are flat if they do not fit ``shape``.

The text is ASCII. Bytes of a name that are not UTF-8 are lone surrogates, written as escapes. A manifest is untrusted
input: the reader validates every type and size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.format import Lost
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import read_start, reading
from sgsdump.files.json_yaml import strict
from sgsdump.tensors.device import Origin
from sgsdump.tensors.dtypes import KNOWN, dtype_named, name_of
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

NAME = "sgsdump.json"
MOST_BYTES = 64 * 2**20
_VERSION = 1
_MOST_NAME, _MOST_RANK, _MOST_COUNT, _MOST_NUMBER = 2**16, 32, 2**48, 2**63
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Entry(NamedTuple):
    """A record without values (``record.tensor`` cannot be loaded), and the position of its values."""

    record: Record
    values: str


def loses(records: Sequence[Record], variant: Any = None) -> Iterator[Lost]:
    """Yield the facts that a format with a manifest cannot hold (``Format.loses``)."""
    for record in records:
        if record.tensor.statistics is not None:
            yield Lost(record, "has at most statistics, no values", True)
    yield from facts_lost(records)


def facts_lost(records: Sequence[Record]) -> Iterator[Lost]:
    """Yield the facts that a manifest cannot hold."""
    for record in records:
        info = record.tensor.info
        if info.dtype.newbyteorder("=") not in KNOWN.values():
            yield Lost(record, f"is {name_of(info.dtype)}, which a file of numbers cannot hold", True)
        elif info.quant is not None and np.ndim(info.quant.scale) > 1:
            yield Lost(record, "has a scale of several axes", True)


def entry_of(record: Record, values: str) -> dict[str, Any]:
    """Return a record's facts as plain JSON. Raises ConfigError for element types and scales that ``loses`` lists."""
    info = record.tensor.info
    return {
        "name": info.name,
        "io": record.io,
        "slot": record.slot,
        "op_index": record.op_index,
        "operator": record.op_type,
        "op_type": info.op_type,
        "constant": record.constant,
        "cut": record.cut,
        "shape": None if info.shape is None else list(map(int, info.shape)),
        "dtype": name_of(dtype_named(name_of(info.dtype))),
        "layout": info.layout,
        "origin": None if info.origin is None else _origin_entry(info.origin),
        "quant": None if info.quant is None else _quant_entry(info.name, info.quant),
        "values": values,
    }


def text_of(entries: Iterable[dict[str, Any]]) -> bytes:
    """Return the text of a manifest, with one line per record."""
    lines = ",\n".join(json.dumps(entry, allow_nan=False) for entry in entries)
    return f'{{"sgsdump": {_VERSION}, "records": [\n{lines}\n]}}'.encode("ascii")


def read(path: Path) -> list[Entry]:
    """Read the records of a manifest file. Raises FormatError."""
    with reading(path):
        return parse(read_start(path, MOST_BYTES + 1), str(path))


def parse(data: bytes, where: str) -> list[Entry]:
    """Parse the records of a manifest. Raises FormatError, prefixed with ``where``, for damage."""
    if len(data) > MOST_BYTES:
        raise FormatError(f"{where} has {len(data)} bytes, too large for the manifest of a dump")
    try:
        document = json.loads(data, parse_constant=_refuse)
        if type(document) is not dict or document.get("sgsdump") != _VERSION:
            raise ValueError(f"the content is not an sgsdump manifest of version {_VERSION}")
        entries = _typed(document, "records", list)
        return [parsed_entry(entry) for entry in entries]
    except (ValueError, RecursionError, ConfigError) as error:
        raise FormatError(f"{where} is damaged: {' '.join(str(error).split())[:200]}") from None


def check_count(record: Record, count: int, where: object) -> None:
    """Raise FormatError if ``count`` values do not fill a record's shape."""
    shape = record.tensor.info.shape
    if shape is not None and math.prod(shape) > count:
        raise FormatError(
            f"{where} holds {count} values, but the shape {list(shape)} of {record.name!r} needs more values"
        )


def _quant_entry(name: str, quant: Quant) -> dict[str, Any]:
    scale = np.asarray(quant.scale)
    if scale.ndim > 1:
        raise ConfigError(
            f"tensor {name!r} has a scale of shape {list(scale.shape)}; at most one scale per channel is supported"
        )
    return {
        "dtype": None if quant.dtype is None else name_of(dtype_named(name_of(quant.dtype))),
        "scale": strict(scale.tolist() if scale.ndim else float(scale)),
        "scale_dtype": name_of(scale.dtype) if scale.ndim else None,
        "zero_point": int(quant.zero_point),
        "axis": None if quant.axis is None else int(quant.axis),
        "exact": bool(quant.exact),
        "type_name": quant.type_name,
    }


def _origin_entry(origin: Origin) -> dict[str, Any]:
    return {"shape": list(map(int, origin.shape)), "layout": origin.layout, "groups": int(origin.groups)}


def parsed_entry(entry: Any) -> Entry:
    """Return the record of a JSON entry. Raises ValueError or ConfigError for damage."""
    if type(entry) is not dict:
        raise ValueError("a record is not a JSON object")
    name, io = _text(entry, "name"), _text(entry, "io")
    if io not in ("in", "out"):
        raise ValueError(f"the key io has the value {io[:20]!r}; the value must be 'in' or 'out'")
    shape = _typed(entry, "shape", list, None)
    layout = None if entry.get("layout") is None else _text(entry, "layout")
    dtype = dtype_named(_text(entry, "dtype"))
    op_type, operator = _text(entry, "op_type"), _text(entry, "operator")
    quant, origin = _quant(_typed(entry, "quant", dict, None)), _origin(entry.get("origin"))
    info = TensorInfo(name, _shape(shape), dtype, layout, quant, op_type, origin)
    slot, op_index = _count(entry, "slot"), _count(entry, "op_index")
    constant, cut = _typed(entry, "constant", bool), _typed(entry, "cut", bool)
    record = Record(io, slot, op_index, operator, Tensor(info, _no_values), constant, cut)  # type: ignore[arg-type]
    return Entry(record, _text(entry, "values"))


def _no_values() -> np.ndarray:
    raise FormatError("the manifest contains no tensor values")


def _shape(sizes: list[Any] | None) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    if len(sizes) > _MOST_RANK or not all(type(size) is int and 0 <= size <= _MOST_COUNT for size in sizes):
        raise ValueError(f"{str(sizes)[:80]} is not a shape")
    if math.prod(size or 1 for size in sizes) > _MOST_COUNT:
        raise ValueError(f"shape {str(sizes)[:80]} is too large")
    return tuple(sizes)


def _origin(entry: Any) -> Origin | None:
    """Return the origin; None also for manifests of older versions, which lack the key."""
    if entry is None:
        return None
    if type(entry) is not dict:
        raise ValueError("the origin of a tensor is not a JSON object")
    layout = None if entry.get("layout") is None else _text(entry, "layout")
    return Origin(_shape(_typed(entry, "shape", list)) or (), layout, _count(entry, "groups"))


def _quant(entry: dict[str, Any] | None) -> Quant | None:
    if entry is None:
        return None
    dtype = None if entry.get("dtype") is None else dtype_named(_text(entry, "dtype"))
    scale: float | np.ndarray
    if type(entry.get("scale")) is list:
        of = dtype_named(_text(entry, "scale_dtype"))
        scale = np.array([_number(value) for value in entry["scale"]], np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = scale.astype(of)
    else:
        scale = _number(entry.get("scale"))
    zero_point, axis = _typed(entry, "zero_point", int), _typed(entry, "axis", int, None)
    if abs(zero_point) > _MOST_NUMBER or abs(axis or 0) > _MOST_RANK:
        raise ValueError("the zero point or axis of a tensor is out of range")
    return Quant(dtype, scale, zero_point, axis, _typed(entry, "exact", bool), _text(entry, "type_name"))


def _number(value: Any) -> float:
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in (int, float) or (type(value) is int and abs(value) > _MOST_NUMBER):
        raise ValueError("a scale is not a number")
    return float(value)


def _count(entry: dict[str, Any], key: str) -> int:
    value = _typed(entry, key, int)
    if not 0 <= value < _MOST_COUNT:
        raise ValueError(f"{key} {value} is out of range")
    return value


def _text(entry: dict[str, Any], key: str) -> str:
    text = _typed(entry, key, str)
    if len(text) > _MOST_NAME:
        raise ValueError(f"{key} has {len(text)} characters")
    return text


def _typed(entry: dict[str, Any], key: str, *kinds: type | None) -> Any:
    """Return ``entry[key]`` if its type is exactly one of ``kinds`` (bool is no int); the kind None allows null."""
    value = entry.get(key, _typed)
    if value is _typed or not ((value is None and None in kinds) or type(value) in kinds):
        raise ValueError(f"{key!r} is missing or has the wrong type")
    return value


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
