"""A dump's tensors in another layout, shape or element type.

Everything is lazy: a record's values are converted when the writer asks for them, one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from sgsdump.dumps.dump import Record, selected
from sgsdump.errors import ConfigError, ValuesError
from sgsdump.tensors.device import is_device
from sgsdump.tensors.dtypes import is_complex, is_integer, is_number
from sgsdump.tensors.tensor import DEVICE_LAYOUTS, Tensor, in_device_layout, with_original_shape

LAYOUTS = ("logical", "NCHW", "NHWC", "HWCN", *DEVICE_LAYOUTS)
FLOAT32 = np.dtype(np.float32)


def with_shapes(records: Sequence[Record], shapes: Sequence[tuple[str, tuple[int, ...]]]) -> list[Record]:
    """The records, those in a device's layout with the original shape that the last pattern of their name gives.

    Raises ConfigError for a pattern of no tensor in a device's layout, ValuesError for a shape that does not fit.
    """
    device = {id(record) for record in records if is_device(record.tensor.info.layout)}
    changed: dict[int, Record] = {}
    for pattern, shape in shapes:
        fitting = [record for record in selected(records, [pattern]) if id(record) in device]
        if not fitting:
            raise ConfigError(f"no tensor that fits {pattern!r} is in a device's layout: it has its original shape")
        changed |= {id(one): replace(one, tensor=with_original_shape(one.tensor, shape)) for one in fitting}
    return [changed.get(id(record), record) for record in records]


def in_layout(record: Record, layout: str) -> Record:
    """The record in ``logical``, a plain layout, or a device's; as it is where its own is not known, or is of other
    dimensions.

    Blocks of a device's layout are taken apart where the original shape is known.
    """
    tensor = record.tensor
    with suppress(ValuesError):
        if layout in DEVICE_LAYOUTS:
            return replace(record, tensor=in_device_layout(tensor, layout))
        tensor = tensor.logical()
        if layout != "logical":
            tensor = tensor.in_layout(layout)
    return replace(record, tensor=tensor)


def stays(record: Record, layout: str) -> bool:
    """Whether ``in_layout`` could not do what is asked of it."""
    info = in_layout(record, layout).tensor.info
    if layout in DEVICE_LAYOUTS:
        return info.layout != layout
    if layout == "logical":
        return is_device(info.layout)
    return is_device(info.layout) or (info.shape is not None and len(info.shape) == 4 and info.layout != layout)


def as_float32(record: Record) -> Record:
    """The record with the float32 values it means; text, raw bytes, complex numbers, and integers whose true scale is
    not known as they are."""
    tensor = record.tensor
    info = tensor.info
    coarse = is_integer(info.dtype) and info.quant is not None and not info.quant.exact
    if info.dtype == FLOAT32 or not is_number(info.dtype) or is_complex(info.dtype) or coarse:
        return record
    return replace(record, tensor=Tensor(replace(info, dtype=FLOAT32), tensor.real, tensor.statistics))
