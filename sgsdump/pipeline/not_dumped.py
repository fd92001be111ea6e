"""Tensors that are not dumped, with reasons: inside bodies, not numeric, or output of a failed operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.models.graph import called, inner_tensors

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class NotDumped:
    """Tensor that was not dumped, with the reason.

    failed  True if running failed (an error); False if it cannot be an array (inside a body, text, a sequence).
    """

    name: str
    node: str
    op_type: str
    reason: str
    failed: bool


def inside_nodes(proto: onnx.ModelProto) -> Iterator[NotDumped]:
    """Yield the tensors inside bodies of If, Loop and Scan, which no runtime can output.

    A node that calls a function of the model gives one entry for all tensors inside.
    """
    functions = {(function.domain, function.name) for function in proto.functions}
    for node in proto.graph.node:
        for name in inner_tensors(node):
            yield NotDumped(name, node.name, node.op_type, f"inside a body of {called(node)}", False)
        if (node.domain, node.op_type) in functions:
            name, reason = f"tensors inside {called(node)}", "they belong to a function of the model"
            yield NotDumped(name, node.name, node.op_type, reason, False)


def why_no_type(kind: onnx.TypeProto | None) -> str:
    """Return why a value of this type cannot be an array; "" if it can, or if the type is unknown."""
    import onnx

    what = kind.WhichOneof("value") if kind is not None else None
    if kind is None or what is None:
        return ""
    if what != "tensor_type":
        return {
            "sequence_type": "a sequence, not a tensor",
            "optional_type": "an optional value, not a tensor",
        }.get(what, f"a {what.removesuffix('_type').replace('_', ' ')}, not a tensor")
    return "holds text, not numbers" if kind.tensor_type.elem_type == onnx.TensorProto.STRING else ""


def why_no_array(value: Any) -> str:
    """Return why an executor's output is not an array of numbers; "" if it is."""
    if value is None:
        return "an optional value that is absent"
    if isinstance(value, list | tuple | dict):
        return "a sequence, not a tensor"
    if not isinstance(value, np.ndarray | np.generic):
        return f"the executor returned a {type(value).__name__}, not an array"
    return "holds text, not numbers" if value.dtype.kind in "OSU" else ""
