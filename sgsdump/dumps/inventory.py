"""Facts and statistics of each tensor of a dump, computed in one pass over the values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.errors import FileChanged, FormatError, SgsdumpError, ValuesError
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.dtypes import is_number, name_of
from sgsdump.tensors.statistics import LARGEST, Statistics, merged, summarise
from sgsdump.tensors.tensor import Tensor, TensorInfo, values_of

PART = 1 << 20


@dataclass(frozen=True)
class Storage:
    """Storage facts of a tensor.

    origin      logical layout and shape of a tensor in a device layout, ``NCHW [1, 5, 6, 7]``; "" for plain layouts.
    quantised   element type of the quantised values; "" without quantisation.
    scale       scale as text; per channel ``0.5, 0.25, … (8)``; "" without quantisation.
    zero_point  None without quantisation.
    """

    shape: tuple[int, ...] | None
    dtype: str
    layout: str
    origin: str
    quantised: str
    scale: str
    zero_point: int | None


@dataclass(frozen=True)
class Content:
    """Statistics of a tensor's values.

    of          the values described: ``real`` values; ``stored`` integers (true scale unknown); ``padded`` real values
                (device layout with unknown original shape); ``dump`` (the dump holds only statistics); "" for none.
    statistics  None in unknown fields; min, max, mean and l2norm describe the finite values.
    reason      why there are no statistics, or none of the real values.
    damaged     True if the dump is damaged.
    saturated   True if the maximum or minimum is ±65504, the limit of float16.
    """

    of: str
    statistics: Statistics
    reason: str = ""
    damaged: bool = False
    saturated: bool = False


@dataclass(frozen=True)
class Item:
    """Facts and statistics of one record; ``number`` counts from 0 in file order."""

    number: int
    name: str
    io: str
    constant: bool
    storage: Storage
    op_index: int
    op: str
    content: Content


def inventory(records: Iterable[tuple[int, Record]]) -> Iterator[Item]:
    """Yield an item for each numbered record; the values are read once."""
    for number, record in records:
        storage, op = _storage(record.tensor.info), record.tensor.info.op_type or record.op_type
        content = _content(record.tensor)
        yield Item(number, record.name, record.io, record.constant, storage, record.op_index, op, content)


def _storage(info: TensorInfo) -> Storage:
    origin = "" if info.origin is None else f"{info.origin.layout or ''} {list(info.origin.shape)}".strip()
    facts = info.shape, name_of(info.dtype), info.layout or "", origin
    quant = info.quant
    if quant is None:
        return Storage(*facts, "", "", None)
    type_name = quant.type_name if quant.dtype is None else name_of(quant.dtype)
    return Storage(*facts, type_name, _scale(quant.scale), quant.zero_point)


def _scale(scale: float | np.ndarray) -> str:
    values = np.ravel(scale)
    shown = ", ".join(f"{value:.6g}" for value in values[:2])
    return shown if np.ndim(scale) == 0 else f"{shown}{', …' if values.size > 2 else ''} ({values.size})"


def _content(tensor: Tensor) -> Content:
    if tensor.statistics is not None:
        return _with_saturation(tensor, "dump", tensor.statistics, "the dump holds only statistics")
    of, reason = "real", ""
    try:
        try:
            tensor = tensor.logical()
        except ValuesError as error:
            of, reason = "padded", str(error)
        try:
            return _with_saturation(tensor, of, _real_statistics(tensor), reason)
        except ValuesError as error:
            stored = tensor.stored_view()
            if not is_number(stored.dtype):
                raise
            return _with_saturation(tensor, "stored", summarise(in_memory(stored)), str(error))
    except FileChanged:
        raise
    except SgsdumpError as error:
        return Content("", Statistics(), str(error), isinstance(error, FormatError))


def _with_saturation(tensor: Tensor, of: str, statistics: Statistics, reason: str) -> Content:
    ends = statistics.max, -(statistics.min or 0.0)
    return Content(of, statistics, reason, saturated=tensor.dtype == np.float16 and LARGEST in ends)


def _real_statistics(tensor: Tensor) -> Statistics:
    """Return statistics of the real values, dequantised part by part. Raises ValuesError like ``Tensor.real``."""
    values = values_of(tensor)
    if values.to_real is None:
        return summarise(in_memory(values.array))
    flat = (values.array if values.array.flags.c_contiguous else in_memory(values.array)).reshape(-1)
    return merged(
        summarise(values.to_real(in_memory(flat[start : start + PART]))) for start in range(0, flat.size, PART)
    )
