"""Facts of a tensor without its values: shape, layout, quantisation, range.

Layouts of 4-D tensors: a dump stores NHWC, ONNX and Caffe compute in NCHW; tensors of another rank have no layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

NCHW = "NCHW"
NHWC = "NHWC"


@dataclass(frozen=True)
class Origin:
    """The logical tensor of values in a device's layout: its shape and layout (None when the file does not say), and
    the groups of a grouped convolution's weights."""

    shape: tuple[int, ...]
    layout: str | None = None
    groups: int = 1


@dataclass(frozen=True)
class Quant:
    """The real numbers that integers mean: ``real = (stored - zero_point) * scale``.

    scale        one step; an array of C entries when per channel, along ``axis`` (of the logical shape).
                 0.0 says that the file gives none.
    zero_point   the stored value that means 0.0.
    dtype        the quantised type; None when the file names a type we do not know (``type_name`` keeps its word).
                 A dequantised tensor (stored as float32) still says here what it was.
    exact        False when the scale was read from text of six decimals: good to print, too coarse to dequantise
                 16-bit values (up to 1.6 % off).
    """

    dtype: np.dtype | None
    scale: float | np.ndarray = 0.0
    zero_point: int = 0
    axis: int | None = None
    exact: bool = False
    type_name: str = ""


def same_quant(a: Quant | None, b: Quant | None) -> bool:
    """Whether two ways of dequantising are equal in every field, scales per channel compared one by one."""
    if a is None or b is None:
        return a is b
    return replace(a, scale=0.0) == replace(b, scale=0.0) and np.array_equal(a.scale, b.scale, equal_nan=True)


@dataclass(frozen=True)
class TensorInfo:
    """The facts of a tensor, known without touching its values.

    shape is of what ``stored`` gives, or None when the file does not say; dtype is that of the stored values;
    layout is ``NHWC``, ``NCHW``, another vendor's name for the order the values lie in, or None (unknown, or plain);
    op_type is the producing operator's, or ""; origin is the logical tensor when layout is a device's and it is known.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: np.dtype
    layout: str | None = None
    quant: Quant | None = None
    op_type: str = ""
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class Range:
    """``min`` and ``max``: float64 arrays of one value per tensor or C per channel; ``bit``: 8, 16 … or None.

    ``wide``: what holds instead where the tensor is stored with 16 bits, whose steps are fine enough to clip nothing.
    ``uncut``: of a range that was cut, because a mask carries values beyond what counts, their ends.
    """

    min: np.ndarray
    max: np.ndarray
    bit: int | None = None
    wide: Range | None = None
    uncut: tuple[float, float] | None = None

    @classmethod
    def of(cls, low: float, high: float, bit: int | None = None) -> Range:
        """The range of a whole tensor."""
        return cls(np.array([low], np.float64), np.array([high], np.float64), bit)

    def at(self, dtype: np.dtype) -> Range:
        """The range for values stored as ``dtype``."""
        return self.wide if self.wide is not None and dtype.itemsize > 1 else self

    def same(self, other: Range) -> bool:
        """Equal numbers and bits."""
        return np.array_equal(self.min, other.min) and np.array_equal(self.max, other.max) and self.bit == other.bit

    @property
    def low(self) -> float:
        """The smallest min of all channels."""
        return float(self.min.item() if self.min.size == 1 else self.min.min())

    @property
    def high(self) -> float:
        """The largest max of all channels."""
        return float(self.max.item() if self.max.size == 1 else self.max.max())


def to_nhwc(array: np.ndarray) -> np.ndarray:
    """A 4-D NCHW array as an NHWC view; an array of another rank unchanged."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def to_nchw(array: np.ndarray) -> np.ndarray:
    """A 4-D NHWC array as an NCHW view; an array of another rank unchanged."""
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def nhwc_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape ``to_nhwc`` gives for an NCHW shape."""
    if len(shape) != 4:
        return tuple(shape)
    n, c, h, w = shape
    return (n, h, w, c)


def nchw_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape ``to_nchw`` gives for an NHWC shape."""
    if len(shape) != 4:
        return tuple(shape)
    n, h, w, c = shape
    return (n, c, h, w)


def shape_text(shape: Sequence[int | None]) -> str:
    """``[1, 3, ?, ?]``: a shape for people."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def fits(shape: Sequence[int], sizes: Sequence[int | None]) -> bool:
    """Whether a shape has these sizes; None stands for any."""
    return len(shape) == len(sizes) and all(size in (length, None) for length, size in zip(shape, sizes))
