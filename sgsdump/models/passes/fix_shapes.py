"""Give the open sizes of a model's inputs: ``batch`` becomes 4 wherever an input has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sgsdump.errors import InputError
from sgsdump.models.graph import Graph
from sgsdump.models.input_spec import shape_text
from sgsdump.registry import hint

if TYPE_CHECKING:
    from onnx import ModelProto, TensorShapeProto


def fix_shapes(proto: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """A copy whose named inputs have these shapes; a size with a name is the same in all inputs that have it.

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
    for own in inputs.values():
        for dim in own.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return result


def _fix(name: str, own: TensorShapeProto, shape: Sequence[int], sizes: dict[str, int]) -> None:
    declared = [dim.dim_value if dim.HasField("dim_value") else None for dim in own.dim]
    if len(shape) != len(declared) or any(size not in (None, new) for size, new in zip(declared, shape)):
        raise InputError(
            f"the shape {shape_text(shape)} does not fit the model's input {name!r}, which is {shape_text(declared)}"
        )
    for dim, size in zip(own.dim, shape):
        if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
            raise InputError(
                f"the shapes give {dim.dim_param!r} of the model as {sizes[dim.dim_param]} and as {size} ({name!r})"
            )
        if not dim.HasField("dim_value"):
            dim.dim_value = size
