"""Rewrites of a whole model, each one function that gives another model: functions inlined, input sizes fixed, further
outputs marked, half and double precision as single.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import InputError, hint
from sgsdump.models.graph import Graph, all_graphs, all_nodes, values_of
from sgsdump.models.input_spec import fits, shape_text

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto

# Functions that call functions that call functions: a small file may stand for more nodes than any memory holds.
MOST_NODES = 1_000_000
# Attributes that hold the type of what a node puts out.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")

_Key = tuple[str, str, str]


def inline_functions(proto: ModelProto) -> ModelProto:
    """The model with its own functions put in place of their calls, so the tensors inside can be dumped; ``proto``
    itself when it has none. A run-time does the same before it runs a model, so the values stay.

    Inner tensors are numbered (``sum__1``, ``sum__2`` for the second call), so are the nodes; the calls' own outputs
    keep their names. Functions stay that cannot be put in place: those written for another opset than the model's; all
    of them when one calls itself, when they stand for more than MOST_NODES nodes, or when onnx refuses.
    """
    if not proto.functions or not _is_finite(proto):
        return proto
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except Exception:  # it raises whatever its C++ throws; a run-time then says what is wrong with the function
        return proto


def _is_finite(proto: ModelProto) -> bool:
    """Whether the functions end, in at most MOST_NODES nodes for the whole model."""
    functions = {_key(function): function for function in proto.functions}
    sizes: dict[_Key, int] = {}
    for start in functions:
        path = [start]
        while path:
            inside = list(all_nodes(functions[path[-1]].node))
            calls = [key for key in map(_call, inside) if key in functions]
            waits = [key for key in calls if key not in sizes]
            if any(key in path for key in waits):
                return False
            if waits:
                path.append(waits[0])
                continue
            sizes[path.pop()] = len(inside) + sum(sizes[key] for key in calls)
    return sum(1 + sizes.get(_call(node), 0) for node in all_nodes(proto.graph.node)) <= MOST_NODES


def _key(function: FunctionProto) -> _Key:
    return function.domain, function.name, function.overload


def _call(node: NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload


def fix_shapes(proto: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """A copy whose named inputs have these shapes. A size with a name is the same in all inputs that have it: ``batch``
    becomes 4 wherever an input has it.

    Raises InputError for an unknown input, another number of axes, a size that the model fixes otherwise, and two
    sizes for one name.
    """
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    names = Graph(result).inputs
    inputs = {info.name: info.type.tensor_type.shape for info in result.graph.input if info.name in names}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(f"a shape is given for {name!r}, the model has no such input{hint(name, list(inputs))}")
        _fix(name, inputs[name], shape, sizes)
    for declared in inputs.values():
        for dim in declared.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return result


def _fix(name: str, declared: TensorShapeProto, shape: Sequence[int], sizes: dict[str, int]) -> None:
    sizes_declared = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared.dim]
    if not fits(shape, sizes_declared):
        raise InputError(
            f"the shape {shape_text(shape)} does not fit the model's input {name!r}, which is "
            f"{shape_text(sizes_declared)}"
        )
    for dim, size in zip(declared.dim, shape):
        if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
            raise InputError(
                f"the shapes give {dim.dim_param!r} of the model as {sizes[dim.dim_param]} and as {size} ({name!r})"
            )
        if not dim.HasField("dim_value"):
            dim.dim_value = size


def mark_outputs(proto: ModelProto, names: Iterable[str]) -> ModelProto:
    """A copy with the named tensors as outputs after those it has (a Caffe net does not say which blobs a user wants;
    input_config.ini does). Names that no node makes are ignored."""
    from onnx import ModelProto, ValueInfoProto

    result = ModelProto()
    result.CopyFrom(proto)
    graph = Graph(result)
    declared = {info.name: info for info in proto.graph.value_info}
    for name in names:
        if name in graph.producer and name not in graph.outputs:
            result.graph.output.append(declared.get(name) or ValueInfoProto(name=name))
    return result


def single_precision(proto: ModelProto) -> ModelProto:
    """A copy in which every float16, bfloat16 and float64 is float32; ``proto`` itself where there is none.

    Quantisation works in float32: the integers of the fixed model mean real numbers, whatever the float model rounded
    its own to. Casts between floating-point types stay, as casts of float32 to itself. Weights must be in the model.
    """
    result = type(proto)()
    result.CopyFrom(proto)
    changed = [_in_single(graph) for graph in all_graphs(result.graph)]
    return result if any(changed) else proto


def _in_single(graph: GraphProto) -> bool:
    """Whether there was anything to change."""
    from onnx import AttributeProto, TensorProto

    others = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
    types = [_tensor_type(info.type) for info in (*graph.input, *graph.output, *graph.value_info)]
    typed = [tensor_type for tensor_type in types if tensor_type.elem_type in others]
    for tensor_type in typed:
        tensor_type.elem_type = TensorProto.FLOAT
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
        values = values_of(tensor).astype(np.float32)
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
