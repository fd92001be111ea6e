"""View of a dump as a network: operators in execution order, the modules around them, and the data flow.

The data flow follows from the values: an operator's input is the tensor that another operator produced before.
Libraries name one operator differently; ``kind_of`` returns the common word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.dumps.onnx_network import FURTHER_OUTPUT, FUSED
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.files.mapped import in_memory

_SAME = {
    "conv": "convolution convolution_overrideable mkldnn_convolution slow_conv2d convtranspose conv_transpose"
    " depthwise_conv transpose_conv",
    "matmul": "addmm addmv baddbmm bmm mm gemm linear fc fully_connected innerproduct batchmatmul matmulv",
    "batch_norm": "native_batch_norm native_batch_norm_legit native_batch_norm_legit_no_training batchnorm"
    " batchnormalization cudnn_batch_norm",
    "layer_norm": "native_layer_norm layernorm layernormalization",
    "group_norm": "native_group_norm groupnorm groupnormalization",
    "max_pool": "max_pool_with_indices maxpool",
    "mean": "reducemean reduce_mean avg_pool avgpool average_pool averagepool adaptive_avg_pool adaptiveavgpool"
    " globalaveragepool",
    "sum": "reducesum reduce_sum",
    "concat": "cat concatenation",
    "sigmoid": "logistic",
    "hardswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid",
    "depthtospace": "depth_to_space pixel_shuffle",
    "spacetodepth": "space_to_depth pixel_unshuffle",
    "embedding": "gather",
    "transpose": "t permute swapaxes",
    "reshape": "view unsafe_view flatten unsqueeze squeeze",
    "scaled_dot_product_attention": "scaled_dot_product_attention_math scaled_dot_product_flash_attention_for_cpu",
    "clip": "clamp hardtanh relu6",
    "resize": "upsample upsample_nearest upsample_nearest_exact upsample_linear upsample_bilinear upsample_bicubic"
    " upsample_trilinear interpolate resize_nearest_neighbor resize_bilinear",
    "pad": "constant_pad_nd reflection_pad replication_pad",
    "rms_norm": "rmsnorm rmsnormalization fused_rms_norm simplifiedlayernormalization",
    "leaky_relu": "leakyrelu",
    "log_softmax": "logsoftmax",
    "tile": "repeat",
    "silu": "swish",
    "div": "divide true_divide",
    "identity": "clone contiguous detach alias dropout to copy",
}
# Operators that compute nothing: they change only the place or type of values.
_MOVES = frozenset("transpose reshape identity to_copy expand slice select split unbind chunk".split())
_KINDS = {word: kind for kind, words in _SAME.items() for word in [kind, *words.split()]}
_COPY = "_copy"
_DIMENSIONS = re.compile(r"_?[1-3]d(?=_|$)|(?<=max_pool|avg_pool)2d")


def kind_of(word: str) -> str:
    """Return the common kind: ``conv`` for ``aten.convolution``, ``Conv2d`` and ``Conv``.

    ``permute_copy`` is ``permute`` in a program without views. Other words stay unchanged.
    """
    name = plain(word)
    return _KINDS.get(name) or _KINDS.get(name.removesuffix(_COPY), name)


def only_moves(word: str) -> bool:
    """Return whether an operator returns its input values in another shape, place or type."""
    return kind_of(word) in _MOVES


def plain(word: str) -> str:
    """Return an operator's name (``aten.add_``, ``Add``) without parts that depend on library or variant."""
    return _DIMENSIONS.sub("", word.rpartition(".")[2].lower()).strip("_").removeprefix("op_")


@dataclass(frozen=True, eq=False)
class Node:
    """Operator with its tensors by slot.

    place     number in execution order.
    is_outer  it is a module (``is_module``) that contains operators of the dump.
    """

    place: int
    module: str
    kind: str
    word: str
    is_module: bool
    is_outer: bool
    inputs: Mapping[int, Record]
    outputs: Mapping[int, Record]
    values: Mapping[tuple[str, int], Hashable]
    weights: Mapping[tuple[str, int], str]
    arguments: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[tuple[str, int], tuple[Hashable, ...]] = field(default_factory=dict)

    @property
    def activation(self) -> str:
        """Kind of the activation fused at the operator's end; "" without one."""
        return kind_of(str(self.arguments.get(FUSED, "")).strip('"'))


class Nodes(Sequence[Node]):
    """Operators of a dump, in order."""

    def __init__(self, nodes: Sequence[Node], format: str):
        self._nodes = tuple(nodes)
        self.format = format

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        return self._nodes[place]

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def inner(self) -> list[Node]:
        """Operators that compute, without the modules around them."""
        return [node for node in self._nodes if not node.is_outer]

    @cached_property
    def feeding(self) -> dict[int, tuple[Node | None, ...]]:
        """Place of an operator -> producer of each of its inputs; None if no operator of the dump produced it."""
        makers: dict[Hashable, Node] = {}
        feeding: dict[int, tuple[Node | None, ...]] = {}
        for node in self.inner:
            values = {key: _identity(node, *key) for key in node.values or _keys(node)}
            feeding[node.place] = tuple(
                makers.get(values[key]) or _writer(node, key, makers) for key in sorted(values) if key[0] == "in"
            )
            makers |= {value: node for key, value in values.items() if key[0] == "out" and value is not None}
        return feeding

    @cached_property
    def has_flow(self) -> bool:
        """Whether the data flow is known. Names alone imply only modules and order."""
        return any(maker is not None for makers in self.feeding.values() for maker in makers)

    def exit(self, members: Collection[Node]) -> Node | None:
        """Return the only member that others read, or that nothing reads; None if there are several.

        If the data flow is unknown, return the last member.
        """
        within = set(members)
        members = [node for node in members if node not in self.fixed]
        if not self.has_flow:
            members = [node for node in members if FURTHER_OUTPUT not in node.arguments]
            return members[-1] if members and members[-1].outputs else None
        left = [node for node in members if any(reader not in within for reader in self.readers[node.place])]
        left = left or [node for node in members if not self.readers[node.place]]
        return left[0] if len(left) == 1 and left[0].outputs else None

    @cached_property
    def fixed(self) -> frozenset[Node]:
        """Operators that compute the same values in each run: constants, and operators that read only constants."""
        fixed: set[Node] = set()
        for node in self.inner:
            makers = self.feeding[node.place]
            if node.kind == "constant" or (makers and fixed.issuperset(makers)):
                fixed.add(node)
        return frozenset(fixed)

    def maker(self, node: Node, slot: int) -> Node | None:
        """Return the operator that produced an input; None if no operator of the dump did."""
        slots = sorted(key[1] for key in node.values or _keys(node) if key[0] == "in")
        makers = self.feeding.get(node.place, ())
        return makers[slots.index(slot)] if slot in slots and makers else None

    @cached_property
    def modules(self) -> frozenset[str]:
        """Paths of the modules that contain operators, without the outermost module."""
        return frozenset(node.module for node in self._nodes) - {""}

    @cached_property
    def _makers(self) -> dict[Hashable, Node]:
        """Last operator that produced each value."""
        return {
            value: node
            for node in self.inner
            for key in node.values or _keys(node)
            if key[0] == "out" and (value := _identity(node, *key)) is not None
        }

    def giver(self, module: Node, slot: int, io: str = "out") -> Node | None:
        """Return the operator whose output is the module's output, or its input with ``io``; None if there is none."""
        value = _identity(module, io, slot)
        maker = self._makers.get(value) if value is not None else None
        is_inside = maker is not None and f"{maker.module}.".startswith(f"{module.module}." if module.module else "")
        return maker if is_inside or io == "in" else None

    @cached_property
    def readers(self) -> dict[int, list[Node]]:
        """Place of an operator -> operators that read its outputs."""
        readers: dict[int, list[Node]] = {node.place: [] for node in self.inner}
        for node in self.inner:
            for maker in dict.fromkeys(self.feeding[node.place]):
                if maker is not None and node.outputs:
                    readers[maker.place].append(node)
        return readers

    def nearest(self, node: Node, is_wanted: Callable[[Node], bool]) -> tuple[Node, ...]:
        """Return the nearest wanted operators upstream in the order of their use, passing through others."""
        nearest: dict[Node, None] = {}
        passed: set[int] = set()
        waiting = [upstream for upstream in reversed(self.feeding.get(node.place, ())) if upstream is not None]
        while waiting:
            upstream = waiting.pop()
            if is_wanted(upstream):
                nearest[upstream] = None
            elif upstream.place not in passed:
                passed.add(upstream.place)
                waiting += [before for before in reversed(self.feeding[upstream.place]) if before is not None]
        return tuple(nearest)


def nodes_of(dump: Dump, operators: Mapping[int, Operator]) -> Nodes:
    """Return these operators, known by index, with their tensors."""
    inputs: dict[int, dict[int, Record]] = {}
    outputs: dict[int, dict[int, Record]] = {}
    for record in dump.records:
        if record.op_index in operators and not record.constant:
            (inputs if record.io == "in" else outputs).setdefault(record.op_index, {})[record.slot] = record
    around = _around(operators)
    nodes = []
    for position, (index, operator) in enumerate(sorted(operators.items())):
        outer = operator.is_module and operator.module in around
        tensors = inputs.get(index, {}), outputs.get(index, {})
        nodes.append(
            Node(
                position,
                operator.module,
                kind_of(operator.kind),
                operator.kind,
                operator.is_module,
                outer,
                *tensors,
                operator.values,
                operator.weights,
                operator.arguments or {},
                operator.parts,
            )
        )
    return Nodes(nodes, dump.format)


def _around(operators: Mapping[int, Operator]) -> set[str]:
    """Return the paths of modules that contain an operator or another module of the dump."""
    paths: set[str] = set()
    for operator in operators.values():
        path = operator.module
        if not operator.is_module:
            paths.add(path)
        while path:
            path = path.rpartition(".")[0]
            paths.add(path)
    return paths


def _writer(node: Node, key: tuple[str, int], makers: Mapping[Hashable, Node]) -> Node | None:
    """Return the operator that last wrote into the memory read, if no operator produced all of it."""
    return next((makers[part] for part in reversed(node.parts.get(key, ())) if part in makers), None)


def _keys(node: Node) -> list[tuple[str, int]]:
    return [*(("in", slot) for slot in node.inputs), *(("out", slot) for slot in node.outputs)]


def _identity(node: Node, io: str, slot: int) -> Hashable:
    """Return an identity of a value within the run: the dump's own, else its statistics or a hash of its bytes."""
    value = node.values.get((io, slot))
    if value is not None:
        return value
    record = (node.inputs if io == "in" else node.outputs).get(slot)
    if record is None:
        return None
    tensor = record.tensor
    if tensor.statistics is not None:
        return tensor.shape, tensor.statistics
    try:
        stored = np.ascontiguousarray(in_memory(tensor.stored_view()))
    except FileChanged:
        raise
    except SgsdumpError:
        return None
    return tensor.shape, stored.dtype.str, hashlib.blake2b(stored.view(np.uint8).data, digest_size=16).digest()
