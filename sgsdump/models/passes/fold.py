"""Fold away what does not depend on the model's inputs.

Constants: Constant nodes, Shape of a known shape, and what follows from them. Exporters leave long chains of Shape,
Gather, Unsqueeze and Concat around every Reshape. They carry no layer of the network, no integer arithmetic of the
hardware, and only blur a list of layers; the SDK folds them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import MAIN_DOMAINS, Graph, attribute, bodies, nbytes_of, sizes_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LIMIT_BYTES = 16 << 20
MAX_ROUNDS = 8
# float32, int32, int64, bool and float64, by their numbers in onnx.
_PLAIN = frozenset((1, 6, 7, 9, 11))
# Operators that draw random numbers, quantise, or that onnx's evaluator computes otherwise than they are defined.
LEFT = frozenset(
    "AveragePool BatchNormalization Bernoulli GRU Hardmax LSTM LogSoftmax LpNormalization MaxPool Multinomial "
    "QuantizeLinear RNN RoiAlign Softmax".split()
)


def fold_constants(proto: ModelProto) -> ModelProto:
    """A copy of the model whose foldable nodes are initializers. Graph outputs are never folded away."""
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    for _ in range(MAX_ROUNDS):
        if not _fold_constants_once(result):
            break
    return result


def _fold_constants_once(proto: ModelProto) -> bool:
    from onnx import numpy_helper

    graph = Graph(proto)
    shapes = _static_shapes(proto) if any(n.op_type == "Shape" for n in proto.graph.node) else {}
    constant = set(graph.constants)
    folded: list[NodeProto] = []
    values: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        outputs = _evaluate(graph, node, constant, values, shapes)
        if outputs is None or set(node.output) & set(graph.outputs):
            continue
        values.update(outputs)
        constant.update(outputs)
        folded.append(node)
    for node in folded:
        proto.graph.node.remove(node)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    return bool(folded)


def _evaluate(
    graph: Graph, node: NodeProto, constant: set[str], values: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> dict[str, np.ndarray] | None:
    if node.op_type == "Shape" and node.input[0] in shapes:
        shape = shapes[node.input[0]]
        stop = attribute(node, "end", len(shape))
        return {node.output[0]: np.array(shape[attribute(node, "start", 0) : stop], np.int64)}
    if node.op_type.startswith("Random") or node.op_type in LEFT:
        return None
    if node.domain not in MAIN_DOMAINS or any(bodies(node)):
        return None
    if not all(name in constant for name in node.input if name):
        return None
    names = [name for name in dict.fromkeys(node.input) if name]
    if sum(values[n].nbytes if n in values else nbytes_of(graph.constants[n]) for n in names) > LIMIT_BYTES:
        return None
    feeds = {name: values[name] if name in values else graph.value(name) for name in names}
    array = _plain(node, feeds)
    return _run(graph.proto, node, feeds) if array is None else {node.output[0]: array}


def _plain(node: NodeProto, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
    """The operators that nearly every exported model has, by numpy: loading onnx's evaluator takes a tenth of a second.
    None for any other, and for what numpy would compute otherwise or not at all."""
    from onnx import numpy_helper

    arrays = [feeds[name] for name in node.input if name]
    if len(node.output) != 1 or any(array.dtype != np.int64 for array in arrays):
        return None
    value, axes, axis = (attribute(node, name) for name in ("value", "axes", "axis"))
    try:
        if node.op_type == "Constant" and value is not None and value.data_type in _PLAIN:
            return numpy_helper.to_array(value) if nbytes_of(value) <= LIMIT_BYTES else None
        if node.op_type == "Unsqueeze" and (axes is not None or len(arrays) == 2):
            return np.expand_dims(arrays[0], tuple(axes if len(arrays) == 1 else arrays[1].tolist()))
        if node.op_type == "Gather" and len(arrays) == 2:
            return np.asarray(np.take(arrays[0], arrays[1], axis=axis or 0))
        if node.op_type == "Concat" and axis is not None and arrays:
            return np.concatenate(arrays, axis=axis)
    except (ValueError, TypeError, IndexError):
        pass
    return None


def _run(proto: ModelProto, node: NodeProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """One node through onnx's reference evaluator; None when it cannot (the node then simply stays)."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.output if n]
    model = helper.make_model(
        helper.make_graph([node], "fold", inputs, outputs), opset_imports=list(proto.opset_import)
    )
    try:
        results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:
        # Whatever the evaluator lacks, the node still runs in the real executor: leaving it is always right.
        return None
    arrays = dict(zip([n for n in node.output if n], results))
    ok = all(isinstance(a, np.ndarray | np.generic) and np.asarray(a).nbytes <= LIMIT_BYTES for a in arrays.values())
    return arrays if ok else None


def _static_shapes(proto: ModelProto) -> dict[str, tuple[int, ...]]:
    """Shapes without unknown dimensions, by onnx's own inference (with data propagation through shape arithmetic)."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # a damaged model makes it raise anything; what the model declares is then all there is
        inferred = proto
    shapes = {}
    for info in [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]:
        sizes = sizes_of(info.type)
        if sizes is not None and all(size is not None and size > 0 for size in sizes):
            shapes[info.name] = tuple(size for size in sizes if size is not None)
    return shapes
