"""Tensor types: metadata (``TensorInfo``), and tensors whose values are loaded on request (``Tensor``).

*Stored* values are the integers or floats in the file. *Real* values are the float32 numbers that the stored values
represent. Floats are cast to float32, and complex numbers become pairs (real, imaginary). Integers are dequantised if
their scale is known. Large tensors are converted in chunks while they are read (``Values``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.mapped import copied, in_memory
from sgsdump.plugins import as_html
from sgsdump.tensors.device import PLAIN, device_shape, is_device, logical_origin, to_device, to_logical
from sgsdump.tensors.dtypes import as_array, is_complex, is_float, is_number, name_of
from sgsdump.tensors.sdk_buffers import has_padded_channels
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.types import Origin, Quant, TensorInfo

__all__ = ["Quant", "Tensor", "TensorInfo"]

DEVICE_LAYOUTS = ("NC1HWC0", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_NZ")
BLOCK = 16  # elements per block of a device layout; C0 (N0 of FRACTAL_NZ) has 32 of one byte, 64 of four bits
_BASIC = (int, np.integer, slice, type(...), type(None))  # numpy returns a view for an index of these types
_LETTERS = {"NC1HWC0": "CHNW", "NDC1HWC0": "CDHNW", "FRACTAL_Z": "CHNW"}


class Tensor:
    """A tensor of a dump: metadata plus values that are loaded on request.

    ``np.asarray(tensor)`` returns the real values. ``tensor[index]`` returns the real values of a part of the tensor
    and loads only this part.

    Parameters
    ----------
    info : TensorInfo
        Name, shape, dtype and other metadata.
    load : callable
        Function that returns the stored values as a flat or shaped array, newly allocated or memory-mapped.
    statistics : Statistics, optional
        Statistics that were dumped instead of values; None for a tensor with values.

    Examples
    --------
    >>> import numpy as np
    >>> quant = Quant(np.dtype(np.uint8), 0.5, zero_point=10, exact=True)
    >>> tensor = Tensor.of("conv1", np.array([[10, 12], [14, 9]], np.uint8), quant=quant)
    >>> tensor
    Tensor('conv1', shape=(2, 2), dtype=uint8)
    >>> tensor[0, :].tolist()
    [0.0, 1.0]
    >>> np.asarray(tensor).tolist()
    [[0.0, 1.0], [2.0, -0.5]]
    """

    __slots__ = ("_load", "info", "statistics")

    def __init__(self, info: TensorInfo, load: Callable[[], np.ndarray], statistics: Statistics | None = None):
        self.info = info
        self._load = load
        self.statistics = statistics

    @classmethod
    def of(cls, name: str, array: Any, **facts: Any) -> Tensor:
        """Return a tensor that holds the given values in memory.

        Parameters
        ----------
        name : str
            Tensor name.
        array : array-like
            An array, a number, a list or a torch tensor.
        **facts
            Other fields of TensorInfo, such as ``layout`` or ``quant``.

        Returns
        -------
        Tensor
            Tensor with the shape and dtype of ``array``.

        Raises
        ------
        ValuesError
            If ``array`` does not hold numbers.
        """
        values = _array_of(array, name)
        if values.dtype.hasobject:
            raise ValuesError(f"holds Python objects ({type(array).__name__}), not numbers", tensor=name)
        return cls(TensorInfo(name, values.shape, values.dtype, **facts), lambda: values)

    @classmethod
    def of_statistics(cls, info: TensorInfo, statistics: Statistics) -> Tensor:
        """Return a tensor with statistics but without values. Loading its values raises ValuesError."""

        def load() -> np.ndarray:
            raise ValuesError("has no values: only statistics were dumped", tensor=info.name)

        return cls(info, load, statistics)

    @classmethod
    def without_values(cls, info: TensorInfo, why: str) -> Tensor:
        """Return a tensor without values or statistics; loading values raises ValuesError with the reason ``why``."""

        def load() -> np.ndarray:
            raise ValuesError(f"has no values: {why}", tensor=info.name)

        return cls(info, load, Statistics())

    @property
    def name(self) -> str:
        """Tensor name."""
        return self.info.name

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the stored values; None if the file does not contain the shape."""
        return self.info.shape

    @property
    def ndim(self) -> int | None:
        """Number of dimensions; None if the file does not contain the shape."""
        return None if self.info.shape is None else len(self.info.shape)

    @property
    def dtype(self) -> np.dtype:
        """Type of the stored values. Real (dequantised) values are always float32."""
        return self.info.dtype

    @property
    def layout(self) -> str | None:
        """Order of the axes, such as ``NHWC``; None for an unknown order or plain row-major order."""
        return self.info.layout

    def raw(self) -> np.ndarray:
        """Return all values that the file stores for this tensor, without cropping to ``shape``.

        Returns
        -------
        ndarray
            Array of ``info.dtype``, either flat or with the shape in which the file stores the values. The section
            Notes of ``stored`` says whether the array is a copy or a view.
        """
        return copied(self.raw_view())

    def raw_view(self) -> np.ndarray:
        """Return the same values as ``raw``. For a memory-mapped file, the result is a view, never a copy.

        Creating the view reads no values. Read the view with ``in_memory``, ``write_array`` or a file descriptor.
        """
        array = self._load()
        return array if type(array) is np.ndarray else _array_of(array, self.info.name)

    def stored(self) -> np.ndarray:
        """Return the stored values as an array of shape ``info.shape``.

        Returns
        -------
        ndarray
            Array of ``info.dtype``; flat if the shape is unknown, read-only if the values come from a file.

        Raises
        ------
        FileChanged
            If the file has changed since the dump was opened.
        FormatError
            If the file holds fewer values than the shape needs.
        ValuesError
            If the values are an integer buffer with padding after each pixel (eliminateGarbage off).

        Notes
        -----
        Tensors of up to 64 MiB are copied from the file. Larger tensors are returned as a view of the mapped file,
        which takes no memory. If another program truncates the file, the next access to the view kills this process
        (SIGBUS). If another program rewrites the file, the view shows the new values. ``np.array(...)`` copies the
        view.

        If the file holds more values than the shape needs, only the first values are returned. Returning the first
        values is correct for image inputs, because the SDK allocates more memory than these inputs need.
        """
        return copied(self.stored_view())

    def stored_view(self) -> np.ndarray:
        """Return the same values as ``stored``. For a memory-mapped file, the result is a view; see ``raw_view``."""
        array = self.raw_view()
        shape = self.info.shape
        if shape is None or array.shape == shape:
            return array
        count = math.prod(shape)
        if array.size < count:
            raise FormatError(
                f"holds {array.size} values, but its shape {list(shape)} needs {count}", tensor=self.info.name
            )
        if array.size > count and has_padded_channels(array, shape):
            raise ValuesError("is a padded hardware buffer; dump again with eliminateGarbage", tensor=self.info.name)
        return array.reshape(-1)[:count].reshape(shape)

    def real(self, layout: str | None = None) -> np.ndarray:
        """Return the float32 values that this tensor represents.

        Parameters
        ----------
        layout : str, optional
            None keeps the stored layout. ``"logical"`` converts a device layout to the logical layout. A layout such
            as ``"NCHW"`` or ``"NHWC"`` does the same, and then puts the axes into the order of its letters. The
            stored layout must have the same axes as the requested layout.

        Returns
        -------
        ndarray
            float32 array in the shape of ``stored``. Complex numbers become pairs (real, imaginary) along an additional
            last axis of length 2; booleans become 0.0 and 1.0. The array is a copy, except for
            float32 tensors above 64 MiB: for these tensors, the array is the view that ``stored`` returns.

        Raises
        ------
        ValuesError
            If integers cannot be dequantised because their exact scale is unknown, if the values are text or raw bytes,
            or if the tensor cannot be converted to the requested layout.
        """
        tensor = self if layout is None else self.logical() if layout == "logical" else self.in_layout(layout)
        return real_values(tensor.stored(), tensor.info)

    def logical(self) -> Tensor:
        """Return the tensor in its logical layout. The values are converted when they are loaded.

        Returns
        -------
        Tensor
            A new tensor, or this tensor if it has no device layout.

        Raises
        ------
        ValuesError
            If the original shape is unknown or does not fit the stored shape, or if the device layout is not in the
            table of ``device.py``.
        """
        info = self.info
        if not is_device(info.layout):
            return self
        origin = logical_origin(info)
        to = replace(info, shape=origin.shape, layout=origin.layout, origin=None)

        def load() -> np.ndarray:
            stored = self.raw_view() if info.shape is None else self.stored_view()
            return to_logical(in_memory(stored), info.layout or "", origin)

        return Tensor(to, load, self.statistics)

    def in_layout(self, layout: str) -> Tensor:
        """Return the tensor with its axes in another order. The values are converted when they are loaded.

        Parameters
        ----------
        layout : str
            The layout of the new tensor: the letters of this tensor's layout in any order. For example, ``NHWC``
            for a tensor with the layout ``NCHW``. If this tensor has a device layout, the tensor is first converted to
            the logical layout.

        Returns
        -------
        Tensor
            A new tensor, or this tensor if it already has the layout ``layout``.

        Raises
        ------
        ValuesError
            If the layout of the tensor cannot be converted to ``layout``.
        """
        tensor = self.logical()
        info = tensor.info
        if info.layout == layout:
            return tensor
        if info.layout not in PLAIN or info.shape is None or sorted(info.layout) != sorted(layout):
            raise ValuesError(
                f"cannot be converted to {layout}: its layout is {info.layout or 'unknown'}", tensor=info.name
            )
        order = [info.layout.index(letter) for letter in layout]
        shape, quant = tuple(info.shape[axis] for axis in order), info.quant
        if quant is not None and quant.axis is not None:
            quant = replace(quant, axis=order.index(quant.axis % len(order)))
        to = replace(info, shape=shape, layout=layout, quant=quant)
        return Tensor(to, lambda: tensor.stored_view().transpose(order), tensor.statistics)

    def close(self, owner: str = "it") -> None:
        """Release the values. After ``close``, loading values raises ValuesError.

        Existing arrays stay valid. A memory-mapped file stays mapped until the last array that refers to the file is
        deleted.
        """
        why = f"the values of tensor {self.info.name!r} cannot be read: {owner} was closed; open it again"

        def load() -> np.ndarray:
            raise ValuesError(why)

        self._load = load

    def __getitem__(self, index: Any) -> Any:
        """Return the real values of a part of the tensor, in the stored layout.

        Any numpy index is accepted. Values outside the part are not converted, and not read from a mapped file. Raises
        IndexError for an index out of range, and ValuesError in the same cases as ``real``.
        """
        is_basic = all(isinstance(part, _BASIC) for part in (index if isinstance(index, tuple) else (index,)))
        stored = self.stored_view() if is_basic else in_memory(self.stored_view())
        return real_part(stored, index, self.info)[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the real values; called by ``np.asarray`` and ``np.array``."""
        stored = self.stored()
        real = real_values(stored, self.info)
        array = real if dtype is None else real.astype(dtype, copy=False)
        if copy is False and not np.may_share_memory(array, stored):
            raise ValueError(
                f"copy=False is not possible for tensor {self.info.name!r}, because its real values are "
                "computed from the stored values"
            )
        return np.array(array) if copy else array

    def __repr__(self) -> str:
        layout = f", layout={self.info.layout!r}" if self.info.layout else ""
        return f"Tensor({self.info.name!r}, shape={self.info.shape}, dtype={name_of(self.info.dtype)}{layout})"

    def _repr_html_(self) -> str | None:
        """Return the metadata and the distribution of the values as HTML for a notebook."""
        return as_html("tensor", self)


@dataclass(frozen=True)
class Scaling:
    """One float32 scale and one zero point: ``float32(stored - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Values:
    """Stored values and the function that converts a chunk of them to real values.

    array    may be a view of a mapped file (read with ``in_memory`` or through a descriptor), unaligned or transposed;
             must not be changed
    to_real  None if the stored values are the real values
    scaling  set if ``to_real`` only applies this scaling
    """

    array: np.ndarray
    to_real: Callable[[np.ndarray], np.ndarray] | None = None
    scaling: Scaling | None = None

    def of(self, array: np.ndarray) -> Values:
        """Return ``Values`` for ``array``, a view of the stored values, with the same ``to_real`` and ``scaling``."""
        return self if array is self.array else Values(array, self.to_real, self.scaling)


def _array_of(values: Any, name: str) -> np.ndarray:
    try:
        return as_array(values)
    except (TypeError, ValueError) as error:
        raise ValuesError(f"cannot be converted to an array: {' '.join(str(error).split())}", tensor=name) from None


def values_of(tensor: Tensor, quant: Quant | None = None) -> Values:
    """Return a tensor's stored values and the function that converts them to real values.

    ``quant`` replaces the quantisation parameters in the header. Raises ValuesError for integers whose exact scale is
    unknown.
    """
    stored = tensor.stored_view()
    info = tensor.info if quant is None else replace(tensor.info, quant=quant)
    if info.quant is None and _are_real(stored.dtype):
        return Values(stored)
    if is_complex(stored.dtype) or not is_number(stored.dtype):
        return Values(real_values(in_memory(stored), tensor.info))
    if is_float(stored.dtype) or info.quant is None:
        return Values(stored)
    if not info.quant.exact or info.quant.axis is not None or np.size(info.quant.scale) != 1:
        return Values(dequantise(in_memory(stored), info))
    scaling = Scaling(float(checked_scale(info, (1,)).reshape(())), info.quant.zero_point)
    return Values(stored, lambda chunk: dequantise(chunk, info), scaling)


@lru_cache(maxsize=64)
def _are_real(dtype: np.dtype) -> bool:
    return is_number(dtype) and not is_complex(dtype)


def in_device_layout(tensor: Tensor, layout: str) -> Tensor:
    """Return the tensor in one of ``DEVICE_LAYOUTS``, or the tensor itself if it already has this layout.

    The values are converted, and padded with zeros, when they are loaded. The layout FRACTAL_NZ accepts tensors of any
    shape and treats the last two dimensions as matrices. The other device layouts accept only tensors with a known axis
    order (NCHW, NHWC … or NCDHW …). Raises ValuesError if the layout does not accept the tensor, or if the tensor has
    no values.
    """
    if tensor.info.layout == layout:
        return tensor
    tensor = tensor.logical()
    info = tensor.info
    letters = _LETTERS.get(layout)
    of = info.layout if info.layout and info.layout in PLAIN else ""
    if not info.shape or 0 in info.shape or (letters and sorted(of) != sorted(letters)):
        raise ValuesError(
            f"cannot be converted to {layout}: its layout is {info.layout or 'unknown'}", tensor=info.name
        )
    if tensor.statistics is not None:
        raise ValuesError(f"cannot be converted to {layout}: only statistics were dumped", tensor=info.name)
    c0 = 4 * BLOCK if name_of(info.dtype).endswith("int4") else 2 * BLOCK if info.dtype.itemsize == 1 else BLOCK
    shape = device_shape(info.shape, of, layout, c0, BLOCK)
    to = replace(info, shape=shape, layout=layout, origin=Origin(info.shape, info.layout))
    return Tensor(to, lambda: to_device(in_memory(tensor.stored_view()), of, layout, c0, BLOCK))


def with_original_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a copy of a tensor in a device layout, with ``shape`` as the shape before the conversion to this layout.

    Some dumps do not contain this original shape. With the original shape, the method ``logical`` can convert the
    tensor to its logical layout. ATB stores the layout FRACTAL_NZ with the dimensions M1 and M0 merged:
    (…, N1, M, N0). Raises ValuesError if the shape does not fit the stored values, or if the layout cannot be
    converted back.
    """
    info = tensor.info
    if not is_device(info.layout):
        raise ValuesError("is not in a device layout, so its shape is already the original shape", tensor=info.name)
    origin = replace(info.origin, shape=shape) if info.origin else Origin(shape)
    try:
        logical_origin(completed := replace(info, origin=origin))
    except ValuesError:
        stored = info.shape or ()
        if not (info.layout or "").startswith("FRACTAL_NZ") or len(stored) < 3 or stored[-2] % BLOCK:
            raise
        logical_origin(completed := replace(completed, shape=(*stored[:-2], stored[-2] // BLOCK, BLOCK, stored[-1])))
    return Tensor(completed, tensor.raw_view, tensor.statistics)


def real_values(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    """Return stored values as the float32 numbers that they represent; see ``Tensor.real``. Raises ValuesError."""
    if is_float(stored.dtype):
        with np.errstate(over="ignore", invalid="ignore"):
            return stored.astype(np.float32, copy=False)
    if is_complex(stored.dtype):
        pairs = np.ascontiguousarray(stored, np.complex128 if stored.dtype.itemsize > 8 else np.complex64)
        with np.errstate(over="ignore"):
            return pairs.view(pairs.real.dtype).reshape(*stored.shape, 2).astype(np.float32, copy=False)
    if not is_number(stored.dtype):
        raise ValuesError(f"holds {name_of(stored.dtype)} elements, which are not numbers", tensor=info.name)
    return dequantise(stored, info)


def real_part(stored: np.ndarray, index: Any, info: TensorInfo) -> np.ndarray:
    """Return ``real_values(stored, info)[index]``, reading and converting only that part."""
    part = in_memory(np.asarray(stored[index]))
    if info.quant is None or not is_scaled(stored.dtype):
        return real_values(part, info)
    scale = checked_scale(info, stored.shape)
    if scale.ndim:
        scale = np.broadcast_to(scale, stored.shape)[index]
    return _product(part, scale, info.quant.zero_point)


def dequantise(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    """Return ``float32(stored - zero_point) * float32(scale)``, the single-precision product that the SDK computes.

    Raises ValuesError if the scale is known only to six decimals, or if the scale does not fit the shape.
    """
    if info.quant is None:
        return stored.astype(np.float32)
    return _product(stored, checked_scale(info, stored.shape), info.quant.zero_point)


def is_scaled(dtype: np.dtype) -> bool:
    """Return True for integers and booleans, whose stored values need dequantisation, and False for other types."""
    return is_number(dtype) and not is_float(dtype) and not is_complex(dtype)


def checked_scale(info: TensorInfo, shape: tuple[int, ...]) -> np.ndarray:
    """Return the float32 scale, as one number or broadcastable to ``shape``. Raises ValuesError, see ``dequantise``."""
    quant = info.quant
    assert quant is not None, "values without a scale are real values"
    if not quant.exact:
        raise ValuesError(
            "holds integers whose true scale is not in the file (the header rounds the scale to "
            "six decimals); give the calibration ranges, or dump again with dequantFixed",
            tensor=info.name,
        )
    if not scale_fits(info):
        raise ValuesError(
            f"has {np.size(quant.scale)} scales along axis {quant.axis}, which do not fit its "
            f"shape {list(shape)}; give the calibration ranges",
            tensor=info.name,
        )
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.asarray(quant.scale, np.float32)
    if quant.axis is not None and scale.ndim:
        scale = scale.reshape([-1 if axis == quant.axis else 1 for axis in range(len(shape))])
    return scale


def scale_fits(info: TensorInfo) -> bool:
    """Return True if the tensor has one scale, or one scale per channel along the axis (default: the last axis)."""
    if info.quant is None:
        return True
    quant, shape, count = info.quant, info.shape or (), np.size(info.quant.scale)
    if np.ndim(quant.scale) == 0 or (quant.axis is None and count == 1):
        return True
    axis = len(shape) - 1 if quant.axis is None else quant.axis
    return np.ndim(quant.scale) == 1 and 0 <= axis < len(shape) and count == shape[axis]


def _product(stored: np.ndarray, scale: np.ndarray, zero_point: int) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        real: np.ndarray = (stored.astype(np.int64) - zero_point).astype(np.float32) * scale
    return real
