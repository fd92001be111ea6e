"""Conversion between SigmaStar record headers and Records, and the losses of this conversion.

In an ``isFloat: 1`` file, all values are float32, whatever the type word says. In an ``isFloat: 0`` file, the payload
holds integers of the header's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.format import Lost
from sgsdump.dumps.formats.sigmastar.record_header import Header, dtype_of, word_of
from sgsdump.errors import ValuesError
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.dtypes import carried, is_complex, is_integer, is_number, name_of
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo, scale_fits
from sgsdump.tensors.types import NCHW, NHWC, nchw_shape, nhwc_shape, same_quant, to_nchw, to_nhwc

FLOAT32 = np.dtype("<f4")
BYTES = np.dtype(np.uint8)


def stored_dtype(header: Header, is_float: bool) -> np.dtype:
    """Return the type of the payload's values; bytes if an integer file has an unknown type word."""
    return FLOAT32 if is_float else dtype_of(header.type) or BYTES


def record_of(
    header: Header, op_index: int, dtype: np.dtype, load: Callable[[], np.ndarray], layout: str = NHWC
) -> Record:
    """Return the record of a header; ``layout`` applies to 4-D tensors and to tensors of unknown shape."""
    io, slot, scale, zero_point, word, name, constant, shape, _, _, op_type, cut = header
    quant = quant_of(word, scale, zero_point)
    info = TensorInfo(name, shape, dtype, layout if shape is None or len(shape) == 4 else None, quant, op_type)
    return Record("in" if io == "in" else "out", slot, op_index, op_type, Tensor(info, load), constant, cut)


@lru_cache(maxsize=4096)
def quant_of(word: str, scale: float, zero_point: int) -> Quant | None:
    """Return the quantisation in line0; None for a plain float."""
    if word == "float" and scale == 0 and zero_point == 0:
        return None
    dtype = dtype_of(word)
    return Quant(dtype, scale, zero_point, type_name="" if dtype is not None else word)


def header_of(record: Record, shaped: bool, is_float: bool, layout: str = NHWC) -> Header:
    """Return the header to write for a record; if ``shaped``, with its shape (if known) in ``layout``.

    Raises ValuesError if the format has no word for the tensor's type.
    """
    info = record.tensor.info
    quant = info.quant
    word = type_word(info, is_float)
    if word is None:
        raise ValuesError(f"tensor {info.name!r} has type {info.dtype}, which a SigmaStar dump cannot represent")
    shape = info.shape if shaped else None
    if shape is not None and is_transposed(info, layout):
        shape = nhwc_shape(shape) if layout == NHWC else nchw_shape(shape)
    scale = 0.0 if quant is None or not np.size(quant.scale) else float(np.ravel(quant.scale)[0])
    zero_point = 0 if quant is None else int(quant.zero_point)
    return Header(
        record.io,
        record.slot,
        scale,
        zero_point,
        word,
        info.name,
        record.constant,
        shape,
        f"op_{record.io}",
        record.op_index,
        record.op_type,
        record.cut,
    )


def type_word(info: TensorInfo, is_float: bool) -> str | None:
    """Return the word after ``type:``; None if the format has none for the tensor's type."""
    quant = info.quant
    if quant is None:
        return word_of(FLOAT32 if is_float else info.dtype)
    return quant.type_name or (word_of(quant.dtype) if quant.dtype is not None else "unknown")


def payload_of(record: Record, is_float: bool, layout: str = NHWC) -> np.ndarray:
    """Return the result of ``values_of`` as a flat array."""
    return np.ascontiguousarray(in_memory(values_of(record, is_float, layout))).reshape(-1)


def values_of(record: Record, is_float: bool, layout: str = NHWC) -> np.ndarray:
    """Return the values to write, in C order: float32 for ``isFloat: 1``, stored integers for ``isFloat: 0``.

    In a float file, integers become real values, except constants, which the SDK prints unscaled. 4-D tensors of the
    other layout are transposed. Raises ValuesError for integers of inexact scale and for floats in an integer file.
    """
    tensor = record.tensor
    info = tensor.info
    transposed = is_transposed(info, layout)
    if not is_float:
        if info.quant is not None and info.quant.dtype not in (None, info.dtype):
            raise ValuesError(
                f"tensor {info.name!r} is stored as {info.dtype}, but quantised to "
                f"{info.quant.dtype}. A dump with isFloat: 0 can only store integers; write a dump with isFloat: 1"
            )
        # A 4-bit value becomes the byte of its value, because the upper bits of a negative one in memory are undefined.
        stored = tensor.stored_view() if transposed else tensor.raw_view()
        array = carried(stored if stored.dtype.isnative else in_memory(stored))
    elif is_integer(info.dtype) and info.quant is not None and not record.constant:
        array = tensor.real()
    elif is_complex(info.dtype) or not is_number(info.dtype):
        raise ValuesError(f"tensor {info.name!r} has type {name_of(info.dtype)}, which a dump of float32 cannot hold")
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            stored = tensor.stored_view() if transposed else tensor.raw_view()
            array = (stored if stored.dtype == FLOAT32 else in_memory(stored)).astype(FLOAT32, copy=False)
    if transposed:
        array = to_nhwc(array) if layout == NHWC else to_nchw(array)
    return array


def is_transposed(info: TensorInfo, layout: str) -> bool:
    """Return whether a 4-D tensor's layout differs from the file's."""
    return info.layout in (NHWC, NCHW) and info.layout != layout and info.shape is not None and len(info.shape) == 4


def infer_op_indexes(headers: Sequence[Header], continues: Sequence[bool]) -> list[int]:
    """Return the operator indexes; infer those that were cut off from neighbouring records.

    ``continues[i]`` is True if the ending of record i announces another tensor of its group. Records are ordered by
    operator, inputs before outputs, and slots increase within a group.
    """
    known = next((i for i, header in enumerate(headers) if header.op_index is not None), None)
    indexes: list[int] = []
    for i, header in enumerate(headers):
        if header.op_index is not None:
            indexes.append(header.op_index)
        elif i:
            indexes.append(indexes[-1] + _step(headers[i - 1], header, continues[i - 1]))
        else:
            steps = sum(_step(headers[k], headers[k + 1], continues[k]) for k in range(known or 0))
            indexes.append(max(0, (headers[known].op_index or 0) - steps) if known else 0)
    return indexes


def lost(record: Record, shaped: bool, is_float: bool, layout: str = NHWC) -> Iterator[Lost]:
    """Yield the losses of a record in a file of this form; see ``Format.loses``."""
    if record.tensor.statistics is not None:
        yield Lost(record, "has at most statistics, no values", True)
    yield from _lost_values(record, is_float)
    info = record.tensor.info
    for what in (*_lost_quant(info, is_float), *_lost_form(info, shaped, layout)):
        yield Lost(record, what)
    if info.op_type != record.op_type:
        yield Lost(record, "has an operator type, kept as its operator's name")
    if not _fits_a_line(record.name + record.op_type):
        yield Lost(record, "has a name that no header line can hold", True)


def _step(before: Header, after: Header, continues: bool) -> int:
    """Return 0 if two consecutive records belong to the same operator, else 1."""
    if continues or (before.io == after.io and after.slot > before.slot):
        return 0
    return 0 if before.io == "in" and after.io == "out" else 1


def _lost_values(record: Record, is_float: bool) -> Iterator[Lost]:
    info = record.tensor.info
    quant, name = info.quant, name_of(info.dtype)
    word = type_word(info, is_float)
    if word is None:
        yield Lost(record, f"is {name if quant is None else name_of(quant.dtype)}, which no type word names", True)
    elif not is_float:
        if quant is not None and quant.dtype not in (None, info.dtype):
            yield Lost(record, f"is {name}, not the integers of an isFloat 0 dump", True)
        elif (dtype_of(word) or BYTES) != info.dtype:
            yield Lost(record, f"is {name}, kept as bytes")
    elif is_complex(info.dtype) or not is_number(info.dtype):
        yield Lost(record, f"is {name}, which float32 cannot hold", True)
    elif is_integer(info.dtype) and quant is not None and not record.constant:
        if quant.exact and scale_fits(info):
            yield Lost(record, f"is {name}, kept as its float32 value")
        else:
            yield Lost(record, "has no true scale", True)
    elif name != name_of(FLOAT32):
        yield Lost(record, f"is {name}, kept as float32")


def _lost_quant(info: TensorInfo, is_float: bool) -> Iterator[str]:
    word, quant = type_word(info, is_float), info.quant
    if word is None:
        return
    if quant is None:
        if quant_of(word, 0.0, 0) is not None:
            yield "has no scale and is read back as integers of unknown scale"
        return
    if np.ndim(quant.scale) or quant.axis is not None:
        yield "has a scale per channel, reduced to one scale"
        return
    if not same_quant(quant, quant_of(word, float(f"{quant.scale:f}"), int(quant.zero_point))):
        yield "has a scale, kept with six decimals: too coarse to dequantise"


def _lost_form(info: TensorInfo, shaped: bool, layout: str) -> Iterator[str]:
    shape = info.shape if shaped else None
    if info.shape != shape:
        yield "has a shape, which is left out"
    if is_transposed(info, layout):
        yield f"is {info.layout}, kept as {layout}"
    elif info.layout != (layout if shape is None or len(shape) == 4 else None):
        then = "left out" if shape is not None and len(shape) != 4 else f"read as {layout}"
        yield f"has layout {info.layout or 'unknown'}, {then}"
    if info.origin is not None:
        yield "has an original shape, which is left out"


def _fits_a_line(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\n" not in text
