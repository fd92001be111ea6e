"""A dump as a network: its operators in the order in which they ran, the modules around them, and which feeds which.

What feeds what is known from the values: what one operator reads another made before, and both dumps of it are the same
tensor. Libraries call one operator differently; ``kind_of`` gives the word they have in common.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.errors import SgsdumpError

_SAME = {
    "conv": "convolution convolution_overrideable mkldnn_convolution slow_conv2d",
    "matmul": "addmm addmv baddbmm bmm mm gemm linear fc innerproduct batchmatmul matmulv",
    "batch_norm": "native_batch_norm native_batch_norm_legit native_batch_norm_legit_no_training batchnorm"
    " batchnormalization cudnn_batch_norm",
    "layer_norm": "native_layer_norm layernorm layernormalization",
    "group_norm": "native_group_norm groupnorm groupnormalization",
    "max_pool": "max_pool_with_indices maxpool",
    "avg_pool": "avgpool averagepool adaptive_avg_pool adaptiveavgpool globalaveragepool",
    "mean": "reducemean reduce_mean",
    "sum": "reducesum reduce_sum",
    "concat": "cat",
    "embedding": "gather",
    "transpose": "t permute swapaxes",
    "reshape": "view unsafe_view flatten unsqueeze squeeze",
    "scaled_dot_product_attention": "scaled_dot_product_attention_math scaled_dot_product_flash_attention_for_cpu",
    "clip": "clamp hardtanh relu6",
    "silu": "swish",
    "div": "divide true_divide",
    "identity": "clone contiguous detach alias dropout to copy",
}
_KINDS = {word: kind for kind, words in _SAME.items() for word in [kind, *words.split()]}
_DIMENSIONS = re.compile(r"_?[1-3]d(?=_|$)|(?<=max_pool|avg_pool)2d")


def kind_of(word: str) -> str:
    """``aten.convolution``, ``Conv2d`` and ``Conv`` are all ``conv``; a word of no such family is itself."""
    return _KINDS.get(plain(word), plain(word))


def plain(word: str) -> str:
    """A library's name of an operator, ``aten.add_`` or ``Add``, without what tells libraries and variants apart."""
    return _DIMENSIONS.sub("", word.rpartition(".")[2].lower()).strip("_").removeprefix("op_")


@dataclass(frozen=True, eq=False)
class Node:
    """An operator with its tensors, by slot. ``place`` is its number in the order of execution; ``is_outer``: it is a
    module (``is_module``) that has operators of the dump inside."""

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


class Nodes(Sequence[Node]):
    """The operators of a dump, in order."""

    def __init__(self, nodes: Sequence[Node], format: str):
        self._nodes = tuple(nodes)
        self.format = format

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        return self._nodes[place]

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def inner(self) -> list[Node]:
        """Those that compute, without the modules around them."""
        return [node for node in self._nodes if not node.is_outer]

    @cached_property
    def feeding(self) -> dict[int, tuple[Node | None, ...]]:
        """The place of an operator -> what made each of its inputs: None is no operator of the dump."""
        makers: dict[Hashable, Node] = {}
        found: dict[int, tuple[Node | None, ...]] = {}
        for node in self.inner:
            values = {key: _identity(node, *key) for key in node.values or _keys(node)}
            found[node.place] = tuple(makers.get(values[key]) for key in sorted(values) if key[0] == "in")
            makers |= {value: node for key, value in values.items() if key[0] == "out" and value is not None}
        return found

    def maker(self, node: Node, slot: int) -> Node | None:
        """What made an input of an operator; None is no operator of the dump."""
        slots = sorted(key[1] for key in node.values or _keys(node) if key[0] == "in")
        made = self.feeding.get(node.place, ())
        return made[slots.index(slot)] if slot in slots and made else None

    @cached_property
    def readers(self) -> dict[int, list[Node]]:
        """The place of an operator -> those that read what it makes."""
        found: dict[int, list[Node]] = {node.place: [] for node in self.inner}
        for node in self.inner:
            for maker in dict.fromkeys(self.feeding[node.place]):
                if maker is not None and node.outputs:
                    found[maker.place].append(node)
        return found

    def nearest(self, node: Node, wanted: Callable[[Node], bool]) -> tuple[Node, ...]:
        """The nearest operators upstream that are wanted, in the order of their use; others are looked through."""
        found: dict[Node, None] = {}
        seen: set[int] = set()
        waiting = [one for one in reversed(self.feeding.get(node.place, ())) if one is not None]
        while waiting:
            one = waiting.pop()
            if wanted(one):
                found[one] = None
            elif one.place not in seen:
                seen.add(one.place)
                waiting += [before for before in reversed(self.feeding[one.place]) if before is not None]
        return tuple(found)


def nodes_of(dump: Dump, operators: Mapping[int, Operator]) -> Nodes:
    """The ``operators`` that are known to stand somewhere in a network, by index, with their tensors."""
    inputs: dict[int, dict[int, Record]] = {}
    outputs: dict[int, dict[int, Record]] = {}
    for record in dump.records:
        if record.op_index in operators and not record.constant:
            (inputs if record.io == "in" else outputs).setdefault(record.op_index, {})[record.slot] = record
    around = _around(operators)
    nodes = []
    for place, (index, one) in enumerate(sorted(operators.items())):
        outer = one.is_module and one.module in around
        tensors = inputs.get(index, {}), outputs.get(index, {})
        nodes.append(
            Node(
                place, one.module, kind_of(one.kind), one.kind, one.is_module, outer, *tensors, one.values, one.weights
            )
        )
    return Nodes(nodes, dump.format)


def _around(operators: Mapping[int, Operator]) -> set[str]:
    """The paths of modules in which an operator or another module of the dump is."""
    found: set[str] = set()
    for one in operators.values():
        path = one.module
        if not one.is_module:
            found.add(path)
        while path:
            path = path.rpartition(".")[0]
            found.add(path)
    return found


def _keys(node: Node) -> list[tuple[str, int]]:
    return [*(("in", slot) for slot in node.inputs), *(("out", slot) for slot in node.outputs)]


def _identity(node: Node, io: str, slot: int) -> Hashable:
    """What tells a value from others of the run: what the dump says of it, else its statistics or its bytes."""
    known = node.values.get((io, slot))
    if known is not None:
        return known
    record = (node.inputs if io == "in" else node.outputs).get(slot)
    if record is None:
        return None
    tensor = record.tensor
    if tensor.statistics is not None:
        return tensor.shape, tensor.statistics
    try:
        stored = np.ascontiguousarray(tensor.stored())
    except SgsdumpError:
        return None
    return tensor.shape, stored.dtype.str, hashlib.blake2b(stored.view(np.uint8).data, digest_size=16).digest()
