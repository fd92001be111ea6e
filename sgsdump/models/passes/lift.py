"""Conversion of a model to an opset and IR version with every operator that quantisation inserts.

onnxruntime's optimisations of QuantizeLinear and DequantizeLinear need opset 13 too: in an older model they insert
operators that it does not have, and the model does not load. From opset 14, BatchNormalization has a training mode.
Layers keep their names. If the meaning of an operator changed (a Softmax over several axes), the converter writes it as
several operators.

onnx's converter fails for an Upsample, and for a Pad with a value that its mode does not use. It misinterprets the
Resize of opset 10, and a Hardmax over several axes. These operators are rewritten here in their opset 15 form, and kept
in a separate domain until the converter has finished. The same is done for experimental operators that onnxruntime runs
up to opset 9 and that ONNX has removed (Affine, Crop, ImageScaler ...).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.graph import (
    MAIN_DOMAINS,
    SMALL_WEIGHT,
    Graph,
    all_nodes,
    attribute,
    bodies,
    infer_types,
    opset_of,
    sizes_of,
    tensor_type,
    unlist_weights,
    weight_names,
)
from sgsdump.models.passes.rewrites import fold_constants

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

OPSET = 15
IR_VERSION = 8
# Opset 13 changed only which axes these operators use: no difference if the further axes have length 1.
_SOFTMAXES = ("Softmax", "LogSoftmax", "Hardmax")
_SET_ASIDE = "sgsdump.set_aside"


def lift(proto: ModelProto) -> ModelProto:
    """Return the model at opset 15 and IR version 8 or newer, without weights among its inputs.

    Weights must be in the model, and nodes in topological order. Raises ModelError for a model that cannot be
    converted.
    """
    opset = opset_of(proto)
    weights = weight_names(proto.graph)
    listed = any(entry.name in weights for entry in proto.graph.input)
    if opset >= OPSET and proto.ir_version >= IR_VERSION and not listed:
        return proto
    lifted = type(proto)()
    lifted.CopyFrom(proto)
    lifted.ir_version = max(lifted.ir_version, IR_VERSION)
    unlist_weights(lifted)
    return _converted(lifted, opset) if opset < OPSET else lifted


def _converted(proto: ModelProto, opset: int) -> ModelProto:
    from onnx import version_converter

    if not proto.opset_import:
        raise ModelError(
            f"the model names no opset: it is older than ONNX 1.0; export it again at opset {OPSET} or newer"
        )
    before = {name for node in proto.graph.node for name in node.output if name}
    _set_aside(proto, opset)
    weights = _without_weights(proto)
    try:
        converted = version_converter.convert_version(proto, OPSET)
    except Exception as error:  # the converter raises arbitrary C++ errors
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"the model has opset {opset}, but quantisation needs opset {OPSET}, and onnx cannot convert "
            f"the model ({lines[-1][:150]}); export the model at opset {OPSET} or newer"
        ) from None
    for node in all_nodes(converted.graph.node):
        if node.domain == _SET_ASIDE:
            node.domain = ""
    kept = [entry for entry in converted.opset_import if entry.domain != _SET_ASIDE]
    del converted.opset_import[:]
    converted.opset_import.extend(kept)
    lost = before - {name for node in converted.graph.node for name in node.output}
    if lost:
        raise ModelError(
            f"the model has opset {opset}. Quantisation needs opset {OPSET}, but conversion to this "
            f"opset loses the tensor {min(lost)!r}; export the model at opset {OPSET} or newer"
        )
    _with_weights(converted, weights)
    return fold_constants(converted)


def _without_weights(proto: ModelProto) -> list[TensorProto]:
    """Replace large initializers by inputs, because conversion and inference copy them several times; return all."""
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
    """Restore the weights in order, before those that the conversion added."""
    names = {weight.name for weight in weights}
    inputs = [entry for entry in proto.graph.input if entry.name not in names]
    small = {weight.name: weight for weight in proto.graph.initializer}
    del proto.graph.input[:]
    del proto.graph.initializer[:]
    proto.graph.input.extend(inputs)
    proto.graph.initializer.extend([small.pop(weight.name, weight) for weight in weights])
    proto.graph.initializer.extend(small.values())


def _set_aside(proto: ModelProto, opset: int) -> None:
    """Rewrite operators that the converter does not support or misinterprets in opset 15 form, hidden from it."""
    import onnx

    types = infer_types(proto)
    shapes = {name: sizes for name, kind in types.items() if (sizes := sizes_of(kind)) is not None}
    _rewrite(proto.graph, proto, opset, shapes)
    aside = [node for node in all_nodes(proto.graph.node) if node.domain == _SET_ASIDE]
    if not aside:
        return
    proto.opset_import.append(onnx.helper.make_opsetid(_SET_ASIDE, 1))
    # The converter infers no types for an unknown domain.
    declared = {info.name for info in (*proto.graph.value_info, *proto.graph.output)}
    for name in (name for node in aside for name in node.output):
        if name in types and name not in declared:
            proto.graph.value_info.append(onnx.ValueInfoProto(name=name, type=types[name]))


def _rewrite(graph: GraphProto, proto: ModelProto, opset: int, shapes: Mapping[str, Sequence[int | None]]) -> None:
    """Rewrite the nodes of the main graph or a body in place; constants are added to the main graph."""
    nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:]
    for node in nodes:
        for body in bodies(node):
            _rewrite(body, proto, opset, shapes)
        graph.node.extend(_in_new_form(node, proto, opset, shapes))


def _in_new_form(
    node: NodeProto, proto: ModelProto, opset: int, shapes: Mapping[str, Sequence[int | None]]
) -> list[NodeProto]:
    if node.domain not in MAIN_DOMAINS:
        return [node]
    if node.op_type in _SOFTMAXES and opset < 13:
        return _softmax(node, shapes.get(node.input[0]))
    if node.op_type == "Upsample" or (node.op_type == "Resize" and opset == 10):
        return [_resize(node, proto)]
    if node.op_type in EXPERIMENTAL and opset < 10:
        return EXPERIMENTAL[node.op_type](node, proto)
    if node.op_type == "Pad" and opset < 11 and attribute(node, "mode", b"constant") != b"constant":
        _without_attributes(node, "value")
    return [node]


def _softmax(node: NodeProto, shape: Sequence[int | None] | None) -> list[NodeProto]:
    """Rewrite a softmax before opset 13, which covers all axes from its own on.

    If more than one axis counts, the converter splits the operator, except a Hardmax.
    """
    from onnx import helper

    axis = attribute(node, "axis", 1)
    if shape is not None and -len(shape) <= axis < len(shape):
        axis %= len(shape)
        if math.prod(size or 0 for size in shape[axis + 1 :]) == 1:
            _without_attributes(node, "axis")
            node.attribute.append(helper.make_attribute("axis", axis))
            node.domain = _SET_ASIDE
            return [node]
    if node.op_type != "Hardmax":
        return [node]
    source, target = node.input[0], node.output[0]
    flat, chosen, sizes = (f"{target}#{word}" for word in ("flat", "chosen", "sizes"))
    return [
        helper.make_node("Flatten", [source], [flat], axis=axis),
        helper.make_node("Hardmax", [flat], [chosen], domain=_SET_ASIDE, axis=-1),
        helper.make_node("Shape", [source], [sizes]),
        helper.make_node("Reshape", [chosen, sizes], [target], node.name),
    ]


def _resize(node: NodeProto, proto: ModelProto) -> NodeProto:
    """Return an Upsample, or a Resize of opset 10, as the Resize of opset 13.

    Pixels are at multiples of 1 / scale. The nearest pixel is the one before; for a Resize that shrinks, the one after.
    """
    from onnx import helper

    mode, scales = attribute(node, "mode", b"nearest"), attribute(node, "scales")
    name = node.input[1] if len(node.input) > 1 else f"{node.output[0]}#scales"
    if scales is not None:
        _added(proto, name, np.array(scales, np.float32))
    nearest = {"nearest_mode": _nearest(node, name, Graph(proto))} if mode == b"nearest" else {}
    return helper.make_node(
        "Resize",
        [node.input[0], "", name],
        list(node.output),
        node.name,
        domain=_SET_ASIDE,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        **nearest,
    )


def _nearest(node: NodeProto, scales: str, graph: Graph) -> str:
    """Return the nearest_mode; raise ModelError for mixed or unknown scales."""
    if node.op_type == "Upsample":
        return "floor"
    values = graph.value(scales) if scales in graph.constants else np.array([0.0, 2.0])
    if values.max() > 1 and values.min() < 1:
        raise ModelError(
            f"{node.output[0]!r} is a nearest Resize of opset 10 that both enlarges and shrinks, or "
            f"whose scales are not constant. Quantisation needs opset {OPSET}; export the model at "
            f"opset {OPSET} or newer"
        )
    return "ceil" if values.min() < 1 else "floor"


def _affine(node: NodeProto, proto: ModelProto) -> list[NodeProto]:
    """Return nodes for alpha * x + beta."""
    return _in_a_row(node, proto, [("Mul", attribute(node, "alpha", 1.0)), ("Add", attribute(node, "beta", 0.0))])


def _image_scaler(node: NodeProto, proto: ModelProto) -> list[NodeProto]:
    """Return nodes for scale * x + bias per channel."""
    bias = np.reshape(attribute(node, "bias", [0.0]), (-1, 1, 1))
    return _in_a_row(node, proto, [("Mul", attribute(node, "scale", 1.0)), ("Add", bias)])


def _scaled_tanh(node: NodeProto, proto: ModelProto) -> list[NodeProto]:
    """Return nodes for alpha * tanh(beta * x)."""
    alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
    return _in_a_row(node, proto, [("Mul", beta), ("Tanh", None), ("Mul", alpha)])


def _parametric_softplus(node: NodeProto, proto: ModelProto) -> list[NodeProto]:
    """Return nodes for alpha * log(1 + exp(beta * x))."""
    alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
    return _in_a_row(node, proto, [("Mul", beta), ("Softplus", None), ("Mul", alpha)])


def _crop(node: NodeProto, proto: ModelProto) -> list[NodeProto]:
    """Return nodes that remove the border (left, top, right, bottom), or crop to the size ``scale``."""
    from onnx import helper

    left, top, right, bottom = attribute(node, "border")
    size = attribute(node, "scale")
    whole = np.iinfo(np.int64).max
    ends = [top + size[0], left + size[1]] if size else [-bottom or whole, -right or whole]
    bounds = [_added(proto, f"{node.output[0]}#{word}", np.array(values, np.int64))
              for word, values in (("starts", [top, left]), ("ends", ends), ("axes", [2, 3]))]  # fmt: skip
    inputs = [node.input[0], *bounds]
    return [helper.make_node("Slice", inputs, list(node.output), node.name, domain=_SET_ASIDE)]


EXPERIMENTAL = {
    "Affine": _affine,
    "Crop": _crop,
    "ImageScaler": _image_scaler,
    "ParametricSoftplus": _parametric_softplus,
    "ScaledTanh": _scaled_tanh,
}


def _in_a_row(
    node: NodeProto, proto: ModelProto, steps: Sequence[tuple[str, np.ndarray | float | None]]
) -> list[NodeProto]:
    """Return a chain of operators that replaces a node, each with its constant if it has one."""
    from onnx import helper

    nodes: list[NodeProto] = []
    source = node.input[0]
    for number, (op_type, constant) in enumerate(steps, 1):
        last = number == len(steps)
        target = node.output[0] if last else f"{node.output[0]}#{number}"
        values = [] if constant is None else [_added(proto, f"{target}#{op_type}", np.asarray(constant, np.float32))]
        nodes.append(helper.make_node(op_type, [source, *values], [target], node.name if last else None))
        source = target
    return nodes


def _added(proto: ModelProto, name: str, values: np.ndarray) -> str:
    from onnx import numpy_helper

    proto.graph.initializer.append(numpy_helper.from_array(values, name))
    return name


def _without_attributes(node: NodeProto, name: str) -> None:
    others = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend(others)
