"""``dump_info.json``, which lists the tensors in a dump folder of the SDAA dump tool, and the names of the files in
it::

    <folder>/dump_info.json
    <folder>/inputs/<input>.npy
    <folder>/outputs/topoidx_00012__relu_1.tmp_0.npy     dumped with its topological index
    <folder>/outputs/relu_3.tmp_0.npy                    dumped without

A name is made a file name by percent-encoding what file systems do not take (and ``%``), which ``named`` undoes; a name
that is too long is cut and made unique by its hash, and then only the JSON has it whole.

The JSON is indented by 4 and has the tool's own keys::

    meta_info         date_time, model_name, model_dtype, default_seed, default_float_min, default_float_max,
                      default_int_min, default_int_max, executor, extract_subgraph, input_names, output_names,
                      node_output_names
    input_info        input_name, seed, low, high, use_external, tensor_info
    node_output_info  node_output_name, node_name, node_type, node_input_name, tensor_info
                      or node_output_name, error
    tensor_info       dtype, shape, has_nan, has_inf, mean, median, min, max

and our own beside them: ``file`` (below the folder), ``topo_index``, ``layout`` and, with ``error``, ``failed`` (false
where the tensor cannot be given at all). Statistics that are not finite are the strings "nan", "inf" and "-inf":
strict JSON has no such numbers; the bare NaN and Infinity that the tool itself writes are read as well.
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
# The keys of an entry in the JSON's order, and the fields that they are of.
_INPUT_KEYS = {"input_name": "name", **{name: name for name in ("seed", "low", "high", "use_external")}}
_INPUT_KEYS |= {"tensor_info": "facts", "file": "file", "layout": "layout"}
_OUTPUT_KEYS = {"node_output_name": "name", "node_name": "node", "node_type": "op_type", "node_input_name": "inputs"}
_OUTPUT_KEYS |= {"tensor_info": "facts", "topo_index": "topo_index", "file": "file", "layout": "layout"}
_LOST_KEYS = {"node_output_name": "name", "error": "error", "failed": "failed"}
_LOST_KEYS |= {"node_name": "node", "node_type": "op_type", "topo_index": "topo_index"}


@dataclass(frozen=True)
class TensorFacts:
    """``tensor_info``: numpy's name of the dtype, the shape, and statistics as numpy gives them (NaN stays NaN).

    The four statistics are None where there is nothing to compute: an empty tensor, text, complex numbers.
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
    """One input: drawn at random from ``low`` to ``high`` with ``seed``, or given (``use_external``)."""

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
    """One node output: dumped (``facts``, ``file``), or not (``error``)."""

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
    """The whole file; ``meta`` is ``meta_info`` as it stands."""

    meta: Mapping[str, Any]
    inputs: tuple[InputEntry, ...] = ()
    outputs: tuple[OutputEntry, ...] = ()


def quoted(name: str) -> str:
    """``name`` as part of a file name: unsafe characters, ``%`` and a leading dot as ``%2F`` and the like."""
    text = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    return "%2E" + text[1:] if text.startswith(".") else text


def inputs_file(name: str) -> str:
    """``images.npy``: the file of an input, below ``inputs/``."""
    return fitting(quoted(name), ".npy")


def outputs_file(index: int | None, name: str) -> str:
    """``topoidx_00012__relu_1.tmp_0.npy``, or ``relu_1.tmp_0.npy`` without an index: below ``outputs/``."""
    return fitting(quoted(name) if index is None else f"topoidx_{index:05d}__{quoted(name)}", ".npy")


def named(file: str) -> tuple[int | None, str]:
    """The topological index, or None, and the tensor name that a file name of ``inputs/`` or ``outputs/`` stands for.

    A name that was cut comes back cut; the JSON has it whole.
    """
    match = _INDEXED.fullmatch(file)
    if match:
        return int(match[1]), unquote(match[2])
    return None, unquote(file.removesuffix(".npy"))


def facts_of(array: np.ndarray) -> TensorFacts:
    """Statistics of an array by numpy's own mean, median, min and max, in the array's dtype.

    Types numpy has no arithmetic for (bfloat16 and smaller) are computed in float32.
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
        # min and max are NaN as soon as one value is.
        has_nan = bool(inexact and np.isnan(low))
        has_inf = bool(np.isinf(array).any()) if has_nan else bool(inexact and (np.isinf(low) or np.isinf(high)))
        median = np.float64("nan") if has_nan else _median(array)
    return TensorFacts(dtype, shape, has_nan, has_inf, float(mean), float(median), low.item(), high.item())


def write(info: DumpInfo, folder: Path) -> None:
    """Write ``folder/dump_info.json``, whole or not at all. Raises OutputError."""
    document = {
        "meta_info": dict(info.meta),
        "input_info": list(map(_json, info.inputs)),
        "node_output_info": list(map(_json, info.outputs)),
    }
    text = json.dumps(strict(document), indent=4, ensure_ascii=False, allow_nan=False, default=_plain)
    # JSON is UTF-8: of a name that is not, the surrogates are written as JSON's own escapes.
    replace_text(folder / JSON_NAME, text.encode("utf-8", "backslashreplace").decode())


def read(path: Path) -> DumpInfo:
    """Read a dump_info.json, ours or the SDAA tool's, given the file or its folder. Raises FormatError."""
    path = Path(path)
    path = path / JSON_NAME if path.is_dir() else path
    if not path.exists():
        raise FormatError(f"no such file: {path}; a dump folder has one, written by the dump")
    try:
        with reading(path):
            document = json.loads(read_whole(path).decode("utf-8"))
    except (ValueError, RecursionError):
        raise FormatError(f"{path} is not JSON, or it is cut off") from None
    try:
        outputs = tuple(_output(entry) for entry in document["node_output_info"])
        inputs = tuple(_input(entry) for entry in document["input_info"])
        return DumpInfo(dict(document["meta_info"]), inputs, outputs)
    except KeyError as error:
        raise FormatError(f"{path} is not a dump_info.json, or it is damaged: it lacks {error}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"{path} is not a dump_info.json, or it is damaged: {error}") from None


def _median(array: np.ndarray) -> Any:
    """``np.median``; float16 is sorted as float32, in which the same values stand, and five times faster."""
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
    """A file below the dump's folder. Raises ValueError for one elsewhere: the JSON is untrusted."""
    if file is None:
        return None
    parts = str(file).split("/")
    if "\\" in str(file) or parts[0] not in (INPUTS, OUTPUTS) or len(parts) != 2 or parts[1] in ("", ".", ".."):
        raise ValueError(f"file {str(file)!r}, which is not in the folder")
    return str(file)


def _number(value: Any) -> Number:
    """A figure of the JSON; the tool writes some as text."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return float(value)


def _plain(value: Any) -> Any:
    """numpy's numbers, and mappings other than dicts, as JSON has them."""
    return strict(dict(value) if isinstance(value, Mapping) else np.generic.item(value))
