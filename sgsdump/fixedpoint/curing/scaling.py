"""Scale the channels of a float model without changing its function: find the channels, apply the factors.

    x' = s x, s > 0, one factor per class of channels
    W x + b becomes W' x' + b' with W' = s_out W / s_in, b' = s_out b

A class contains channels of successive tensors that must share a factor. Relu, LeakyRelu, PRelu, pools, nearest Resize,
both operands of an Add and the parts of a Concat keep the class. Convolutions and multiplications by a constant
separate classes: they take the factors of both sides into their constants. A LayerNormalization takes the factors of
its output into its own factor and offset. Tensors that any other operator reads or writes have the factor 1: an image,
an output, the input of a Sigmoid, a Gelu or a LayerNormalization. So does a tensor whose operators disagree about the
channel axis (``channel_axes.py``).

A Clip from 0 to 6 keeps its function only if it never clips. Its channels are therefore only scaled up, by at most
6 / (1.5 M) for a channel that reached M. It then clips from one and a half times M on, or later.

Sources: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (ICCV 2019), section 4.1,
for two successive convolutions; Xiao et al., SmoothQuant (ICML 2023), section 4, for a LayerNormalization and the
MatMuls that read it. Classes of channels and the bound of a Clip follow from the definitions of the operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.curing.channel_axes import ROW_NORMALISATIONS, axis_after, channel_axes
from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.models.graph import Graph, attribute, needs

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# f(s x) = s f(x) for every s > 0, channel by channel.
HOMOGENEOUS = frozenset(
    "Relu LeakyRelu PRelu MaxPool AveragePool GlobalAveragePool GlobalMaxPool Identity Dropout Resize Upsample "
    "ReduceMean ReduceMax Pad Slice Transpose Reshape Flatten Squeeze Unsqueeze Gather".split()
)
CLIP_ROOM = 1.5


@dataclass(frozen=True, eq=False)
class Scaled:
    """A node whose constants take the factors of both sides.

    before, after  class of each input and output channel.
    behind         number of axes after the channel axis.
    """

    node: NodeProto
    before: np.ndarray
    after: np.ndarray
    behind: int = 0


@dataclass(frozen=True, eq=False)
class Scaling:
    """The classes of channels of a model.

    classes  by tensor, the class of each channel (int64 [C]).
    fixed    classes whose factor is 1.
    limits   largest factor of classes that a Clip bounds; these are not scaled down.
    nodes    the convolutions.
    lines    multiplications by constants, additions of constants, and normalisations.
    """

    classes: Mapping[str, np.ndarray]
    fixed: frozenset[int]
    limits: Mapping[int, float]
    nodes: tuple[Scaled, ...]
    lines: tuple[Scaled, ...] = field(default_factory=tuple)

    @property
    def size(self) -> int:
        """The number of classes: one more than the last class."""
        return 1 + max((int(ids.max()) for ids in self.classes.values() if ids.size), default=0)


def scaling_of(proto: ModelProto, tops: Mapping[str, np.ndarray]) -> Scaling:
    """Return the classes of a float model whose nodes are in execution order.

    tops  by tensor, the largest magnitude of each channel on the images, for the bounds of a Clip.
    """
    return _Finder(proto, tops).found()


def without_clips(scaling: Scaling) -> Scaling:
    """Return the classes with factor 1 for channels that a Clip bounds."""
    return replace(scaling, fixed=scaling.fixed | scaling.limits.keys(), limits={})


def scaled(proto: ModelProto, scaling: Scaling, factors: np.ndarray) -> ModelProto:
    """Return the model with these factors, an array by class. Computes in float64, stores float32."""
    editing = Editing(proto)
    nodes = {node.output[0]: node for node in editing.graph.nodes}

    for each in scaling.nodes:
        before, after = factors[each.before], factors[each.after]
        if (before == 1).all() and (after == 1).all():
            continue
        node = nodes[each.node.output[0]]
        weight = editing.weight(node)
        editing.set_bias(node, editing.bias(node, after.size) * after)
        editing.set_weight(node, weight * spread(editing.graph, node, 1 / before, after))
    for each in scaling.lines:
        before, after = factors[each.before], factors[each.after]
        if (before == 1).all() and (after == 1).all():
            continue
        node = nodes[each.node.output[0]]
        for index, factor in _of_constants(editing.graph, node, before, after):
            values = editing.value(node.input[index]) * factor.reshape(-1, *[1] * each.behind)
            editing.set(node, index, values, "constant")
    return editing.proto


def _of_constants(
    graph: Graph, node: NodeProto, before: np.ndarray, after: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index of each constant that takes factors, and the factors by channel."""
    if node.op_type == "BatchNormalization":
        yield from ((1, after / before), (2, after), (3, before))
    elif node.op_type in ROW_NORMALISATIONS:
        yield from ((index, after) for index, name in enumerate(node.input) if index and name)
    else:
        index = 1 if node.input[1] in graph.constants else 0
        ratio = before / after if node.op_type == "Div" else after / before
        yield index, after if node.op_type in ("Add", "Sub") else ratio


def spread(graph: Graph, node: NodeProto, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return the array that multiplies a convolution's weights for given input and output factors."""
    dims = graph.constants[node.input[1]].dims
    rest = [1] * (len(dims) - 2)
    groups = attribute(node, "group", 1)
    if node.op_type == "Conv":
        per = dims[0] // groups
        of_inputs = np.repeat(inputs.reshape(groups, dims[1]), per, axis=0)
        return (of_inputs * outputs[:, None]).reshape(dims[0], dims[1], *rest)
    if node.op_type == "ConvTranspose":
        of_outputs = np.repeat(outputs.reshape(groups, dims[1]), dims[0] // groups, axis=0)
        return (of_outputs * inputs[:, None]).reshape(dims[0], dims[1], *rest)
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        return outputs[:, None] * inputs[None, :]
    return inputs[:, None] * outputs[None, :]


class _Finder:
    """Union-find over channels."""

    def __init__(self, proto: ModelProto, tops: Mapping[str, np.ndarray]):
        self.editing, self.tops = Editing(proto), tops
        self.graph = self.editing.graph
        self.axes = channel_axes(self.graph)
        self.parent = [0]  # class 0 always has the factor 1
        self.ids: dict[str, np.ndarray] = {}
        self.unscaled: set[str] = set()
        self.limits: dict[int, float] = {}
        self.nodes: list[Scaled] = []
        self.lines: list[Scaled] = []

    def found(self) -> Scaling:
        self.unscaled.update(self.graph.inputs, self.graph.outputs)
        for node in self.graph.nodes:
            if not self._takes(node):
                self.unscaled.update(needs(node), node.output)
        classes = {name: self._roots(ids) for name, ids in self.ids.items()}
        limits: dict[int, float] = {}
        for c, limit in self.limits.items():
            root = self._root(c)
            limits[root] = min(limit, limits.get(root, math.inf))
        fixed = frozenset(
            (self._root(0), *(c for name in self.unscaled & classes.keys() for c in classes[name].tolist()))
        )
        nodes, lines = (
            tuple(replace(each, before=self._roots(each.before), after=self._roots(each.after)) for each in some)
            for some in (self.nodes, self.lines)
        )
        return Scaling(classes, fixed, limits, nodes, lines)

    def _takes(self, node: NodeProto) -> bool:
        """Put the channels of a node into classes; False if the node needs the factor 1."""
        graph, kind = self.graph, node.op_type
        if self.editing.is_plain(node):
            return self._convolution(node)
        if kind == "BatchNormalization":
            return self._normalisation(node)
        if kind in ROW_NORMALISATIONS:
            return self._row_normalisation(node)
        names = graph.variables(node)
        if len(node.output) != 1 or any(self._channels(name) is None for name in (*names, node.output[0])):
            return False
        if kind in ("Flatten", "Reshape") and names == [node.input[0]] and self._is_spread(node):
            return self._flattened(names[0], node.output[0])
        if any(axis_after(graph, node, name, self.axes[name]) != self.axes[node.output[0]] for name in names):
            return False
        if kind in ("Mul", "Div", "Add", "Sub") and len(names) == 1 and len(set(node.input)) == 2:
            return self._line(node, names[0])
        if (kind == "Add" and len(names) == 2) or (kind == "Sum" and len(names) == len(node.input)):
            return self._together([*names, node.output[0]])
        if kind == "Clip" and len(names) == 1:
            return self._clip(node, names[0])
        if kind == "Concat":
            return self._concat(node)
        if kind == "PRelu":
            return names == [node.input[0]] and self._together([names[0], node.output[0]])
        if kind in HOMOGENEOUS and len(names) == 1:
            return self._is_homogeneous(node) and self._together([names[0], node.output[0]])
        return False

    def _is_homogeneous(self, node: NodeProto) -> bool:
        """Return whether a node of HOMOGENEOUS operators is homogeneous with its attributes."""
        if node.op_type == "Pad":
            value = attribute(node, "value", 0.0)
            zero = not value and (len(node.input) < 3 or not node.input[2] or not self.graph.value(node.input[2]).any())
            return zero or attribute(node, "mode", b"constant") != b"constant"
        if node.op_type in ("Resize", "Upsample"):
            return attribute(node, "coordinate_transformation_mode", b"") != b"tf_crop_and_resize"
        return not (node.op_type == "MaxPool" and len([name for name in node.output if name]) > 1)

    def _convolution(self, node: NodeProto) -> bool:
        graph, weight = self.graph, node.input[1]
        dims, groups = graph.constants[weight].dims, attribute(node, "group", 1)
        shared = any(len(graph.consumers[name]) > 1 for name in node.input[1:] if name)
        plain = node.op_type != "Gemm" or not attribute(node, "transA", 0)
        if node.op_type in ("Gemm", "MatMul"):
            sizes = (dims[1], dims[0]) if attribute(node, "transB", 0) else (dims[0], dims[-1])
            plain = plain and len(dims) == 2 and len(graph.shapes.get(node.input[0], ())) >= 2
        elif node.op_type == "Conv":
            sizes = dims[1] * groups, dims[0]
        else:
            sizes = dims[0], dims[1] * groups
        before, after = self._of(node.input[0], sizes[0]), self._of(node.output[0], sizes[1])
        if shared or not plain or before is None or after is None:
            return False
        self.nodes.append(Scaled(node, before, after))
        return True

    def _normalisation(self, node: NodeProto) -> bool:
        channels = self._channels(node.input[0])
        constant = all(name in self.graph.constants for name in node.input[1:5]) and not any(node.output[1:])
        before, after = (self._of(name, channels or 0) for name in (node.input[0], node.output[0]))
        if not constant or before is None or after is None:
            return False
        self.lines.append(Scaled(node, before, after))
        return True

    def _row_normalisation(self, node: NodeProto) -> bool:
        """Put a LayerNormalization over the last axis into classes: its output is scaled, its input is not."""
        output = node.output[0]
        last = len(self.graph.shapes.get(output, ())) - 1
        constant = all(name in self.graph.constants for name in node.input[1:] if name) and not any(node.output[1:])
        along = attribute(node, "axis", -1) in (-1, last) and self.axes.get(output) == last
        after = self._of(output, self._channels(output) or 0)
        if not constant or not along or after is None:
            return False
        self.unscaled.add(node.input[0])
        self.lines.append(Scaled(node, np.zeros_like(after), after))
        return True

    def _line(self, node: NodeProto, source: str) -> bool:
        """Put an operator with a constant for all channels, or one per channel, into classes."""
        channels = self._channels(source) or 0
        if node.op_type == "Div" and node.input[0] != source:
            return False
        if node.op_type in ("Add", "Sub") and not self._together([source, node.output[0]]):
            return False
        before, after = self._of(source, channels), self._of(node.output[0], channels)
        if before is None or after is None:
            return False
        self.lines.append(Scaled(node, before, after, len(self.graph.shapes[source]) - 1 - self.axes[source]))
        return True

    def _clip(self, node: NodeProto, source: str) -> bool:
        low, high = attribute(node, "min"), attribute(node, "max")
        if len(node.input) > 1 and node.input[1]:
            low = self.graph.value(node.input[1]).item()
        if len(node.input) > 2 and node.input[2]:
            high = self.graph.value(node.input[2]).item()
        tops = self.tops.get(node.output[0])
        if low != 0 or not self._together([source, node.output[0]]):
            return False
        ids = self.ids[node.output[0]]
        if high is not None and math.isfinite(high):
            if tops is None or tops.size != ids.size:
                return False
            for c, top in zip(ids.tolist(), tops):
                limit = max(1.0, high / (CLIP_ROOM * top)) if top > 0 else 1.0
                self.limits[c] = min(self.limits.get(c, math.inf), limit)
        return True

    def _concat(self, node: NodeProto) -> bool:
        axis, rank = attribute(node, "axis", 1), len(self.graph.shapes[node.output[0]])
        if any(name in self.graph.constants for name in node.input):
            return False
        if axis % rank != self.axes[node.output[0]]:
            return self._together([*node.input, node.output[0]])
        parts = [self._of(name, self._channels(name) or 0) for name in node.input]
        whole = self._of(node.output[0], sum(part.size for part in parts if part is not None))
        if whole is None or any(part is None for part in parts):
            return False
        self._join(np.concatenate([part for part in parts if part is not None]), whole)
        return True

    def _is_spread(self, node: NodeProto) -> bool:
        """Return whether each channel becomes several columns of a matrix."""
        shapes, axes, (source, output) = self.graph.shapes, self.axes, (node.input[0], node.output[0])
        columns = len(shapes[output]) == 2 and axes[output] == 1
        return columns and axis_after(self.graph, node, source, axes[source]) != 1 and axes[source] > 0

    def _flattened(self, source: str, output: str) -> bool:
        """Join the classes when [N, C, H, W] becomes [N, C H W]: all H W values share their channel's factor."""
        sizes, columns = self.graph.shapes[source][1:], self._channels(output)
        ids, whole = self._of(source, self._channels(source) or 0), self._of(output, columns or 0)
        if ids is None or whole is None or None in sizes or math.prod(size or 0 for size in sizes) != columns:
            return False
        along = ids.reshape(-1, *[1] * (len(sizes) - self.axes[source]))
        self._join(np.broadcast_to(along, [size or 0 for size in sizes]).reshape(-1), whole)
        return True

    def _together(self, names: Iterable[str]) -> bool:
        names = list(names)
        channels = {self._channels(name) for name in names}
        ids = [self._of(name, channels.copy().pop() or 0) for name in names]
        if len(channels) != 1 or any(each is None for each in ids):
            return False
        first, *others = [each for each in ids if each is not None]
        for each in others:
            self._join(first, each)
        return True

    def _channels(self, name: str) -> int | None:
        shape = self.graph.shapes.get(name)
        return shape[self.axes[name]] if shape is not None and name in self.axes else None

    def _of(self, name: str, channels: int) -> np.ndarray | None:
        """Return the ids of a tensor's channels; None if the number of channels differs."""
        if not channels or (name in self.ids and self.ids[name].size != channels):
            return None
        if name not in self.axes:
            return np.zeros(channels, np.int64)
        if name not in self.ids:
            start = len(self.parent)
            self.parent.extend(range(start, start + channels))
            self.ids[name] = np.arange(start, start + channels)
        return self.ids[name]

    def _join(self, a: np.ndarray, b: np.ndarray) -> None:
        for one, other in zip(a.tolist(), b.tolist()):
            self.parent[self._root(other)] = self._root(one)

    def _root(self, c: int) -> int:
        while self.parent[c] != c:
            self.parent[c] = self.parent[self.parent[c]]
            c = self.parent[c]
        return c

    def _roots(self, ids: np.ndarray) -> np.ndarray:
        return np.array([self._root(c) for c in ids.tolist()], np.int64)
