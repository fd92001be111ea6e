"""Readable text of the graph that leads to a tensor: operators, attributes, shapes and element types.

ONNX is printed in its own text syntax (https://onnx.ai/onnx/repo-docs/Syntax.html), which ``onnx.parser`` reads. A
weight with more than ``SHOWN_VALUES`` elements is declared by type and shape only. Smaller weights (axes, shapes,
limits) determine what an operator does, so their values are shown. A comment after every node lists the types of its
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sgsdump.errors import ConfigError
from sgsdump.models.passes.extract import Extractor

if TYPE_CHECKING:
    import onnx

    from sgsdump.executors.base import Executor
    from sgsdump.models.model import Model

SHOWN_VALUES = 8


def ir_text(proto: onnx.ModelProto, output_names: Sequence[str], depth: int | None = None) -> str:
    """Return the sub-model that computes these tensors as ONNX text.

    depth  number of last nodes to print, without Constant nodes; None prints all nodes that lead to the tensors.

    Raises ConfigError for an unknown name, ModelError if the graph cannot be cut.
    """
    import onnx

    extractor = Extractor(proto)
    model = extractor.extract(extractor.last_inputs(output_names, depth), output_names)
    frame = onnx.ModelProto()
    frame.CopyFrom(model)
    for field in ("node", "initializer", "sparse_initializer", "value_info", "quantization_annotation"):
        frame.graph.ClearField(field)
    for info in frame.graph.output:
        info.type.CopyFrom(extractor.type_of(info.name) or info.type)
    before, _, after = onnx.printer.to_text(frame).partition("{\n}")
    lines = [before.rstrip()]
    lines += _block("<", _weights(model.graph), ">")
    lines += ["{", *(_node(node, extractor) for node in model.graph.node), "}"]
    return "\n".join(lines) + after.rstrip() + "\n"


def executor_text(model: Model, executor: Executor, output_names: Sequence[str], depth: int | None = None) -> str:
    """Return the same sub-model in the executor's own intermediate language, after the executor loaded it.

    Raises ConfigError for an unknown name or an executor without such a language, ModelError if the graph does not
    load.
    """
    show = getattr(executor, "ir_text", None)
    if show is None:
        raise ConfigError(
            f"the executor {executor.name} has no intermediate representation to print; print the ONNX graph instead"
        )
    extractor = Extractor(model.proto)
    proto = extractor.extract(extractor.last_inputs(output_names, depth), output_names)
    with executor:
        executor.load_model(proto, folder=str(model.folder) if model.folder else None)
        return str(show())


def _block(opening: str, items: Sequence[str], closing: str) -> list[str]:
    if not items:
        return []
    return [f"   {opening}", *(f"   {item}," for item in items[:-1]), f"   {items[-1]}", f"   {closing}"]


def _weights(graph: onnx.GraphProto) -> list[str]:
    import onnx

    sparse = [
        onnx.helper.make_tensor_value_info(t.values.name, t.values.data_type, t.dims) for t in graph.sparse_initializer
    ]
    return [_weight(tensor) for tensor in graph.initializer] + [_declaration(value_info=[info]) for info in sparse]


def _weight(tensor: onnx.TensorProto) -> str:
    import onnx

    if _is_shown(tensor):
        return _declaration(initializer=[tensor])
    return _declaration(value_info=[onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)])


def _is_shown(tensor: onnx.TensorProto) -> bool:
    """Return whether to print the values; never for half precision, which onnx prints as the integers of its bits."""
    kinds = (tensor.FLOAT, tensor.DOUBLE, tensor.INT32, tensor.INT64)
    return tensor.data_type in kinds and math.prod(tensor.dims) <= SHOWN_VALUES


def _declaration(**fields: Any) -> str:
    """Return ``float[8,3] name`` or ``int64[2] name = {1,2}``, as onnx prints it in a graph."""
    import onnx

    text = onnx.printer.to_text(onnx.GraphProto(name="g", **fields))
    return text[text.index("<") + 1 : text.rindex(">")].replace("=  ", "= ", 1)


def _node(node: onnx.NodeProto, extractor: Extractor) -> str:
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _hide_values([copy])
    comment = ", ".join(_typed(name, extractor.type_of(name)) for name in node.output if name)
    # As the only node of a graph: not every version of onnx prints a single node.
    text = onnx.printer.to_text(onnx.GraphProto(name="g", node=[copy]))
    printed = text[text.index("{") + 1 : text.rindex("}")].strip("\n").rstrip()
    return f"{printed}  # {comment}"


def _typed(name: str, kind: onnx.TypeProto | None) -> str:
    import onnx

    if kind is None:
        return "the type is not known"
    return _declaration(value_info=[onnx.ValueInfoProto(name=name, type=kind)])


def _hide_values(nodes: Iterable[onnx.NodeProto]) -> None:
    """Empty the large tensors in the attributes of nodes and of their bodies, in place."""
    for node in nodes:
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                if attribute.HasField("t") or attribute.tensors:
                    _empty(tensor)
            for body in (attribute.g, *attribute.graphs):
                for tensor in body.initializer:
                    _empty(tensor)
                _hide_values(body.node)


def _empty(tensor: onnx.TensorProto) -> None:
    if not _is_shown(tensor):
        for field, _ in tensor.ListFields():
            if field.name.endswith("_data"):
                tensor.ClearField(field.name)
