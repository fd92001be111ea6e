"""A dump split into a tree of folders, one file per tensor, as the SDK's ``splite_binary_to_binary`` lays them out.

::

    3.block_dw.xx.inputs/input0     op index, name up to the first white space ("/" as "_", ":" left out)
    3.block_dw.xx.output0/output    the slot of an output; the name is the tensor's own
    file := "isFloat: " 0|1 "\n" header size payload                   nothing after the payload

All inputs of an operator have folders of their own names. Names too long for a file system are cut and keep a hash;
the header in the file has the whole name. A second tensor of one place gets ``~2``. Source:
docs/formats/sigmastar.md#split-dumps.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.sigmastar.binary import BinVariant
from sgsdump.dumps.formats.sigmastar.record import header_of, payload_of, record_of, stored_dtype
from sgsdump.dumps.formats.sigmastar.record_header import HEAD, format_header, format_size, holds_text, parse_header
from sgsdump.dumps.formats.sigmastar.text import text as sigmastar_text
from sgsdump.dumps.formats.sigmastar.text.variant import TextVariant
from sgsdump.dumps.io import open_dump
from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import make_folder, replacing, replacing_folder
from sgsdump.files.mapped import map_file
from sgsdump.files.names import Taken, normalised, safe
from sgsdump.tensors.dtypes import is_float
from sgsdump.tensors.tensor import Tensor

_PLACE = re.compile(r"(\d+)\..*\.xx\.(?:inputs/(input)(\d+)|output(\d+)/(?:output|_data))", re.DOTALL)


def write_tree(dump: Dump, folder: Path, text: bool = False) -> int:
    """Split a dump into ``folder``, an older one set aside; returns the number of files.

    text  print the values, as ``splite_dump_binary`` does; an output's file is then called ``_data``.
    Raises FormatError or ValuesError for a damaged tensor, OutputError when the disk refuses.
    """
    taken = Taken()
    with replacing_folder(folder) as root:
        for number, record in enumerate(dump.records):
            file = root / _place(record, taken, text)
            make_folder(file.parent)
            if text:
                sigmastar_text.write([record], file, _printed(dump))
            else:
                _write_one(dump, number, file)
    return len(dump.records)


def read_tree(folder: Path) -> Dump:
    """The dump that was split into ``folder``, by op index, inputs before outputs, by slot.

    Raises FormatError when the folder holds no such tree, or a file in it is damaged.
    """
    read = []
    for file in folder.rglob("*"):
        place = _PLACE.fullmatch(str(file.relative_to(folder)))
        if place and file.is_file():
            op_index, is_input, in_slot, out_slot = place.groups()
            read.append((int(op_index), not is_input, int(in_slot or out_slot), str(file)))
    if not read:
        raise FormatError(f"{folder} holds no split dump (folders like 3.conv1.xx.output0); was it made by splite_*?")
    parts = [(_read_one(Path(file)), op_index) for op_index, _, _, file in sorted(read)]
    records = [replace(record, op_index=op_index) for (record, _, _), op_index in parts]
    _, is_float, shaped = parts[0][0]
    return Dump(records, "sigmastar_bin", BinVariant(is_float, shaped), folder)


def _place(record: Record, taken: Taken, text: bool) -> str:
    output = f"output{record.slot}/{'_data' if text else 'output'}"
    ending = output if record.io == "out" else f"inputs/input{record.slot}"
    return taken.free(f"{record.op_index}.{safe(normalised(record.name))}", f".xx.{ending}")


def _write_one(dump: Dump, number: int, file: Path) -> None:
    record, (is_float, shaped) = dump.records[number], _style(dump)
    payload = payload_of(record, is_float)
    lines = format_header(header_of(record, shaped, is_float)) + format_size(payload.nbytes)
    odd = dump.variant.odd.get(number) if isinstance(dump.variant, BinVariant) else None
    with replacing(file) as out:
        out.write(b"isFloat: %d\n" % is_float)
        out.write(odd.header if odd else lines)
        out.write(payload.data)


def _read_one(file: Path) -> tuple[Record, bool, bool]:
    """The record of a file, and whether it is of floats and its header has a shape.

    Unlike a dump's, an input's payload here ends with the file, which a reader of dumps calls damage. No file stays
    open: a tree may have more of them than a process may open.
    """
    with map_file(file) as data:
        head = HEAD.match(data)
        is_float = head is None or head[1] == b"1"
        if head is None or holds_text(data):
            return _read_text(file)
        header, size, start = parse_header(data, head.end()) or (None, None, 0)
        left = len(data) - start
    dtype = stored_dtype(header, is_float) if header else np.dtype(np.uint8)
    if header is None or size != left or left % dtype.itemsize:
        raise FormatError(f"{file} is not one whole tensor of a split dump; it is cut off or damaged, split again")
    load = partial(np.fromfile, file, dtype, left // dtype.itemsize, offset=start)
    return record_of(header, header.op_index or 0, dtype, load), is_float, header.shape is not None


def _read_text(file: Path) -> tuple[Record, bool, bool]:
    dump = open_dump(file)
    record = dump.records[0]
    lazy = Tensor(record.tensor.info, lambda: open_dump(file).records[0].tensor.raw())
    return replace(record, tensor=lazy), *_style(dump)


def _printed(dump: Dump) -> TextVariant:
    is_float, shaped = _style(dump)
    return TextVariant(is_float=is_float, shaped=shaped, blank=is_float)


def _style(dump: Dump) -> tuple[bool, bool]:
    """Whether a dump is written as floats, and whether its headers have shapes."""
    if isinstance(dump.variant, (BinVariant, TextVariant)):
        return dump.variant.is_float, dump.variant.shaped
    return all(is_float(record.tensor.info.dtype) for record in dump.records), True
