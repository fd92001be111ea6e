"""The SDK dumpers' text output: one file of all tensors, and one file per tensor in ``NHWC/`` and ``NCHW/``.

::

    dumpData/onnx_NHWC_outtensor_dump.txt     all tensors, 4-D ones as NHWC
    dumpData/NHWC/block_dw#(1, 10, 12, 10)    one tensor and its shape, no head line
    dumpData/NCHW/block_dw#(1, 10, 10, 12)    the same as NCHW
    dumpData/shape.txt                        Caffe's: "block_dw<TAB>(1, 10, 10, 12)", "/" in names as "_"

In a name ``/ : * ? < > |`` become ``_``. Source: docs/formats/sigmastar.md#layer-files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.sigmastar.record import header_of
from sgsdump.dumps.formats.sigmastar.record_header import Header, format_header
from sgsdump.dumps.formats.sigmastar.text import text
from sgsdump.dumps.formats.sigmastar.text.variant import FRAMEWORK, LAYER, OddHeader
from sgsdump.files.atomic_write import replacing, replacing_folder
from sgsdump.files.names import Taken, safe
from sgsdump.tensors.types import NCHW, NHWC


def write_text(
    records: Iterable[Record],
    path: Path,
    inputs: Sequence[Record] = (),
    caffe: bool = False,
    folders: tuple[Path, Path] | None = None,
) -> None:
    """Write records, one at a time, as the file of all tensors ``path`` and as one file per tensor beside it.

    inputs   the network's inputs, which get files of their own but are not in ``path``.
    caffe    the files of one tensor have the safe name in their header and count ``inputs`` too, as caffe_dump_data.py
             does; without it, ``input[0] data = {`` begins the values of an input, as in onnx_dump_data.py.
    folders  the NHWC and NCHW folders when they are not beside ``path``; older ones are set aside.
    """
    nhwc, nchw = folders or (path.parent / NHWC, path.parent / NCHW)
    with replacing_folder(nhwc) as nhwc_part, replacing_folder(nchw) as nchw_part:
        places = [(NHWC, nhwc_part, Taken()), (NCHW, nchw_part, Taken())]
        for record in inputs:
            for layout, folder, taken in places:
                header = _header(record, layout)
                _write_layer(record, folder, taken, layout, header if caffe else header._replace(op="input"))
        stream = _with_layer_files(records, places, len(inputs), caffe)
        text.write(stream, path, FRAMEWORK)


def write_shapes(records: Iterable[Record], path: Path) -> None:
    """Write Caffe's ``shape.txt``: the NCHW shape of every tensor, inputs first."""
    with replacing(path) as file:
        for record in records:
            line = f"{record.name.replace('/', '_')}\t{_header(record, NCHW).shape}\n"
            file.write(line.encode("utf-8", "surrogateescape"))


def _with_layer_files(
    records: Iterable[Record], places: list[tuple[str, Path, Taken]], inputs: int, caffe: bool
) -> Iterator[Record]:
    for record in records:
        for layout, folder, taken in places:
            header = _header(record, layout)
            if caffe:
                counted = (header.op_index or 0) + inputs
                header = header._replace(name=safe(header.name), op_type=safe(header.op_type), op_index=counted)
            _write_layer(record, folder, taken, layout, header)
        yield record


def _write_layer(record: Record, folder: Path, taken: Taken, layout: str, header: Header) -> None:
    variant = replace(LAYER, layout=layout, odd={0: OddHeader(record.name, format_header(header))})
    text.write([record], folder / taken.free(safe(record.name), f"#{header.shape}"), variant)


def _header(record: Record, layout: str) -> Header:
    header = header_of(record, True, True, layout)
    return header._replace(shape=tuple(int(size) for size in header.shape or ()))
