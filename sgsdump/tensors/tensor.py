"""A tensor: facts that are known at once (``TensorInfo``) and values that are loaded when asked for (``Tensor``).

*Stored* values are the integers or floats in the file; *real* values are the float32 they mean: floats are cast,
complex numbers become pairs, integers are dequantised where a scale is known. A large tensor is converted by chunks as
they are read (``Values``), never as a whole.
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
BLOCK = 16  # elements of a block of a device's layout; of C0 (N0 of FRACTAL_NZ) 32 of one byte, 64 of four bits
_BASIC = (int, np.integer, slice, type(...), type(None))  # the parts of an index that numpy answers by a view
_LETTERS = {"NC1HWC0": "CHNW", "NDC1HWC0": "CDHNW", "FRACTAL_Z": "CHNW"}


class Tensor:
    """Metadata (``info``) plus a callable that loads the values.

    load        returns the flat or shaped stored array, new or memory-mapped.
    statistics  what a run that kept only statistics dumped instead of values; None in every other tensor.

    ``np.asarray(tensor)`` is the real values, ``tensor[index]`` those of a part, loaded without the rest:

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
        """Return a tensor of values in memory: an array, a number, a list or a torch tensor; ``facts`` are further
        TensorInfo fields. Raises ValuesError for what holds no numbers."""
        values = _array_of(array, name)
        if values.dtype.hasobject:
            raise ValuesError(f"its values are Python objects ({type(array).__name__}), not numbers", tensor=name)
        return cls(TensorInfo(name, values.shape, values.dtype, **facts), lambda: values)

    @classmethod
    def of_statistics(cls, info: TensorInfo, statistics: Statistics) -> Tensor:
        """A tensor without values: asking for them raises ValuesError."""

        def load() -> np.ndarray:
            raise ValuesError("has no values: only statistics were dumped", tensor=info.name)

        return cls(info, load, statistics)

    @classmethod
    def without_values(cls, info: TensorInfo, why: str) -> Tensor:
        """A tensor whose values raise ValuesError, which says why; its statistics tell nothing."""

        def load() -> np.ndarray:
            raise ValuesError(f"has no values: {why}", tensor=info.name)

        return cls(info, load, Statistics())

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the stored values; None when the file does not say."""
        return self.info.shape

    @property
    def ndim(self) -> int | None:
        """The number of dimensions; None when the file does not give the shape."""
        return None if self.info.shape is None else len(self.info.shape)

    @property
    def dtype(self) -> np.dtype:
        """The type of the stored values; the real ones are float32."""
        return self.info.dtype

    @property
    def layout(self) -> str | None:
        return self.info.layout

    def raw(self) -> np.ndarray:
        """Everything the file holds for this tensor, without cropping: flat or shaped, of ``info.dtype``. A copy or a
        view as in ``stored``."""
        return copied(self.raw_view())

    def raw_view(self) -> np.ndarray:
        """As ``raw``, of a mapped file always a view, which costs nothing: for code that reads it by ``in_memory``,
        ``write_array`` or through a descriptor."""
        array = self._load()
        return array if type(array) is np.ndarray else _array_of(array, self.info.name)

    def stored(self) -> np.ndarray:
        """The stored values in ``info.shape`` (flat when the shape is unknown); read-only when they are of a file.

        Of a dump's file they are a copy, unless they take more than 64 MiB: then they are a view of the mapped file,
        which costs no memory and dies with its file. If another program truncates that meanwhile, the next look at the
        view ends the process (SIGBUS); if it rewrites it, the view shows the new values. ``np.array(...)`` copies it.
        Raises FileChanged when the file is not as it was when the dump was opened.

        A payload larger than its shape is cropped to its first elements, which is right for the picture inputs
        the SDK over-allocates. Raises FormatError when the payload is smaller than the shape, ValuesError when
        it is an integer buffer padded per pixel (eliminateGarbage off), where the first elements are not the tensor.
        """
        return copied(self.stored_view())

    def stored_view(self) -> np.ndarray:
        """As ``stored``, of a mapped file always a view, as ``raw_view`` is."""
        array = self.raw_view()
        shape = self.info.shape
        if shape is None or array.shape == shape:
            return array
        count = math.prod(shape)
        if array.size < count:
            raise FormatError(
                f"holds {array.size} values, its shape {list(shape)} needs {count}", tensor=self.info.name
            )
        if array.size > count and has_padded_channels(array, shape):
            raise ValuesError("is a padded hardware buffer; dump it again with eliminateGarbage", tensor=self.info.name)
        return array.reshape(-1)[:count].reshape(shape)

    def real(self, layout: str | None = None) -> np.ndarray:
        """The float32 values this tensor means, in the shape ``stored`` gives; complex ones as pairs (real, imaginary)
        along a further last axis of 2, so that a comparison takes both into account. Booleans are 0.0 and 1.0. A copy,
        but of float32 values beyond 64 MiB, which are as ``stored`` gives them.

        layout   None: as stored. ``"logical"``: a device's layout undone. ``"NCHW"``, ``"NHWC"`` …: the axes in this
                 order too, which the tensor's own layout must allow.

        Raises ValuesError when integers cannot be dequantised because their true scale is not known, for text and
        raw bytes, which mean no numbers, and for a layout that cannot be had.
        """
        tensor = self if layout is None else self.logical() if layout == "logical" else self.in_layout(layout)
        return real_values(tensor.stored(), tensor.info)

    def logical(self) -> Tensor:
        """The tensor in its logical layout, its values converted when they are loaded; itself when it has no device's
        layout.

        Raises ValuesError when its original shape is not known or does not fit, and for a layout of blocks that is not
        in the table of ``device.py``.
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
        """The tensor with its axes in another order of the same letters (``NCHW``, ``NHWC`` …), a device's layout
        undone; values are converted when they are loaded. Raises ValuesError where its layout does not allow it."""
        tensor = self.logical()
        info = tensor.info
        if info.layout == layout:
            return tensor
        if info.layout not in PLAIN or info.shape is None or sorted(info.layout) != sorted(layout):
            raise ValuesError(f"cannot become {layout}: its layout is {info.layout or 'unknown'}", tensor=info.name)
        order = [info.layout.index(letter) for letter in layout]
        shape, quant = tuple(info.shape[axis] for axis in order), info.quant
        if quant is not None and quant.axis is not None:
            quant = replace(quant, axis=order.index(quant.axis % len(order)))
        to = replace(info, shape=shape, layout=layout, quant=quant)
        return Tensor(to, lambda: tensor.stored_view().transpose(order), tensor.statistics)

    def close(self, owner: str = "it") -> None:
        """Let go of the values; asking for them then raises ValuesError. Arrays made before stay valid: a mapped file
        stays mapped until the last of them is gone."""
        why = f"the values of tensor {self.info.name!r} cannot be read: {owner} was closed; open it again"

        def load() -> np.ndarray:
            raise ValuesError(why)

        self._load = load

    def __getitem__(self, index: Any) -> Any:
        """The real values of a part, in the stored layout, by any index numpy takes; the rest is neither read from a
        mapped file nor converted. Raises IndexError, and ValuesError as ``real`` does."""
        is_basic = all(isinstance(part, _BASIC) for part in (index if isinstance(index, tuple) else (index,)))
        stored = self.stored_view() if is_basic else in_memory(self.stored_view())
        return real_part(stored, index, self.info)[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The real values, for ``np.asarray`` and ``np.array``."""
        stored = self.stored()
        real = real_values(stored, self.info)
        array = real if dtype is None else real.astype(dtype, copy=False)
        if copy is False and not np.may_share_memory(array, stored):
            raise ValueError(f"the real values of tensor {self.info.name!r} are computed: they cannot be had uncopied")
        return np.array(array) if copy else array

    def __repr__(self) -> str:
        layout = f", layout={self.info.layout!r}" if self.info.layout else ""
        return f"Tensor({self.info.name!r}, shape={self.info.shape}, dtype={name_of(self.info.dtype)}{layout})"

    def _repr_html_(self) -> str | None:
        """Its facts and how its values lie, for a notebook."""
        return as_html("tensor", self)


@dataclass(frozen=True)
class Scaling:
    """One float32 scale and one zero point: ``float32(stored - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Values:
    """Stored values and how a chunk of them becomes real ones (None: the stored values are real).

    array may be a view of a mapped file, which is to be read by ``in_memory`` or through a descriptor, unaligned or a
    transposed view; it is never written to. scaling says what ``to_real``
    does, where that is all of it.
    """

    array: np.ndarray
    to_real: Callable[[np.ndarray], np.ndarray] | None = None
    scaling: Scaling | None = None

    def of(self, array: np.ndarray) -> Values:
        """The same meaning on another view of the values."""
        return self if array is self.array else Values(array, self.to_real, self.scaling)


def _array_of(values: Any, name: str) -> np.ndarray:
    try:
        return as_array(values)
    except (TypeError, ValueError) as error:
        raise ValuesError(f"its values are no array: {' '.join(str(error).split())}", tensor=name) from None


def values_of(tensor: Tensor, quant: Quant | None = None) -> Values:
    """A tensor's stored values and the way from a chunk of them to real ones; ``quant`` replaces the header's.

    Raises ValuesError for integers whose true scale is not known.
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
    """The tensor in one of ``DEVICE_LAYOUTS``, padded with zeros when its values are loaded; itself when it is in it.

    FRACTAL_NZ takes tensors of any shape, as matrices of their last two dimensions; the others those of known layout
    only (NCHW, NHWC … or NCDHW …). Raises ValuesError for any other tensor, and for one without values.
    """
    if tensor.info.layout == layout:
        return tensor
    tensor = tensor.logical()
    info = tensor.info
    letters = _LETTERS.get(layout)
    of = info.layout if info.layout and info.layout in PLAIN else ""
    if not info.shape or 0 in info.shape or (letters and sorted(of) != sorted(letters)):
        raise ValuesError(f"cannot become {layout}: its layout is {info.layout or 'unknown'}", tensor=info.name)
    if tensor.statistics is not None:
        raise ValuesError(f"cannot become {layout}: only statistics were dumped", tensor=info.name)
    c0 = 4 * BLOCK if name_of(info.dtype).endswith("int4") else 2 * BLOCK if info.dtype.itemsize == 1 else BLOCK
    shape = device_shape(info.shape, of, layout, c0, BLOCK)
    to = replace(info, shape=shape, layout=layout, origin=Origin(info.shape, info.layout))
    return Tensor(to, lambda: to_device(in_memory(tensor.stored_view()), of, layout, c0, BLOCK))


def with_original_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor in a device's layout whose original shape is known otherwise, so that ``logical`` can undo it.

    FRACTAL_NZ is stored with M1 and M0 as one dimension too, as ATB does: (…, N1, M, N0). Raises ValuesError when the
    shape does not fit, or the layout cannot be undone.
    """
    info = tensor.info
    if not is_device(info.layout):
        raise ValuesError("is not in a device's layout: it has its original shape", tensor=info.name)
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
    """The float32 values that stored ones mean; see ``Tensor.real``. Raises ValuesError."""
    if is_float(stored.dtype):
        with np.errstate(over="ignore", invalid="ignore"):
            return stored.astype(np.float32, copy=False)
    if is_complex(stored.dtype):
        pairs = np.ascontiguousarray(stored, np.complex128 if stored.dtype.itemsize > 8 else np.complex64)
        with np.errstate(over="ignore"):
            return pairs.view(pairs.real.dtype).reshape(*stored.shape, 2).astype(np.float32, copy=False)
    if not is_number(stored.dtype):
        raise ValuesError(f"holds {name_of(stored.dtype)}, which are not numbers", tensor=info.name)
    return dequantise(stored, info)


def real_part(stored: np.ndarray, index: Any, info: TensorInfo) -> np.ndarray:
    """``real_values(stored, info)[index]``, of which only that part is read and converted."""
    part = in_memory(np.asarray(stored[index]))
    if info.quant is None or not is_scaled(stored.dtype):
        return real_values(part, info)
    scale = checked_scale(info, stored.shape)
    if scale.ndim:
        scale = np.broadcast_to(scale, stored.shape)[index]
    return _product(part, scale, info.quant.zero_point)


def dequantise(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    """``float32(stored - zero_point) * float32(scale)``, the single-precision product the SDK computes.

    Raises ValuesError when the scale is absent or only known to six decimals, or does not fit the shape.
    """
    if info.quant is None:
        return stored.astype(np.float32)
    return _product(stored, checked_scale(info, stored.shape), info.quant.zero_point)


def is_scaled(dtype: np.dtype) -> bool:
    """Whether stored values of this type have to be dequantised: integers and booleans."""
    return is_number(dtype) and not is_float(dtype) and not is_complex(dtype)


def checked_scale(info: TensorInfo, shape: tuple[int, ...]) -> np.ndarray:
    """The scale in float32: one number, or in a shape that is broadcast to ``shape``. Raises as ``dequantise``."""
    quant = info.quant
    assert quant is not None, "values without a scale mean themselves"
    if not quant.exact:
        raise ValuesError(
            "holds integers whose true scale is not in the file (its header rounds it to "
            "six decimals); give the calibrated ranges, or dump again with dequantFixed",
            tensor=info.name,
        )
    if not scale_fits(info):
        raise ValuesError(
            f"has {np.size(quant.scale)} scales along axis {quant.axis}, which do not fit its "
            f"shape {list(shape)}; give the calibrated ranges",
            tensor=info.name,
        )
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.asarray(quant.scale, np.float32)
    if quant.axis is not None and scale.ndim:
        scale = scale.reshape([-1 if axis == quant.axis else 1 for axis in range(len(shape))])
    return scale


def scale_fits(info: TensorInfo) -> bool:
    """Whether there is one scale, or one for each channel along its axis (the last one where none is named)."""
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
