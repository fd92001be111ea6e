"""Building blocks of the integer rules: hardware numbers, an ``Emitter`` of ONNX nodes, and the contract of a rule.

Numbers: float32 scales, 15-bit multipliers, two kinds of rounding; computed in double unless stated otherwise. Source:
docs/formats/fixed_arithmetic.md.

Nodes: integers are carried as float32 if they certainly stay below 2^24, and as double otherwise. Both are exact, and
onnxruntime vectorises them. Stored tensors are cast to uint8 or int16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.fixedpoint.quantisation.integer.staircase import divisor_of
from sgsdump.models.external_data import LARGE_BYTES, WeightFile
from sgsdump.models.graph import Graph, drop_unused_constants, needs
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from sgsdump.models.fixed_facts import StoredWeights

FLOAT = np.dtype(np.float32)
DOUBLE = np.dtype(np.float64)
U8_MAX = 255
S16_MAX = 32767
# End of the Sigmoid's table, the step of its values, and their rise per unit beyond the end (``curves``).
REACH = 6.0
SIGMOID_STEP = 0.5 / S16_MAX
SIGMOID_RISE = 8
# From this opset on, ReduceMax and ReduceProd take their axes as an input.
REDUCES_BY_INPUT = 18
# Elements of a weight that are quantised at a time, to stay in the processor's cache.
PART_ELEMENTS = 1 << 16
# Constants with at most this many elements are shared if equal.
SHARED_ELEMENTS = 4096


def half_up(value: np.ndarray | float) -> np.ndarray:
    """Return floor(v + 0.5)."""
    return np.floor(np.asarray(value, np.float64) + 0.5)


def half_away(value: np.ndarray | float) -> np.ndarray:
    """Round to nearest, ties away from zero."""
    value = np.asarray(value, np.float64)
    return np.copysign(np.floor(np.abs(value) + 0.5), value)


def step(quant: Quant) -> float:
    """Return a tensor's scale as used in products: float32."""
    return float(np.float32(quant.scale))


def ratio(scale: float, output: Quant) -> float:
    """Return a scale in steps of an output, as used for multipliers: float32."""
    return float(np.float32(scale / step(output)))


def steps(quant: Quant, channels: int) -> np.ndarray:
    """Return the scales of weights as float32 values, one per output channel.

    The groups of a ConvTranspose share their scales: its weights are (I, O / group, ...).
    """
    values = np.asarray(quant.scale, np.float32).astype(np.float64).reshape(-1)
    return np.tile(values, channels // values.size)


def shift(largest: float) -> int:
    """Return the n that makes ``largest * 2**n`` a 15-bit multiplier, 16384 to 32767: floor(log2(32767 / largest))."""
    return int(np.frexp(S16_MAX / largest)[1]) - 1


def log2_ceiling(value: float) -> int:
    """Return ceil(log2(value)); 0 for the value 0."""
    mantissa, exponent = np.frexp(value)
    return int(exponent) - int(mantissa == 0.5)


def _is(value: str | float | np.ndarray, number: float) -> bool:
    """Return whether a factor or offset is this one number."""
    return not isinstance(value, str) and np.ndim(value) == 0 and value == number


def limits(quant: Quant) -> tuple[int, int]:
    """Return the smallest and largest stored value: 0 to 255, -32767 to 32767 (never -32768)."""
    return (0, U8_MAX) if quant.dtype == np.uint8 else (-S16_MAX, S16_MAX)


def store_weight(weight: np.ndarray, quant: Quant) -> np.ndarray:
    """Return the integers of a weight: w / scale rounded half away from zero, within its type's symmetric limits."""
    assert quant.dtype is not None, "weights have a type"
    scale: np.ndarray = np.asarray(quant.scale, np.float64)
    if quant.axis is not None:
        scale = scale.reshape([-1 if i == quant.axis else 1 for i in range(weight.ndim)])
    top = np.iinfo(quant.dtype).max
    stored = np.empty(weight.shape, quant.dtype)
    for part in in_parts(weight):
        real = weight[part].astype(np.float64)
        real /= scale if scale.ndim == 0 or len(scale) == 1 else scale[part]
        stored[part] = np.clip(half_away(real), -top, top)
    return stored


def in_parts(weight: np.ndarray) -> Iterator[slice | tuple[()]]:
    """Yield indices of parts of a weight, along its first axis, that fit the processor's cache as doubles."""
    if not weight.ndim:
        yield ()
        return
    rows = max(1, PART_ELEMENTS * len(weight) // max(1, weight.size))
    for start in range(0, len(weight), rows):
        yield slice(start, start + rows)


def reach(quant: Quant) -> Range:
    """Return the range that a stored tensor can hold."""
    low, high = limits(quant)
    return Range.of((low - quant.zero_point) * step(quant), (high - quant.zero_point) * step(quant))


@dataclass(frozen=True)
class Integers:
    """A tensor of integers in the graph: its name, the type that carries it, and its quant."""

    name: str
    dtype: np.dtype
    quant: Quant


@dataclass(frozen=True, eq=False)
class Unrounded:
    """The result of an operator before rounding half up and clipping: (``name`` - zero) * times + plus.

    plus      a number, an array that broadcasts over the value, or the name of constant doubles.
    times     a number, or an array that broadcasts over the value.
    zero      the zero point of ``name``, subtracted first.
    dtype     type that carries ``name``.
    whole     ``name`` holds integers.
    channels  size of axis 1 of a value with at least three axes; 0 if unknown, or if ``plus`` or ``times`` is neither
              one value per channel nor one for all.
    halved    the 0.5 of the rounding is included already.
    lowest, highest  tighter limits than those of the output's type.
    """

    name: str
    plus: str | float | np.ndarray = 0.0
    times: float | np.ndarray = 1.0
    zero: int = 0
    dtype: np.dtype = DOUBLE
    whole: bool = False
    channels: int = 0
    halved: bool = False
    lowest: float = -np.inf
    highest: float = np.inf


class Emitter:
    """A builder of ONNX nodes and constants.

    scope    prefix of new names: the tensor being computed.
    opset    opset of the model.
    mark     separator that no name of the model contains (``mark_of``).
    outside  destination of large constants.
    """

    def __init__(self, opset: int = 13, mark: str = "#", outside: WeightFile | None = None) -> None:
        self.opset = opset
        self.mark = mark
        self._outside = outside
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.scope = ""
        self._count = 0
        self._casts: dict[tuple[str, np.dtype], str] = {}
        self._given: set[str] = set()
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._clips: dict[str, tuple[str, float, float]] = {}

    def add(self, op_type: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        from onnx import helper

        output = output or self.fresh(op_type)
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=self.named(output, op_type), **attributes))
        return output

    def fresh(self, word: str) -> str:
        """Return an unused name."""
        self._count += 1
        return self.named(self.scope, f"{word}{self._count}")

    def named(self, name: str, suffix: str) -> str:
        """Return a name derived from a tensor's: ``conv1#stored``."""
        return f"{name}{self.mark}{suffix}"

    def stored(self, name: str) -> str:
        """Return the name of a tensor's integers."""
        return self.named(name, "stored")

    def constant(self, array: np.ndarray | np.generic | float, name: str | None = None) -> str:
        """Add a constant and return its name; equal constants without a name are shared."""
        from onnx import numpy_helper

        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes() if array.size <= SHARED_ELEMENTS else b"")
        if name is None and key[2] and key in self._known:
            return self._known[key]
        unique = name or self.fresh("constant")
        if unique in self._given:
            return unique  # weights that two convolutions share
        self._given.add(unique)
        if self._outside is not None and array.nbytes >= LARGE_BYTES:
            self.constants.append(self._outside.add(array, unique))
        else:
            self.constants.append(numpy_helper.from_array(array, unique))
        if name is None and key[2]:
            self._known[key] = unique
        return unique

    def cast(self, name: str, dtype: np.dtype) -> str:
        """Cast a tensor to another type; equal casts are shared."""
        from onnx import helper

        if (name, dtype) not in self._casts:
            to = helper.np_dtype_to_tensor_dtype(dtype)
            self._casts[name, dtype] = self.add("Cast", [name], self.named(name, dtype.name), to=to)
        return self._casts[name, dtype]

    def largest(self, name: str, axis: int) -> str:
        """Add the maximum along an axis, which stays with length 1."""
        if self.opset < REDUCES_BY_INPUT:
            return self.add("ReduceMax", [name], axes=[axis], keepdims=1)
        return self.add("ReduceMax", [name, self.constant(np.array([axis], np.int64))], keepdims=1)

    def floats(self, value: Integers) -> str:
        return value.name if value.dtype == FLOAT else self.cast(value.name, FLOAT)

    def doubles(self, value: Integers) -> str:
        return value.name if value.dtype == DOUBLE else self.cast(value.name, DOUBLE)

    def real(self, value: Integers, output: str | None = None) -> str:
        """Add the float32 values of stored integers: (q - zero point) * scale."""
        centred = self.floats(value)
        if value.quant.zero_point:
            centred = self.add("Sub", [centred, self.constant(np.float32(value.quant.zero_point))])
        return self.add("Mul", [centred, self.constant(np.float32(value.quant.scale))], output)

    def inner(self, value: Unrounded, quant: Quant) -> Integers:
        """Add the integers between two fused operators, as doubles: clip(half_up(value))."""
        bottom, top = limits(quant)
        low, high = max(bottom, value.lowest), min(top, value.highest)
        if value.whole and not value.zero and _is(value.times, 1) and _is(value.plus, 0):
            whole = self._doubles(value)
        else:
            whole = self.add("Floor", [self._plus_half(value)])
        clipped = self._clip(whole, low, high)
        self._clips[clipped] = whole, low, high
        return Integers(clipped, DOUBLE, quant)

    def unclipped(self, value: Integers) -> tuple[str, float, float]:
        """Return the integers before clipping, and the limits.

        A non-decreasing operator may clip its output instead.
        """
        return self._clips.get(value.name, (value.name, -np.inf, np.inf))

    def store(self, value: Unrounded, quant: Quant, output: str) -> Integers:
        """Add the stored integers: clip(half_up(value)) as uint8 or int16, under the name ``output``."""
        bottom, top = limits(quant)
        low, high = max(bottom, value.lowest), min(top, value.highest)
        if value.whole and (low, high) == (0, U8_MAX) and _is(value.plus, quant.zero_point):
            divisor = divisor_of(float(value.times), quant.zero_point) if np.ndim(value.times) == 0 else None
            if divisor is not None:
                return self._divided(value, divisor, quant, output)
        rounded = self._plus_half(value)
        if low >= 0:
            clipped = self._clip(rounded, low, high + 0.5)  # the cast drops the fraction
        else:
            clipped = self._clip(self.add("Floor", [rounded]), low, high)
        return self.stored_as(clipped, quant, output)

    def stored_as(self, name: str, quant: Quant, output: str) -> Integers:
        """Cast integers within the limits of their type to the stored type."""
        from onnx import helper

        assert quant.dtype is not None, "what is stored has a type"
        to = helper.np_dtype_to_tensor_dtype(quant.dtype)
        return Integers(self.add("Cast", [name], output, to=to), quant.dtype, quant)

    def assemble(self, source: ModelProto, tensors: Mapping[str, Quant], keep_integer: Collection[str]) -> ModelProto:
        """Return the model with the added nodes and constants in place of its own nodes.

        Outputs of ``tensors`` in ``keep_integer`` stay stored integers.
        """
        from onnx import ModelProto, helper

        result = ModelProto()
        result.CopyFrom(source)
        del result.graph.node[:]
        del result.graph.value_info[:]
        read = {name for node in self.nodes for name in needs(node)}
        result.graph.node.extend(n for n in self.nodes if n.output[0] not in self._clips or n.output[0] in read)
        result.graph.initializer.extend(self.constants)
        for output in result.graph.output:
            if output.name in keep_integer and output.name in tensors:
                dtype = tensors[output.name].dtype
                output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
                output.name = self.stored(output.name)
        drop_unused_constants(result)
        return result

    def _divided(self, value: Unrounded, divisor: np.float32, quant: Quant, output: str) -> Integers:
        """Add integers divided by a float32 divisor, rounded, shifted by the zero point and saturated."""
        source = value.name if value.dtype == FLOAT else self.cast(value.name, FLOAT)
        if value.zero:
            source = self.add("Sub", [source, self.constant(np.float32(value.zero))])
        numbers = [self.constant(divisor), self.constant(np.uint8(quant.zero_point))]
        return Integers(self.add("QuantizeLinear", [source, *numbers], output), np.dtype(np.uint8), quant)

    def _plus_half(self, value: Unrounded) -> str:
        if value.halved:
            return value.name
        source, half = self._doubles(value), np.float64(0.5)
        if isinstance(value.plus, str):
            return self.add("Add", [source, self.add("Add", [value.plus, self.constant(half)])])
        times = np.asarray(value.times, np.float64)
        plus = np.asarray(value.plus, np.float64) - value.zero * times + half
        return self.line(source, times, plus, value.channels)

    def line(self, source: str, times: np.ndarray, plus: np.ndarray, channels: int = 0) -> str:
        """Add source * times + plus for doubles.

        If ``channels`` (the size of axis 1; 0: unknown) is given and both constants have one value per channel or for
        all, one pass does both.
        """
        scaled, moved = np.any(times != 1), np.any(plus)
        if channels and (times.size > 1 or plus.size > 1 or (scaled and moved)):
            parts = (times, plus, np.zeros(()), np.ones(()))
            spread = [self.constant(np.broadcast_to(part.reshape(-1), (channels,))) for part in parts]
            return self.add("BatchNormalization", [source, *spread], epsilon=0.0)
        if scaled:
            source = self.add("Mul", [source, self.constant(times)])
        return self.add("Add", [source, self.constant(plus)]) if moved else source

    def _doubles(self, value: Unrounded) -> str:
        return value.name if value.dtype == DOUBLE else self.cast(value.name, DOUBLE)

    def _clip(self, value: str, low: float, high: float) -> str:
        return self.add("Clip", [value, self.constant(np.float64(low)), self.constant(np.float64(high))])


@dataclass(frozen=True, eq=False)
class StoredConvolution:
    """The constants of a convolution: weights, their quant, bias and multiplier rows (2, C), and float bias name."""

    kernel: str
    weights: StoredWeights
    rows: str
    bias: str


@dataclass(frozen=True, eq=False)
class Requantisation:
    """The numbers of a convolution, one value per output channel.

    bias, mul  int16; the two rows of the bias tensor in a dump.
    k, n       the shifts.
    zero       the sum that the input's zero point adds to the accumulator (Z_c).
    """

    bias: np.ndarray
    mul: np.ndarray
    k: np.ndarray
    n: np.ndarray
    zero: np.ndarray


@dataclass(frozen=True, eq=False)
class Weighting:
    """The operands of a convolution besides its input.

    quant     of its weights.
    channels  by output of a convolution, the range of each of its channels.
    whole     range for an output that ``channels`` lacks.
    stored    name to store the output under if it is UINT8 with only its type's limits; else "".
    keep      receives what the convolution stores.
    numbers   known biases, multipliers and shifts, or None to compute them.
    """

    quant: Quant
    channels: Mapping[str, Range]
    whole: Range
    stored: str
    keep: Callable[[StoredConvolution], None]
    numbers: Requantisation | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """One node to compute.

    name       the tensor that it makes.
    operands   its inputs as integers, without the ``constant`` that is added or multiplied.
    output     the scale required of the result.
    range      calibration range of the result.
    source     range of the node's first input, or None.
    weighting  of a convolution whose weights are quantised.
    """

    emit: Emitter
    graph: Graph
    node: NodeProto
    name: str
    operands: tuple[Integers, ...]
    output: Quant
    range: Range
    constant: np.ndarray | None = None
    weighting: Weighting | None = None
    source: Range | None = None


@dataclass(frozen=True)
class Rule:
    """How one operator type is computed.

    compute      returns the value before its last rounding, or stored; None for a node that the rule cannot compute.
    operands     number of inputs that are tensors (None: all); the others are parameters.
    constants    the inputs of which one may be a broadcast constant: ``Call.constant``.
    reach        least upper end of the range of an input from inside a fused chain.
    approximate  substitute for a hardware rule, possibly for some nodes only; "" for an exact rule.
    """

    compute: Callable[[Call], Integers | Unrounded | None]
    operands: int | None = 1
    constants: tuple[int, ...] = ()
    reach: float = 0.0
    approximate: str | Callable[[NodeProto], str] = ""

    def instead(self, node: NodeProto) -> str:
        """Return the substitute for a hardware rule, or ""."""
        return self.approximate if isinstance(self.approximate, str) else self.approximate(node)


def requantise(emit: Emitter, value: Integers, output: Quant) -> Unrounded:
    """Return the same values with another scale or type."""
    return rising(emit, value, multiplier(ratio(step(value.quant), output)), output.zero_point)


def rising(emit: Emitter, value: Integers, times: float, plus: int = 0) -> Unrounded:
    """Return (q - z) * times + plus, ``times`` positive; clips the result instead of q."""
    name, *ends = emit.unclipped(value)
    zero = value.quant.zero_point
    low, high = (float(half_up((end - zero) * times) + plus) for end in ends)
    return Unrounded(name, plus, times, zero, value.dtype, True, lowest=low, highest=high)


def multiplier(times: float) -> float:
    """Return half_up(times * 2^n) / 2^n, with 15 bits."""
    n = shift(times)
    return float(half_up(times * 2.0**n)) * 2.0**-n


def at_scale(emit: Emitter, value: Integers, quant: Quant) -> Integers:
    """Return the values stored with a scale, between operators that accept only their own."""
    if value.quant == quant:
        return value
    return emit.store(requantise(emit, value, quant), quant, emit.fresh("requantised"))


def centred(emit: Emitter, value: Integers) -> str:
    """Return q - z as doubles."""
    name = emit.doubles(value)
    if not value.quant.zero_point:
        return name
    return emit.add("Sub", [name, emit.constant(np.float64(value.quant.zero_point))])
