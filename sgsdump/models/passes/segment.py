"""Splitting of a sorted graph into short segments, each a separate model.

A single run with every tensor as output holds all tensors at once. One run per tensor repeats the whole model. A
segment of a few nodes holds only its own tensors, and every node runs exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sgsdump.models.graph import dtype_of, needs

if TYPE_CHECKING:
    import onnx

MAX_NODES = 12
# If all tensor sizes are known, bytes alone limit the memory; a session costs as much as about ten nodes.
MAX_NODES_OF_KNOWN_SIZE = 32
MAX_BYTES = 32 << 20


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive nodes, the live tensors they read, the initializers they need, and the outputs they compute."""

    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[str, ...]
    weights: tuple[str, ...]
    makes: tuple[str, ...]


def cut(
    nodes: Sequence[onnx.NodeProto],
    weights: Iterable[str],
    sizes: Mapping[str, int],
    max_nodes: int = MAX_NODES,
    max_bytes: int = MAX_BYTES,
    uncut: Collection[str] = (),
) -> list[Segment]:
    """Split sorted nodes into segments of at most ``max_nodes``, and ``max_bytes`` of outputs and weights.

    sizes  bytes by tensor name; a tensor of unknown size counts 0
    uncut  tensors that must be written and read in one segment, whatever its length; see ``unrounded``
    """
    weights = set(weights)
    last_reader = {name: index for index, node in enumerate(nodes) for name in needs(node)} if uncut else {}
    segments: list[Segment] = []
    current: list[onnx.NodeProto] = []
    held, joined_to = 0, -1
    for index, node in enumerate(nodes):
        size = sum(sizes.get(name, 0) for name in {*node.output, *(needs(node) & weights)})
        if current and index > joined_to and (len(current) >= max_nodes or held + size > max_bytes):
            segments.append(segment(current, weights))
            current, held = [], 0
        current.append(node)
        held += size
        joined_to = max([joined_to, *(last_reader.get(name, -1) for name in node.output if name in uncut)])
    if current:
        segments.append(segment(current, weights))
    return segments


def segment(nodes: Sequence[onnx.NodeProto], weights: set[str]) -> Segment:
    """Return the segment of these nodes."""
    makes = [name for node in nodes for name in node.output if name]
    outside = set().union(*(needs(node) for node in nodes)) - set(makes)
    return Segment(tuple(nodes), tuple(sorted(outside - weights)), tuple(sorted(outside & weights)), tuple(makes))


def without_reading(part: Segment, absent: Mapping[str, onnx.TypeProto]) -> Segment:
    """Return the segment with absent optional values (name -> optional type) created inside: they cannot be passed."""
    if not absent:
        return part
    from onnx import helper

    makers = [helper.make_node("Optional", [], [n], type=kind.optional_type.elem_type) for n, kind in absent.items()]
    reads = tuple(name for name in part.reads if name not in absent)
    return Segment((*makers, *part.nodes), reads, part.weights, part.makes)


def sub_model(
    header: onnx.ModelProto, part: Segment, weights: Mapping[str, Any], reads: Mapping[str, onnx.TypeProto]
) -> bytes:
    """Return the segment as a serialised model with every tensor as output.

    header    model that gives IR version, operator sets and functions
    weights   name -> TensorProto or SparseTensorProto, for each of ``part.weights``
    reads     name -> TypeProto, for each of ``part.reads``

    Outputs have no type: onnxruntime infers it, also for sequences and optionals.
    """
    import onnx

    model = onnx.ModelProto(ir_version=header.ir_version, opset_import=header.opset_import, functions=header.functions)
    graph = model.graph
    graph.name = "segment"
    graph.node.extend(part.nodes)
    graph.input.extend(onnx.ValueInfoProto(name=name, type=reads[name]) for name in part.reads)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in part.makes)
    for name in part.weights:
        sparse = isinstance(weights[name], onnx.SparseTensorProto)
        (graph.sparse_initializer if sparse else graph.initializer).append(weights[name])
    return model.SerializeToString()


def tensor_bytes(types: Mapping[str, onnx.TypeProto]) -> dict[str, int]:
    """Return the bytes of every tensor, from the types of ``infer_types``."""
    return {name: _bytes(kind.tensor_type) for name, kind in types.items()}


def max_nodes_of(nodes: Iterable[onnx.NodeProto], types: Mapping[str, onnx.TypeProto]) -> int:
    """Return the maximum number of nodes per segment, which depends on whether all output sizes are known."""
    known = {name for name, kind in types.items() if _is_sized(kind)}
    sized = all(name in known for node in nodes for name in node.output if name)
    return MAX_NODES_OF_KNOWN_SIZE if sized else MAX_NODES


def _is_sized(kind: onnx.TypeProto) -> bool:
    tensor = kind.tensor_type
    return (
        bool(tensor.elem_type) and tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
    )


def unrounded(nodes: Iterable[onnx.NodeProto], types: Mapping[str, onnx.TypeProto]) -> frozenset[str]:
    """Return the node outputs that onnxruntime passes on unrounded within one session: float16 tensors.

    Without a float16 kernel, onnxruntime computes in float32 and passes the float32 value to the next node. A cut there
    would change the last bits. In a graph with any float16 tensor, a tensor of unknown type counts as float16.
    """
    import onnx

    outputs = {name for node in nodes for name in node.output if name}
    kinds = {name: types[name].tensor_type.elem_type if name in types else 0 for name in outputs}
    if onnx.TensorProto.FLOAT16 not in kinds.values():
        return frozenset()
    return frozenset(name for name, kind in kinds.items() if kind in (onnx.TensorProto.FLOAT16, 0))


def _bytes(tensor: onnx.TypeProto.Tensor) -> int:
    """Return the bytes of a tensor of this type; an open dimension counts 1, an unknown shape or type 0."""
    dtype = dtype_of(tensor.elem_type) if tensor.elem_type and tensor.HasField("shape") else None
    if dtype is None:
        return 0
    return dtype.itemsize * math.prod(max(d.dim_value, 1) for d in tensor.shape.dim)
