"""The exact sum of products of a convolution by float operators.

float32 adds whole numbers exactly as long as no partial sum passes 2^24, in whatever order and however fused; doubles
do up to 2^53. So

* 8-bit operands, and few products of 16-bit ones, take one float32 Conv;
* a wider Conv is one MatMul of doubles for each tap of its kernel, on the tap's slice of the padded input (measured:
  as fast as the float32 Conv);
* depthwise, grouped and transposed ones have their weights taken apart into pieces of fewer bits, w = sum 2^e * w_e,
  each with a float32 Conv of its own, and where that is not enough the input into its two bytes.

What comes out is already divided by a power of two, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.fixedpoint.quantisation.integer.emitter import DOUBLE, FLOAT, Emitter, Integers, limits
from sgsdump.models.graph import attribute

if TYPE_CHECKING:
    from onnx import NodeProto

EXACT = float(2**24)
BYTE = 256.0
# Holds the magnitude of every value.
_WIDER = {np.dtype(np.int8): np.int16, np.dtype(np.int16): np.int32}


@dataclass(frozen=True, eq=False)
class Kernel:
    """Weights in Conv's layout (O, I / group, ...), ConvTranspose's (I, O / group, ...), or a matrix: MatMul's (I, O),
    with ``transposed`` (O, I).

    name        of the weights among the constants.
    op_type     Conv, ConvTranspose or MatMul, with the node's own ``attributes``.
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
        """Of one value per output channel, to broadcast over the output."""
        return (-1,) if self.op_type == "MatMul" else (-1, *[1] * (self.values.ndim - 2))

    def sums(self) -> np.ndarray:
        """The sum of each output channel's weights."""
        return self._over_channel(self.values)

    def largest(self, part: np.ndarray) -> float:
        """The largest sum of absolute weights of any output channel."""
        return float(self._over_channel(np.abs(part.astype(_WIDER.get(part.dtype, np.int64)))).max())

    def per_channel(self, values: np.ndarray) -> np.ndarray:
        """One value per output channel, shaped to scale the weights."""
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
    """The kernel of a Conv, ConvTranspose, Gemm or MatMul; None for a product that is not of plain matrices."""
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
    """``name`` in the graph, float32 or double; ``largest``: a bound of the accumulator's magnitude (before 2^-k);
    ``shape``: of one value per output channel, to broadcast over the output."""

    name: str
    dtype: np.dtype
    largest: float
    shape: tuple[int, ...]


def accumulate(emit: Emitter, value: Integers, kernel: Kernel, k: np.ndarray, zero: np.ndarray) -> Accumulator:
    """acc / 2^k of the stored integers ``value``, padding filled with its zero point.

    k     what to divide by, zero of ``Requantisation``: one value per output channel each.
    """
    centred = value.quant.zero_point != 0 and (kernel.pads or kernel.op_type == "ConvTranspose")
    low, high = limits(value.quant)
    top = max(-low, high)
    if centred:
        # Zero padding means the zero point now; what it adds to every output comes back as a bias.
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
    """One float32 convolution; ``weights``: the name of whole-numbered weights of any type."""
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
    """The sum over the kernel's taps of MatMul(weights of the tap, what the tap sees), as doubles."""
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
    """Weights (O, I) of one tap."""
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
    """The inputs that one tap of the kernel meets at every output position."""
    if all(size == 1 for size in spatial) and all(step == 1 for step in strides):
        return source
    starts = [at * dilation for at, dilation in zip(tap, dilations, strict=True)]
    ends = [(at - size + 1) * dilation for at, size, dilation in zip(tap, spatial, dilations, strict=True)]
    bounds = [starts, [end or np.iinfo(np.int64).max for end in ends], range(2, 2 + len(spatial)), strides]
    return emit.add("Slice", [source, *(emit.constant(np.array(list(bound), np.int64)) for bound in bounds)])


def _by_pieces(emit: Emitter, source: str, top: int, kernel: Kernel, k: np.ndarray, bias: np.ndarray) -> str:
    """float32 convolutions of few enough bits each, added up as doubles."""
    bits = _piece_bits(kernel, top)
    if bits:
        parts = [(source, 0)]
    else:
        # The input's bytes: x = 256 * high + low, both within 128 of zero.
        high = emit.add("Round", [emit.add("Mul", [source, emit.constant(np.float32(1 / BYTE))])])
        low = emit.add("Sub", [source, emit.add("Mul", [high, emit.constant(np.float32(BYTE))])])
        parts, bits = [(high, 8), (low, 0)], _piece_bits(kernel, 128)
    if not bits:
        raise OverflowError(f"{kernel.name}: too many products for exact sums")
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
    """The lowest signed ``bits`` of constant weights, and what is left; onnxruntime does it once, at loading."""
    size = np.float32(1 << bits)
    over = emit.add("Mul", [weights, emit.constant(np.float32(1 / size))])
    halves = emit.add("Add", [over, emit.constant(np.float32(0.5))])
    rest = emit.add("Floor", [halves])
    return emit.add("Sub", [weights, emit.add("Mul", [rest, emit.constant(size)])]), rest


def _piece_bits(kernel: Kernel, top: int) -> int:
    """The most bits a piece of the weights may have so that its sums stay exact; 0 when not even two may."""
    for bits in range(15, 1, -1):
        if all(top * kernel.largest(piece) < EXACT for piece in _pieces(kernel.values, bits)):
            return bits
    return 0


def _pieces(values: np.ndarray, bits: int) -> list[np.ndarray]:
    """Weights as a sum of 2^(i * bits) * piece i, each piece within 2^(bits - 1) of zero (see ``_lowest_bits``)."""
    pieces: list[np.ndarray] = []
    rest = values.astype(np.int64)
    while np.any(rest) or not pieces:
        high = (rest + (1 << (bits - 1))) >> bits
        pieces.append(rest - (high << bits))
        rest = high
    return pieces
