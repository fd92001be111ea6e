"""Collects the nodes and constants of a fixed model: the integer rules write their formulas through it, node by node.

Whole numbers travel as float32 where they are sure to stay below 2^24 and as double elsewhere: both are exact, and
onnxruntime computes them several at a time. What is stored is cast to uint8 or int16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.quantisation.integer.rounding import limits
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

FLOAT = np.dtype(np.float32)
DOUBLE = np.dtype(np.float64)
# From this opset on ReduceMax and ReduceProd take their axes as an input.
REDUCES_BY_INPUT = 18


@dataclass(frozen=True)
class Integers:
    """A tensor of whole numbers in the graph: its name there, the type it travels in, and what the numbers mean."""

    name: str
    dtype: np.dtype
    quant: Quant


@dataclass(frozen=True, eq=False)
class Unrounded:
    """What an operator computed, before it is rounded half up and clipped: the double ``name`` plus the constant
    ``plus`` (a number, or the name of constant doubles). ``halved``: the 0.5 of the rounding is in it already.
    ``lowest`` and ``highest`` narrow the limits of the output's type."""

    name: str
    plus: str | float = 0.0
    lowest: float = -np.inf
    highest: float = np.inf
    halved: bool = False


class Emitter:
    """``scope`` begins the names of what is added: the tensor that is being computed. ``opset``: the model's; ``mark``:
    what no name of the model has (``mark_of``)."""

    def __init__(self, opset: int = 13, mark: str = "#") -> None:
        self.opset = opset
        self.mark = mark
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.scope = ""
        self._count = 0
        self._casts: dict[tuple[str, np.dtype], str] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def add(self, op_type: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node of one output; gives the output's name."""
        from onnx import helper

        output = output or self.fresh(op_type)
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=self.named(output, op_type), **attributes))
        return output

    def fresh(self, word: str) -> str:
        """A name that nothing has yet."""
        self._count += 1
        return self.named(self.scope, f"{word}{self._count}")

    def named(self, name: str, what: str) -> str:
        """The name of what belongs to a tensor: ``conv1#stored``."""
        return f"{name}{self.mark}{what}"

    def stored(self, name: str) -> str:
        """The name of a tensor's integers."""
        return self.named(name, "stored")

    def constant(self, array: np.ndarray | np.generic | float, name: str | None = None) -> str:
        """Add a constant, once for equal ones without a name; gives its name."""
        from onnx import numpy_helper

        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes() if array.size <= 64 else b"")
        if name is None and key[2] and key in self._known:
            return self._known[key]
        given = name or self.fresh("constant")
        self.constants.append(numpy_helper.from_array(array, given))
        if name is None and key[2]:
            self._known[key] = given
        return given

    def cast(self, name: str, dtype: np.dtype) -> str:
        """The tensor as another type; the same cast is made once."""
        from onnx import helper

        if (name, dtype) not in self._casts:
            to = helper.np_dtype_to_tensor_dtype(dtype)
            self._casts[name, dtype] = self.add("Cast", [name], self.named(name, str(dtype)), to=to)
        return self._casts[name, dtype]

    def largest(self, name: str, axis: int) -> str:
        """The maximum along an axis, which stays with length 1."""
        if self.opset < REDUCES_BY_INPUT:
            return self.add("ReduceMax", [name], axes=[axis], keepdims=1)
        return self.add("ReduceMax", [name, self.constant(np.array([axis], np.int64))], keepdims=1)

    def floats(self, value: Integers) -> str:
        return value.name if value.dtype == FLOAT else self.cast(value.name, FLOAT)

    def doubles(self, value: Integers) -> str:
        return value.name if value.dtype == DOUBLE else self.cast(value.name, DOUBLE)

    def real(self, value: Integers, output: str | None = None) -> str:
        """The float32 values that stored integers mean: (q - zero point) * scale."""
        centred = self.floats(value)
        if value.quant.zero_point:
            centred = self.add("Sub", [centred, self.constant(np.float32(value.quant.zero_point))])
        return self.add("Mul", [centred, self.constant(np.float32(value.quant.scale))], output)

    def inner(self, value: Unrounded, quant: Quant) -> Integers:
        """The whole numbers between two fused operators, as doubles: clip(half_up(value))."""
        bottom, top = limits(quant)
        low, high = max(bottom, value.lowest), min(top, value.highest)
        floor = self.add("Floor", [self._plus_half(value)])
        return Integers(self._clip(floor, low, high), DOUBLE, quant)

    def store(self, value: Unrounded, quant: Quant, output: str) -> Integers:
        """What is stored: clip(half_up(value)) as uint8 or int16, under the name ``output``."""
        bottom, top = limits(quant)
        low, high = max(bottom, value.lowest), min(top, value.highest)
        rounded = self._plus_half(value)
        if low >= 0:
            clipped = self._clip(rounded, low, high + 0.5)  # the cast drops the fraction
        else:
            clipped = self._clip(self.add("Floor", [rounded]), low, high)
        return self.stored_as(clipped, quant, output)

    def stored_as(self, name: str, quant: Quant, output: str) -> Integers:
        """Whole numbers, already within its limits, as the type that is stored."""
        from onnx import helper

        assert quant.dtype is not None, "what is stored has a type"
        to = helper.np_dtype_to_tensor_dtype(quant.dtype)
        return Integers(self.add("Cast", [name], output, to=to), quant.dtype, quant)

    def _plus_half(self, value: Unrounded) -> str:
        if value.halved:
            return value.name
        half = self.constant(np.float64(0.5))
        plus = (
            self.add("Add", [value.plus, half])
            if isinstance(value.plus, str)
            else self.constant(np.float64(value.plus + 0.5))
        )
        return self.add("Add", [value.name, plus])

    def _clip(self, value: str, low: float, high: float) -> str:
        return self.add("Clip", [value, self.constant(np.float64(low)), self.constant(np.float64(high))])
