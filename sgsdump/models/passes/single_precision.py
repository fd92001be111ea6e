"""A model of half or double precision as one of float32, which is what quantisation works in.

Models exported as float16 are common; the integers of the fixed model mean real numbers, whatever the float model
rounded its own to. Casts between floating-point types stay where they are, as casts of float32 to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import bodies

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto, TypeProto

# Attributes that hold the type of what a node puts out.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")


def single_precision(proto: ModelProto) -> ModelProto:
    """A copy in which every float16, bfloat16 and float64 is float32; ``proto`` itself where there is none.

    Weights must be in the model.
    """
    result = type(proto)()
    result.CopyFrom(proto)
    changed = [_in_single(graph) for graph in _graphs(result.graph)]
    return result if any(changed) else proto


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from _graphs(body)


def _in_single(graph: GraphProto) -> bool:
    """Whether there was anything to change."""
    from onnx import AttributeProto, TensorProto

    others = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
    types = [_tensor_type(info.type) for info in (*graph.input, *graph.output, *graph.value_info)]
    typed = [each for each in types if each.elem_type in others]
    for each in typed:
        each.elem_type = TensorProto.FLOAT
    attributes = [item for node in graph.node for item in node.attribute]
    tensors = [*graph.initializer, *(item.t for item in attributes if item.type == AttributeProto.TENSOR)]
    tensors = [tensor for tensor in tensors if tensor.data_type in others]
    for tensor in tensors:
        _convert(tensor)
    named = [item for item in attributes if item.name in _TYPE_ATTRIBUTES and item.i in others]
    for item in named:
        item.i = TensorProto.FLOAT
    return bool(typed or tensors or named)


def _convert(tensor: TensorProto) -> None:
    from onnx import numpy_helper

    # A double beyond float32 becomes infinite, which calibration names.
    with np.errstate(over="ignore"):
        values = numpy_helper.to_array(tensor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _tensor_type(kind: TypeProto) -> TypeProto.Tensor:
    """The type of a tensor, or of the tensors in a sequence or optional."""
    while not kind.HasField("tensor_type"):
        if kind.HasField("sequence_type"):
            kind = kind.sequence_type.elem_type
        elif kind.HasField("optional_type"):
            kind = kind.optional_type.elem_type
        else:
            break
    return kind.tensor_type
