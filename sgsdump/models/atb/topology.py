"""Converter of an ATB layer or model to an ONNX file for display; nodes and tensors are named as in the JSON.

Operators have the domain ``atb``, and the graph cannot be run. Every tensor that the graph reads but does not compute
is an input, including weights. Tensors of unknown type and shape have the opaque type ``atb.Tensor``. ONNX allows a
tensor to be computed only once. If an operation overwrites an existing tensor, the new tensor is ``NAME#2`` (``#3`` …),
which later readers read. The model's doc_string lists all changes and omissions, one per line.

Parameters are attributes; a nested parameter is named ``outer.inner``. Integers and booleans (0 or 1) are INT,
fractions FLOAT, texts STRING, lists of one of these kinds INTS, FLOATS or STRINGS. Values without an ONNX kind are
stored as JSON text: null, {}, mixed lists, numbers beyond int64 or float32, and objects nested deeper than 20 levels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ConfigError, ModelError, OutputError, listed
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.json_yaml import json_of
from sgsdump.models.atb import operation_csv
from sgsdump.models.atb.operation import Operation, at_level, looks_like, root_of
from sgsdump.models.atb.operation_csv import Facts, Tensors
from sgsdump.models.graph import sorted_nodes

if TYPE_CHECKING:
    import onnx

DEEPEST = 20
_INT64 = range(-(2**63), 2**63)
DOMAIN = "atb"
OPSET, IR_VERSION = 17, 8
LEAVES = -1
SHOWN = 3
_MOST_BYTES, _MOST_ONNX = 512 << 20, 2**31 - 1


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is the JSON of a layer or model; ``head`` is its first few thousand bytes."""
    return not path.is_dir() and looks_like(head)


def convert_topology(
    source: Path | str, target: Path | str, level: int = LEAVES, csv: Path | str | Mapping[str, Tensors] | None = None
) -> tuple[str, ...]:
    """Write the ONNX of a JSON file atomically and return all changes and omissions, one per line.

    ``level`` and ``csv`` as in ``atb_graph``; ``csv`` may also be a path. Raises FormatError, ConfigError, OutputError.
    """
    source = Path(source)
    document = json_of(decode(read_bytes(source, _MOST_BYTES), source), source)
    notes: list[str] = []
    tensors = operation_csv.read(csv, notes) if isinstance(csv, (Path, str)) else csv
    model = atb_graph(document, level, tensors, source)
    if model.ByteSize() > _MOST_ONNX:
        raise OutputError(
            f"cannot write {target}: the file would be larger than the 2 GiB limit of ONNX; give a smaller --level"
        )
    with replacing(Path(target)) as file:
        file.write(model.SerializeToString())
    return (*notes, *model.doc_string.splitlines())


def atb_graph(
    document: Any, level: int = LEAVES, csv: Mapping[str, Tensors] | None = None, path: Path | str = "the ATB graph"
) -> onnx.ModelProto:
    """Return the graph of a parsed JSON, valid for ``onnx.checker``.

    level  number of levels to unfold: 0 one node for the whole graph, 1 its children …, -1 all levels
    csv    types and shapes by operation, as ``operation_csv.read`` gives them
    path   name of the document in error messages

    Raises FormatError if the document is not a layer or model, and ConfigError for a level below -1.
    """
    if level < LEAVES:
        raise ConfigError(f"invalid --level {level}; give 0, 1 … or -1 for all levels")
    root = root_of(document, Path(path))
    operations = list(at_level(root, level, Path(path)))
    notes: list[str] = []
    facts = _facts([root, *operations], csv, notes)
    graph = _graph(root, operations, notes)
    _set_types(graph, facts)
    return _model(graph, notes)


def _graph(root: Operation, operations: list[Operation], notes: list[str]) -> onnx.GraphProto:
    import onnx

    taken: dict[str, int] = {}
    bare = [operation.name for operation in operations if not any((*operation.inputs, *operation.outputs))]
    if bare:
        notes.append(f"omitted operations without inputs and outputs: {_some(bare)}")
    nodes = [_node(operation, taken) for operation in operations if any((*operation.inputs, *operation.outputs))]
    graph = onnx.GraphProto(name=_text_of(root.name) or "graph", node=nodes)
    produced = {name for node in nodes for name in node.output}
    inputs = dict.fromkeys(_text_of(name) for name in root.inputs if name)
    read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in produced)
    for name in inputs | read:
        graph.input.add(name=name)
    last = _order(graph, notes)
    available = produced | {info.name for info in graph.input}
    for name in dict.fromkeys(_text_of(name) for name in root.outputs if name):
        if name in available:
            graph.output.add(name=last.get(name, name))
        else:
            notes.append(f"omitted output {name!r}: no operation computes it")
    return graph


def _node(operation: Operation, taken: dict[str, int]) -> onnx.NodeProto:
    import onnx

    node = onnx.NodeProto(
        name=_free(_text_of(operation.name), taken) if operation.name else "",
        op_type=_text_of(operation.op_type) or "Operation",
        domain=DOMAIN,
        input=map(_text_of, operation.inputs),
        output=map(_text_of, operation.outputs),
    )
    node.attribute.extend(_attributes(operation.param))
    return node


def _order(graph: onnx.GraphProto, notes: list[str]) -> dict[str, str]:
    """Sort the nodes into an executable order, the file's if possible; return the last versions of overwritten tensors.

    Without an executable order (a cycle, a tensor written twice or over an input), the file's order stays. A read then
    refers to the latest write before it.
    """
    try:
        nodes = [type(node).FromString(node.SerializeToString()) for node in sorted_nodes(graph)]
    except ModelError:
        return _number_versions(graph, notes)
    del graph.node[:]
    graph.node.extend(nodes)
    return {}


def _number_versions(graph: onnx.GraphProto, notes: list[str]) -> dict[str, str]:
    inputs = [info.name for info in graph.input]
    current = {name: name for name in inputs}
    names = dict.fromkeys([*inputs, *(name for node in graph.node for name in (*node.input, *node.output))], 1)
    before: list[str] = []
    renamed: list[str] = []
    for node in graph.node:
        for slot, name in enumerate(node.input):
            if name and name not in current:
                before.append(name)
                current[name] = name
            node.input[slot] = current.get(name, "")
        for slot, name in enumerate(node.output):
            if not name:
                continue
            if name in current:
                renamed.append(name)
                current[name] = _free(name, names)
            else:
                current[name] = name
            node.output[slot] = current[name]
    for name in before:
        graph.input.add(name=name)
    if before:
        notes.append(f"read before they are computed, and therefore treated as inputs: {_some(before)}")
    if renamed:
        notes.append(f"written several times; later versions are named NAME#2, #3 …: {_some(renamed)}")
    return current


def _facts(operations: Iterable[Operation], csv: Mapping[str, Tensors] | None, notes: list[str]) -> dict[str, Facts]:
    """Return type and shape of the tensors in the CSV; tensors with contradictory rows are omitted."""
    by_name: dict[str, Facts] = {}
    contradicting, odd, unknown = set(), [], []
    for operation in operations if csv is not None else ():
        assert csv is not None
        tensors = csv.get(operation.name)
        if tensors is None:
            unknown.append(operation.name)
            continue
        for names, facts in ((operation.inputs, tensors.inputs), (operation.outputs, tensors.outputs)):
            if len(names) != len(facts):
                odd.append(operation.name)
                continue
            for name, fact in zip(map(_text_of, names), facts):
                if by_name.setdefault(name, fact) != fact:
                    contradicting.add(name)
    if unknown:
        notes.append(f"not in the CSV: {_some(unknown)}")
    if odd:
        notes.append(f"different number of tensors in the CSV: {_some(odd)}")
    if contradicting:
        notes.append(f"ignored contradictory types or shapes in the CSV: {_some(sorted(contradicting))}")
    return {name: facts for name, facts in by_name.items() if name not in contradicting}


def _set_types(graph: onnx.GraphProto, facts: Mapping[str, Facts]) -> None:
    outer = {info.name for info in (*graph.input, *graph.output)}
    for info in (*graph.input, *graph.output):
        if not _typed(info, facts):
            info.type.opaque_type.domain, info.type.opaque_type.name = DOMAIN, "Tensor"
    for name in dict.fromkeys(name for node in graph.node for name in node.output if name):
        if name not in outer and name in facts:
            info = graph.value_info.add(name=name)
            if not _typed(info, facts):
                del graph.value_info[-1]


def _typed(info: onnx.ValueInfoProto, facts: Mapping[str, Facts]) -> bool:
    """Set a tensor's type and shape; return False unless both are known."""
    from onnx import helper

    dtype, shape = facts.get(info.name, (None, None))
    if dtype is None or shape is None:
        return False
    try:
        element = helper.np_dtype_to_tensor_dtype(dtype)
    except (KeyError, ValueError, TypeError):
        return False
    info.CopyFrom(helper.make_tensor_value_info(info.name, element, shape))
    return True


def _model(graph: onnx.GraphProto, notes: list[str]) -> onnx.ModelProto:
    from onnx import helper

    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="sgsdump")
    model.doc_string = "\n".join(_text_of(note) for note in notes)
    return model


def _some(names: list[str]) -> str:
    return listed(list(dict.fromkeys(names)), SHOWN, repr)


def _attributes(param: Any) -> Iterator[onnx.AttributeProto]:
    """Yield one attribute per parameter; none for ``""`` and None, which operations without parameters have."""
    if param in ("", None, {}):
        return
    taken: dict[str, int] = {}
    for path, value in _flat(param if isinstance(param, Mapping) else {"param": param}):
        name = _free(path, taken)
        yield _attribute(name, value)


def _text_of(text: str) -> str:
    """Replace lone surrogates, which protobuf cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _free(name: str, taken: dict[str, int]) -> str:
    """Return ``name``, or ``name#2``, ``name#3`` … if taken, and mark it as taken; ``taken`` counts uses."""
    unused = name
    while unused in taken:
        taken[name] += 1
        unused = f"{name}#{taken[name]}"
    taken[unused] = 1
    return unused


def _flat(param: Mapping[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for key, value in param.items():
        name = f"{path}.{key}" if path else _text_of(key)
        if isinstance(value, Mapping) and value and depth < DEEPEST:
            yield from _flat(value, _text_of(name), depth + 1)
        else:
            yield _text_of(name), value


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    from onnx import AttributeProto, helper

    kind = _kind(value)
    if kind is not None:
        return helper.make_attribute(name, _text_of(value) if kind == "STRING" else value)
    if isinstance(value, list):
        kinds = {_kind(item) for item in value}
        if not kinds:
            return helper.make_attribute(name, [], attr_type=AttributeProto.INTS)
        if kinds <= {"INT", "FLOAT"}:
            return helper.make_attribute(
                name, [float(x) for x in value] if "FLOAT" in kinds else [int(x) for x in value]
            )
        if kinds == {"STRING"}:
            return helper.make_attribute(name, [_text_of(item) for item in value])
    return helper.make_attribute(name, _text_of(json.dumps(value)))


def _kind(value: Any) -> str | None:
    """Return the ONNX kind of a single value, or None if no kind preserves it."""
    if isinstance(value, (bool, int)):
        return "INT" if value in _INT64 else None
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return "FLOAT" if math.isfinite(np.float32(value)) or not math.isfinite(value) else None
    return "STRING" if isinstance(value, str) else None
