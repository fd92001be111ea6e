"""Records and header lines of SigmaStar dumps for tests that state a rule a row."""

from __future__ import annotations

import numpy as np

from sgsdump import Quant, Record, Tensor, TensorInfo
from sgsdump.dumps.formats.sigmastar.record_header import (
    Header,
    format_size,
)

U8, I8, I16, I32, F32 = (np.dtype(word) for word in ("u1", "i1", "<i2", "<i4", "<f4"))
LINES = b"//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] ADD = {\n"


def header(io="out", slot=0, op_index: int | None = 0, **facts) -> Header:
    plain = Header(io, slot, 0.0, 0, "float", "x", False, None, f"op_{io}", op_index, "ADD")
    return plain._replace(**facts)


def plain_record(
    values, name="x", io="out", slot=0, op_index=0, op_type="ADD", constant=False, cut=False, **facts
) -> Record:
    tensor = Tensor.of(name, np.asarray(values), op_type=op_type, **facts)
    return Record(io, slot, op_index, op_type, tensor, constant, cut)


def body(payload=b"1234", size: int | None = None, lines=LINES, ending=b"\n};\n"):
    return lines + format_size(len(payload) if size is None else size) + payload + ending


def integer_record(
    name="x", scale=0.5, dtype=I16, zero=0, op="CONV_2D", io="out", op_index=0, slot=0, **facts
) -> Record:
    info = TensorInfo(name, (1,), np.dtype(dtype), quant=Quant(np.dtype(dtype), scale, zero), op_type=op)
    return Record(io, slot, op_index, op, Tensor(info, lambda: np.zeros(1, dtype)), **facts)
