"""Lift a model to an opset and IR version in which every operator that quantising inserts exists.

onnxruntime's own optimisations of QuantizeLinear and DequantizeLinear need opset 13 as well: in an older model they
insert operators that it does not have, and the model does not load. From opset 14 on BatchNormalization says whether it
is being trained. Layers keep their names; where an operator meant something else (a Softmax over several axes) the
converter writes it as several.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sgsdump.errors import ModelError
from sgsdump.models.model import weight_names
from sgsdump.models.passes.fold_constants import fold_constants
from sgsdump.models.shape_inference import SMALL_WEIGHT, tensor_type

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

OPSET = 15
IR_VERSION = 8
# Of these opset 13 changed only which axes count: not their meaning where the further axes have length 1.
_SOFTMAXES = ("Softmax", "LogSoftmax", "Hardmax")
_SET_ASIDE = "sgsdump.set_aside"


def lift(proto: ModelProto) -> ModelProto:
    """The model at opset 15 and IR version 8 or newer, weights no longer among its inputs; ``proto`` itself if it is
    so already. Weights must be in the model, nodes in topological order.

    Raises ModelError for a model that cannot be converted.
    """
    opset = opset_of(proto)
    weights = weight_names(proto.graph)
    listed = any(entry.name in weights for entry in proto.graph.input)
    if opset >= OPSET and proto.ir_version >= IR_VERSION and not listed:
        return proto
    lifted = type(proto)()
    lifted.CopyFrom(proto)
    lifted.ir_version = max(lifted.ir_version, IR_VERSION)
    inputs = [entry for entry in lifted.graph.input if entry.name not in weights]
    del lifted.graph.input[:]
    lifted.graph.input.extend(inputs)
    return _converted(lifted, opset) if opset < OPSET else lifted


def opset_of(proto: ModelProto) -> int:
    """The version of ONNX's own operators that a model asks for."""
    return next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)


def _converted(proto: ModelProto, opset: int) -> ModelProto:
    from onnx import version_converter

    before = {name for node in proto.graph.node for name in node.output if name}
    weights = _without_weights(proto)
    _set_softmaxes_aside(proto)
    try:
        converted = version_converter.convert_version(proto, OPSET)
    except Exception as error:  # the converter raises whatever its C++ throws
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"the model is of opset {opset}; quantising needs opset {OPSET}, and onnx cannot convert it "
            f"({lines[-1][:150]}); export it at opset {OPSET} or newer"
        ) from None
    for node in converted.graph.node:
        if node.domain == _SET_ASIDE:
            node.domain = ""
    kept = [entry for entry in converted.opset_import if entry.domain != _SET_ASIDE]
    del converted.opset_import[:]
    converted.opset_import.extend(kept)
    lost = before - {name for node in converted.graph.node for name in node.output}
    if lost:
        raise ModelError(
            f"the model is of opset {opset}; quantising needs opset {OPSET}, and converting it loses "
            f"{min(lost)!r}; export it at opset {OPSET} or newer"
        )
    _with_weights(converted, weights)
    return fold_constants(converted)


def _without_weights(proto: ModelProto) -> list[TensorProto]:
    """Take the big initializers out of a model, which conversion and inference would copy several times; they are its
    inputs meanwhile. Returns all of them."""
    from onnx import ValueInfoProto

    weights = list(proto.graph.initializer)
    del proto.graph.initializer[:]
    for weight in weights:
        if math.prod(weight.dims) > SMALL_WEIGHT:
            proto.graph.input.append(ValueInfoProto(name=weight.name, type=tensor_type(weight)))
        else:
            proto.graph.initializer.append(weight)
    return weights


def _with_weights(proto: ModelProto, weights: list[TensorProto]) -> None:
    """Put them back, in their order, before what the conversion added."""
    names = {weight.name for weight in weights}
    inputs = [entry for entry in proto.graph.input if entry.name not in names]
    left = {weight.name: weight for weight in proto.graph.initializer}
    del proto.graph.input[:]
    del proto.graph.initializer[:]
    proto.graph.input.extend(inputs)
    proto.graph.initializer.extend([left.pop(weight.name, weight) for weight in weights])
    proto.graph.initializer.extend(left.values())


def _set_softmaxes_aside(proto: ModelProto) -> None:
    """Keep the converter from taking a Softmax apart whose axes after the first have length 1."""
    import onnx
    from onnx import helper

    shapes = _shapes(proto)
    aside = False
    for node in proto.graph.node:
        if node.op_type not in _SOFTMAXES or node.domain not in ("", "ai.onnx"):
            continue
        axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
        shape = shapes.get(node.input[0])
        if shape is None or not -len(shape) <= axis < len(shape):
            continue
        axis %= len(shape)
        if math.prod(size or 0 for size in shape[axis + 1 :]) == 1:
            _with_axis(node, helper.make_attribute("axis", axis))
            node.domain = _SET_ASIDE
            aside = True
    if aside:
        proto.opset_import.append(onnx.helper.make_opsetid(_SET_ASIDE, 1))


def _with_axis(node: NodeProto, axis: object) -> None:
    others = [item for item in node.attribute if item.name != "axis"]
    del node.attribute[:]
    node.attribute.extend([*others, axis])


def _shapes(proto: ModelProto) -> dict[str, list[int | None]]:
    """Shapes as far as they are known, None for a size that is not."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:  # an operator onnx does not know: the converter decides
        return {}
    shapes: dict[str, list[int | None]] = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        if kind.HasField("shape"):
            shapes[info.name] = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
    return shapes
