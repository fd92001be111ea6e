"""Builder of the ONNX graph of a .sim file, with helpers that move values.

A .sim file stores values as N, H, W, C. Here every four-dimensional tensor becomes N, C, H, W, as in the rest of
sgsdump; other tensors stay as they are. A Reshape of values that extend over rows or columns is therefore computed in
N, H, W, C and converted back. Names that a builder adds besides the operator's outputs end in ``MADE``.

Shapes are computed from the inputs, because the declared shapes of some operators are wrong (a Softmax after a
Transpose, a PAD, fully connected outputs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sgsdump.errors import FormatError
from sgsdump.fixedpoint.sim.file import SimFile, SimOperator, SimTensor

MADE = "@sim"
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
AXIS = {0: 0, 1: 2, 2: 3, 3: 1}
_ACTIVATIONS = {1: "Relu", 3: "Clip"}
_MOST = 1 << 31


@dataclass(eq=False)
class Builder:
    """A graph under construction.

    shapes   of the tensors added so far, as in the .sim (N, H, W, C).
    spans    every operator with the positions of its nodes.
    filler   real value of the channels that an operator adds to an image.
    reals    real numbers of an operator's constant, in the file's shape; None: the values of the file.
    """

    sim: SimFile
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    spans: list[tuple[SimOperator, range]] = field(default_factory=list)
    filler: Callable[[SimOperator], float] = lambda operator: 0.0
    reals: Callable[[SimOperator, SimTensor], np.ndarray | None] = lambda operator, tensor: None
    _count: int = 0

    def node(self, kind: str, inputs: Sequence[str], outputs: str | Sequence[str], **attributes: Any) -> str:
        outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        attributes = {key: value for key, value in attributes.items() if value is not None}
        empty = next((key for key, value in attributes.items() if isinstance(value, (list, tuple)) and not value), None)
        if empty is not None:
            raise FormatError(f"has an empty list as attribute {empty} of the operator {outputs[0]!r}")
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=outputs[0], **attributes))
        return outputs[0]

    def fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}{MADE}{self._count}"

    def constant(self, name: str, values: np.ndarray) -> str:
        """Add an initializer; several readers share one, unless it means different values to them."""
        initializer = numpy_helper.from_array(np.ascontiguousarray(values), name)
        known = self.constants.setdefault(name, initializer)
        if known is not initializer and (known.raw_data, known.dims) != (initializer.raw_data, initializer.dims):
            return self.constant(self.fresh(name), values)
        return name

    def parameter(self, name: str, values: Sequence[int]) -> str:
        return self.constant(self.fresh(name), np.asarray(values, np.int64))

    def tensor(self, index: int) -> SimTensor:
        return self.sim.tensors[index]

    def inputs(self, operator: SimOperator, least: int = 1) -> list[SimTensor]:
        """Return an operator's inputs. Raises FormatError for fewer than ``least``."""
        tensors = [self.tensor(index) for index in operator.inputs if index >= 0]
        if len(tensors) < least or not operator.outputs:
            raise FormatError(
                f"has a {operator.kind} with too few inputs ({len(tensors)}) or outputs ({len(operator.outputs)})"
            )
        return tensors

    def whole_numbers(self, tensor: SimTensor) -> list[int]:
        """Return the values of a constant that is a size or position. Raises FormatError for a variable."""
        if not tensor.is_constant or tensor.dtype.kind != "i" or tensor.size > 1 << 12:
            raise FormatError(f"has the parameter {tensor.name!r}, which must be a constant of at most 4096 integers")
        return [int(value) for value in self.sim.values(tensor).reshape(-1)]

    def made(self, operator: SimOperator, slot: int = 0) -> str:
        return self.tensor(operator.outputs[slot]).name

    def keep_shape(self, operator: SimOperator, shape: Sequence[int]) -> None:
        """Record the shape of an operator's first output. Raises FormatError for an impossible one."""
        self.check(operator, shape)
        self.shapes[self.made(operator)] = tuple(int(size) for size in shape)

    def check(self, operator: SimOperator, shape: Sequence[int]) -> None:
        """Raise FormatError for an impossible shape."""
        if any(size < 1 for size in shape) or math.prod(shape) > _MOST:
            raise FormatError(
                f"has a {operator.kind} whose output {self.made(operator)!r} has the impossible shape {list(shape)}"
            )

    def shape(self, tensor: SimTensor) -> tuple[int, ...]:
        return self.shapes.get(tensor.name, tensor.shape)

    def picture(self, tensor: SimTensor, operator: SimOperator) -> tuple[int, ...]:
        """Return the sizes N, H, W, C of an input. Raises FormatError if it does not have four dimensions."""
        shape = self.shape(tensor)
        if len(shape) != 4:
            raise FormatError(
                f"has a {operator.kind} that reads {tensor.name!r} of {len(shape)} dimensions instead of 4"
            )
        return shape

    def operand(self, operator: SimOperator, tensor: SimTensor, rank: int) -> str:
        """Return the name of an operand beside one of ``rank`` dimensions.

        Constants broadcast along the last axis, which is the second of N, C, H, W.
        """
        if not tensor.is_constant:
            return tensor.name
        values = self.real(operator, tensor)
        if rank == 4 and values.ndim == 4:
            values = values.transpose(TO_NCHW)
        elif rank == 4 and values.ndim and values.size > 1:
            full = values.reshape(*(1,) * (4 - values.ndim), *values.shape)
            values = full.transpose(TO_NCHW)[0]
        return self.constant(tensor.name, values)

    def real(self, operator: SimOperator, tensor: SimTensor) -> np.ndarray:
        """Return a constant as float32."""
        values = self.reals(operator, tensor)
        return (self.sim.values(tensor) if values is None else values).astype(np.float32)

    def activated(self, operator: SimOperator, number: int, name: str) -> str:
        """Return the name that a node must give its result so that ``finish`` can add a fused activation."""
        return self.fresh(name) if (number & 0xFF) in _ACTIVATIONS else name

    def as_declared(self, operator: SimOperator, source: str, shape: Sequence[int]) -> None:
        """Bring an operator's result into the declared shape, in which the SDK reads the same memory.

        source  the name of the values in ``shape``; not the output's own if the file declares another shape.
        """
        name, declared = self.made(operator), self.declared(operator, shape)
        if source != name:
            if math.prod(declared) < math.prod(shape):
                source = self.first(source, shape, math.prod(declared))
                shape = (math.prod(declared),)
            reshaped(self, source, shape, declared, name)
        self.keep_shape(operator, declared)

    def first(self, source: str, shape: Sequence[int], count: int) -> str:
        """Write the first values of a tensor in N, H, W, C order, as one dimension."""
        flat = self.fresh(source)
        reshaped(self, source, shape, (math.prod(shape),), flat)
        parameters = [self.parameter(source, values) for values in ([0], [count])]
        return self.node("Slice", [flat, *parameters], self.fresh(source))

    def declared(self, operator: SimOperator, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the declared shape of an operator's output, or ``shape`` if that has fewer values."""
        declared = self.tensor(operator.outputs[0]).shape
        return declared if 0 < math.prod(declared) <= math.prod(shape) else tuple(shape)

    def before(self, operator: SimOperator, shape: Sequence[int]) -> str:
        """Return the name for the result in ``shape``: the output's own if the file declares that shape."""
        name = self.made(operator)
        return name if self.declared(operator, shape) == tuple(shape) else self.fresh(name)

    def finish(self, number: int, source: str, name: str) -> None:
        kind = _ACTIVATIONS.get(number & 0xFF)
        if kind == "Relu":
            self.node("Relu", [source], name)
        elif kind == "Clip":
            self.relu6(source, name)

    def relu6(self, source: str, name: str) -> None:
        ends = [self.constant(self.fresh(name), np.array(end, np.float32)) for end in (0, 6)]
        self.node("Clip", [source, *ends], name)


def reshaped(b: Builder, source: str, before: Sequence[int], after: Sequence[int], name: str) -> None:
    """Write a Reshape of values in N, H, W, C order."""
    back = len(before) == 4 and _spreads(before)
    forth = len(after) == 4 and _spreads(after)
    if tuple(before) == tuple(after):
        b.node("Identity", [source], name)
        return
    if back:
        source = b.node("Transpose", [source], b.fresh(name), perm=list(TO_NHWC))
    shape = list(after) if forth or len(after) != 4 else [after[axis] for axis in TO_NCHW]
    target = b.fresh(name) if forth else name
    b.node("Reshape", [source, b.parameter(name, shape)], target)
    if forth:
        b.node("Transpose", [target], name, perm=list(TO_NCHW))


def _spreads(shape: Sequence[int]) -> bool:
    """Return whether N, H, W, C and N, C, H, W order values differently."""
    return shape[3] > 1 and shape[1] * shape[2] > 1


def transposed(b: Builder, source: str, perm: Sequence[int], name: str) -> None:
    """Write a Transpose of the axes that the file has."""
    onnx_perm = list(perm) if len(perm) != 4 else [AXIS[perm[axis]] for axis in TO_NCHW]
    b.node("Transpose", [source], name, perm=onnx_perm)


def padded(
    b: Builder, source: str, shape: Sequence[int], numbers: Sequence[int], name: str, operator: SimOperator
) -> None:
    """Write a Pad with zeros; ``numbers``: before and after, axis by axis."""
    begins, ends = (along(numbers[side::2], len(shape), operator) for side in (0, 1))
    b.node("Pad", [source, b.parameter(name, [*begins, *ends])], name, mode="constant")


def along(values: Sequence[int], rank: int, operator: SimOperator) -> list[int]:
    """Return one number per axis in the order of the axes here. Raises FormatError for another count."""
    if len(values) != rank:
        raise FormatError(f"has a {operator.kind} with {len(values)} parameters for {rank} dimensions")
    return [values[axis] for axis in TO_NCHW] if rank == 4 else list(values)


def cut(
    b: Builder,
    source: str,
    shape: Sequence[int],
    begins: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
    name: str,
) -> None:
    """Write a Slice of the axes that are cut."""
    axes = [i for i, n in enumerate(shape) if begins[i] or ends[i] != n or steps[i] != 1]
    if not axes:
        b.node("Identity", [source], name)
        return
    here = [AXIS[axis] if len(shape) == 4 else axis for axis in axes]
    lists = ([values[axis] for axis in axes] for values in (begins, ends))
    parameters = [b.parameter(name, values) for values in (*lists, here, [steps[axis] for axis in axes])]
    b.node("Slice", [source, *parameters], name)
