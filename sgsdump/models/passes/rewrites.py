"""Rewrites of a whole model: inlined functions, folded constants, fixed input sizes, added outputs, single precision.

Folding replaces nodes that do not depend on the model's inputs: Constant nodes, Shape of a known shape, and all results
of these. Exporters write long chains of Shape, Gather, Unsqueeze and Concat around every Reshape. These chains are no
layers of the network and no integer arithmetic of the hardware, and only clutter a list of layers. The SDK folds them
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import InputError, hint
from sgsdump.models.graph import (
    MAIN_DOMAINS,
    Graph,
    all_graphs,
    all_nodes,
    attribute,
    bodies,
    nbytes_of,
    sizes_of,
    values_of,
)
from sgsdump.tensors.types import fits, shape_text

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto


LIMIT_BYTES = 16 << 20
MAX_ROUNDS = 8
# ONNX element types of float32, int32, int64, bool and float64.
_PLAIN = frozenset((1, 6, 7, 9, 11))
# Operators that draw random numbers, quantise, or that onnx's evaluator computes incorrectly.
LEFT = frozenset(
    "AveragePool BatchNormalization Bernoulli GRU Hardmax LSTM LogSoftmax LpNormalization MaxPool Multinomial "
    "QuantizeLinear RNN RoiAlign Softmax".split()
)
# With nested function calls, a small file may expand to more nodes than fit in memory.
MOST_NODES = 1_000_000
# Attributes with the output type of a node.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
_Key = tuple[str, str, str]


def fold_constants(proto: ModelProto) -> ModelProto:
    """Return a copy of the model whose foldable nodes are initializers. Graph outputs are never folded."""
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
    """Evaluate the most frequent operators with numpy: loading onnx's evaluator takes a tenth of a second.

    Returns None for other operators, and where numpy would fail or compute another result.
    """
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
    """Run one node in onnx's reference evaluator; return None if it cannot, in which case the node stays."""
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
        # The node still runs in the real executor: keeping it is always correct.
        return None
    arrays = dict(zip([n for n in node.output if n], results))
    ok = all(isinstance(a, np.ndarray | np.generic) and np.asarray(a).nbytes <= LIMIT_BYTES for a in arrays.values())
    return arrays if ok else None


def _static_shapes(proto: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return shapes without open dimensions, by onnx's inference with data propagation through shape arithmetic."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # raises arbitrary errors for a damaged model; then only declared shapes are known
        inferred = proto
    shapes = {}
    for info in [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]:
        sizes = sizes_of(info.type)
        if sizes is not None and all(size is not None and size > 0 for size in sizes):
            shapes[info.name] = tuple(size for size in sizes if size is not None)
    return shapes


def inline_functions(proto: ModelProto) -> ModelProto:
    """Return the model with its functions inlined, so that inner tensors can be dumped; ``proto`` itself without any.

    A runtime inlines functions before it runs a model, so values are unchanged. Inner tensors and nodes are numbered
    (``sum__1``, ``sum__2`` for the second call); outputs of the calls keep their names. A function for another opset
    than the model's stays. All functions stay if one calls itself, if they expand to more than MOST_NODES nodes, or if
    onnx refuses.
    """
    if not proto.functions or not _is_finite(proto):
        return proto
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except Exception:  # raises arbitrary C++ errors; a runtime then reports the error of the function
        return proto


def _is_finite(proto: ModelProto) -> bool:
    """Return whether the functions expand to at most MOST_NODES nodes for the whole model."""
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
    """Return a copy whose named inputs have these shapes; a named size is set in all inputs that have it.

    Raises InputError for an unknown input, another number of axes, a size that contradicts a fixed one, and two sizes
    for one name.
    """
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    names = Graph(result).inputs
    inputs = {info.name: info.type.tensor_type.shape for info in result.graph.input if info.name in names}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(
                f"a shape is given for {name!r}, but the model has no such input{hint(name, list(inputs))}"
            )
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
            f"declared as {shape_text(sizes_declared)}"
        )
    for dim, size in zip(declared.dim, shape):
        if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
            raise InputError(
                f"the given shapes contradict each other: dimension {dim.dim_param!r} of the model is "
                f"{sizes[dim.dim_param]} and also {size} ({name!r})"
            )
        if not dim.HasField("dim_value"):
            dim.dim_value = size


def mark_outputs(proto: ModelProto, names: Iterable[str]) -> ModelProto:
    """Return a copy with the named tensors as additional outputs; names that no node computes are ignored.

    A Caffe network does not tell which blobs a user wants; input_config.ini does.
    """
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
    """Return a copy with float32 in place of every float16, bfloat16 and float64; ``proto`` itself if there is none.

    Quantisation works in float32: the fixed model's integers represent real numbers, whatever the precision of the
    float model. Casts between floating-point types stay, as casts from float32 to float32. Weights must be in the
    model.
    """
    result = type(proto)()
    result.CopyFrom(proto)
    changed = [_in_single(graph) for graph in all_graphs(result.graph)]
    return result if any(changed) else proto


def _in_single(graph: GraphProto) -> bool:
    """Convert a graph in place; return whether anything changed."""
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

    # A double beyond float32 becomes infinite, which calibration reports.
    with np.errstate(over="ignore"):
        values = values_of(tensor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _tensor_type(kind: TypeProto) -> TypeProto.Tensor:
    """Return the type of a tensor, or of the tensors in a sequence or optional."""
    while not kind.HasField("tensor_type"):
        if kind.HasField("sequence_type"):
            kind = kind.sequence_type.elem_type
        elif kind.HasField("optional_type"):
            kind = kind.optional_type.elem_type
        else:
            break
    return kind.tensor_type
