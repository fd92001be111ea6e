"""Versions that the installed onnxruntime takes, and models written in newer ones.

onnxruntime lags behind onnx: what ``onnx.helper.make_model`` makes today may carry an IR version and an opset that it
refuses. Most such models use no operator that changed since, and so mean the same under the older numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import onnx
import onnxruntime as ort
from onnx import NodeProto, helper

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.providers import CPU
from sgsdump.executors.onnx_runtime.session_options import quiet
from sgsdump.models.graph import bodies

# The first with functions and their overloads; every onnxruntime that sgsdump allows takes it.
LOWEST_IR, LOWEST_OPSET = 9, 17
MAIN = ("", "ai.onnx")


def header(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model without a graph: IR version, operator sets and functions of ``proto``, lowered to what onnxruntime takes.

    An operator whose newest version only takes more element types has not changed. Raises ModelError for one that has,
    and for a model that names no operator set.
    """
    if not proto.opset_import:
        raise ModelError(
            "the model names no operator set: it is older than ONNX 1.0, and onnxruntime runs none such; export it anew"
        )
    lowered = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    if proto.ir_version > LOWEST_IR:
        lowered.ir_version = min(proto.ir_version, newest_ir())
    _lower(lowered.opset_import, proto.graph.node)
    for function in lowered.functions:
        _lower(function.opset_import, function.node)
    return lowered


def loadable(proto: onnx.ModelProto) -> bytes:
    """The model serialised under versions that onnxruntime takes. Raises ModelError as ``header``."""
    lowered = header(proto)
    parts = (lowered.ir_version, lowered.opset_import, lowered.functions)
    if parts == (proto.ir_version, proto.opset_import, proto.functions):
        return proto.SerializeToString()
    lowered.graph.CopyFrom(proto.graph)
    return lowered.SerializeToString()


@cache
def newest_ir() -> int:
    """The newest IR version that the installed onnxruntime loads."""
    return next((v for v in range(onnx.IR_VERSION, LOWEST_IR, -1) if _loads(v, LOWEST_OPSET)), LOWEST_IR)


@cache
def newest_opset() -> int:
    """The newest operator set that the installed onnxruntime loads."""
    newest = onnx.defs.onnx_opset_version()
    return next((v for v in range(newest, LOWEST_OPSET, -1) if _loads(LOWEST_IR, v)), LOWEST_OPSET)


def _lower(imports: Iterable[onnx.OperatorSetIdProto], nodes: Iterable[NodeProto]) -> None:
    """Lower the main operator set, in place."""
    for each in imports:
        if each.domain not in MAIN or each.version <= LOWEST_OPSET or each.version <= newest_opset():
            continue
        takes = f"onnxruntime {ort.__version__} takes up to opset {newest_opset()}: export the model with that one"
        if each.version > onnx.defs.onnx_opset_version():
            raise ModelError(f"the model is of opset {each.version}, and {takes}")
        for node in _with_inner(nodes):
            changed = _changed(node, each.version)
            if changed:
                raise ModelError(
                    f"the model is of opset {each.version}, and its {node.op_type} that of opset {changed}; {takes}"
                )
        each.version = newest_opset()


def _changed(node: NodeProto, version: int) -> int:
    """The opset in which the node's operator became other than what onnxruntime takes; 0 when it did not."""
    if node.domain not in MAIN:
        return 0
    now = _schema(node.op_type, version)
    if now is None or now.since_version <= newest_opset():
        return 0
    before = _schema(node.op_type, newest_opset())
    return 0 if before is not None and _meaning(now) == _meaning(before) else now.since_version


def _schema(op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return None


def _meaning(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    """What stays the same where a new version of an operator only takes more element types."""
    attributes = {n: (str(a.type), str(a.default_value), a.required) for n, a in schema.attributes.items()}
    return schema.doc, attributes, [i.name for i in schema.inputs], [o.name for o in schema.outputs]


def _with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _with_inner(body.node)


def _loads(ir_version: int, opset: int) -> bool:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [info("x", 1, [1])], [info("y", 1, [1])]
    )
    model = helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)])
    try:
        ort.InferenceSession(model.SerializeToString(), quiet(), providers=[CPU])
    except Exception:
        return False
    return True
