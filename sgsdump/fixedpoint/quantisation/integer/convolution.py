"""Rules of convolution, depthwise and transposed convolution and fully connected: accumulator, bias, multiplier.

    A   = half_away(acc / 2^K)                                for K <= 16
          half_away(floor(acc / 2^(K - 16)) / 2^16)           for K > 16 (16-bit inputs only)
    out = clip(half_up((A + bias_c) * mul_c * 2^(K - n)))     not below the zero point if a ReLU is fused

The numbers, per output channel:

    s_c  = f32(s_in) * f32(s_w,c)             M_c = s_c / f32(s_out)
    n    = floor(log2(32767 / max M_c))       mul_c = half_up(M_c * 2^n)
    Z_c  = z_in * sum w_c                     B_c = b_c / s_c - Z_c + z_out / M_c
    L    = max over c of |B_c|, |(min_c - b_c) / s_c + Z_c|, |(max_c - b_c) / s_c + Z_c|
    K    = ceil(log2 L) - 13                  bias_c = half_away(B_c / 2^K)

min_c and max_c are the calibration range of output channel c before its activation (tensor_chn.txt). K and n are shared
by a layer, or by each group of a grouped convolution, whose groups the hardware computes one after the other.
Source: docs/formats/fixed_arithmetic.md#convolution. Exact: every integer of every convolution seen.

UINT8 results come from one float32 division if that is exact: see ``staircase``.

Float operators compute the exact sum of products. float32 adds integers exactly as long as no partial sum exceeds 2^24,
in any order and with any fusion; doubles do up to 2^53. Therefore

* 8-bit operands, and few products of 16-bit ones, take one float32 Conv;
* a wider Conv is one MatMul of doubles for each tap of its kernel, on the tap's slice of the padded input (measured:
  as fast as the float32 Conv);
* the weights of depthwise, grouped and transposed ones are split into pieces of fewer bits, w = sum 2^e * w_e, each
  with a float32 Conv of its own. If that is not enough, the input is split into its two bytes.

The sum is already divided by a power of two, which is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import GROUP_OUTPUT, of_groups
from sgsdump.fixedpoint.quantisation.integer.emitter import (
    DOUBLE,
    FLOAT,
    Call,
    Emitter,
    Integers,
    Requantisation,
    Rule,
    StoredConvolution,
    Unrounded,
    half_away,
    half_up,
    limits,
    log2_ceiling,
    shift,
    step,
    steps,
    store_weight,
)
from sgsdump.fixedpoint.quantisation.integer.staircase import divisors
from sgsdump.fixedpoint.quantisation.tensor_scales import UINT8, joined
from sgsdump.models.fixed_facts import StoredWeights
from sgsdump.models.graph import Graph, attribute
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto


EXACT = float(2**24)
BYTE = 256.0
# Types that hold the magnitude of every value.
_WIDER = {np.dtype(np.int8): np.int16, np.dtype(np.int16): np.int32}
BIAS_BITS = 13
FLOOR_BITS = 16
# Multiplied by 1 + e, a tie lies past the middle, away from zero, and half to even rounds it that way. Nothing else
# passes a tie as long as |acc| * e is less than one.
FLOAT_TIES = 1 - 2.0**-22
FLOAT_TIES_BELOW = 3.3e6
DOUBLE_TIES = 1 + 2.0**-44


@dataclass(frozen=True, eq=False)
class Kernel:
    """Weights of a convolution or matrix product.

    name        name of the weights among the constants.
    values      in Conv's layout (O, I / group, ...), ConvTranspose's (I, O / group, ...), or MatMul's (I, O); with
                ``transposed`` (O, I).
    op_type     Conv, ConvTranspose or MatMul.
    attributes  the node's attributes.
    """

    name: str
    values: np.ndarray
    op_type: str
    group: int = 1
    transposed: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def pads(self) -> bool:
        return any(self.attributes.get("pads", ())) or "auto_pad" in self.attributes

    @property
    def depthwise(self) -> bool:
        return self.op_type == "Conv" and 1 < self.group == self.values.shape[0] and self.values.shape[1] == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value per output channel that broadcasts over the output."""
        return (-1,) if self.op_type == "MatMul" else (-1, *[1] * (self.values.ndim - 2))

    def sums(self) -> np.ndarray:
        """Return the sum of each output channel's weights."""
        return self._over_channel(self.values)

    def largest(self, part: np.ndarray) -> float:
        """Return the largest sum of absolute weights of any output channel."""
        return float(self._over_channel(np.abs(part.astype(_WIDER.get(part.dtype, np.int64)))).max())

    def per_channel(self, values: np.ndarray) -> np.ndarray:
        """Return one value per output channel, shaped to scale the weights."""
        ndim = self.values.ndim
        if self.op_type == "MatMul":
            return values.reshape((-1, 1) if self.transposed else (1, -1))
        if self.op_type == "Conv":
            return values.reshape(-1, *[1] * (ndim - 1))
        inputs, outputs = self.values.shape[:2]
        spread = np.repeat(values.reshape(self.group, 1, outputs), inputs // self.group, axis=1)
        return spread.reshape(inputs, outputs, *[1] * (ndim - 2))

    def _over_channel(self, values: np.ndarray) -> np.ndarray:
        if self.op_type == "MatMul":
            return values.sum(axis=1 if self.transposed else 0, dtype=np.int64)
        if self.op_type == "Conv":
            return values.reshape(values.shape[0], -1).sum(axis=1, dtype=np.int64)
        inputs, outputs = values.shape[:2]
        return (
            values.reshape(self.group, inputs // self.group, outputs, -1).sum(axis=(1, 3), dtype=np.int64).reshape(-1)
        )


def kernel_of(node: NodeProto, name: str, values: np.ndarray) -> Kernel | None:
    """Return the kernel of a Conv, ConvTranspose, Gemm or MatMul; None if it is not a product of plain matrices."""
    if node.op_type in ("Conv", "ConvTranspose"):
        kept = ("kernel_shape", "pads", "strides", "dilations", "group", "auto_pad", "output_padding", "output_shape")
        attributes = {key: attribute(node, key) for key in kept if attribute(node, key) is not None}
        if attributes.get("auto_pad") in (b"NOTSET", b"VALID"):
            del attributes["auto_pad"]
        return Kernel(name, values, node.op_type, attributes.get("group", 1), False, attributes)
    if values.ndim != 2 or attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1.0:
        return None
    return Kernel(name, values, "MatMul", transposed=bool(attribute(node, "transB", 0)))


@dataclass(frozen=True)
class Accumulator:
    """The accumulator of a convolution.

    name     in the graph; float32 or double.
    largest  bound of the accumulator's magnitude (before 2^-k).
    shape    of one value per output channel that broadcasts over the output.
    """

    name: str
    dtype: np.dtype
    largest: float
    shape: tuple[int, ...]


def accumulate(emit: Emitter, value: Integers, kernel: Kernel, k: np.ndarray, zero: np.ndarray) -> Accumulator:
    """Compute acc / 2^k of the stored integers ``value``, with padding at the zero point.

    k     the exponents to divide by, one per output channel.
    zero  ``Requantisation.zero``, one per output channel.
    """
    centred = value.quant.zero_point != 0 and (kernel.pads or kernel.op_type == "ConvTranspose")
    low, high = limits(value.quant)
    top = max(-low, high)
    if centred:
        # After centring, zero padding means the zero point; a bias restores what centring removes from every output.
        top = max(value.quant.zero_point - low, high - value.quant.zero_point)
    bias = zero if centred else np.zeros_like(zero)
    largest = top * kernel.largest(kernel.values) + float(np.abs(bias).max())
    if kernel.op_type == "MatMul":
        return _matrix_product(emit, value, kernel, k, largest)
    if largest < EXACT:
        source = _centred(emit, emit.floats(value), value.quant.zero_point, FLOAT) if centred else emit.floats(value)
        return Accumulator(_convolved(emit, source, kernel, kernel.name, k, bias), FLOAT, largest, kernel.shape)
    if kernel.op_type == "Conv" and kernel.group == 1 and "auto_pad" not in kernel.attributes:
        source = _centred(emit, emit.doubles(value), value.quant.zero_point, DOUBLE) if centred else emit.doubles(value)
        return Accumulator(_by_taps(emit, source, kernel, k, bias), DOUBLE, largest, kernel.shape)
    source = _centred(emit, emit.floats(value), value.quant.zero_point, FLOAT) if centred else emit.floats(value)
    return Accumulator(_by_pieces(emit, source, top, kernel, k, bias), DOUBLE, largest, kernel.shape)


def _centred(emit: Emitter, name: str, zero_point: int, dtype: np.dtype) -> str:
    return emit.add("Sub", [name, emit.constant(np.asarray(zero_point, dtype))])


def _convolved(
    emit: Emitter, source: str, kernel: Kernel, weights: str, k: np.ndarray, bias: np.ndarray | None = None
) -> str:
    """Add one float32 convolution; ``weights`` names integer weights of any type."""
    scaled = emit.cast(weights, FLOAT)
    if np.any(k):
        scale = kernel.per_channel(2.0**-k).astype(np.float32)
        scaled = emit.add("Mul", [scaled, emit.constant(scale if np.ptp(k) else scale.reshape(-1)[0])])
    inputs = [source, scaled]
    if bias is not None and np.any(bias):
        inputs.append(emit.constant((bias * 2.0**-k).astype(np.float32)))
    return emit.add(kernel.op_type, inputs, **kernel.attributes)


def _matrix_product(emit: Emitter, value: Integers, kernel: Kernel, k: np.ndarray, largest: float) -> Accumulator:
    dtype = FLOAT if largest < EXACT else DOUBLE
    weights = emit.cast(kernel.name, dtype)
    if np.any(k):
        weights = emit.add("Mul", [weights, emit.constant(kernel.per_channel(2.0**-k).astype(dtype))])
    if kernel.transposed:
        weights = emit.add("Transpose", [weights], perm=[1, 0])
    source = emit.floats(value) if dtype == FLOAT else emit.doubles(value)
    return Accumulator(emit.add("MatMul", [source, weights]), dtype, largest, kernel.shape)


def _by_taps(emit: Emitter, source: str, kernel: Kernel, k: np.ndarray, bias: np.ndarray) -> str:
    """Add the sum over the kernel's taps of MatMul(weights of the tap, inputs of the tap), as doubles."""
    spatial = kernel.values.shape[2:]
    padded = _padded(emit, source, kernel)
    strides = list(kernel.attributes.get("strides") or [1] * len(spatial))
    dilations = list(kernel.attributes.get("dilations") or [1] * len(spatial))
    weights = emit.cast(kernel.name, DOUBLE)
    if np.any(k):
        weights = emit.add("Mul", [weights, emit.constant(kernel.per_channel(2.0**-k))])
    total = ""
    for tap in np.ndindex(*spatial):
        visible = _seen(emit, padded, tap, spatial, strides, dilations)
        flat = emit.add("Reshape", [visible, emit.constant(np.array([0, 0, -1], np.int64))])
        product = emit.add("MatMul", [_tap_weights(emit, weights, tap, kernel), flat])
        total = emit.add("Add", [total, product]) if total else product
    if np.any(bias):
        total = emit.add("Add", [total, emit.constant((bias * 2.0**-k).reshape(-1, 1))])
    shape = emit.add("Shape", [visible])
    ends = [emit.constant(np.array([end], np.int64)) for end in (0, 1, 2, 2 + len(spatial))]
    parts = [
        emit.add("Slice", [shape, ends[0], ends[1]]),
        emit.constant(np.array([kernel.values.shape[0]], np.int64)),
        emit.add("Slice", [shape, ends[2], ends[3]]),
    ]
    return emit.add("Reshape", [total, emit.add("Concat", parts, axis=0)])


def _tap_weights(emit: Emitter, weights: str, tap: tuple[int, ...], kernel: Kernel) -> str:
    """Return the weights (O, I) of one tap."""
    axes = emit.constant(np.arange(2, kernel.values.ndim))
    if kernel.values[0, 0].size > 1:
        starts = np.array(tap, np.int64)
        weights = emit.add("Slice", [weights, emit.constant(starts), emit.constant(starts + 1), axes])
    return emit.add("Squeeze", [weights, axes])


def _padded(emit: Emitter, source: str, kernel: Kernel) -> str:
    if not kernel.pads:
        return source
    pads = list(kernel.attributes["pads"])
    half = len(pads) // 2
    amounts = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
    return emit.add("Pad", [source, emit.constant(amounts)])


def _seen(
    emit: Emitter,
    source: str,
    tap: tuple[int, ...],
    spatial: tuple[int, ...],
    strides: list[int],
    dilations: list[int],
) -> str:
    """Return the inputs that one tap of the kernel multiplies at every output position."""
    if all(size == 1 for size in spatial) and all(step == 1 for step in strides):
        return source
    starts = [at * dilation for at, dilation in zip(tap, dilations, strict=True)]
    ends = [(at - size + 1) * dilation for at, size, dilation in zip(tap, spatial, dilations, strict=True)]
    bounds = [starts, [end or np.iinfo(np.int64).max for end in ends], range(2, 2 + len(spatial)), strides]
    return emit.add("Slice", [source, *(emit.constant(np.array(list(bound), np.int64)) for bound in bounds)])


def _by_pieces(emit: Emitter, source: str, top: int, kernel: Kernel, k: np.ndarray, bias: np.ndarray) -> str:
    """Add float32 convolutions with few enough bits each, summed as doubles."""
    bits = _piece_bits(kernel, top)
    if bits:
        parts = [(source, 0)]
    else:
        # The bytes of the input: x = 256 * high + low, both within 128 of zero.
        high = emit.add("Round", [emit.add("Mul", [source, emit.constant(np.float32(1 / BYTE))])])
        low = emit.add("Sub", [source, emit.add("Mul", [high, emit.constant(np.float32(BYTE))])])
        parts, bits = [(high, 8), (low, 0)], _piece_bits(kernel, 128)
    if not bits:
        raise OverflowError(
            f"{kernel.name}: an output of this convolution sums too many products for an exact float32 sum"
        )
    total = ""
    rest = emit.cast(kernel.name, FLOAT)
    for index in range(len(_pieces(kernel.values, bits))):
        piece, rest = _lowest_bits(emit, rest, bits)
        for part, power in parts:
            term = emit.cast(_convolved(emit, part, kernel, piece, k - index * bits - power), DOUBLE)
            total = emit.add("Add", [total, term]) if total else term
    if np.any(bias):
        total = emit.add("Add", [total, emit.constant((bias * 2.0**-k).reshape(kernel.shape))])
    return total


def _lowest_bits(emit: Emitter, weights: str, bits: int) -> tuple[str, str]:
    """Return the lowest signed ``bits`` of constant weights, and the rest; onnxruntime folds this when loading."""
    size = np.float32(1 << bits)
    over = emit.add("Mul", [weights, emit.constant(np.float32(1 / size))])
    halves = emit.add("Add", [over, emit.constant(np.float32(0.5))])
    rest = emit.add("Floor", [halves])
    return emit.add("Sub", [weights, emit.add("Mul", [rest, emit.constant(size)])]), rest


def _piece_bits(kernel: Kernel, top: int) -> int:
    """Return the largest number of bits for pieces of the weights with exact sums; 0 if not even two bits work."""
    for bits in range(15, 1, -1):
        if all(top * kernel.largest(piece) < EXACT for piece in _pieces(kernel.values, bits)):
            return bits
    return 0


def _pieces(values: np.ndarray, bits: int) -> list[np.ndarray]:
    """Return weights as a sum of 2^(i * bits) * piece i, each within 2^(bits - 1) of zero (``_lowest_bits``)."""
    pieces: list[np.ndarray] = []
    rest = values.astype(np.int64)
    while np.any(rest) or not pieces:
        high = (rest + (1 << (bits - 1))) >> bits
        pieces.append(rest - (high << bits))
        rest = high
    return pieces


def _convolution(call: Call) -> Integers | Unrounded | None:
    """Compute a convolution; None if no rule applies.

    No rule applies to weights that are not quantised, to a fully connected operator without a plain matrix, and to a
    bias that is not one constant per output channel or for all.
    """
    emit, graph, node, weighting = call.emit, call.graph, call.node, call.weighting
    if weighting is None:
        return None
    (value,), name = call.operands, node.output[0]
    integers = store_weight(graph.value(node.input[1]), weighting.quant)
    kernel = kernel_of(node, emit.named(node.input[1], str(weighting.quant.dtype)), integers)
    if kernel is None or not _has_plain_bias(graph, node, kernel):
        return None
    if len(graph.consumers[node.input[1]]) > 1:
        kernel = replace(kernel, name=f"{kernel.name}:{name}")
    sums = kernel.sums()
    groups = 1 if kernel.depthwise or kernel.op_type == "ConvTranspose" else kernel.group
    parts = joined(weighting.channels, of_groups(GROUP_OUTPUT, node)) if groups > 1 else None
    channels = weighting.channels.get(name) or parts or weighting.whole
    quants = Quants(value.quant, weighting.quant, call.output)
    if weighting.numbers is not None:
        numbers = replace(weighting.numbers, zero=value.quant.zero_point * sums.astype(np.float64))
    else:
        numbers = requantisation(sums, _bias(graph, node, sums.size), channels, quants, groups)
    emit.constant(kernel.values, kernel.name)
    rows = emit.constant(np.stack([numbers.bias, numbers.mul]), emit.named(name, "rows"))
    outcome = convolve(emit, value, kernel, numbers, rows, weighting.stored)
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else f"{name}_bias"
    weighting.keep(StoredConvolution(kernel.name, StoredWeights.of(node.input[1], weighting.quant), rows, bias))
    return Integers(outcome, UINT8, call.output) if isinstance(outcome, str) else outcome


CONVOLUTION = Rule(_convolution)


class Quants(NamedTuple):
    """The quants of a convolution's input, weights and output."""

    source: Quant
    weights: Quant
    output: Quant


def requantisation(
    sums: np.ndarray, bias: np.ndarray, channels: Range, quants: Quants, groups: int = 1
) -> Requantisation:
    """Return the numbers of one convolution.

    sums      sum of each output channel's stored weights (int64, C values).
    bias      float bias (C values).
    channels  range of each output channel before the activation (1 or C values).
    groups    groups with separate K and n: 1 for a depthwise convolution.
    """
    count = sums.size
    s = step(quants.source) * steps(quants.weights, count)
    m = s / step(quants.output)
    zero = quants.source.zero_point * sums.astype(np.float64)
    b = bias.astype(np.float64) / s - zero + quants.output.zero_point / m
    low, high = (
        np.broadcast_to(ends.astype(np.float32).astype(np.float64), (count,)) for ends in (channels.min, channels.max)
    )
    reach = np.max(np.abs([b, (low - bias) / s + zero, (high - bias) / s + zero]), axis=0)
    size = count // groups
    k, n = np.empty(count), np.empty(count)
    for start in range(0, count, size):
        part = slice(start, start + size)
        k[part] = log2_ceiling(float(reach[part].max())) - BIAS_BITS
        n[part] = shift(float(m[part].max()))
    return Requantisation(half_away(b / 2.0**k).astype(np.int16), half_up(m * 2.0**n).astype(np.int16), k, n, zero)


def convolve(
    emit: Emitter, value: Integers, kernel: Kernel, numbers: Requantisation, rows: str, stored: str = ""
) -> Unrounded | str:
    """Return a convolution up to its last rounding, or the name ``stored`` of a result that is already stored.

    rows    name of the constant (2, C): bias and multiplier.
    stored  name to store under if the output is UINT8 with only its type's limits; else "".
    """
    accumulator = accumulate(emit, value, kernel, np.maximum(numbers.k - FLOOR_BITS, 0), numbers.zero)
    if stored and len(kernel.shape) > 1 and _in_floats(accumulator, numbers.k):
        divisor = divisors(numbers.mul, numbers.n - numbers.k)
        if divisor is not None:
            return _divided(emit, accumulator, numbers, rows, divisor, stored)
    return _requantised(emit, accumulator, numbers, rows)


def _divided(
    emit: Emitter, accumulator: Accumulator, numbers: Requantisation, rows: str, divisor: np.ndarray, stored: str
) -> str:
    """Return (A + bias) / divisor, rounded and saturated."""
    rounded = _rounded_floats(emit, accumulator, numbers.k)
    bias = emit.add("Gather", [emit.cast(rows, FLOAT), emit.constant(np.int64(0))], axis=0)
    bias = emit.add("Reshape", [bias, emit.constant(np.array(accumulator.shape, np.int64))])
    zero = emit.constant(np.zeros(divisor.shape, np.uint8))
    total = emit.add("Add", [rounded, bias])
    return emit.add("QuantizeLinear", [total, emit.constant(divisor), zero], stored, axis=1)


def _requantised(emit: Emitter, accumulator: Accumulator, numbers: Requantisation, rows: str) -> Unrounded:
    """Return (A + bias) * mul * 2^(K - n), as A * scale + bias * scale."""
    wide = emit.cast(rows, DOUBLE)
    bias, mul = (emit.add("Gather", [wide, emit.constant(np.int64(row))], axis=0) for row in (0, 1))
    shifts = 2.0 ** (numbers.k - numbers.n)
    rounded = _half_away(emit, accumulator, numbers.k)
    if len(accumulator.shape) > 1 and np.any(numbers.k > 0):
        # One pass instead of two; onnxruntime merges it with a MatMul, but not with the rounding before it.
        # (A - mean) / sqrt(variance) * mul + 0.5, with mean -bias and a power of four as variance.
        halves, variances = (emit.constant(each) for each in (np.full(shifts.shape, 0.5), shifts**-2.0))
        mean = emit.add("Neg", [bias])
        line = emit.add("BatchNormalization", [rounded, mul, halves, mean, variances], epsilon=0.0)
        return Unrounded(line, halved=True)
    scale = emit.add("Mul", [mul, emit.constant(shifts if np.ptp(shifts) else shifts[0])])
    offset = emit.add("Mul", [bias, scale])
    along = emit.constant(np.array(accumulator.shape, np.int64))
    scale, offset = (emit.add("Reshape", [name, along]) for name in (scale, offset))
    return Unrounded(emit.add("Mul", [rounded, scale]), offset)


def _half_away(emit: Emitter, accumulator: Accumulator, k: np.ndarray) -> str:
    """Return the accumulator over 2^K, rounded, as integer doubles; 2^max(K - 16, 0) is divided out already."""
    if _in_floats(accumulator, k):
        return emit.cast(_rounded_floats(emit, accumulator, k), DOUBLE)
    name, divisor = accumulator.name, _along(2.0 ** np.minimum(k, FLOOR_BITS), accumulator.shape)
    name = name if accumulator.dtype == DOUBLE else emit.cast(name, DOUBLE)
    if np.any(k > FLOOR_BITS):
        name = emit.add("Floor", [name])
    if not np.any(k > 0):
        return emit.add("Mul", [name, emit.constant(1 / divisor)]) if np.any(k) else name
    return emit.add("Round", [emit.add("Mul", [name, emit.constant(DOUBLE_TIES / divisor)])])


def _in_floats(accumulator: Accumulator, k: np.ndarray) -> bool:
    """Return whether float32 rounds the accumulator over 2^K correctly."""
    small = accumulator.largest < FLOAT_TIES_BELOW and np.all(k <= FLOOR_BITS)
    return bool(accumulator.dtype == FLOAT and small and np.all(k > 0))


def _rounded_floats(emit: Emitter, accumulator: Accumulator, k: np.ndarray) -> str:
    ties = _along(2.0**k * FLOAT_TIES, accumulator.shape).astype(np.float32)
    return emit.add("Round", [emit.add("Div", [accumulator.name, emit.constant(ties)])])


def _along(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return one value per channel, or one for all."""
    return values.reshape(shape) if np.ptp(values) else values[0]


def _has_plain_bias(graph: Graph, node: NodeProto, kernel: Kernel) -> bool:
    """Return whether the bias, if any, is the same for every input row of a fully connected operator."""
    if len(node.input) < 3 or not node.input[2]:
        return True
    if node.input[2] not in graph.constants:
        return False
    dims = graph.constants[node.input[2]].dims
    return math.prod(dims) in (1, *dims[-1:]) and math.prod(dims) in (1, kernel.sums().size)


def _bias(graph: Graph, node: NodeProto, count: int) -> np.ndarray:
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(count)
    factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
    bias = graph.value(node.input[2]).astype(np.float64).reshape(-1) * factor
    return np.broadcast_to(bias, (count,))
