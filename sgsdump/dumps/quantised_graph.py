"""Analysis of models quantised with another tool: which tensors hold the quantised values of a float tensor.

Two forms are common, also mixed. In QDQ, a float tensor passes ``QuantizeLinear`` and ``DequantizeLinear``, and
operators read the result. In QOperator, an operator (``QLinearConv``) reads and writes integer codes and reads their
scale and zero point. ``DynamicQuantizeLinear`` computes scale and zero point at run time.

This module treats quantisation operators as edges of the model, not as operators. All tensors along an edge form one
*group*, which stands for one tensor of the float model::

    X -> QuantizeLinear -> X_q -> DequantizeLinear -> X_dq      one group: root X, codes X_q, holder X_dq
    QLinearConv -> Y_q                                          one group: root and holder Y_q
    CONV_2D -> Y_q -> QUANTIZE -> Y_r                           one group: root Y_q, holder the codes that are read

The last form is from TensorFlow Lite, where ``QUANTIZE`` also rescales codes, for example before a concatenation.
The analysis needs only names, as in a dump's graph file. Specifications: https://onnx.ai/onnx/operators,
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from sgsdump.tensors.dtypes import KNOWN, name_of
from sgsdump.tensors.types import Quant

# Node of an ONNX model: name, type, input names, output names, module, attributes (as in onnx_network.py).
Node = tuple[str, str, list[str], list[str], str, Mapping[str, str]]

KEY = "sgsdump.quants"
DYNAMIC = "DynamicQuantizeLinear"
# Fake quantisation: QuantizeLinear and DequantizeLinear in one operator, float in, float out.
FAKE = frozenset(("QcQuantizeOp", "FakeQuantize", "FakeQuant", "Quant", "FixNeuron"))
# Integer operators without the prefix QLinear, and their float operators.
_INTEGER = {"ConvInteger": "Conv", "MatMulInteger": "MatMul", "MatMulIntegerToFloat": "MatMul", "QGemm": "Gemm"}
_INTEGER |= {"MatMulNBits": "MatMul", "DynamicQuantizeMatMul": "MatMul", "QAttention": "Attention"}
_PREFIX = "QLinear"
# Input slots from which an integer operator reads the scale and the zero point of its output.
SCALE_SLOTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    dict.fromkeys(("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"), (6, 7))
    | dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearReduceMean"), (3, 4))
    | dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), (3, 4))
    | {"QLinearConcat": (0, 1), "QGemm": (7, 8), "QLinearWhere": (7, 8)}
)
# Operators that only move values: codes keep their scale.
MOVES = frozenset(
    "Reshape Transpose Squeeze Unsqueeze Flatten Identity MaxPool Slice Gather Split Pad Resize Expand Tile "
    "DepthToSpace SpaceToDepth".split()
)
_FLOATS = ("1", "10", "11", "16")  # of onnx.TensorProto: float32, float16, float64, bfloat16
_NONE: Mapping[str, Quant] = MappingProxyType({})
_LONGEST = 4096  # most scales per tensor in a graph file


def is_quantise(kind: str) -> bool:
    """Return whether the type is ``QuantizeLinear``, ends in it (``DynamicQuantizeLinear``), or is ``QUANTIZE``."""
    return kind.endswith("QuantizeLinear") or kind == "QUANTIZE"


def is_dequantise(kind: str) -> bool:
    return kind.endswith("DequantizeLinear") or kind == "DEQUANTIZE"


def is_edge(kind: str) -> bool:
    """Return whether the operator type is an edge: it changes only the storage of values."""
    return is_quantise(kind) or is_dequantise(kind) or kind in FAKE


def is_passed(node: Node) -> bool:
    """Return whether the node is transparent: an edge or a Cast to a float type."""
    return is_edge(node[1]) or (node[1] == "Cast" and node[5].get("to") in _FLOATS)


def float_kind(kind: str) -> str:
    """Return the float operator type of an integer operator: ``Conv`` for ``QLinearConv``."""
    if kind in _INTEGER:
        return _INTEGER[kind]
    return kind[len(_PREFIX) :] if kind.startswith(_PREFIX) else kind


def on_integers(kind: str) -> bool:
    return float_kind(kind) != kind


def gives_codes(kind: str, reads: Sequence[str]) -> bool:
    """Return whether an integer operator outputs codes: it then reads the scale of its output."""
    slots = SCALE_SLOTS.get(kind)
    return slots is not None and len(reads) > slots[0] and bool(reads[slots[0]])


@dataclass(frozen=True)
class Group:
    """All tensors that stand for one tensor of the float model.

    root    first tensor: input of the first QuantizeLinear, or output of an integer operator.
    codes   integer tensors in node order.
    reals   dequantised float tensors in node order.
    copies  float tensors of another width.
    """

    root: str
    codes: tuple[str, ...] = ()
    reals: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.root, *self.codes, *self.reals, *self.copies)))

    @property
    def holder(self) -> str:
        """Tensor with the quantised values; the root if nothing is quantised."""
        return next(iter((*self.reals, *self.codes)), self.root)

    @property
    def is_quantised(self) -> bool:
        return bool(self.codes or self.reals)


class QuantisedGraph:
    """Groups of a graph with topologically sorted nodes. In a float graph, each tensor is a group.

    quants  quantisation parameters of codes and dequantised tensors, if their scale is constant.
    """

    def __init__(self, nodes: Iterable[Node], quants: Mapping[str, Quant] = _NONE):
        self.nodes: Sequence[Node] = tuple(nodes)
        self.quants = quants

    @cached_property
    def makers(self) -> dict[str, Node]:
        return {name: node for node in self.nodes for name in node[3] if name}

    @cached_property
    def readers(self) -> dict[str, list[Node]]:
        """Operators that read a group, without edges, by the group's root."""
        readers: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            if not is_passed(node):
                for root in dict.fromkeys(self.root(name) for name in node[2] if name):
                    readers[root].append(node)
        return dict(readers)

    def has_inner(self, name: str) -> bool:
        """Return whether an operator makes this tensor and another one reads it."""
        root = self.root(name)
        return root in self.makers and root in self.readers

    @cached_property
    def is_quantised(self) -> bool:
        return any(is_edge(node[1]) or on_integers(node[1]) for node in self.nodes)

    @cached_property
    def dynamic(self) -> dict[str, tuple[str, str]]:
        """Names of scale and zero point of dynamically quantised codes, by codes."""
        return {
            node[3][0]: (node[3][1], node[3][2])
            for node in self.nodes
            if node[1] == DYNAMIC and len(node[3]) == 3 and all(node[3])
        }

    @cached_property
    def steps(self) -> frozenset[str]:
        """Scales and zero points computed at run time, and tensors computed only from them and constants.

        The set may contain names of the float model.
        """
        found = {name for _, kind, _, makes, *_ in self.nodes if kind == DYNAMIC for name in makes[1:]}
        for _, kind, reads, makes, *_ in self.nodes:
            made = [name for name in reads if name in self.makers]
            is_step = kind in ("Mul", "Cast") and any(name in found or self._on_integers(name) for name in made)
            if (is_step or (reads and not made)) and all(name in found or self._on_integers(name) for name in made):
                found.update(makes)
        return frozenset(found)

    def _on_integers(self, name: str) -> bool:
        return self.makers[name][1] in ("ConvInteger", "MatMulInteger")

    @cached_property
    def _roots(self) -> dict[str, str]:
        roots: dict[str, str] = {}
        for node in self.nodes:
            _, _, reads, makes, *_ = node
            if reads and makes and is_passed(node):
                roots[makes[0]] = roots.get(reads[0], reads[0])
        return roots

    def root(self, name: str) -> str:
        return self._roots.get(name, name)

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Groups by root, in node order. Groups without a producer are inputs and weights."""
        codes: dict[str, list[str]] = defaultdict(list)
        reals: dict[str, list[str]] = defaultdict(list)
        roots: dict[str, None] = {}
        copies: dict[str, list[str]] = defaultdict(list)
        for node in self.nodes:
            _, kind, reads, makes, *_ = node
            for name in filter(None, (*reads, *makes)):
                roots.setdefault(self.root(name))
            if is_edge(kind) and reads and makes:
                (codes if is_quantise(kind) else reals)[self.root(makes[0])].append(makes[0])
            elif makes and self.root(makes[0]) != makes[0]:
                copies[self.root(makes[0])].append(makes[0])
            else:
                for name in makes:
                    if name and (name in self.quants or gives_codes(kind, reads)):
                        codes[name].append(name)
        return {root: Group(root, self._by_use(codes[root]), tuple(reals[root]), tuple(copies[root])) for root in roots}

    def _by_use(self, codes: Sequence[str]) -> tuple[str, ...]:
        """Sort codes of one tensor with several scales: first the codes that operators read, else the last codes."""
        read = [name for name in codes if name in self._read]
        if len(codes) < 2 or len(read) > 1:
            return tuple(codes)
        first = read[0] if read else codes[-1]
        return (first, *(name for name in codes if name != first))

    @cached_property
    def _read(self) -> frozenset[str]:
        return frozenset(name for node in self.nodes if not is_passed(node) for name in node[2])

    @cached_property
    def group_of(self) -> dict[str, Group]:
        return {name: group for group in self.groups.values() for name in group.members}


def dequantised(codes: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Return float32 values of dynamically quantised codes; scale and zero point are scalars."""
    steps = codes.astype(np.float32) - np.float32(zero_point.reshape(-1)[0])
    real: np.ndarray = steps * np.float32(scale.reshape(-1)[0])
    return real


def quants_text(quants: Mapping[str, Quant]) -> str:
    """Return JSON that maps a name to [dtype, scale or scales, zero point, axis]."""
    entries = {}
    for name, quant in quants.items():
        if quant.dtype is not None and np.size(quant.scale) <= _LONGEST:
            scale = np.asarray(quant.scale, np.float64).tolist()
            entries[name] = [name_of(quant.dtype), scale, quant.zero_point, quant.axis]
    return json.dumps(entries)


def quants_in(document: Any) -> dict[str, Quant]:
    """Return the quantisation parameters from a document of ``quants_text``; skip malformed entries."""
    quants: dict[str, Quant] = {}
    for name, entry in document.items() if isinstance(document, dict) else ():
        try:
            word, scale, zero_point, axis = entry
            numbers = np.asarray(scale, np.float64)
            if (
                scale is None
                or word not in KNOWN
                or numbers.ndim > 1
                or not 0 < numbers.size <= _LONGEST
                or type(zero_point) is not int
            ):
                continue
            if axis is not None and type(axis) is not int:
                continue
            quants[name] = Quant(KNOWN[word], numbers if numbers.ndim else float(numbers), zero_point, axis, exact=True)
        except (TypeError, ValueError, OverflowError):
            continue
    return quants
