"""Printing one record of a string dump (the grammar: ``text.py``)."""

from __future__ import annotations

from typing import IO

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.sigmastar.record import header_of, payload_of
from sgsdump.dumps.formats.sigmastar.record_header import format_header, format_size
from sgsdump.dumps.formats.sigmastar.text.values import LeftOut
from sgsdump.dumps.formats.sigmastar.text.variant import TextVariant

PER_ROW = 16
CHUNK = 4096 * PER_ROW


def write_record(file: IO[bytes], record: Record, number: int, variant: TextVariant) -> None:
    odd = variant.odd.get(number)
    if odd is not None and odd.name == record.name:
        file.write(odd.lines)
    else:
        file.write(format_header(header_of(record, variant.shaped, variant.is_float, variant.layout)))
    payload = _payload(record, variant)
    if variant.style != "sim":
        file.write(format_size(payload.nbytes))
    if variant.style == "framework" or (variant.style == "sim" and variant.blank):
        file.write(b"\n")
    for start in range(0, payload.size, CHUNK):
        file.write(_rows(payload[start : start + CHUNK], signed_nan=variant.style == "sim"))
    if payload.size % PER_ROW and variant.style != "framework":
        file.write(b"\n")
    file.write({"sim": b"\n};\n", "framework": b"\n}\n", "tflite": b"};\n"}[variant.style])


def _payload(record: Record, variant: TextVariant) -> np.ndarray:
    """The float32 values to print, or the bytes; none where the file that was read leaves them out as well."""
    if variant.is_float:
        return payload_of(record, True, variant.layout)
    try:
        return payload_of(record, False, variant.layout).view(np.uint8)
    except LeftOut:
        return np.empty(0, np.uint8)


def _rows(values: np.ndarray, signed_nan: bool) -> bytes:
    """Rows of 16 values; the C printf of the simulators prints a NaN's sign, the dumpers' Python does not."""
    form = "%6d, " if values.dtype == np.uint8 else "%.6f, "
    full, rest = divmod(values.size, PER_ROW)
    rows = (form * PER_ROW + "\n") * full + form * rest
    if signed_nan and values.dtype != np.uint8 and np.any(np.isnan(values) & np.signbit(values)):
        rows = rows.replace("%.6f", "%s")
        printed = ["-nan" if v != v and s else f"{v:.6f}" for v, s in zip(values.tolist(), np.signbit(values))]
        return (rows % tuple(printed)).encode()
    return (rows % tuple(values.tolist())).encode()
