"""What a SigmaStar dump cannot hold of a record, by the rules of ``record`` and ``record_header``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.sigmastar.record import BYTES, FLOAT32, is_transposed, quant_of, type_word
from sgsdump.dumps.formats.sigmastar.record_header import dtype_of
from sgsdump.tensors.dtypes import is_complex, is_integer, is_number, name_of
from sgsdump.tensors.real_values import scale_fits
from sgsdump.tensors.tensor import TensorInfo
from sgsdump.tensors.types import NHWC, same_quant

REFUSED = "writing is refused"


def lost(record: Record, shaped: bool, is_float: bool, layout: str = NHWC) -> Iterator[str]:
    """The ends of "the tensor …", for a file of these variants; see ``Format.loses``."""
    if record.tensor.statistics is not None:
        yield f"has no values, statistics at most: {REFUSED}"
    yield from _lost_values(record, is_float)
    yield from _lost_quant(record.tensor.info, is_float)
    yield from _lost_form(record.tensor.info, shaped, layout)
    yield from _lost_text(record)


def _lost_values(record: Record, is_float: bool) -> Iterator[str]:
    info = record.tensor.info
    quant, name = info.quant, name_of(info.dtype)
    if type_word(info, is_float) is None:
        yield f"is {name if quant is None else name_of(quant.dtype)}, which no type word names: {REFUSED}"
    elif not is_float:
        if quant is not None and quant.dtype not in (None, info.dtype):
            yield f"is {name}, not the integers of an isFloat 0 dump: {REFUSED}"
        elif (dtype_of(type_word(info, is_float) or "") or BYTES) != info.dtype:
            yield f"is {name}, kept as bytes"
    elif is_complex(info.dtype) or not is_number(info.dtype):
        yield f"is {name}, which float32 cannot hold: {REFUSED}"
    elif is_integer(info.dtype) and quant is not None and not record.constant:
        yield f"is {name}, kept as the float32 it means" if _is_true(info) else f"has no true scale: {REFUSED}"
    elif name != name_of(FLOAT32):
        yield f"is {name}, kept as float32"


def _is_true(info: TensorInfo) -> bool:
    return info.quant is not None and info.quant.exact and scale_fits(info)


def _lost_quant(info: TensorInfo, is_float: bool) -> Iterator[str]:
    word, quant = type_word(info, is_float), info.quant
    if word is None:
        return
    if quant is None:
        if quant_of(word, 0.0, 0) is not None:
            yield "has no scale, read back as integers of an unknown one"
        return
    if np.ndim(quant.scale) or quant.axis is not None:
        yield "has a scale per channel, kept as one"
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


def _lost_text(record: Record) -> Iterator[str]:
    if record.tensor.info.op_type != record.op_type:
        yield "has an operator type, kept as its operator's name"
    if not _fits_a_line(record.name + record.op_type):
        yield f"has a name that no header line can hold: {REFUSED}"


def _fits_a_line(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\n" not in text
