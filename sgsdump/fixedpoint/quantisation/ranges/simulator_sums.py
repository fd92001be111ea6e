"""Operators in the summation order of the SDK's float simulator, exact to the last bit.

The rules were derived from the bits of float dumps of SDK 1.1.5, whose calibrator runs the same simulator. All
arithmetic is float32 without fused multiply-add:

convolution, fully connected   eight partial sums, input channel c in partial sum c mod 8; each adds its products in the
                               order of kernel rows, kernel columns, blocks of eight channels. The partial sums are
                               then added from the first to the last, and the bias after them.
depthwise convolution          one sum in the order of kernel rows and columns, then the bias.
transposed convolution         a convolution of the input with zeros between its values.
average pooling, mean          one sum in the order of rows and columns, divided by the number of values.
Softmax                        exp(x - max) rounded to float32, one sum, and a product with its float32 reciprocal.
Sigmoid, Exp                   computed in double precision and rounded once.
Tanh                           as the C library's ``tanhf``.

Arrays have the model's layout, channels on axis 1. A compiled kernel computes the convolutions; without it, numpy gives
the same bits more slowly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from sgsdump.tensors.one_pass.compiled import address, kernel

LANES = 8
# Partial sums that numpy updates at a time, to stay in the processor's cache.
_CHUNK_FLOATS = 1 << 17
_F = np.float32
_LN2 = _F(0.6931471824645996)
_EXPM1 = [
    _F(v) for v in (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02, 1)
]
_TANH_IS_ONE = 22
_KERNEL: Any = kernel("sgsdump.fixedpoint.quantisation.ranges.kernel", INTERFACE=4, LANES=LANES)


@dataclass(frozen=True)
class Window:
    """The movement of a kernel over rows and columns; ``pads``: top, left, bottom, right."""

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def padded(self, x: np.ndarray, value: float = 0.0) -> np.ndarray:
        """Return the array [N, C, H, W] with its pads."""
        top, left, bottom, right = self.pads
        if not any(self.pads):
            return x
        height, width = x.shape[2:]
        filled = np.full((*x.shape[:2], top + height + bottom, left + width + right), value, x.dtype)
        filled[:, :, top : top + height, left : left + width] = x
        return filled

    def sizes(self, shape: Sequence[int], kernel_shape: Sequence[int]) -> tuple[int, int]:
        """Return the rows and columns of the result for a padded array of this shape."""
        spans = [(size - 1) * step + 1 for size, step in zip(kernel_shape, self.dilations)]
        rows, columns = ((n - span) // step + 1 for n, span, step in zip(shape, spans, self.strides))
        return max(rows, 0), max(columns, 0)

    def tap(self, x: np.ndarray, place: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
        """Return the values of a padded array [..., H, W] that one kernel position reads."""
        starts = [index * step for index, step in zip(place, self.dilations)]
        down, across = (
            slice(start, start + (size - 1) * step + 1, step) for start, size, step in zip(starts, sizes, self.strides)
        )
        return x[..., down, across]


class Filters:
    """The weights of a convolution [O, C / groups, rows, columns], prepared for repeated use.

    channels  sizes of the groups of input channels that each begin a block of eight; default: one group.
    """

    def __init__(self, weights: np.ndarray, groups: int = 1, channels: Sequence[int] = ()):
        self._outputs, depth, *kernel_shape = weights.shape
        self._kernel_shape: tuple[int, int] = (kernel_shape[0], kernel_shape[1])
        self._groups = groups
        self._is_depthwise = depth == 1 and groups > 1
        self._channels = list(channels) or [depth]
        weights = np.ascontiguousarray(weights, np.float32)
        self._packed = [weights] if self._is_depthwise else [self._pack(part) for part in np.split(weights, groups)]

    def convolve(self, x: np.ndarray, bias: np.ndarray | None, window: Window) -> np.ndarray:
        """Return the convolution of [N, C, H, W]. Raises ValueError for another number of channels."""
        if x.shape[1] != self._groups * sum(self._channels):
            raise ValueError(f"the input has {x.shape[1]} channels instead of {self._groups * sum(self._channels)}")
        added = np.zeros(self._outputs, np.float32) if bias is None else bias.astype(np.float32)
        if self._is_depthwise:
            return self._depthwise(window.padded(x), added, window)
        if self._groups == 1:
            return self._lane_sums(x, self._packed[0], added, window)
        parts = zip(np.split(x, self._groups, axis=1), self._packed, np.split(added, self._groups))
        return np.concatenate([self._lane_sums(*part, window) for part in parts], axis=1)

    def _depthwise(self, x: np.ndarray, bias: np.ndarray, window: Window) -> np.ndarray:
        sizes, (weights,) = window.sizes(x.shape[2:], self._kernel_shape), self._packed
        of_channel = self._outputs // self._groups
        if _KERNEL is None:
            x = np.repeat(x, of_channel, axis=1) if of_channel > 1 else x
            taps = product(*map(range, self._kernel_shape))
            total = sum_in_order(window.tap(x, tap, sizes) * weights[:, 0, tap[0], tap[1], None, None] for tap in taps)
            return total + bias[:, None, None]
        x, bias = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(bias)
        sums = np.empty((len(x), self._outputs, *sizes), np.float32)
        for image, out in zip(x, sums):
            _KERNEL.channel_sums(*self._described(image, weights, bias, out, image.shape[1:], of_channel, window))
        return sums

    def _described(
        self,
        x: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
        size: Sequence[int],
        blocks: int,
        window: Window,
    ) -> tuple[int, ...]:
        """Return the kernel's arguments; ``size`` is the height and width of ``x``."""
        places = map(address, (x, weights, bias, out))
        return *places, *out.shape, *size, *self._kernel_shape, blocks, *window.strides, *window.dilations

    def _places(self) -> Iterable[tuple[slice, slice]]:
        """Yield the channels of each group, and their places in whole blocks."""
        start = place = 0
        for count in self._channels:
            yield slice(start, start + count), slice(place, place + count)
            start, place = start + count, place - (-count // LANES) * LANES

    @property
    def _blocks(self) -> int:
        return sum(-(-count // LANES) for count in self._channels)

    def _pack(self, weights: np.ndarray) -> np.ndarray:
        """Return [outputs / LANES, taps, LANES outputs, LANES channels], padded with zeros."""
        shape = -(-len(weights) // LANES) * LANES, *self._kernel_shape, self._blocks * LANES
        filled = np.zeros(shape, np.float32)
        for channels, place in self._places():
            filled[: len(weights), ..., place] = weights[:, channels].transpose(0, 2, 3, 1)
        return np.ascontiguousarray(filled.reshape(shape[0] // LANES, LANES, -1, LANES).transpose(0, 2, 1, 3))

    def _lane_sums(self, x: np.ndarray, packed: np.ndarray, bias: np.ndarray, window: Window) -> np.ndarray:
        """Return [N, outputs, rows, columns]."""
        top, left, bottom, right = window.pads
        images, _, height, width = x.shape
        filled = np.zeros((images, top + height + bottom, left + width + right, self._blocks * LANES), np.float32)
        for channels, place in self._places():
            filled[:, top : top + height, left : left + width, place] = x[:, channels].transpose(0, 2, 3, 1)
        sizes = window.sizes(filled.shape[1:3], self._kernel_shape)
        sums = np.empty((images, len(bias), *sizes), np.float32)
        bias = np.ascontiguousarray(bias)
        add = self._by_numpy if _KERNEL is None else self._by_kernel
        for image, out in zip(filled, sums):
            add(image, packed, bias, window, out)
        return sums

    def _by_kernel(self, x: np.ndarray, packed: np.ndarray, bias: np.ndarray, window: Window, out: np.ndarray) -> None:
        _KERNEL.lane_sums(*self._described(x, packed, bias, out, x.shape[:2], self._blocks, window))

    def _by_numpy(self, x: np.ndarray, packed: np.ndarray, bias: np.ndarray, window: Window, out: np.ndarray) -> None:
        outputs, rows, columns = out.shape
        step = max(1, _CHUNK_FLOATS // max(1, columns * packed[:, 0].size))
        tensor = x.transpose(2, 0, 1)
        for first in range(0, rows, step):
            sizes = min(step, rows - first), columns
            part, lanes = tensor[:, first * window.strides[0] :], np.zeros((*sizes, *packed[:, 0].shape), np.float32)
            weights = iter(packed.swapaxes(0, 1))
            for tap in product(*map(range, self._kernel_shape)):
                values = window.tap(part, tap, sizes).transpose(1, 2, 0)
                for block in range(self._blocks):
                    lanes += values[:, :, None, None, block * LANES : (block + 1) * LANES] * next(weights)
            sums = sum_in_order(lanes[..., lane] for lane in range(LANES))
            of_rows = sums.reshape(*sizes, -1)[..., :outputs] + bias
            out[:, first : first + step] = of_rows.transpose(2, 0, 1)


def turned(weights: np.ndarray, groups: int) -> np.ndarray:
    """Return the weights [O, C / groups, rows, columns] of a convolution that replaces a transposed one.

    The transposed weights are [C, O / groups, rows, columns]; the input needs zeros between its values (``spread``).
    """
    split = weights[:, :, ::-1, ::-1].reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)
    return split.reshape(-1, *split.shape[2:])


def spread(
    x: np.ndarray, kernel_shape: Sequence[int], window: Window, output_pads: Sequence[int]
) -> tuple[np.ndarray, Window]:
    """Return a transposed convolution's input with zeros between its values, and the window of the convolution."""
    (down, across), (height, width) = window.strides, x.shape[2:]
    wide = np.zeros((*x.shape[:2], (height - 1) * down + 1, (width - 1) * across + 1), np.float32)
    wide[:, :, ::down, ::across] = x
    rows, columns = ((size - 1) * step for size, step in zip(kernel_shape, window.dilations))
    top, left, bottom, right = window.pads
    pads = rows - top, columns - left, rows - bottom + output_pads[0], columns - right + output_pads[1]
    cut = [max(0, -pad) for pad in pads]
    wide = wide[:, :, cut[0] : wide.shape[2] - cut[2], cut[1] : wide.shape[3] - cut[3]]
    top, left, bottom, right = (max(0, pad) for pad in pads)
    return wide, Window((1, 1), (top, left, bottom, right), window.dilations)


def average_pool(x: np.ndarray, kernel_shape: tuple[int, int], window: Window, counts_pads: bool) -> np.ndarray:
    """Return means of [N, C, H, W]; ``counts_pads``: pads count as values."""
    padded = window.padded(x)
    sizes = window.sizes(padded.shape[2:], kernel_shape)
    inside = window.padded(np.ones((1, 1, *x.shape[2:]), np.float32), float(counts_pads))
    taps = list(product(*map(range, kernel_shape)))
    total = sum_in_order(window.tap(padded, tap, sizes) for tap in taps)
    return total / sum_in_order(window.tap(inside, tap, sizes) for tap in taps)


def mean(x: np.ndarray, axes: Sequence[int], keep: bool) -> np.ndarray:
    """Return the mean over axes; the last axis varies fastest."""
    total = total_over(x, axes, keep)
    return total / np.float32(np.prod([x.shape[axis] for axis in axes]))


def total_over(x: np.ndarray, axes: Sequence[int], keep: bool) -> np.ndarray:
    """Return the sum over axes; the last axis varies fastest."""
    axes = sorted(axis % x.ndim for axis in axes)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = x.transpose(*axes, *kept).reshape(-1, *(x.shape[axis] for axis in kept))
    total = sum_in_order(rows)
    return np.expand_dims(total, tuple(axes)) if keep else total


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Return the Softmax along one axis."""
    powers = exp(x - x.max(axis=axis, keepdims=True))
    return powers * (np.float32(1) / total_over(powers, [axis], keep=True))


def exp(x: np.ndarray) -> np.ndarray:
    """Return e to the power of x."""
    return np.exp(x.astype(np.float64)).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def tanh(x: np.ndarray) -> np.ndarray:
    """Return the hyperbolic tangent as the C library's ``tanhf`` rounds it: fdlibm's algorithm in float32."""
    size = np.abs(x)
    t = _expm1(np.where(size >= 1, size, -size) * _F(2))
    curve = np.where(size >= 1, _F(1) - _F(2) / (t + _F(2)), -t / (t + _F(2)))
    return np.copysign(np.where(size >= _TANH_IS_ONE, _F(1), curve), x).astype(np.float32)


def _expm1(x: np.ndarray) -> np.ndarray:
    """Return exp(x) - 1 like fdlibm's ``expm1f``: x = k ln 2 + r, and a polynomial of r."""
    size, sign = np.abs(x), np.copysign(_F(1), x)
    k = np.where(size < _F(1.5) * _LN2, sign, np.trunc(_F(1.4426950216) * x + _F(0.5) * sign))
    k = np.where(size > _F(0.5) * _LN2, k, _F(0))
    low = k * _F(9.0580006145e-06)
    high = x - k * _F(6.9313812256e-01)
    r = high - low
    rest = (high - r) - low
    half = _F(0.5) * r
    square = r * half
    series = np.full_like(x, _EXPM1[0])
    for factor in _EXPM1[1:]:
        series = factor + square * series
    t = _F(3) - series * half
    error = square * ((series - t) / (_F(6) - r * t))
    plain = r - (r * error - square)
    error = (r * (error - rest) - rest) - square
    power, inverse = np.exp2(k), np.exp2(-k)
    near = [k == 0, k == -1, k == 1, (k <= -2) | (k > 56), k < 23]
    values = [
        plain,
        _F(0.5) * (r - error) - _F(0.5),
        np.where(r < -0.25, _F(-2) * (error - (r + _F(0.5))), _F(1) + _F(2) * (r - error)),
        (_F(1) - (error - r)) * power - _F(1),
        ((_F(1) - inverse) - (error - r)) * power,
    ]
    return np.select(near, values, ((r - (error + inverse)) + _F(1)) * power)


def sum_in_order(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the float32 sum of arrays, added in order."""
    remaining = iter(parts)
    total = np.array(next(remaining), np.float32)
    for part in remaining:
        total += part
    return total
