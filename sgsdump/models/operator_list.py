"""List of a model's operators, for choosing names.

Supported are ONNX and every format that is read as ONNX, exported torch programs, graphs as text (``ge_proto_*.txt``),
the program topology in a dump's tree, and msprobe dumps of the task ``structure``.

An exported program (``.pt2``, by ``torch.export.save``) is read without torch and without running any code. It is a zip
archive. ``…/models/NAME.json`` (older: ``serialized_exported_program.json``) holds the graph as
``graph_module.graph.nodes``. A node has ``target`` (``torch.ops.aten.split.Tensor``), ``inputs`` (``{"name", "arg":
{"as_tensor": {"name"}}}``, ``as_int``, ``as_ints`` …), ``outputs`` and ``metadata``. ``signature.input_specs`` tells
which inputs are weights.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from sgsdump.dumps.formats.msprobe import folder
from sgsdump.errors import ModelError
from sgsdump.files.bounded_read import open_file, read_start, reading
from sgsdump.models.atb import operation
from sgsdump.models.model import open_model
from sgsdump.sidecars import ge_proto
from sgsdump.sidecars.ge_proto import Attribute, Graph, GraphOperator

if TYPE_CHECKING:
    import onnx

MAGIC = b"PK\x03\x04"
MOST_BYTES = 1 << 28
_GRAPH = re.compile(r"(?:.*/)?(?:models/[^/]*\.json|serialized_exported_program\.json)")
_FRAME = re.compile(r'File "([^"]*)", line (\d+)')


def list_operators(path: Path) -> list[Graph]:
    """Return the graphs of a file with their operators, in file order. Raises FormatError, ModelError, ConfigError."""
    if path.is_dir():
        if folder.is_structure(path):
            return folder.structures(path)
        return operation.graphs_of_tree(path)
    with reading(path):
        head = read_start(path, 4096)
    if head.startswith(MAGIC):
        return _exported_program(path)
    if path.suffix == ".txt":
        return ge_proto.read(path)
    if operation.looks_like(head):
        return [operation.graph_of(path)]
    graph = open_model(path).proto.graph
    return [Graph(graph.name, tuple(map(_of_onnx, graph.node)))]


def _of_onnx(node: onnx.NodeProto) -> GraphOperator:
    name = node.name or next(iter(node.output), "")
    attributes = tuple((attribute.name, _value(attribute)) for attribute in node.attribute)
    return GraphOperator(name, node.op_type, tuple(filter(None, node.input)), attributes)


def _value(attribute: onnx.AttributeProto) -> Attribute:
    """Return numbers and texts, also in lists, unchanged; describe a tensor or a graph by its kind."""
    import onnx

    value: Any = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, onnx.TensorProto):
        return f"tensor of {'x'.join(map(str, value.dims)) or 'one value'}"
    if isinstance(value, onnx.GraphProto):
        return f"graph {value.name}"
    if hasattr(value, "__iter__"):
        return [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in value]
    return type(value).__name__


def _exported_program(path: Path) -> list[Graph]:
    """Return the graphs of an archive; raise ModelError for any other or damaged zip file."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            documents = list(_documents(archive, path))
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ModelError(f"cannot read {path}: {str(error)[:200]}") from None
    if not documents:
        raise ModelError(f"{path} is not an exported program; save one with torch.export.save(program, 'model.pt2')")
    try:
        return [Graph(name, tuple(_operators(document))) for name, document in documents]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} is damaged: its graph does not have the form of an exported program ({error!r})"
        ) from None


def _documents(archive: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, Any]]:
    for entry in archive.infolist():
        if not _GRAPH.fullmatch(entry.filename):
            continue
        with archive.open(entry) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ModelError(f"{path}: {entry.filename} has more than {MOST_BYTES >> 20} MiB, too large for a graph")
        try:
            yield Path(entry.filename).stem, json.loads(data)
        except (ValueError, RecursionError):
            raise ModelError(f"{path} is damaged: {entry.filename} is not JSON") from None


def _operators(document: Mapping[str, Any]) -> Iterator[GraphOperator]:
    module = document["graph_module"]
    producers: dict[str, str] = {}
    for spec in module["signature"]["input_specs"]:
        ((kind, argument),) = spec.items()
        name = _tensor(argument["arg"]) if isinstance(argument.get("arg"), Mapping) else ""
        if name:
            producers[name] = f"{name}:0"
            called = next((str(argument[key]) for key in argument if key.endswith("_name")), "")
            yield GraphOperator(name, "Data", (), (("_is", f"{kind} {called}".strip()),))
    for node in module["graph"]["nodes"]:
        outputs = [name for output in node["outputs"] for name in _tensors(output)]
        name = str(node.get("name") or next(iter(outputs), node["target"]))
        inputs = [producers.get(read, read) for item in node["inputs"] for read in _tensors(item["arg"])]
        producers |= {output: f"{name}:{number}" for number, output in enumerate(outputs)}
        yield GraphOperator(name, _type_of(node["target"]), tuple(inputs), tuple(_attributes(node)))


def _tensor(arg: Mapping[str, Any]) -> str:
    """Return the name of a value: ``{"as_tensor": {"name"}}``, or ``{"name"}`` itself."""
    inner = arg.get("as_tensor", arg)
    return str(inner.get("name", "")) if isinstance(inner, Mapping) else ""


def _tensors(arg: Mapping[str, Any]) -> list[str]:
    several = arg.get("as_tensors")
    if several is None:
        several = [arg] if "as_tensor" in arg else []
    return [name for name in map(_tensor, several) if name]


def _type_of(target: str) -> str:
    """Return ``LayerNorm`` for ``torch.ops.aten.layer_norm.default``."""
    words = target.removeprefix("torch.ops.").split(".")
    word = words[1] if len(words) > 1 else words[0]
    return "".join(part[:1].upper() + part[1:] for part in word.split("_") if part)


def _attributes(node: Mapping[str, Any]) -> Iterator[tuple[str, Attribute]]:
    """Yield arguments that are not tensors, and the operator's module and source line in the program."""
    for item in node["inputs"]:
        for kind, value in item["arg"].items():
            if kind in ("as_int", "as_float", "as_bool", "as_string", "as_ints", "as_floats", "as_bools", "as_strings"):
                yield str(item["name"]), value
    metadata = node.get("metadata") or {}
    modules = [part.split(",")[1] for part in metadata.get("nn_module_stack", "").split(";") if part.count(",") >= 2]
    if modules and modules[-1]:
        yield "_module", modules[-1]
    frames = _FRAME.findall(metadata.get("stack_trace", ""))
    if frames:
        file, line = ([frame for frame in frames if "/torch/" not in frame[0]] or frames)[-1]
        yield "_source", f"{PurePath(file).name}:{line}"
