"""Checking what a back-end gave against what the loaded model says its outputs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.input_spec import shape_text
from sgsdump.models.shape_inference import infer_types

if TYPE_CHECKING:
    import onnx


def check_outputs(
    what: str,
    model: onnx.ModelProto,
    names: Sequence[str],
    arrays: Sequence[Any],
    feed: Mapping[str, np.ndarray],
) -> None:
    """Raises ModelError for too few or too many outputs, and for an array of another element type or shape than the
    model's. What is no array at all (a sequence, nothing) is left to who asked for it.

    what  begins the message: who gave the arrays.
    feed  what the model was run on.

    A shape that the model declares may be wrong, as exporters write some: where the array differs from it, or the model
    says nothing, inference from the feed's shapes decides. What that does not know is let pass.
    """
    if len(arrays) != len(names):
        raise ModelError(f"{what} gave {len(arrays)} arrays for {len(names)} outputs")
    declared = {info.name: info.type for info in model.graph.output}
    inferred: Mapping[str, onnx.TypeProto] | None = None
    for name, array in zip(names, arrays):
        if not isinstance(array, np.ndarray | np.generic) or _is_declared(array, declared[name]):
            continue
        if inferred is None:
            inferred = infer_types(model, {name: each.shape for name, each in feed.items()})
        kind = inferred.get(name, declared[name])
        dtype = _dtype(declared[name]) or _dtype(kind)
        if dtype is not None and array.dtype != dtype:
            raise ModelError(f"{what} gave {array.dtype} for the output {name!r}, which is {dtype} in the model")
        sizes = _sizes(kind)
        if name in inferred and not _fits(array.shape, sizes):
            raise ModelError(
                f"{what} gave the shape {list(array.shape)} for the output {name!r}, "
                f"which is {shape_text(sizes or ())} in the model"
            )


def _is_declared(array: np.ndarray | np.generic, kind: onnx.TypeProto) -> bool:
    """Whether an array is what the model declares in full."""
    sizes = _sizes(kind)
    return sizes is not None and array.dtype == _dtype(kind) and _fits(array.shape, sizes)


def _dtype(kind: onnx.TypeProto) -> np.dtype | None:
    """The element type of a declared tensor as numpy has it; None where the model does not say, or for text."""
    import onnx

    elem_type = kind.tensor_type.elem_type
    if not elem_type or elem_type == onnx.TensorProto.STRING:
        return None
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, ValueError, TypeError):
        return None


def _fits(shape: Sequence[int], sizes: Sequence[int | None] | None) -> bool:
    return sizes is None or (len(sizes) == len(shape) and all(size in (None, own) for size, own in zip(sizes, shape)))


def _sizes(kind: onnx.TypeProto) -> list[int | None] | None:
    """The shape of a declared tensor, None for a size left open; None when there is no shape."""
    if not kind.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in kind.tensor_type.shape.dim]
