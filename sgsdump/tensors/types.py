"""Metadata types of a tensor: shape, layout, quantisation and range.

Layouts of 4-D tensors: dumps store NHWC, ONNX and Caffe compute in NCHW. Tensors of another rank have no layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

NCHW = "NCHW"
NHWC = "NHWC"


@dataclass(frozen=True)
class Origin:
    """Shape and layout of a tensor before its conversion to a device layout.

    shape   logical shape
    layout  logical layout; None if the file does not contain the layout
    groups  number of groups, for weights of a grouped convolution
    """

    shape: tuple[int, ...]
    layout: str | None = None
    groups: int = 1


@dataclass(frozen=True)
class Quant:
    """Quantisation parameters: ``real = (stored - zero_point) * scale``.

    Attributes
    ----------
    dtype : numpy.dtype or None
        Quantised type; None if sgsdump does not know the type in the file (``type_name``). For a dequantised tensor
        (stored as float32), the type before dequantisation.
    scale : float or ndarray
        Size of one quantisation step; one value per channel along ``axis`` if per channel; 0.0 if the file has no
        scale.
    zero_point : int
        Stored value that represents 0.0.
    axis : int or None
        Channel axis in the logical shape; None if per tensor.
    exact : bool
        False if the scale was read from text with six decimals. Such a scale is too coarse to dequantise 16-bit values
        (error up to 1.6 %).
    type_name : str
        Name of the type in the file, if ``dtype`` is None.
    """

    dtype: np.dtype | None
    scale: float | np.ndarray = 0.0
    zero_point: int = 0
    axis: int | None = None
    exact: bool = False
    type_name: str = ""


def same_quant(a: Quant | None, b: Quant | None) -> bool:
    """Return whether two quantisations are equal in every field, with scales compared per channel."""
    if a is None or b is None:
        return a is b
    return replace(a, scale=0.0) == replace(b, scale=0.0) and np.array_equal(a.scale, b.scale, equal_nan=True)


@dataclass(frozen=True)
class TensorInfo:
    """Metadata of a tensor, known without reading its values.

    Attributes
    ----------
    name : str
        Tensor name.
    shape : tuple of int or None
        Shape of ``Tensor.stored``; None if the file does not contain the shape.
    dtype : numpy.dtype
        Type of the stored values.
    layout : str or None
        ``NHWC``, ``NCHW``, or a vendor's name for the order of the values; None if unknown or plain.
    quant : Quant or None
        Quantisation parameters.
    op_type : str
        Type of the operator that computes the tensor; "" if unknown.
    origin : Origin or None
        Shape and layout before the conversion to a device layout; None if unknown, or if ``layout`` is not a device
        layout.
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
    """Range of a tensor or of its channels.

    min, max  float64 arrays of one value per tensor, or C per channel
    bit       bit width, such as 8 or 16, or None
    wide      range used instead if the tensor is stored with 16 bits, whose steps are fine enough to clip nothing
    uncut     original ends of a range that was clipped, because a mask has values that do not matter
    """

    min: np.ndarray
    max: np.ndarray
    bit: int | None = None
    wide: Range | None = None
    uncut: tuple[float, float] | None = None

    @classmethod
    def of(cls, low: float, high: float, bit: int | None = None) -> Range:
        """Return the range of a whole tensor."""
        return cls(np.array([low], np.float64), np.array([high], np.float64), bit)

    def at(self, dtype: np.dtype) -> Range:
        """Return the range for values stored as ``dtype``."""
        return self.wide if self.wide is not None and dtype.itemsize > 1 else self

    def same(self, other: Range) -> bool:
        """Return whether the limits and the bit width are equal."""
        return np.array_equal(self.min, other.min) and np.array_equal(self.max, other.max) and self.bit == other.bit

    @property
    def low(self) -> float:
        """Smallest minimum of all channels."""
        return float(self.min.item() if self.min.size == 1 else self.min.min())

    @property
    def high(self) -> float:
        """Largest maximum of all channels."""
        return float(self.max.item() if self.max.size == 1 else self.max.max())


def to_nhwc(array: np.ndarray) -> np.ndarray:
    """Return a 4-D NCHW array as an NHWC view; an array of another rank unchanged."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def to_nchw(array: np.ndarray) -> np.ndarray:
    """Return a 4-D NHWC array as an NCHW view; an array of another rank unchanged."""
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def nhwc_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that ``to_nhwc`` gives for an NCHW shape."""
    if len(shape) != 4:
        return tuple(shape)
    n, c, h, w = shape
    return (n, h, w, c)


def nchw_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that ``to_nchw`` gives for an NHWC shape."""
    if len(shape) != 4:
        return tuple(shape)
    n, h, w, c = shape
    return (n, c, h, w)


def shape_text(shape: Sequence[int | None]) -> str:
    """Format a shape for display: ``[1, 3, ?, ?]``."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def fits(shape: Sequence[int], sizes: Sequence[int | None]) -> bool:
    """Return whether a shape has these sizes; None matches any size."""
    return len(shape) == len(sizes) and all(size in (length, None) for length, size in zip(shape, sizes))
