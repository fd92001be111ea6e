"""``dump_info.json``, which lists the tensors in a dump folder of the SDAA dump tool.

It is indented by 4 and has the tool's own keys::

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
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.formats.sdaa.file_names import INPUTS, OUTPUTS
from sgsdump.dumps.formats.sdaa.tensor_facts import Number, TensorFacts
from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import replace_text
from sgsdump.files.bounded_read import read_whole

JSON_NAME = "dump_info.json"
DATE = "%Y-%m-%d %H:%M:%S"


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


def write(info: DumpInfo, folder: Path) -> None:
    """Write ``folder/dump_info.json``, whole or not at all. Raises OutputError."""
    document = {
        "meta_info": dict(info.meta),
        "input_info": [_input_json(entry) for entry in info.inputs],
        "node_output_info": [_output_json(entry) for entry in info.outputs],
    }
    text = json.dumps(_strict(document), indent=4, ensure_ascii=False, allow_nan=False)
    replace_text(folder / JSON_NAME, text)


def read(path: Path) -> DumpInfo:
    """Read a dump_info.json, ours or the SDAA tool's, given the file or its folder. Raises FormatError."""
    path = Path(path)
    path = path / JSON_NAME if path.is_dir() else path
    try:
        document = json.loads(read_whole(path).decode("utf-8"))
    except FileNotFoundError:
        raise FormatError(f"no such file: {path}; a dump folder has one, written by the dump") from None
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from None
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


def _input_json(entry: InputEntry) -> dict[str, Any]:
    return {
        "input_name": entry.name,
        "seed": entry.seed,
        "low": entry.low,
        "high": entry.high,
        "use_external": entry.use_external,
        "tensor_info": _facts_json(entry.facts),
        "file": entry.file,
        "layout": entry.layout,
    }


def _output_json(entry: OutputEntry) -> dict[str, Any]:
    if entry.error is not None:
        lost = {"node_output_name": entry.name, "error": entry.error, "failed": entry.failed}
        return {**lost, "node_name": entry.node, "node_type": entry.op_type, "topo_index": entry.topo_index}
    return {
        "node_output_name": entry.name,
        "node_name": entry.node,
        "node_type": entry.op_type,
        "node_input_name": list(entry.inputs),
        "tensor_info": _facts_json(entry.facts),
        "topo_index": entry.topo_index,
        "file": entry.file,
        "layout": entry.layout,
    }


def _facts_json(facts: TensorFacts | None) -> dict[str, Any] | None:
    return None if facts is None else {**vars(facts), "shape": list(facts.shape)}


def _input(entry: Mapping[str, Any]) -> InputEntry:
    name = str(entry["input_name"])
    return InputEntry(
        name,
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
    known, file = _facts(entry.get("tensor_info")), _inside(entry.get("file"))
    return OutputEntry(name, known, node, op_type, tuple(map(str, inputs)), index, file, entry.get("layout"))


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


def _strict(value: Any) -> Any:
    """``value`` with what strict JSON has no number for as text."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
