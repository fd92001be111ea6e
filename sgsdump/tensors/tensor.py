"""A tensor: facts that are known at once (``TensorInfo``) and values that are loaded when asked for (``Tensor``).

*Stored* values are the integers or floats as they lie in the file; *real* values are the float32 they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sgsdump.errors import FormatError, ValuesError
from sgsdump.tensors.dtypes import is_complex, is_float, is_number, name_of


@dataclass(frozen=True)
class Quant:
    """How integers mean real numbers: ``real = (stored - zero_point) * scale``.

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


@dataclass(frozen=True)
class Origin:
    """The logical tensor behind values that lie in a device's layout: its shape and layout (None when the file does
    not say), and the groups of a grouped convolution's weights."""

    shape: tuple[int, ...]
    layout: str | None = None
    groups: int = 1


@dataclass(frozen=True)
class Figures:
    """What a run that kept statistics only tells of a tensor; None is what it does not tell.

    min, max, mean, l2norm   of the values, with the writer's rounding.
    count                    all elements.
    nan, negative_inf, positive_inf   how many elements are not finite.
    """

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2norm: float | None = None
    count: int | None = None
    nan: int | None = None
    negative_inf: int | None = None
    positive_inf: int | None = None


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a tensor without touching its values.

    shape is that of what ``stored`` gives, or None when the file does not say; dtype is that of the stored values;
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


class Tensor:
    """Facts and a way to the values. ``load`` returns the flat or shaped stored array, new or memory-mapped.

    ``figures`` is what a dump of statistics knows instead of values; None in every other.
    """

    __slots__ = ("_load", "figures", "info")

    def __init__(self, info: TensorInfo, load: Callable[[], np.ndarray], figures: Figures | None = None):
        self.info = info
        self._load = load
        self.figures = figures

    @classmethod
    def of(cls, name: str, array: np.ndarray, **facts: object) -> Tensor:
        """A tensor of an array in memory; ``facts`` are further TensorInfo fields."""
        info = TensorInfo(name, array.shape, array.dtype, **facts)  # type: ignore[arg-type]
        return cls(info, lambda: array)

    @classmethod
    def of_figures(cls, info: TensorInfo, figures: Figures) -> Tensor:
        """A tensor without values: asking for them raises ValuesError."""

        def load() -> np.ndarray:
            raise ValuesError(f"tensor {info.name!r} has no values: only statistics were dumped")

        return cls(info, load, figures)

    def raw(self) -> np.ndarray:
        """Everything the file holds for this tensor, without cropping: flat or shaped, of ``info.dtype``."""
        return self._load()

    def stored(self) -> np.ndarray:
        """The stored values in ``info.shape`` (flat when the shape is unknown).

        A payload larger than its shape is cropped to its first elements, which is right for the picture inputs
        the SDK over-allocates. Raises FormatError when the payload is smaller than the shape, ValuesError when
        it is an integer buffer padded per pixel (eliminateGarbage off), where the first elements are not the tensor.
        """
        array = self._load()
        shape = self.info.shape
        if shape is None or array.shape == shape:
            return array
        count = math.prod(shape)
        if array.size < count:
            raise FormatError(
                f"tensor {self.info.name!r} holds {array.size} values, its shape {list(shape)} needs {count}"
            )
        if array.size > count and _is_padded(array.nbytes, shape, array.dtype):
            raise ValuesError(
                f"tensor {self.info.name!r} is a padded hardware buffer; dump it again with eliminateGarbage"
            )
        return array.reshape(-1)[:count].reshape(shape)

    def real(self) -> np.ndarray:
        """The float32 values this tensor means, in the shape ``stored`` gives; complex ones as pairs (real, imaginary)
        along a further last axis of 2, so that whoever compares counts both. Booleans are 0.0 and 1.0.

        Raises ValuesError when integers cannot be dequantised because their true scale is not known, and for text and
        raw bytes, which mean no numbers.
        """
        stored = self.stored()
        if is_float(stored.dtype):
            with np.errstate(over="ignore", invalid="ignore"):
                return stored.astype(np.float32, copy=False)
        if is_complex(stored.dtype):
            pairs = np.ascontiguousarray(stored, np.complex128 if stored.dtype.itemsize > 8 else np.complex64)
            with np.errstate(over="ignore"):
                return pairs.view(pairs.real.dtype).reshape(*stored.shape, 2).astype(np.float32, copy=False)
        if not is_number(stored.dtype):
            raise ValuesError(f"tensor {self.info.name!r} holds {name_of(stored.dtype)}, which mean no numbers")
        return dequantise(stored, self.info)

    def __repr__(self) -> str:
        return f"Tensor({self.info.name!r}, shape={self.info.shape}, dtype={self.info.dtype})"


def dequantise(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    """``float32(stored - zero_point) * float32(scale)``, the single-precision product the SDK computes.

    Raises ValuesError when the scale is absent or only known to six decimals, or does not fit the shape.
    """
    quant = info.quant
    if quant is None:
        return stored.astype(np.float32)
    if not quant.exact:
        raise ValuesError(
            f"tensor {info.name!r} holds integers whose true scale is not in the file (its header rounds it to "
            f"six decimals); give the calibrated ranges, or dump again with dequantFixed"
        )
    if not scale_fits(info):
        raise ValuesError(
            f"tensor {info.name!r} has {np.size(quant.scale)} scales along axis {quant.axis}, which do not fit its "
            f"shape {list(stored.shape)}; give the calibrated ranges"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.asarray(quant.scale, np.float32)
    if quant.axis is not None and scale.ndim:
        scale = scale.reshape([-1 if i == quant.axis else 1 for i in range(stored.ndim)])
    return (stored.astype(np.int64) - quant.zero_point).astype(np.float32) * scale


def scale_fits(info: TensorInfo) -> bool:
    """Whether there is one scale, or one for each channel along its axis (the last one where none is named)."""
    if info.quant is None:
        return True
    quant, shape, count = info.quant, info.shape or (), np.size(info.quant.scale)
    if np.ndim(quant.scale) == 0 or (quant.axis is None and count == 1):
        return True
    axis = len(shape) - 1 if quant.axis is None else quant.axis
    return np.ndim(quant.scale) == 1 and 0 <= axis < len(shape) and count == shape[axis]


def same_quant(one: Quant | None, other: Quant | None) -> bool:
    """Whether two ways of dequantising are equal in every field, scales per channel compared one by one."""
    if one is None or other is None:
        return one is other
    plain = [(q.dtype, q.zero_point, q.axis, q.exact, q.type_name) for q in (one, other)]
    return plain[0] == plain[1] and np.array_equal(one.scale, other.scale, equal_nan=True)


def _is_padded(nbytes: int, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """True when an integer payload has the size of a buffer padded to 16 bytes of channels, rounded up to 64."""
    if dtype.kind not in "biu" or not shape:
        return False
    per_pixel = 16 // dtype.itemsize
    channels = -(-shape[-1] // per_pixel) * per_pixel
    padded = math.prod(shape[:-1]) * channels * dtype.itemsize
    return channels != shape[-1] and nbytes == -(-padded // 64) * 64
