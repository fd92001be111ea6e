"""Reader and writer of ``dump_info.json``, the tensor list of an SDAA dump folder, and of the file names in the folder.

::

    <folder>/dump_info.json
    <folder>/inputs/<input>.npy
    <folder>/outputs/topoidx_00012__relu_1.tmp_0.npy     with topological index
    <folder>/outputs/relu_3.tmp_0.npy                    without topological index

File names are tensor names with unsafe characters (and ``%``) percent-encoded; ``named`` decodes them. A name that is
too long is cut and extended by a hash; only the JSON then has the full name.

The JSON is indented by 4 and has the keys of the SDAA tool::

    meta_info         date_time, model_name, model_dtype, default_seed, default_float_min, default_float_max,
                      default_int_min, default_int_max, executor, extract_subgraph, input_names, output_names,
                      node_output_names
    input_info        input_name, seed, low, high, use_external, tensor_info
    node_output_info  node_output_name, node_name, node_type, node_input_name, tensor_info
                      or node_output_name, error
    tensor_info       dtype, shape, has_nan, has_inf, mean, median, min, max

sgsdump adds ``file`` (path in the folder), ``topo_index``, ``layout`` and, with ``error``, ``failed`` (false if the
executor cannot return the tensor at all). Statistics that are not finite are the strings "nan", "inf" and "-inf",
because strict JSON has no such numbers. The SDAA tool writes bare NaN and Infinity; the reader accepts them too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import replace_text
from sgsdump.files.bounded_read import read_whole, reading
from sgsdump.files.json_yaml import strict
from sgsdump.files.names import fitting
from sgsdump.tensors.dtypes import is_complex, is_number, name_of

INPUTS, OUTPUTS = "inputs", "outputs"
_UNSAFE = re.compile(r'[/\\:*?"<>|%\x00-\x1f\x7f]')
_INDEXED = re.compile(r"topoidx_(\d{5,})__(.*)\.npy", re.DOTALL)
Number = int | float | None
JSON_NAME = "dump_info.json"
DATE = "%Y-%m-%d %H:%M:%S"
# JSON keys of an entry in order, and the corresponding fields.
_INPUT_KEYS = {"input_name": "name", **{name: name for name in ("seed", "low", "high", "use_external")}}
_INPUT_KEYS |= {"tensor_info": "facts", "file": "file", "layout": "layout"}
_OUTPUT_KEYS = {"node_output_name": "name", "node_name": "node", "node_type": "op_type", "node_input_name": "inputs"}
_OUTPUT_KEYS |= {"tensor_info": "facts", "topo_index": "topo_index", "file": "file", "layout": "layout"}
_LOST_KEYS = {"node_output_name": "name", "error": "error", "failed": "failed"}
_LOST_KEYS |= {"node_name": "node", "node_type": "op_type", "topo_index": "topo_index"}


@dataclass(frozen=True)
class TensorFacts:
    """``tensor_info``: dtype (numpy's name), shape and statistics (NaN propagates, as in numpy).

    The four statistics are None for empty tensors, text and complex numbers.
    """

    dtype: str
    shape: tuple[int, ...]
    has_nan: bool = False
    has_inf: bool = False
    mean: Number = None
    median: Number = None
    min: Number = None
    max: Number = None


@dataclass(frozen=True)
class InputEntry:
    """One input: random values from ``low`` to ``high`` with ``seed``, or user data (``use_external``)."""

    name: str
    facts: TensorFacts | None
    seed: int | None = None
    low: Number = None
    high: Number = None
    use_external: bool = False
    file: str | None = None
    layout: str | None = None


@dataclass(frozen=True)
class OutputEntry:
    """One node output, either dumped (``facts``, ``file``) or not (``error``)."""

    name: str
    facts: TensorFacts | None = None
    node: str = ""
    op_type: str = ""
    inputs: tuple[str, ...] = ()
    topo_index: int | None = None
    file: str | None = None
    layout: str | None = None
    error: str | None = None
    failed: bool = False


@dataclass(frozen=True)
class DumpInfo:
    """Content of ``dump_info.json``; ``meta`` is the unchanged ``meta_info``."""

    meta: Mapping[str, Any]
    inputs: tuple[InputEntry, ...] = ()
    outputs: tuple[OutputEntry, ...] = ()


def quoted(name: str) -> str:
    """Percent-encode unsafe characters, ``%`` and a leading dot, for use in a file name."""
    text = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    return "%2E" + text[1:] if text.startswith(".") else text


def inputs_file(name: str) -> str:
    """Return the file name of an input below ``inputs/``: ``images.npy``."""
    return fitting(quoted(name), ".npy")


def outputs_file(index: int | None, name: str) -> str:
    """Return the file name of an output below ``outputs/``: ``[topoidx_00012__]relu_1.tmp_0.npy``."""
    return fitting(quoted(name) if index is None else f"topoidx_{index:05d}__{quoted(name)}", ".npy")


def named(file: str) -> tuple[int | None, str]:
    """Return topological index (or None) and tensor name of a file in ``inputs/`` or ``outputs/``.

    A name that was cut stays cut; the JSON has the full name.
    """
    match = _INDEXED.fullmatch(file)
    if match:
        return int(match[1]), unquote(match[2])
    return None, unquote(file.removesuffix(".npy"))


def facts_of(array: np.ndarray) -> TensorFacts:
    """Return statistics of an array, computed by numpy's mean, median, min and max in the array's dtype.

    Extension types (bfloat16 and smaller) are computed in float32.
    """
    shape, dtype = tuple(array.shape), name_of(array.dtype)
    if not array.size or not is_number(array.dtype) or is_complex(array.dtype):
        return TensorFacts(dtype, shape)
    if array.dtype.isbuiltin != 1:
        array = array.astype(np.float32)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    inexact = array.dtype.kind == "f"
    with np.errstate(all="ignore"):
        low, high, mean = array.min(), array.max(), array.mean()
        # A single NaN makes min and max NaN.
        has_nan = bool(inexact and np.isnan(low))
        has_inf = bool(np.isinf(array).any()) if has_nan else bool(inexact and (np.isinf(low) or np.isinf(high)))
        median = np.float64("nan") if has_nan else _median(array)
    return TensorFacts(dtype, shape, has_nan, has_inf, float(mean), float(median), low.item(), high.item())


def write(info: DumpInfo, folder: Path) -> None:
    """Write ``folder/dump_info.json`` atomically. Raises OutputError."""
    document = {
        "meta_info": dict(info.meta),
        "input_info": list(map(_json, info.inputs)),
        "node_output_info": list(map(_json, info.outputs)),
    }
    text = json.dumps(strict(document), indent=4, ensure_ascii=False, allow_nan=False, default=_plain)
    # Lone surrogates of names that are not UTF-8 become JSON escapes.
    replace_text(folder / JSON_NAME, text.encode("utf-8", "backslashreplace").decode())


def read(path: Path) -> DumpInfo:
    """Read a dump_info.json of sgsdump or the SDAA tool, given the file or its folder. Raises FormatError."""
    path = Path(path)
    path = path / JSON_NAME if path.is_dir() else path
    if not path.exists():
        raise FormatError(f"no such file: {path}. A dump folder must contain this file")
    try:
        with reading(path):
            document = json.loads(read_whole(path).decode("utf-8"))
    except (ValueError, RecursionError):
        raise FormatError(f"{path} is not JSON or is cut off") from None
    try:
        outputs = tuple(_output(entry) for entry in document["node_output_info"])
        inputs = tuple(_input(entry) for entry in document["input_info"])
        return DumpInfo(dict(document["meta_info"]), inputs, outputs)
    except KeyError as error:
        raise FormatError(f"{path} is not a dump_info.json or is damaged: missing key {error}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"{path} is not a dump_info.json or is damaged: {error}") from None


def _median(array: np.ndarray) -> Any:
    """Return ``np.median``. float16 is sorted as float32, which is exact and five times faster."""
    if array.dtype == np.float16:
        return np.float16(np.median(array.astype(np.float32)))
    return np.median(array)


def _json(entry: InputEntry | OutputEntry) -> dict[str, Any]:
    is_lost = isinstance(entry, OutputEntry) and entry.error is not None
    keys = _INPUT_KEYS if isinstance(entry, InputEntry) else _LOST_KEYS if is_lost else _OUTPUT_KEYS
    document = {key: getattr(entry, name) for key, name in keys.items()}
    if document.get("tensor_info") is not None:
        document["tensor_info"] = vars(document["tensor_info"])
    return document


def _input(entry: Mapping[str, Any]) -> InputEntry:
    return InputEntry(
        str(entry["input_name"]),
        _facts(entry.get("tensor_info")),
        _seed(entry.get("seed")),
        _number(entry.get("low")),
        _number(entry.get("high")),
        bool(entry.get("use_external", False)),
        _inside(entry.get("file")),
        entry.get("layout"),
    )


def _seed(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise ValueError(f"the seed {value!r} is not a whole number")
    return value


def _output(entry: Mapping[str, Any]) -> OutputEntry:
    name, index = str(entry["node_output_name"]), entry.get("topo_index")
    node, op_type = str(entry.get("node_name") or ""), str(entry.get("node_type") or "")
    index = None if index is None else int(index)
    if "error" in entry:
        error, failed = str(entry["error"]), bool(entry.get("failed", True))
        return OutputEntry(name, None, node, op_type, topo_index=index, error=error, failed=failed)
    inputs: Sequence[str] = entry.get("node_input_name") or ()
    facts, file = _facts(entry.get("tensor_info")), _inside(entry.get("file"))
    return OutputEntry(name, facts, node, op_type, tuple(map(str, inputs)), index, file, entry.get("layout"))


def _facts(entry: Mapping[str, Any] | None) -> TensorFacts | None:
    if entry is None:
        return None
    statistics = (_number(entry.get(key)) for key in ("mean", "median", "min", "max"))
    shape = tuple(int(size) for size in entry["shape"])
    return TensorFacts(str(entry["dtype"]), shape, bool(entry.get("has_nan")), bool(entry.get("has_inf")), *statistics)


def _inside(file: Any) -> str | None:
    """Return the path of a file if it is inside the dump's folder; else raise ValueError (the JSON is untrusted)."""
    if file is None:
        return None
    parts = str(file).split("/")
    if "\\" in str(file) or parts[0] not in (INPUTS, OUTPUTS) or len(parts) != 2 or parts[1] in ("", ".", ".."):
        raise ValueError(f"file {str(file)!r} is not in the folder")
    return str(file)


def _number(value: Any) -> Number:
    """Return a number of the JSON; the SDAA tool writes some as strings."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return float(value)


def _plain(value: Any) -> Any:
    """Convert numpy scalars and mappings other than dicts for JSON."""
    return strict(dict(value) if isinstance(value, Mapping) else np.generic.item(value))
