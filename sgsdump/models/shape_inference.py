"""The type of every tensor of a graph (element type and shape), by onnx's own inference, without touching weights.

Inference runs on a skeleton whose big weights are inputs: on the model itself it would copy them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# Weights up to this many elements are shape parameters more often than not; shape inference wants their values.
SMALL_WEIGHT = 1024
# Inference takes any vector for a shape and invents a name for each unknown size in it: 70 bytes an element.
LONG_VECTOR = 1 << 16


def infer_types(
    proto: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    nodes: Iterable[onnx.NodeProto] | None = None,
) -> dict[str, onnx.TypeProto]:
    """TypeProto by tensor name, of every input, weight and node output of the main graph whose type can be known.

    shapes  shape by input name, where it is known better than the model says; the types that the model itself
            declares for inner tensors are then ignored.
    nodes   the graph's nodes in an order in which they can run, where the file's own order is none.
    """
    import onnx

    model = _skeleton(proto, shapes or {}, proto.graph.node if nodes is None else nodes)
    if not shapes:
        model.graph.value_info.extend(proto.graph.value_info)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:
        # A model that defeats shape inference may still run; what it declares is then all there is to know.
        inferred = model.graph
    types = {t.name: tensor_type(t) for t in inferred.initializer}
    return types | {info.name: info.type for info in (*inferred.value_info, *inferred.input)}


def tensor_type(tensor: onnx.TensorProto) -> onnx.TypeProto:
    """The TypeProto of a weight."""
    import onnx

    return onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)


def is_known(kind: onnx.TypeProto | None) -> bool:
    """Whether a type says enough for a graph input: a kind of value and, for a tensor, its element type."""
    if kind is None or kind.WhichOneof("value") is None:
        return False
    return kind.WhichOneof("value") != "tensor_type" or kind.tensor_type.elem_type != 0


def _stand_in(tensor: onnx.TensorProto) -> onnx.TypeProto:
    """The type of the input that stands for a weight; a long vector's length is left open."""
    import onnx

    kind = tensor_type(tensor)
    if len(tensor.dims) == 1 and tensor.dims[0] > LONG_VECTOR:
        return onnx.helper.make_tensor_type_proto(tensor.data_type, [None])
    return kind


def _skeleton(
    proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], nodes: Iterable[onnx.NodeProto]
) -> onnx.ModelProto:
    import onnx
    from onnx.helper import make_tensor_value_info

    weights = {t.name: t for t in proto.graph.initializer}
    outside = onnx.TensorProto.EXTERNAL
    big = {
        name: _stand_in(tensor)
        for name, tensor in weights.items()
        if math.prod(tensor.dims) > SMALL_WEIGHT or tensor.data_location == outside
    }
    for sparse in proto.graph.sparse_initializer:
        big[sparse.values.name] = onnx.helper.make_tensor_type_proto(sparse.values.data_type, sparse.dims)
    model = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    graph = model.graph
    graph.name = "skeleton"
    for info in proto.graph.input:
        if info.name in shapes:
            elem_type = info.type.tensor_type.elem_type
            graph.input.append(make_tensor_value_info(info.name, elem_type, shapes[info.name]))
        elif info.name not in weights and info.name not in big:
            graph.input.append(info)
    graph.initializer.extend(t for t in proto.graph.initializer if t.name not in big)
    for node in nodes:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is not None and math.prod(value.dims) > SMALL_WEIGHT:
            big[node.output[0]] = _stand_in(value)
        else:
            graph.node.append(node)
    graph.input.extend(onnx.ValueInfoProto(name=name, type=kind) for name, kind in big.items())
    return model
