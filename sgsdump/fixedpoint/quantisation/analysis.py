"""Analysis of a float model's graph: operators of the fixed model and quantisation domains.

The result depends on the graph alone; ``quant_plan`` decides on it many times.

Operators: ONNX nodes that the hardware computes as one, with one requantisation at the end. Elementwise nodes join a
convolution, a pool or another head before them, so the tensors between are never stored. A node that broadcasts the
tensor over a larger one does not join. Nothing joins a fully connected operator, because the SDK makes it a convolution
between two reshapes. Nothing joins a grouped convolution either, because the SDK makes it one convolution per group
between a Split and a Concat. With ``fuse=False`` (disableDomainFuseOps) only the activation stays inside its
convolution, as in the SDK; every other tensor stays visible. Source: docs/formats/sigmastar.md#the-fixed-model, checked
against the SDK's own dumps.

Domains: tensors that share one type and one range, because operators only move values between them. The input of a
convolution gets its own type if ``tensor_arrays`` raises it. Neighbours that are not raised stay UINT8, and the SDK's
converter requantises between the two (cct_a, mxp_p).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.type_rules import (
    AVERAGE_POOLS,
    RAW_INPUT,
    Operator,
    always_int16,
    ends_threshold,
    fits_uint8,
    is_threshold,
    keeps_scale,
    planned_int16,
)
from sgsdump.models.graph import REARRANGING, Graph, attribute, dtype_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CONVOLUTIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu")
FUNCTIONS = ("Sigmoid", "Tanh")
ARITHMETIC = ("Add", "Sub", "Mul", "Max")
# Operators that join the operator before them, element by element.
ELEMENTWISE = frozenset((*ACTIVATIONS, *FUNCTIONS, *ARITHMETIC, "Exp", "Abs"))
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
# Their inputs after the first are sizes, positions or limits, not values.
SIZED = ("Resize", "Upsample", "Reshape", "Expand", "Tile", "Slice", "Pad", "Clip")
GROUP_INPUT, GROUP_WEIGHTS, GROUP_OUTPUT = "{}_split_output#{}", "{0}_conv#{1}_filter#{1}", "{0}_conv#{1}_output#{1}"
# The SDK's name of a requantised tensor, without the number that it appends.
REQUANTISED = "{}#/Mul0Output"
# Operators that others can join: see ``operators``.
HEADS = ELEMENTWISE | {"Conv", "ConvTranspose", "MaxPool", "GlobalMaxPool", *AVERAGE_POOLS}


def operators(graph: Graph, fuse: bool | None) -> list[Operator]:
    """Return the model's operators in execution order; the nodes must be in topological order.

    fuse  None: every node is its own operator (the float model); False, True: see the module docstring.
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
        operators.append(one_operator(graph, chain))
    return sorted(operators, key=lambda operator: order[id(operator.last)])


@dataclass(frozen=True, eq=False)
class Analysis:
    """The part of a plan that depends on the graph alone: analysed once, decided on many times.

    domain        by tensor, the representative of its domain, including what ``raising`` raised.
    first_inputs  by first input tensor, the convolutions that read it: the names ``tensor_arrays`` may hold.
    pictures      graph inputs that are images (always UINT8).
    forced        tensors that are INT16 regardless of their readers, each with its rule.
    raised        first inputs that ``raising`` made INT16.
    """

    graph: Graph
    operators: tuple[Operator, ...]
    domain: Mapping[str, str]
    first_inputs: Mapping[str, tuple[NodeProto, ...]]
    pictures: frozenset[str]
    forced: Mapping[str, str] = field(default_factory=dict)
    raised: frozenset[str] = frozenset()
    _raising: dict[frozenset[str], Analysis] = field(default_factory=dict, repr=False)

    @property
    def stored(self) -> list[str]:
        """Tensors that the hardware stores: the graph's inputs and every operator's outputs."""
        return [*self.graph.inputs, *(name for op in self.operators for name in op.outputs)]

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Tensors computed from shapes alone and used only for sizes, or for further such tensors.

        They keep their values. Tensors computed from shapes that meet values are operands like constants.
        """
        graph = self.graph
        operands = {
            name
            for node in graph.nodes
            if not graph.from_shapes.issuperset(filter(None, node.output))
            for name in (node.input[:1] if node.op_type in SIZED else node.input)
        }
        return graph.from_shapes - operands

    @cached_property
    def whole(self) -> frozenset[str]:
        """Float inputs that are read as integers only, such as token ids, and their reshaped copies.

        They keep their values, because a Cast after rounding would give other integers.
        """
        graph, whole = self.graph, set[str]()
        for name in graph.inputs:
            reached = [name]
            for moved in reached:
                readers = [] if moved in graph.outputs else graph.consumers.get(moved, [])
                moving = [node for node in readers if node.op_type in REARRANGING and node.input[0] == moved]
                if not readers or not all(_to_integer(node) or node in moving for node in readers):
                    break
                reached.extend(node.output[0] for node in moving)
            else:
                whole.update(reached)
        return frozenset(whole)

    @cached_property
    def picture_domains(self) -> set[str]:
        return {self.domain[name] for name in self.pictures}

    @cached_property
    def forced_domains(self) -> set[str]:
        """Domains of tensors that are INT16 regardless of their readers, without those of images."""
        return {self.domain[name] for name in self.forced} - self.picture_domains

    def switch(self, name: str) -> str:
        """Return the name that represents a convolution's first input in a plan.

        It is the input itself, which is raised to INT16 separately; for an image or a tensor that is INT16 anyway, its
        domain.
        """
        root = self.domain[name]
        settled = name in self.pictures or root in self.forced_domains
        return name if name in self.first_inputs and not settled else root

    def raising(self, names: Iterable[str]) -> Analysis:
        """Return the analysis with only these first inputs at INT16; call it on an analysis without raised inputs."""
        raised = frozenset(name for name in names if self.switch(name) == name and name not in self.forced)
        if raised not in self._raising:
            types = {**self._types, **dict.fromkeys(raised, True)}
            domain = _domains(self.graph, self._joining, types, self.forced, raised)
            self._raising[raised] = replace(self, domain=domain, raised=raised) if raised else self
        return self._raising[raised]

    @cached_property
    def together(self) -> Mapping[str, str]:
        """By tensor, the representative of the tensors that share its type in every plan."""
        apart = {name: name for name in self.first_inputs if self.switch(name) == name and name not in self.forced}
        return _domains(self.graph, self._joining, {**self._types, **apart}, self.forced, apart.keys())

    @cached_property
    def _joining(self) -> list[Operator]:
        """The operators that may join domains."""
        single = (op for op in self.operators if len(op.nodes) == 1)
        return [
            op for op in single if op.head.op_type == "Concat" or op.moves_values or keeps_scale(self.graph, op.head)
        ]

    @property
    def _types(self) -> dict[str, Hashable]:
        """The types that are known before types are passed on; True for INT16."""
        narrow = dict.fromkeys((*self.pictures, *self.first_inputs), False)
        return {**narrow, **dict.fromkeys(self.forced, True)}


def analyse(proto: ModelProto, pictures: Iterable[str] | None = None, fuse: bool = True) -> Analysis:
    """Return operators and domains of a float model whose nodes are in topological order.

    pictures  inputs that are UINT8; all others are INT16. None: the inputs are unknown, so no input is forced.
    """
    graph = Graph(proto)
    ops = tuple(operators(graph, fuse))
    first_inputs: dict[str, tuple[NodeProto, ...]] = {}
    for node in graph.nodes:
        if is_convolution(graph, node):
            first_inputs[node.input[0]] = (*first_inputs.get(node.input[0], ()), node)
    raw, pictures = pictures is not None, frozenset(pictures or ())
    planned = planned_int16(proto)
    forced = dict(always_int16(graph, ops, first_inputs) if planned is None else planned)
    if raw:
        forced |= dict.fromkeys(graph.inputs, RAW_INPUT)
    forced = {name: rule for name, rule in forced.items() if name not in pictures}
    plain = Analysis(graph, ops, {}, first_inputs, pictures, forced)
    return replace(plain, domain=_domains(graph, plain._joining, plain._types, forced))


def _to_integer(node: NodeProto) -> bool:
    dtype = dtype_of(attribute(node, "to", 0)) if node.op_type == "Cast" else None
    return dtype is not None and dtype.kind in "iu"


def is_convolution(graph: Graph, node: NodeProto) -> bool:
    """Return whether the node is a convolution or fully connected operator with constant weights (8 or 16 bits)."""
    if node.op_type not in CONVOLUTIONS or len(node.input) < 2:
        return False
    return node.input[0] not in graph.constants and node.input[1] in graph.constants


def is_depthwise(graph: Graph, node: NodeProto) -> bool:
    """Return whether the node is a Conv with as many groups as input and output channels.

    With several outputs per input it is an ordinary grouped convolution.
    """
    if node.op_type != "Conv" or not is_convolution(graph, node):
        return False
    outputs, inputs, *_ = graph.constants[node.input[1]].dims
    return 1 < attribute(node, "group", 1) == outputs and inputs == 1


def is_grouped(graph: Graph, node: NodeProto) -> bool:
    """Return whether the node is a Conv with groups that is not depthwise."""
    return node.op_type == "Conv" and attribute(node, "group", 1) > 1 and not is_depthwise(graph, node)


def of_groups(part: str, node: NodeProto) -> list[str]:
    """Return the SDK's names of the tensors that its converter makes of a grouped convolution.

    The converter makes a Split, one convolution per group, and a Concat.

    part  GROUP_INPUT, GROUP_WEIGHTS or GROUP_OUTPUT.
    """
    return [part.format(node.output[0], index) for index in range(attribute(node, "group", 1))]


def output_axis(graph: Graph, node: NodeProto) -> int:
    """Return the output channel axis of weights: 0 for Conv and Gemm transB=1, 1 for ConvTranspose, last for MatMul."""
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0)):
        return 0
    return 1 if node.op_type == "ConvTranspose" else len(graph.constants[node.input[1]].dims) - 1


def output_rows(graph: Graph, node: NodeProto) -> np.ndarray:
    """Return a convolution's weights as float64 [output channels, weights of each]."""
    weight = graph.value(node.input[1]).astype(np.float64)
    axis = output_axis(graph, node)
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)


def sdk_name(graph: Graph, node: NodeProto) -> str:
    """Return the operator type as the SDK prints it, e.g. CONV_2D; other ONNX names in upper case."""
    if is_depthwise(graph, node):
        return "DEPTHWISE_CONV_2D"
    if ends_threshold(graph, node):
        return "GREATER_EQUAL"
    return SDK_NAMES.get(node.op_type, node.op_type.upper())


def _follower(graph: Graph, chain: list[NodeProto], order: dict[int, int], fuse: bool) -> NodeProto | None:
    """Return the node that joins a chain: the only reader of its output, if its other inputs are available."""
    head, last = chain[0].op_type, chain[-1]
    following = graph.sole_consumer(last.output[0]) if len(last.output) == 1 and not is_grouped(graph, last) else None
    if is_threshold(graph, last):
        return following
    if graph.from_shapes.issuperset(last.output):
        return None
    joins = following is not None and (following.op_type in ELEMENTWISE or is_threshold(graph, following))
    if following is None or not joins or len(following.output) != 1:
        return None
    others = [name for name in graph.variables(following) if name != last.output[0]]
    if not fuse:
        spatial = last.op_type in ("Conv", "ConvTranspose")
        return following if following.op_type in ACTIVATIONS and spatial and not others else None
    ready = all(name not in graph.producer or order[id(graph.producer[name])] < order[id(last)] for name in others)
    spread = _spreads(graph, last.output[0], following.output[0])
    return following if (head in HEADS or is_threshold(graph, chain[0])) and ready and not spread else None


def _spreads(graph: Graph, source: str, output: str) -> bool:
    """Return whether an operator broadcasts a tensor over a larger one."""
    before, after = graph.shapes.get(source), graph.shapes.get(output)
    return before is not None and after is not None and None not in (*before, *after) and before != after


def one_operator(graph: Graph, chain: Sequence[NodeProto]) -> Operator:
    """Return the operator that computes these nodes at once, in their order."""
    inner = {name for node in chain[:-1] for name in node.output}
    inputs = [name for node in chain for name in graph.variables(node) if name not in inner]
    outputs = [name for name in chain[-1].output if name]
    return Operator(tuple(chain), tuple(dict.fromkeys(inputs)), tuple(outputs))


class _Domains(dict):
    """Union-find over tensor names; ``self[name]`` is the representative of the domain.

    types  of the tensors whose type is known.
    """

    def __init__(self, types: Mapping[str, Hashable]) -> None:
        super().__init__()
        self._types = dict(types)

    def __missing__(self, name: str) -> str:
        return name

    def agree(self, a: str, b: str) -> bool:
        """Return whether two tensors can share a type: both have the same, or one has none yet."""
        types = {self._types.get(self[name]) for name in (a, b)} - {None}
        return len(types) < 2

    def join(self, names: Iterable[str]) -> None:
        """Join the domain of the first name with those of the names that agree with it."""
        first, *others = names
        for name in others:
            if self[name] == self[first] or not self.agree(first, name):
                continue
            root, gone = self[first], self[name]
            settled = self._types.get(root, self._types.get(gone))
            for member in [*self, first, name]:
                if self[member] in (root, gone):
                    self[member] = root
            if settled is not None:
                self._types[root] = settled


def _domains(
    graph: Graph,
    ops: Iterable[Operator],
    types: Mapping[str, Hashable],
    forced: Container[str],
    raised: Container[str] = (),
) -> dict[str, str]:
    """Join the input of each operator with its output in execution order, unless both have different types already.

    If they differ, values are requantised in between (the SDK's converter inserts a MUL there).

    ops     the operators that may join (``Analysis._joining``).
    types   known types: images, inputs of convolutions, and tensors that are INT16 regardless of their readers.
    forced  tensors that are INT16 regardless of their readers.
    raised  tensors that tensor_arrays names.
    """
    domain = _Domains(types)
    for op in ops:
        if op.head.op_type == "Concat":
            names = [*op.outputs, *op.inputs]
            if op.outputs[0] in raised and not all(domain.agree(op.outputs[0], name) for name in op.inputs):
                # Joined as UINT8 and requantised afterwards.
                names = sorted(op.inputs, key=lambda name: domain.agree(op.outputs[0], name))
            elif op.outputs[0] in forced and fits_uint8(graph, op, aligned=True):
                # It can be joined like its inputs and requantised afterwards.
                names = [*op.inputs, *op.outputs]
            domain.join(names)
        else:
            # Second outputs are indices or masks. A Split's outputs are further pieces, and a UINT8 piece decides.
            pieces = [name for name in op.outputs if name] if op.head.op_type == "Split" else op.outputs[:1]
            narrow = [name for name in pieces if name not in forced and name not in raised]
            domain.join([op.inputs[0], *narrow, *(name for name in pieces if name not in narrow)])
            if narrow:  # requantised once, before the Split; INT16 pieces after it, each over its own range
                domain.join(narrow)
    return domain
