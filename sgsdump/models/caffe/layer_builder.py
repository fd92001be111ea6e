"""Helper for layer functions: writes the ONNX nodes of one Caffe layer."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.caffe.prototxt import Layer
from sgsdump.models.caffe.weights import Blob, Weights

if TYPE_CHECKING:
    from onnx import NodeProto

Shape = tuple[int, ...]
Constant = np.ndarray | float | Sequence[int]
"""An array, a real number (float32), or one or several integers (int64)."""
# ONNX element type of float32.
FLOAT = 1
# Caffe's own limit on the numbers in a blob.
INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class Value:
    """A tensor of the ONNX graph."""

    name: str
    shape: Shape


class Names:
    """Names in use in a graph, and generation of new ones."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken = set(taken)

    def __contains__(self, name: object) -> bool:
        return name in self.taken

    def fresh(self, name: str) -> str:
        """Return ``name`` with as many ' as needed to make it unique."""
        while name in self:
            name += "'"
        self.taken.add(name)
        return name


@dataclass(eq=False)
class LayerBuilder:
    """One layer during its conversion to ONNX.

    inputs             tensors of its bottoms at this point of the network
    tops               tensor names of its tops
    names              names of tensors and of nodes in the graph so far
    staged             write the layer as the SDK's converter does (see stages.py)
    product            if staged, the name of the MUL of a factor and an offset
    joined             if staged, the BatchNorm that shares one MUL and one ADD with this Scale
    nodes, constants   output of the layer function so far
    """

    layer: Layer
    inputs: tuple[Value, ...]
    tops: tuple[str, ...]
    weights: Weights | None
    names: tuple[Names, Names]
    staged: bool = False
    product: str | None = None
    joined: LayerBuilder | None = None
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def message(self) -> Any:
        return self.layer.message

    @property
    def shape(self) -> Shape:
        """Shape of the first bottom."""
        return self.inputs[0].shape

    def fail(self, what: str) -> NoReturn:
        raise ModelError(f"{self.layer.where} {what}")

    def expect(self, bottoms: int, at_most: int | None = None, tops: int = 1) -> None:
        """Raise ModelError for another number of bottoms or tops."""
        most = bottoms if at_most is None else at_most
        if not bottoms <= len(self.inputs) <= most:
            count = f"{bottoms} to {most}" if most < INT_MAX else f"{bottoms} or more"
            self.fail(f"takes {bottoms if most == bottoms else count} bottoms, but has {len(self.inputs)}")
        if len(self.tops) != tops:
            self.fail(f"has {tops} top{'s' if tops > 1 else ''}, but names {len(self.tops)}")

    def axis(self, axis: int, end: bool = False) -> int:
        """Return a possibly negative axis of the first bottom as an index; ``end`` allows one past the last axis."""
        rank = len(self.shape)
        index = axis + rank + end if axis < 0 else axis
        if not 0 <= index < rank + end:
            self.fail(f"has the axis {axis}, which is not in an input of shape {list(self.shape)}")
        return index

    def weight(self, index: int, shape: Shape, what: str) -> np.ndarray:
        """Return blob ``index`` of the layer as float32 of this shape; axes of length 1 are ignored."""
        blobs = self._blobs
        if index >= len(blobs):
            self.fail(f"needs a {what} of shape {list(shape)}; {self._file()} has only {len(blobs)} blobs for it")
        blob = blobs[index]
        if math.prod(shape) != blob.values.size or (blob.shape and _long(blob.shape) != _long(shape)):
            actual = (blob.values.size,) if blob.shape is None else blob.shape
            self.fail(f"needs a {what} of shape {list(shape)}; {self._file()} has one of shape {list(actual)}")
        return blob.values.reshape(shape)

    def blob_count(self) -> int:
        """Return the number of blobs that the caffemodel has for this layer."""
        return len(self._blobs)

    def constant(self, name: str, values: Constant) -> str:
        """Add a constant named after the layer and a suffix, such as ``conv1_filter``."""
        return self.named(f"{self.layer.name}_{name}", values)

    def named(self, name: str, values: Constant) -> str:
        """Add a constant under its own name."""
        name = self.names[0].fresh(name)
        dtype = np.float32 if isinstance(values, float) else np.int64
        self.constants[name] = values if isinstance(values, np.ndarray) else np.array(values, dtype)
        return name

    def inner(self, what: str) -> str:
        """Return the name of a tensor inside the layer, which no dump shows."""
        return self.names[0].fresh(f"{self.layer.name}/{what}")

    def within(self, name: str) -> str:
        """Return the name of a tensor inside the layer that the SDK's dumps show as ``name``."""
        return self.names[0].fresh(name) if self.staged else self.inner(name)

    def node(
        self,
        op_type: str,
        *operands: str | Value | Constant,
        to: str | None = None,
        also: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Add a node and return the name of its first output: ``to``, or an inner one; ``also`` names further outputs.

        Arrays and numbers become constants. The node that computes a top has the layer's name.
        """
        from onnx import helper

        output = to or self.inner(op_type.lower())
        inputs = [self._operand(operand) for operand in operands]
        name = self.names[1].fresh(self.layer.name if output in self.tops else output)
        if "to_type" in attributes:  # Cast's attribute ``to`` has the same name as our own argument
            attributes["to"] = attributes.pop("to_type")
        self.nodes.append(helper.make_node(op_type, inputs, [output, *also], name=name, **attributes))
        return output

    def top(
        self, op_type: str, *operands: str | Value | Constant, shape: Shape | None = None, **attributes: Any
    ) -> list[Value]:
        """Add the node that computes the layer's first top; its shape is ``shape``, or that of the first bottom."""
        name = self.node(op_type, *operands, to=self.tops[0], **attributes)
        return [Value(name, self.shape if shape is None else shape)]

    def _operand(self, operand: str | Value | Constant) -> str:
        if isinstance(operand, Value):
            return operand.name
        return operand if isinstance(operand, str) else self.constant("const", operand)

    @cached_property
    def _blobs(self) -> tuple[Blob, ...]:
        if self.weights is None:
            self.fail("has weights; give the .caffemodel with --weight-file")
        blobs = self.weights.blobs(self.layer.name)
        if blobs is None:
            near = difflib.get_close_matches(self.layer.name, self.weights.layers, n=1)
            hint = f"; it has {near[0]!r}" if near else ""
            self.fail(f"has no weights in {self._file()}{hint}; check that the two files belong together")
        return blobs

    def _file(self) -> str:
        return str(self.weights.path) if self.weights else "no file"


def _long(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)
