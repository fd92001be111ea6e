"""The hardware's integer arithmetic in plain numpy int64, written from docs/formats/fixed_arithmetic.md.

An oracle: it knows no ONNX graph and shares no line with ``fixedpoint/quantisation/integer``. Shifts of whole numbers
stand where the document divides by a power of two, loops where it takes a logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

TOP = {"uint8": 255, "int16": 32767, "int8": 127}


@dataclass(frozen=True)
class Scale:
    """A stored tensor's type, step (before it is stored as float32) and zero point."""

    dtype: str
    step: float
    zero: int = 0

    @property
    def single(self) -> float:
        return single(self.step)

    @property
    def lowest(self) -> int:
        return 0 if self.dtype == "uint8" else -TOP[self.dtype]

    @property
    def highest(self) -> int:
        return TOP[self.dtype]


def single(value: float) -> float:
    """f32()."""
    return float(np.float32(value))


def scale_of(low: float, high: float, dtype: str) -> Scale:
    """Of a range; the numbers as the six-decimal text has them."""
    low, high = single(low), single(high)
    if dtype != "uint8":
        return Scale(dtype, max(abs(low), abs(high)) / TOP[dtype])
    low, high = min(low, 0.0), max(high, 0.0)
    return Scale(dtype, (high - low) / 255, round(-low / ((high - low) / 255)))


def up(value: float) -> int:
    """half-up."""
    return int(np.floor(value + 0.5))


def away(value: float) -> int:
    """half-away."""
    return int(np.sign(value) * np.floor(abs(value) + 0.5))


def nrm(largest: float) -> int:
    """The largest n with largest * 2^n <= 32767."""
    n = 0
    while largest * 2.0**n <= 32767:
        n += 1
    while largest * 2.0**n > 32767:
        n -= 1
    return n


def ceil_log2(value: float) -> int:
    """Return the smallest e with 2^e >= value; 0 for 0, where all sums are 0 and no shift matters."""
    e = 0
    if value == 0:
        return e
    while 2.0**e >= value:
        e -= 1
    while 2.0**e < value:
        e += 1
    return e


def shift_up(values: np.ndarray, n: int) -> np.ndarray:
    """half-up(values / 2^n)."""
    values = np.asarray(values, np.int64)
    return values << -n if n <= 0 else (values + (1 << (n - 1))) >> n


def shift_away(values: np.ndarray, n: int) -> np.ndarray:
    """half-away(values / 2^n)."""
    return np.sign(values) * shift_up(np.abs(values), n)


def clipped(values: np.ndarray, out: Scale, relu: bool = False) -> np.ndarray:
    return np.clip(values, out.zero if relu else out.lowest, out.highest)


def weights(values: np.ndarray, step: np.ndarray | float, dtype: str) -> np.ndarray:
    """half-away(w / scale), with the double scale; ``step`` broadcasts over ``values``."""
    ratio = values.astype(np.float64) / step
    stored = np.sign(ratio) * np.floor(np.abs(ratio) + 0.5)
    return np.clip(stored, -TOP[dtype], TOP[dtype]).astype(np.int64)


@dataclass(frozen=True)
class Numbers:
    """One convolution's integers: per output channel ``bias`` and ``mul``, for all of them K and n."""

    bias: np.ndarray
    mul: np.ndarray
    k: int
    n: int


def numbers(
    sums: np.ndarray,
    bias: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    source: Scale,
    steps: np.ndarray,
    out: Scale,
) -> Numbers:
    """Section 2. ``sums``: of each channel's stored weights; ``steps``: the weights' scales, one per channel;
    ``low``, ``high``: each channel's range."""
    channels = range(len(sums))
    s = [source.single * single(steps[c]) for c in channels]
    m = [s[c] / out.single for c in channels]
    n = nrm(max(m))
    z = [source.zero * int(sums[c]) for c in channels]
    b = [float(bias[c]) / s[c] - z[c] + out.zero / m[c] for c in channels]
    reach = max(
        max(abs(b[c]), *(abs((single(end[c]) - float(bias[c])) / s[c] + z[c]) for end in (low, high))) for c in channels
    )
    k = ceil_log2(reach) - 13
    return Numbers(
        np.array([away(b[c] / 2.0**k) for c in channels]), np.array([up(m[c] * 2.0**n) for c in channels]), k, n
    )


def rounded_accumulator(acc: np.ndarray, k: int) -> np.ndarray:
    """A."""
    return shift_away(acc, k) if k <= 16 else shift_away(acc >> (k - 16), 16)


def convolution(acc: np.ndarray, own: Numbers, out: Scale, relu: bool = False, axis: int = 1) -> np.ndarray:
    """The stored output of exact sums whose channels lie along ``axis``."""
    shape = [-1 if i == axis % acc.ndim else 1 for i in range(acc.ndim)]
    total = rounded_accumulator(acc, own.k) + own.bias.reshape(shape)
    return clipped(shift_up(total * own.mul.reshape(shape), own.n - own.k), out, relu)


def sums_of_products(
    x: np.ndarray,
    w: np.ndarray,
    zero: int,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
) -> np.ndarray:
    """acc of a Conv: x (N, C, ...), w (O, C / group, ...), padding filled with the zero point."""
    half = len(pads) // 2
    x = np.pad(x.astype(np.int64), [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)], constant_values=zero)
    w = w.astype(np.int64)
    size = [(x.shape[2 + i] - dilations[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1 for i in range(len(strides))]
    outputs, inputs = w.shape[0] // group, w.shape[1]
    acc = np.zeros((x.shape[0], w.shape[0], *size), np.int64)
    for tap in product(*(range(end) for end in w.shape[2:])):
        starts = [at * step for at, step in zip(tap, dilations, strict=True)]
        ends = [s + (n - 1) * step + 1 for s, n, step in zip(starts, size, strides, strict=True)]
        seen = x[(slice(None), slice(None), *(slice(s, e, t) for s, e, t in zip(starts, ends, strides, strict=True)))]
        for g in range(group):
            part = w[(slice(g * outputs, (g + 1) * outputs), slice(None), *tap)]
            values = seen[:, g * inputs : (g + 1) * inputs]
            flat = part @ values.reshape(values.shape[0], inputs, -1)
            acc[:, g * outputs : (g + 1) * outputs] += flat.reshape(x.shape[0], outputs, *size)
    return acc


def sums_transposed(
    x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], pads: tuple[int, ...], zero: int, group: int = 1
) -> np.ndarray:
    """acc of a ConvTranspose: x (N, C, H, W), w (C, O / group, kh, kw). Between the input's values, and around them,
    lies the zero point: every output sees a whole kernel."""
    n, c, height, width = x.shape
    kh, kw = w.shape[2:]
    spread = np.full((n, c, (height - 1) * strides[0] + 1, (width - 1) * strides[1] + 1), zero, np.int64)
    spread[:, :, :: strides[0], :: strides[1]] = x
    around = (kh - 1 - pads[0], kw - 1 - pads[1], kh - 1 - pads[2], kw - 1 - pads[3])
    top, left, bottom, right = (max(-each, 0) for each in around)
    spread = spread[:, :, top : spread.shape[2] - bottom, left : spread.shape[3] - right]
    around = tuple(max(each, 0) for each in around)
    parts = w.reshape(group, c // group, *w.shape[1:]).transpose(0, 2, 1, 3, 4)[..., ::-1, ::-1]
    turned = parts.reshape(-1, c // group, kh, kw)
    return sums_of_products(spread, turned, zero, (1, 1), around, (1, 1), group)


def add(a: np.ndarray, sa: Scale, b: np.ndarray, sb: Scale, out: Scale) -> np.ndarray:
    n = nrm(single(max(sa.single, sb.single) / out.single))
    first, second = (up(single(s.single / out.single) * 2.0**n) for s in (sa, sb))
    total = (a.astype(np.int64) - sa.zero) * first + (b.astype(np.int64) - sb.zero) * second
    return clipped(shift_up(total, n) + out.zero, out)


def multiply(a: np.ndarray, sa: Scale, b: np.ndarray, sb: Scale, out: Scale, largest: float) -> np.ndarray:
    """``largest``: of the magnitudes of the output's range."""
    s = sa.single * sb.single
    h = ceil_log2(largest / s) - 14
    n = nrm(single(s / out.single))
    short = shift_up((a.astype(np.int64) - sa.zero) * (b.astype(np.int64) - sb.zero), h)
    return clipped(shift_up(short * up(single(s / out.single) * 2.0**n), n - h) + out.zero, out)


def requantise(a: np.ndarray, sa: Scale, out: Scale) -> np.ndarray:
    m = single(sa.single / out.single)
    n = nrm(m)
    return clipped(shift_up((a.astype(np.int64) - sa.zero) * up(m * 2.0**n), n) + out.zero, out)


def relu(a: np.ndarray, sa: Scale, out: Scale, low: float, high: float, slope: np.ndarray | float = 0.0) -> np.ndarray:
    """(P)ReLU behind an inner tensor; ``low``, ``high``: the output's range; ``slope`` broadcasts over ``a``."""
    wide = scale_of(low, high, "int16")
    m = single(sa.single / wide.single)
    n = nrm(m)
    above = shift_up(a * up(m * 2.0**n), n)
    below = np.zeros_like(above)
    if np.any(slope):
        k = nrm(m * float(np.abs(slope).max()))
        below = shift_up(a * np.vectorize(up)(m * np.asarray(slope, np.float64) * 2.0**k), k)
    inner = clipped(np.where(a >= 0, above, below), wide)
    return inner if out.dtype == "int16" else requantise(inner, wide, out)


def average(windows: np.ndarray, count: int) -> np.ndarray:
    """Sums over windows, divided and truncated toward zero."""
    return np.sign(windows) * (np.abs(windows) // count)


def pooled(
    x: np.ndarray, kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...], zero: int, largest: bool
) -> np.ndarray:
    """Max or average pooling of x (N, C, H, W); the average's padding holds the zero point and is counted. A maximum's
    window may go over the end."""
    x = x.astype(np.int64)
    size = [(x.shape[2 + i] + pads[i] + pads[2 + i] - kernel[i]) // strides[i] + 1 for i in (0, 1)]
    filled = np.pad(
        x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=-(1 << 40) if largest else zero
    )
    windows = np.stack(
        [
            filled[
                :,
                :,
                i : i + (size[0] - 1) * strides[0] + 1 : strides[0],
                j : j + (size[1] - 1) * strides[1] + 1 : strides[1],
            ]
            for i, j in product(range(kernel[0]), range(kernel[1]))
        ]
    )
    return windows.max(axis=0) if largest else average(windows.sum(axis=0), kernel[0] * kernel[1])


def picture(pixels: np.ndarray, mean: float, std: float, out: Scale) -> np.ndarray:
    """Bytes through the colour matrix, which counts in 1/1024; the identity where the range is that of the bytes."""
    gain, offset = round(1024 / (std * out.step)), round(out.zero - mean / (std * out.step))
    return clipped(shift_up(pixels.astype(np.int64) * gain, 10) + offset, out)


def multiply_by(a: np.ndarray, sa: Scale, factors: np.ndarray, out: Scale) -> np.ndarray:
    """By float constants; ``factors`` broadcast over ``a``."""
    ratio = single(sa.single / out.single)
    m = np.vectorize(single)(ratio * factors.astype(np.float64))
    n = nrm(float(np.abs(m).max()))
    return clipped(shift_up((a.astype(np.int64) - sa.zero) * np.vectorize(away)(m * 2.0**n), n) + out.zero, out)


def add_to(a: np.ndarray, sa: Scale, addends: np.ndarray, out: Scale) -> np.ndarray:
    """Float constants; one bit more than the output while they are added."""
    m = single(sa.single / out.single)
    n = nrm(m)
    doubled = shift_up((a.astype(np.int64) - sa.zero) * up(m * 2.0**n), n - 1)
    total = doubled + np.vectorize(away)(2 * np.vectorize(single)(addends.astype(np.float64) / out.single))
    return clipped(shift_up(total, 1) + out.zero, out)


def _line(function, t: np.ndarray, n: int, knots: int) -> np.ndarray:
    """``function`` at t / 2^n on straight lines between whole knots, ``knots`` per unit; places have 15 bits."""
    place = t * knots
    index, rest = place >> n, place & ((1 << n) - 1)
    every = np.arange(index.min(), index.max() + 2)
    table = np.array([away(function(each / knots)) for each in every], np.int64)
    low, high = table[index - every[0]], table[index - every[0] + 1]
    fraction = rest << 15 >> n
    return shift_up((low << 15) + (high - low) * fraction, 15)


def _times(values: np.ndarray, ratio: float) -> np.ndarray:
    n = nrm(ratio)
    return shift_up(values * up(ratio * 2.0**n), n)


def _fixed_point(q: np.ndarray, s: Scale) -> tuple[np.ndarray, int]:
    n = nrm(s.single)
    return q.astype(np.int64) * up(s.single * 2.0**n), n


def sigmoid(q: np.ndarray, sa: Scale, out: Scale) -> np.ndarray:
    """Inner INT16 -> INT16, about 1/2, in steps of 1/65534 on the way."""
    t, n = _fixed_point(q, sa)
    size, sign, fine = np.abs(t), np.sign(t), 0.5 / 32767

    def centred(x: float) -> float:
        return 1 / (1 + float(np.exp(-x))) - 0.5

    top = centred(2.0) / 32767
    near = _times(sign * _line(lambda x: centred(x) / top, size, n, 128), top / fine)
    far = _line(lambda x: centred(x) / fine, np.minimum(size, 6 << n), n, 16)
    beyond = np.minimum(away(centred(6.0) / fine) + shift_up(8 * (size - (6 << n)), n), 32767)
    value = np.where(size < 2 << n, near, sign * np.where(size < 6 << n, far, beyond))
    ratio = single(fine / out.single)
    k = nrm(ratio)
    doubled = shift_up(value * up(ratio * 2.0**k), k - 1) + up(single(1 / out.single))
    return clipped(shift_up(doubled, 1), out)


def tanh(q: np.ndarray, sa: Scale, out: Scale, low: float, high: float) -> np.ndarray:
    """Inner INT16 -> INT16 over ``low`` to ``high``, from there to an UINT8 output."""
    wide = scale_of(low, high, "int16")
    t, n = _fixed_point(q, sa)
    size, sign = np.abs(t), np.sign(t)
    top = float(np.tanh(2.0)) / 32767
    near = _times(sign * _line(lambda x: float(np.tanh(x)) / top, size, n, 128), single(top / wide.single))
    far = _times(sign * _line(lambda x: float(np.tanh(x)) * 32767, size, n, 16), single(1 / 32767 / wide.single))
    inner = clipped(np.where(size < 2 << n, near, far), wide)
    return inner if out.dtype == "int16" else requantise(inner, wide, out)


def softmax(q: np.ndarray, sa: Scale, axis: int) -> np.ndarray:
    t, n = _fixed_point(q.astype(np.int64) - q.max(axis=axis, keepdims=True), sa)
    top = float(np.exp(-2.0))
    near = _line(lambda x: 32767 * float(np.exp(x)), np.maximum(t, -(2 << n)), n, 32)
    far = _line(lambda x: 32767 / top * float(np.exp(x)), np.maximum(t, -(10 << n)), n, 32)
    beyond = np.maximum(shift_up(11 * ((11 << n) + t), n), 0)
    e = np.where(-t < 2 << n, near, _times(np.where(-t < 10 << n, far, beyond), top))
    total = e.sum(axis=axis, keepdims=True)
    j = np.vectorize(lambda each: max(int(each).bit_length() - 16, 0))(total)
    reciprocal = (1 << (30 + j)) // total
    return np.minimum(32767, (e * reciprocal + (1 << (14 + j))) >> (15 + j))
