"""Operators of the fixed model: which ONNX nodes the hardware computes as one, with one requantisation at the end.

An activation, an Add or a Mul behind a convolution joins its quantisation domain, so the tensors between them are never
stored. A fully connected operator takes none: the SDK makes it a convolution between two reshapes; nor does a
convolution with groups, which it makes as many convolutions between a Split and a Concat. With ``fuse=False``
(disableDomainFuseOps) only the activation stays inside its convolution, as in the SDK, and every other tensor stays
visible. Source: docs/formats/sigmastar.md#the-fixed-model, checked against the SDK's own dumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgsdump.models.graph import Graph, attribute

if TYPE_CHECKING:
    from onnx import NodeProto

CONVOLUTIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
POOLS = ("MaxPool", "AveragePool")
ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu")
FUNCTIONS = ("Sigmoid", "Tanh")
ARITHMETIC = ("Add", "Mul")

SDK_NAMES = {
    "Conv": "CONV_2D",
    "ConvTranspose": "TRANSPOSE_CONV",
    "Gemm": "FULLY_CONNECTED",
    "MatMul": "FULLY_CONNECTED",
    "MaxPool": "MAX_POOL_2D",
    "AveragePool": "AVERAGE_POOL_2D",
    "GlobalAveragePool": "AVERAGE_POOL_2D",
    "Concat": "CONCATENATION",
    "Sigmoid": "LOGISTIC",
    "Flatten": "RESHAPE",
    "Unsqueeze": "RESHAPE",
    "BatchNormalization": "BATCH_NORM",
    "ReduceMean": "MEAN",
    "LeakyRelu": "LEAKY_RELU",
    "Clip": "RELU6",
}


@dataclass(frozen=True, eq=False)
class Operator:
    """Nodes computed as one; ``inputs`` are the variable tensors read from outside, ``outputs`` those stored."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def head(self) -> NodeProto:
        return self.nodes[0]

    @property
    def last(self) -> NodeProto:
        return self.nodes[-1]


def operators(graph: Graph, fuse: bool | None) -> list[Operator]:
    """The model's operators in execution order; the nodes must be in topological order.

    fuse None: every node is its own operator (the float model). False, True: see above.
    """
    order = {id(node): index for index, node in enumerate(graph.nodes)}
    taken: set[int] = set()
    operators = []
    for node in graph.nodes:
        if id(node) in taken:
            continue
        chain = [node]
        while fuse is not None and (following := _follower(graph, chain, order, fuse)) is not None:
            chain.append(following)
        taken.update(id(member) for member in chain)
        operators.append(_operator(graph, chain))
    return sorted(operators, key=lambda operator: order[id(operator.last)])


def is_convolution(graph: Graph, node: NodeProto) -> bool:
    """A convolution or fully connected operator with constant weights: what 8 or 16 bits are chosen for."""
    if node.op_type not in CONVOLUTIONS or len(node.input) < 2:
        return False
    return node.input[0] not in graph.constants and node.input[1] in graph.constants


def is_depthwise(graph: Graph, node: NodeProto) -> bool:
    """A Conv whose groups are its input channels and its output channels; with several outputs for each input it is one
    with groups, as any other."""
    if node.op_type != "Conv" or not is_convolution(graph, node):
        return False
    outputs, inputs, *_ = graph.constants[node.input[1]].dims
    return 1 < attribute(node, "group", 1) == outputs and inputs == 1


def is_grouped(graph: Graph, node: NodeProto) -> bool:
    """A Conv with groups that is not depthwise."""
    return node.op_type == "Conv" and attribute(node, "group", 1) > 1 and not is_depthwise(graph, node)


def sdk_name(graph: Graph, node: NodeProto) -> str:
    """The operator type as the SDK prints it, e.g. CONV_2D; other ONNX names in upper case."""
    if is_depthwise(graph, node):
        return "DEPTHWISE_CONV_2D"
    return SDK_NAMES.get(node.op_type, node.op_type.upper())


def _follower(graph: Graph, chain: list[NodeProto], order: dict[int, int], fuse: bool) -> NodeProto | None:
    """The node that joins a chain: the only reader of what it puts out, when all else that it reads is there."""
    head, last = chain[0].op_type, chain[-1]
    following = graph.sole_consumer(last.output[0]) if len(last.output) == 1 and not is_grouped(graph, last) else None
    if following is None or len(following.output) != 1:
        return None
    others = [name for name in graph.variables(following) if name != last.output[0]]
    ready = all(name not in graph.producer or order[id(graph.producer[name])] < order[id(last)] for name in others)
    return following if ready and _joins(head, last.op_type, following.op_type, bool(others), fuse) else None


def _joins(head: str, last: str, following: str, others: bool, fuse: bool) -> bool:
    """``others``: whether ``following`` reads a second variable."""
    spatial = ("Conv", "ConvTranspose")
    if not fuse:
        return following in ACTIVATIONS and last in spatial and not others
    if following in ACTIVATIONS:
        return head in (*spatial, "Add", "Mul", "BatchNormalization") and not others
    if last in ACTIVATIONS:
        # Caffe's BatchNorm or Scale after a ReLU, as factors and offsets per channel.
        return following in ARITHMETIC and not others and head in spatial
    if following in FUNCTIONS or others:
        return following in (*FUNCTIONS, *ARITHMETIC) and head in spatial
    # Caffe's Scale, a factor and an offset per channel, joins a pool as well.
    return following in ARITHMETIC and head in (*spatial, *POOLS, "Mul")


def _operator(graph: Graph, chain: list[NodeProto]) -> Operator:
    inner = {name for node in chain[:-1] for name in node.output}
    inputs = [name for node in chain for name in graph.variables(node) if name not in inner]
    outputs = [name for name in chain[-1].output if name]
    return Operator(tuple(chain), tuple(dict.fromkeys(inputs)), tuple(outputs))
