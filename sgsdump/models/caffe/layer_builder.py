"""The ONNX nodes that one Caffe layer becomes, and what a layer function needs to write them."""

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
"""An array, a real number (float32), or a whole number or several (int64)."""
# ONNX's number for float32.
FLOAT = 1
# Caffe's own limit on the numbers in a blob.
INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class Value:
    """A tensor of the ONNX graph."""

    name: str
    shape: Shape


class Names:
    """Names that are in use in a graph, and new ones that are not."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken = set(taken)

    def __contains__(self, name: object) -> bool:
        return name in self.taken

    def fresh(self, name: str) -> str:
        """``name``, followed by as many ' as make it unique."""
        while name in self:
            name += "'"
        self.taken.add(name)
        return name


@dataclass(eq=False)
class LayerBuilder:
    """One layer on its way to ONNX.

    inputs   the tensors its bottoms stand for at this point of the net.
    tops     the tensor names its tops get.
    names    the names of tensors and of nodes that the graph has so far.
    staged   it is written as the SDK's converter has it (see stages.py); ``product`` then names the MUL of a factor and
             an offset, ``joined`` is the BatchNorm that this Scale is one MUL and one ADD with.
    nodes, constants   what the layer function has written so far.
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
        """The shape of the first bottom."""
        return self.inputs[0].shape

    def fail(self, what: str) -> NoReturn:
        raise ModelError(f"{self.layer.where} {what}")

    def expect(self, bottoms: int, at_most: int | None = None, tops: int = 1) -> None:
        """Refuse a layer with another number of bottoms or tops."""
        most = bottoms if at_most is None else at_most
        if not bottoms <= len(self.inputs) <= most:
            count = f"{bottoms} to {most}" if most < INT_MAX else f"{bottoms} or more"
            self.fail(f"takes {bottoms if most == bottoms else count} bottoms, it has {len(self.inputs)}")
        if len(self.tops) != tops:
            self.fail(f"makes {tops} top{'s' if tops > 1 else ''}, it names {len(self.tops)}")

    def axis(self, axis: int, end: bool = False) -> int:
        """A possibly negative axis of the first bottom as an index; ``end`` allows the index after the last one."""
        rank = len(self.shape)
        index = axis + rank + end if axis < 0 else axis
        if not 0 <= index < rank + end:
            self.fail(f"names the axis {axis} of an input of shape {list(self.shape)}")
        return index

    def weight(self, index: int, shape: Shape, what: str) -> np.ndarray:
        """Blob ``index`` of the layer in the caffemodel, as float32 of this shape; axes of length 1 do not count."""
        blobs = self._blobs
        if index >= len(blobs):
            self.fail(f"needs a {what} of shape {list(shape)}; {self._file()} has only {len(blobs)} blobs for it")
        blob = blobs[index]
        if math.prod(shape) != blob.values.size or (blob.shape and _long(blob.shape) != _long(shape)):
            actual = (blob.values.size,) if blob.shape is None else blob.shape
            self.fail(f"needs a {what} of shape {list(shape)}; {self._file()} has one of shape {list(actual)}")
        return blob.values.reshape(shape)

    def blob_count(self) -> int:
        """How many blobs the caffemodel has for this layer."""
        return len(self._blobs)

    def constant(self, name: str, values: Constant) -> str:
        """A constant of the graph under the layer's name and a suffix, e.g. ``conv1_filter``."""
        return self.named(f"{self.layer.name}_{name}", values)

    def named(self, name: str, values: Constant) -> str:
        """A constant of the graph under a name of its own."""
        name = self.names[0].fresh(name)
        dtype = np.float32 if isinstance(values, float) else np.int64
        self.constants[name] = values if isinstance(values, np.ndarray) else np.array(values, dtype)
        return name

    def inner(self, what: str) -> str:
        """The name of a tensor inside the layer, which no dump shows."""
        return self.names[0].fresh(f"{self.layer.name}/{what}")

    def within(self, name: str) -> str:
        """The name of a tensor inside the layer that the SDK's dumps show as ``name``."""
        return self.names[0].fresh(name) if self.staged else self.inner(name)

    def node(
        self,
        op_type: str,
        *operands: str | Value | Constant,
        to: str | None = None,
        also: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Add a node and give its first output's name: ``to``, or an inner one; ``also`` names the further ones.

        Arrays and numbers become constants. The node that makes a top has the layer's name.
        """
        from onnx import helper

        output = to or self.inner(op_type.lower())
        inputs = [self._operand(operand) for operand in operands]
        name = self.names[1].fresh(self.layer.name if output in self.tops else output)
        if "to_type" in attributes:  # Cast's attribute is called ``to``, as our own argument is
            attributes["to"] = attributes.pop("to_type")
        self.nodes.append(helper.make_node(op_type, inputs, [output, *also], name=name, **attributes))
        return output

    def top(
        self, op_type: str, *operands: str | Value | Constant, shape: Shape | None = None, **attributes: Any
    ) -> list[Value]:
        """Add the node that makes the layer's first top; the value has ``shape``, or that of the first bottom."""
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
            self.fail(f"has no weights in {self._file()}{hint}; do the two files belong together?")
        return blobs

    def _file(self) -> str:
        return str(self.weights.path) if self.weights else "no file"


def _long(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)
