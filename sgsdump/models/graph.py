"""Index and utilities of an ONNX graph: producers, consumers, constants, bodies, execution order and tensor types.

Names that the bodies of If, Loop and Scan capture from outside count as read by the node with the body. onnx infers
types on a skeleton whose large weights are inputs; on the model itself, onnx would copy all weights.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.external_data import is_outside, read_outside

if TYPE_CHECKING:
    import onnx
    from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

# Weights up to this many elements are mostly shape parameters, whose values shape inference needs.
SMALL_WEIGHT = 1024
# Inference treats any vector as a shape and creates a name for each unknown size: 70 bytes per element.
LONG_VECTOR = 1 << 16
# onnxruntime operators unknown to onnx's inference; the output has the type of the first input.
UNKNOWN_TO_ONNX = frozenset(["SimplifiedLayerNormalization"])
# The IR version from which weights need not be among the inputs.
UNLISTED_WEIGHTS = 4
# Both spellings of the domain of standard ONNX operators.
MAIN_DOMAINS = ("", "ai.onnx")

# Metadata key of the facts of the .sim file that a model was read from.
SIM_FACTS = "sgsdump.sim"

# Operators whose output has each input value exactly once, in another order or shape.
REARRANGING = frozenset(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"))
# A # before a word ends a name derived from a tensor's. Names of a folded BatchNormalization are the model's own.
_ENDING = re.compile(r"#+(?=[A-Za-z])(?!bias\b|folded:)")


@dataclass(frozen=True)
class Graph:
    """Read-only view of ``proto.graph``; make a new one after changing the proto."""

    proto: ModelProto

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """Nodes of the graph, held so that each stays the same Python object while this view exists."""
        return list(self.proto.graph.node)

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Initializers by name (weights, biases, shape parameters)."""
        return {t.name: t for t in self.proto.graph.initializer}

    @cached_property
    def inputs(self) -> list[str]:
        """Real inputs, without the weights that older models list here."""
        return [i.name for i in self.proto.graph.input if i.name not in self.constants]

    @cached_property
    def outputs(self) -> list[str]:
        return [o.name for o in self.proto.graph.output]

    @cached_property
    def producer(self) -> dict[str, NodeProto]:
        return {name: node for node in self.nodes for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[NodeProto]]:
        readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys([*node.input, *captured(node)]):
                if name:
                    readers[name].append(node)
        return dict(readers)

    @cached_property
    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Shapes of all tensors of known rank; None for an unknown size."""
        types = {**infer_types(self.proto), **{output.name: output.type for output in self.proto.graph.output}}
        return {name: tuple(sizes) for name, kind in types.items() if (sizes := sizes_of(kind)) is not None}

    @cached_property
    def from_shapes(self) -> frozenset[str]:
        """Tensors that depend on shapes only, not on values: constants once the input size is known."""
        found: set[str] = set()
        for node in self.nodes:
            variables = self.variables(node)
            if node.op_type in ("Shape", "Size") or (variables and found.issuperset(variables)):
                found.update(node.output)
        return frozenset(found)

    def value(self, name: str) -> np.ndarray:
        """Return the values of a constant. Raises ModelError if damaged."""
        return values_of(self.constants[name])

    def variables(self, node: NodeProto) -> list[str]:
        """Return the distinct inputs of a node that are not constants, in order."""
        return [name for name in dict.fromkeys(node.input) if name and name not in self.constants]

    def sole_consumer(self, name: str) -> NodeProto | None:
        """Return the only node that reads a tensor; None if several do, or if the tensor is a graph output."""
        readers = self.consumers.get(name, [])
        if len(readers) != 1 or name in self.outputs or name not in readers[0].input:
            return None
        return readers[0]


def mark_of(proto: ModelProto) -> str:
    """Return the separator between a tensor's name and a word in derived names (``conv1#stored``).

    The separator is ``#``, repeated more often than in any name of the model before a letter, so that derived names are
    unique.
    """
    graph = proto.graph
    names = [tensor.name for tensor in (*graph.input, *graph.initializer)]
    names += [name for node in graph.node for name in (node.name, *node.output)]
    return "#" * (1 + max((len(run) for name in names for run in _ENDING.findall(name)), default=0))


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return the Python value of an attribute, or ``default`` if the node lacks it."""
    from onnx import helper

    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the sub-graphs of a node: branches of If, bodies of Loop and Scan."""
    for item in node.attribute:
        if item.HasField("g"):
            yield item.g
        yield from item.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and the bodies in it at any depth."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from all_graphs(body)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, each followed by the nodes in its bodies at any depth."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from all_nodes(body.node)


def inner_tensors(node: NodeProto) -> Iterator[str]:
    """Yield the names of tensors computed in a node's bodies at any depth; these cannot be model outputs."""
    for body in bodies(node):
        for inner in all_nodes(body.node):
            yield from filter(None, inner.output)


def captured(node: NodeProto) -> list[str]:
    """Return the outer names that a node's bodies read, in order of first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        local = _local_names(body)
        used = [name for inner in body.node for name in (*inner.input, *captured(inner))]
        used += [info.name for info in body.output]
        names.update(dict.fromkeys(name for name in used if name and name not in local))
    return list(names)


def _local_names(body: GraphProto) -> set[str]:
    """Return the names that a body defines itself."""
    produced = (output for inner in body.node for output in inner.output)
    return {*(info.name for info in body.input), *weight_names(body), *produced}


def needs(node: NodeProto) -> set[str]:
    """Return the names that a node reads: its inputs and the outer values that its bodies capture."""
    return {name for name in (*node.input, *captured(node)) if name}


def reading(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """Return a copy of a node with its inputs and captured outer values renamed."""
    copy = type(node)()
    copy.CopyFrom(node)
    _rename_reads(copy, names)
    return copy


def _rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for body in bodies(node):
        local = _local_names(body)
        outer = {name: new for name, new in names.items() if name not in local}
        for inner in body.node:
            _rename_reads(inner, outer)
        for info in body.output:
            info.name = outer.get(info.name, info.name)


def drop_unused_constants(proto: ModelProto) -> None:
    """Remove unused initializers, and the graph inputs that older models list for them, in place."""
    graph = Graph(proto)
    used = set(graph.consumers) | set(graph.outputs)
    for field in (proto.graph.initializer, proto.graph.input):
        for index in range(len(field) - 1, -1, -1):
            if field[index].name in graph.constants and field[index].name not in used:
                del field[index]


def unlist_weights(proto: ModelProto) -> None:
    """Remove the weights from the graph's inputs, where models of IR version 3 list them, in place.

    A listed weight is not a constant but the default of an input.
    """
    weights = weight_names(proto.graph)
    inputs = [entry for entry in proto.graph.input if entry.name not in weights]
    if len(inputs) < len(proto.graph.input):
        proto.ir_version = max(proto.ir_version, UNLISTED_WEIGHTS)
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)


def weight_names(graph: GraphProto) -> set[str]:
    """Return the names of dense and sparse initializers."""
    return {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}


def weights_of(graph: GraphProto) -> dict[str, TensorProto | SparseTensorProto]:
    """Return dense, then sparse initializers by name."""
    return {t.name: t for t in graph.initializer} | {t.values.name: t for t in graph.sparse_initializer}


def has_weights_outside(proto: ModelProto) -> bool:
    """Return whether the values of any initializer are outside the model."""
    return any(tensor.data_location == tensor.EXTERNAL for tensor in proto.graph.initializer)


def opset_of(proto: ModelProto, absent: int = 1) -> int:
    """Return the version of the standard operators that a model requires; ``absent`` if not given."""
    return next((entry.version for entry in proto.opset_import if entry.domain in MAIN_DOMAINS), absent)


def called(node: NodeProto) -> str:
    """Return how messages name a node: ``node 'conv1' (Conv)``; a node without a name is named by its first output."""
    operator = f"{node.domain}.{node.op_type}" if node.domain not in MAIN_DOMAINS else node.op_type
    if node.name:
        return f"node {node.name!r} ({operator})"
    return f"the {operator} node that computes {next(filter(None, node.output), 'nothing')!r}"


def sorted_nodes(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes in an executable order that follows the file's order where possible.

    Raises ModelError if the graph has a cycle, a tensor computed twice, or a tensor that no node computes.
    """
    available = weight_names(graph) | {info.name for info in graph.input}
    makers = _makers(graph, available)
    waits: list[int] = []
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        sources = set()
        for name in needs(node) - available:
            if name not in makers:
                raise ModelError(f"{called(node)} needs the tensor {name!r}, which nothing in the model computes")
            sources.add(makers[name])
        waits.append(len(sources))
        for source in sources:
            users.setdefault(source, []).append(index)
    order = _ready_first(waits, users)
    if len(order) < len(graph.node):
        stuck = min(set(range(len(graph.node))) - set(order))
        raise ModelError(f"the model's graph has a cycle: {called(graph.node[stuck])} depends on its own output")
    return [graph.node[index] for index in order]


def with_nodes(proto: ModelProto, nodes: Iterable[NodeProto]) -> ModelProto:
    """Return a copy of the model with these nodes instead of its own."""
    result = type(proto)()
    result.CopyFrom(proto)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def _makers(graph: GraphProto, available: set[str]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in available:
                raise ModelError(f"{called(node)} computes the tensor {name!r}, which is already an input or weight")
            if name in makers:
                raise ModelError(f"two nodes of the model compute the tensor {name!r}; {called(node)} is the second")
            makers[name] = index
    return makers


def _ready_first(waits: list[int], users: dict[int, list[int]]) -> list[int]:
    """Run Kahn's algorithm with a heap: among the ready nodes, the first in the file goes first."""
    ready = [index for index, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users.get(index, ()):
            waits[user] -= 1
            if waits[user] == 0:
                heapq.heappush(ready, user)
    return order


def infer_types(
    proto: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    nodes: Iterable[onnx.NodeProto] | None = None,
) -> dict[str, onnx.TypeProto]:
    """Return the type of every input, weight and node output of the main graph whose type can be inferred.

    shapes  shape by input name, if known better than from the model; the model's declared types of inner tensors are
            then ignored
    nodes   the graph's nodes in an executable order, if the file's own order is not executable
    """
    import onnx

    model = _skeleton(proto, shapes or {}, proto.graph.node if nodes is None else nodes)
    if not shapes:
        model.graph.value_info.extend(proto.graph.value_info)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:
        # A model can run even if shape inference fails; then only its declared types are known.
        inferred = model.graph
    types = {t.name: tensor_type(t) for t in inferred.initializer}
    return types | {info.name: info.type for info in (*inferred.value_info, *inferred.input)}


def tensor_type(tensor: onnx.TensorProto) -> onnx.TypeProto:
    """Return the type of a weight."""
    import onnx

    return onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)


def is_known(kind: onnx.TypeProto | None) -> bool:
    """Return whether a type is sufficient for a graph input: a kind of value, and the element type of a tensor."""
    if kind is None or kind.WhichOneof("value") is None:
        return False
    return kind.WhichOneof("value") != "tensor_type" or kind.tensor_type.elem_type != 0


def sizes_of(kind: onnx.TypeProto) -> list[int | None] | None:
    """Return the sizes of a tensor type, None for an open size; None without a shape."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]


def values_of(tensor: onnx.TensorProto) -> np.ndarray:
    """Return the values of a weight. Raises ModelError if damaged."""
    from onnx import numpy_helper

    if tensor.data_location == tensor.EXTERNAL and is_outside(tensor):
        return read_outside(tensor)
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ModelError(
            f"the values of the weight {tensor.name!r} cannot be read ({type(error).__name__}: {error}); if the "
            f"model's file is damaged, export the model again"
        ) from None


def nbytes_of(tensor: onnx.TensorProto) -> int:
    """Return the bytes of a weight's values in numpy; 0 for a type unknown to numpy."""
    dtype = dtype_of(tensor.data_type)
    return 0 if dtype is None else dtype.itemsize * math.prod(tensor.dims)


def dtype_of(elem_type: int) -> np.dtype | None:
    """Return the numpy dtype of an ONNX element type; None if neither numpy nor ml_dtypes has it."""
    import onnx

    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, ValueError, TypeError):
        return None


def _stand_in(tensor: onnx.TensorProto) -> onnx.TypeProto:
    """Return the type of the input that replaces a weight; the length of a long vector is left open."""
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
        elif node.op_type in UNKNOWN_TO_ONNX and len(node.output) == 1:
            graph.node.add(op_type="Identity", input=node.input[:1], output=node.output)
        else:
            graph.node.append(node)
    graph.input.extend(onnx.ValueInfoProto(name=name, type=kind) for name, kind in big.items())
    return model


def without_values(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with nodes, names, types and plain attributes; weights without values, no functions."""
    import onnx

    model = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, producer_name="sgsdump")
    _copy_graph(proto.graph, model.graph)
    return model


def _copy_graph(graph: onnx.GraphProto, copy: onnx.GraphProto) -> None:
    copy.name = graph.name
    copy.input.extend(graph.input)
    copy.output.extend(graph.output)
    for tensor in graph.initializer:
        copy.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    for sparse in graph.sparse_initializer:
        copy.initializer.add(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)
    for node in graph.node:
        new = copy.node.add(name=node.name, op_type=node.op_type, domain=node.domain)
        new.input.extend(node.input)
        new.output.extend(node.output)
        new.metadata_props.extend(node.metadata_props)
        for item in node.attribute:
            _copy_attribute(item, new.attribute.add(name=item.name, type=item.type))


def _copy_attribute(item: onnx.AttributeProto, copy: onnx.AttributeProto) -> None:
    """Copy an attribute: bodies without values, no long lists and texts, which are tables and weights."""
    if item.HasField("g"):
        _copy_graph(item.g, copy.g)
    for body in item.graphs:
        _copy_graph(body, copy.graphs.add())
    if item.HasField("t"):
        copy.t.name, copy.t.data_type = item.t.name, item.t.data_type
        copy.t.dims.extend(item.t.dims)
    for field in ("f", "i", "s"):
        if item.HasField(field) and (field != "s" or len(item.s) <= SMALL_WEIGHT):
            setattr(copy, field, getattr(item, field))
    for field in ("floats", "ints"):
        if len(getattr(item, field)) <= SMALL_WEIGHT:
            getattr(copy, field).extend(getattr(item, field))


# Name ending of a tensor that the SDK's converter transposes back to its own order for a convolution.
BROUGHT_BACK = "_transpose_output"
# Name ending of a fully connected operator's own copy of its input.
RESHAPED = "_reshape"
# Name ending of a Softmax over several axes (before opset 13) that onnx's version converter splits: the Reshape after
# the Softmax has the model's own name.
TAKEN_APART = "_intermediate"
# Operators with 2-D outputs in the SDK's Caffe converter; the output of a fully connected operator has four dimensions.
FLAT = ("Concat", "Flatten", "Reshape")
# Name ending of the output of a Caffe Reorg before the SDK's converter transposes it back.
CUT_TO_PIXELS = "_reshape#1_output"
_LEAVES_ORDER = ("Transpose", "Reshape", "DepthToSpace")
_TAKES_ORDER_BACK = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Resize")


def is_reshape_of_converter(node: NodeProto) -> bool:
    """Return whether the SDK's converter made the node: the reshape before a fully connected operator.

    The converter makes the same kind of node before a product that is not 2-D.
    """
    return node.op_type in ("Flatten", "Identity") and node.output[0].startswith(f"{node.input[0]}{RESHAPED}")


def is_taken_apart(graph: Graph, softmax: str) -> bool:
    """Return whether a Softmax's output only feeds the Reshape that restores the shape under the model's own name."""
    readers = graph.consumers.get(softmax, ())
    return len(readers) == 1 and puts_together(readers[0])


def puts_together(node: NodeProto) -> bool:
    """Return whether a Reshape has the name of a split Softmax."""
    return node.op_type == "Reshape" and node.input[0] == node.output[0] + TAKEN_APART


def is_of_sim(proto: ModelProto) -> bool:
    """Return whether a model was read from a .sim file: its metadata have the facts of ``sim_facts``."""
    return any(entry.key == SIM_FACTS for entry in proto.metadata_props)


def in_model_order(graph: Graph) -> frozenset[str]:
    """Return the 4-D tensors that the SDK keeps in the model's order of axes; all others are N, H, W, C.

    These are outputs of a Transpose or Reshape, and results computed from them before the next convolution. A model
    read from a .sim file has none.
    """
    found: set[str] = set()
    for node in () if is_of_sim(graph.proto) else graph.nodes:
        shape, shapes = graph.shapes.get(node.output[0]), [graph.shapes.get(name) for name in node.input]
        leaves = node.op_type in _LEAVES_ORDER and (node.op_type != "Reshape" or shape is None or shapes[0] != shape)
        leaves = leaves and not puts_together(node)
        turned = found.intersection(node.input)
        spread = shape in shapes and not any(graph.shapes.get(name) == shape for name in turned)
        # A Concat of tensors in both orders is computed in the hardware's order.
        mixed = node.op_type == "Concat" and not found.issuperset(node.input)
        if leaves or (turned and not spread and not mixed and node.op_type not in _TAKES_ORDER_BACK):
            back = node.op_type == "Transpose" and node.input[0].endswith(CUT_TO_PIXELS)
            found.update(name for name in node.output if name and not back and not name.endswith(BROUGHT_BACK))
    return frozenset(
        name for name in found if len(shape := graph.shapes.get(name, (0,) * 4)) == 4 and set(shape[2:]) != {1}
    )
