r"""Reader and writer of dumps with one file per tensor: layer files, and trees of splite_binary_to_binary.

Layer files, beside one file of all tensors (docs/formats/sigmastar.md#layer-files)::

    dumpData/onnx_NHWC_outtensor_dump.txt     all tensors, 4-D ones as NHWC
    dumpData/NHWC/block_dw#(1, 10, 12, 10)    one tensor and its shape, no isFloat line
    dumpData/NCHW/block_dw#(1, 10, 10, 12)    the same tensor as NCHW
    dumpData/shape.txt                        Caffe only: "block_dw<TAB>(1, 10, 10, 12)", "/" in names as "_"

In a name ``/ : * ? < > |`` become ``_``.

A split dump (docs/formats/sigmastar.md#split-dumps)::

    3.block_dw.xx.inputs/input0     op index, name up to the first white space ("/" as "_", without ":")
    3.block_dw.xx.output0/output    slot of an output; the name is the tensor's name
    file := "isFloat: " 0|1 "\n" header size payload                  nothing after the payload

Each input of an operator has a folder with its own name. A name that is too long for a file system is cut and extended
by a hash; the header in the file has the full name. A second tensor with the same path gets ``~2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.sigmastar import text_dump
from sgsdump.dumps.formats.sigmastar.binary import BinVariant
from sgsdump.dumps.formats.sigmastar.record import header_of, payload_of, record_of, stored_dtype
from sgsdump.dumps.formats.sigmastar.record_header import (
    HEAD,
    Header,
    format_header,
    format_size,
    holds_text,
    parse_header,
)
from sgsdump.dumps.formats.sigmastar.text_dump import FRAMEWORK, LAYER, HeaderOverride, TextVariant
from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import make_folder, replacing, replacing_folder
from sgsdump.files.mapped import Source, map_file, source_of
from sgsdump.files.names import Taken, normalised, safe
from sgsdump.tensors.dtypes import is_float
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import NCHW, NHWC

_PATH_IN_TREE = re.compile(r"(\d+)\..*\.xx\.(?:inputs/(input)(\d+)|output(\d+)/(?:output|_data))", re.DOTALL)


def write_text(
    records: Iterable[Record],
    path: Path,
    inputs: Sequence[Record] = (),
    caffe: bool = False,
    folders: tuple[Path, Path] | None = None,
) -> None:
    """Write records one at a time into ``path``, the file of all tensors, and into one file per tensor beside it.

    inputs   model inputs, which get their own files but are not part of ``path``.
    caffe    follow caffe_dump_data.py: headers in the tensor files have the safe name and count ``inputs`` too. If
             False, follow onnx_dump_data.py: ``input[0] data = {`` precedes the values of an input.
    folders  NHWC and NCHW folders if they are not beside ``path``; existing folders are moved aside.
    """
    nhwc, nchw = folders or (path.parent / NHWC, path.parent / NCHW)
    with replacing_folder(nhwc) as nhwc_part, replacing_folder(nchw) as nchw_part:
        targets = [(NHWC, nhwc_part, Taken()), (NCHW, nchw_part, Taken())]
        for record in inputs:
            for layout, folder, taken in targets:
                header = _header(record, layout)
                _write_layer(record, folder, taken, layout, header if caffe else header._replace(op="input"))
        stream = _with_layer_files(records, targets, len(inputs), caffe)
        text_dump.write(stream, path, FRAMEWORK)


def write_shapes(records: Iterable[Record], path: Path) -> None:
    """Write Caffe's ``shape.txt``: the NCHW shape of each tensor, inputs first."""
    with replacing(path) as file:
        for record in records:
            line = f"{record.name.replace('/', '_')}\t{_header(record, NCHW).shape}\n"
            file.write(line.encode("utf-8", "surrogateescape"))


def write_tree(dump: Dump, folder: Path, text: bool = False) -> int:
    """Split a dump into files below ``folder`` and return the number of files; an existing folder is moved aside.

    text  print values like ``splite_dump_binary``; the file of an output is then named ``_data``.
    Raises FormatError or ValuesError for a damaged tensor, OutputError if writing fails.
    """
    taken = Taken()
    with replacing_folder(folder) as root:
        for number, record in enumerate(dump.records):
            file = root / _path_in_tree(record, taken, text)
            make_folder(file.parent)
            if text:
                text_dump.write([record], file, _printed(dump))
            else:
                _write_one(dump, number, file)
    return len(dump.records)


def read_tree(folder: Path) -> Dump:
    """Read the dump that was split into ``folder``, sorted by op index, inputs before outputs, then by slot.

    Raises FormatError if the folder has no such tree, or if a file is damaged.
    """
    read = []
    for file in folder.rglob("*"):
        match = _PATH_IN_TREE.fullmatch(file.relative_to(folder).as_posix())
        if match and file.is_file():
            op_index, is_input, in_slot, out_slot = match.groups()
            read.append((int(op_index), not is_input, int(in_slot or out_slot), str(file)))
    if not read:
        raise FormatError(
            f"{folder} holds no split dump (folders like 3.conv1.xx.output0). Check that splite_* wrote the folder"
        )
    parts = [(_read_one(Path(file)), op_index) for op_index, _, _, file in sorted(read)]
    records = [replace(record, op_index=op_index) for (record, _, _), op_index in parts]
    _, is_float, shaped = parts[0][0]
    return Dump(records, "sigmastar_bin", BinVariant(is_float, shaped), folder)


def _with_layer_files(
    records: Iterable[Record], targets: list[tuple[str, Path, Taken]], inputs: int, caffe: bool
) -> Iterator[Record]:
    for record in records:
        for layout, folder, taken in targets:
            header = _header(record, layout)
            if caffe:
                counted = (header.op_index or 0) + inputs
                header = header._replace(name=safe(header.name), op_type=safe(header.op_type), op_index=counted)
            _write_layer(record, folder, taken, layout, header)
        yield record


def _write_layer(record: Record, folder: Path, taken: Taken, layout: str, header: Header) -> None:
    variant = replace(LAYER, layout=layout, odd={0: HeaderOverride(record.name, format_header(header))})
    text_dump.write([record], folder / taken.free(safe(record.name), f"#{header.shape}"), variant)


def _header(record: Record, layout: str) -> Header:
    header = header_of(record, True, True, layout)
    return header._replace(shape=tuple(int(size) for size in header.shape or ()))


def _path_in_tree(record: Record, taken: Taken, text: bool) -> str:
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
    """Read a file; return its record, whether it holds floats, and whether its header has a shape.

    The payload of an input ends with the file, which the reader of whole dumps would report as damage. Files are
    closed, because a tree may have more files than a process may open.
    """
    with map_file(file) as data:
        head = HEAD.match(data)
        is_float = head is None or head[1] == b"1"
        if head is None or holds_text(data):
            return _read_text(file)
        found = parse_header(data, head.end())
        remaining = len(data) - found.end if found else 0
    dtype = stored_dtype(found.header, is_float) if found else np.dtype(np.uint8)
    if found is None or found.size != remaining or remaining % dtype.itemsize:
        raise FormatError(
            f"{file} is not a complete tensor of a split dump: it is cut off or damaged. Split the dump again"
        )
    header = found.header
    load = partial(_load, data.source, dtype, remaining, found.end)
    return record_of(header, header.op_index or 0, dtype, load), is_float, header.shape is not None


def _load(source: Source, dtype: np.dtype, size: int, offset: int) -> np.ndarray:
    return source.read(offset, size).view(dtype)


def _read_text(file: Path) -> tuple[Record, bool, bool]:
    source = source_of(file)
    dump = text_dump.read(file)
    record = dump.records[0]

    def load() -> np.ndarray:
        source.check()
        return text_dump.read(file).records[0].tensor.raw()

    lazy = Tensor(record.tensor.info, load)
    return replace(record, tensor=lazy), *_style(dump)


def _printed(dump: Dump) -> TextVariant:
    is_float, shaped = _style(dump)
    return TextVariant(is_float=is_float, shaped=shaped, blank=is_float)


def _style(dump: Dump) -> tuple[bool, bool]:
    """Return whether the dump is written as floats, and whether its headers have shapes."""
    if isinstance(dump.variant, (BinVariant, TextVariant)):
        return dump.variant.is_float, dump.variant.shaped
    return all(is_float(record.tensor.info.dtype) for record in dump.records), True
