"""Reader and writer of safetensors files: ``uint64 N, N bytes of JSON, values`` (needs the extra ``safetensors``).

The JSON holds dtype, shape and position of each tensor, and a string map ``__metadata__``. A file that sgsdump wrote
has a manifest there (``shared/manifest.py``, key ``sgsdump.json``), whose ``values`` are keys of the file. It holds all
facts of a dump. bfloat16 and the 8-bit floats of the format keep their types; complex numbers become pairs along an
additional axis; other extension types use their carrier type. In any other file, the tensors are outputs named after
their keys, in the order of their values.

``shared/safetensors_file.py`` reads the positions of the values. The library can write only tensors that are all in
memory, so sgsdump writes the file itself, one tensor at a time.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import manifest, npy_file, safetensors_file
from sgsdump.dumps.formats.shared.safetensors_file import LENGTH, READ_NAMES, StoredTensor
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import MappedFile, Source, in_memory, map_file, write_array
from sgsdump.files.names import Taken, label
from sgsdump.tensors.dtypes import bits, carried, carrier, name_of, restored
from sgsdump.tensors.tensor import Tensor, TensorInfo

_MOST_HEADER = 100_000_000
# Newer types are written in their carrier types, which all versions of the library read.
_WRITTEN = {name: code for code, name in READ_NAMES.items() if code not in ("F4", "C64") and "FNUZ" not in code}


def recognises(path: Path, head: bytes) -> bool:
    # The JSON begins with a quoted key; the upper bytes of its length are zero.
    return head[4:8] == b"\0" * 4 and head[8:].lstrip().startswith(b'{"') and int.from_bytes(head[:8], "little") > 1


def read(path: Path) -> Dump:
    """Read a safetensors file as views of the mapped file. Raises FormatError for damage, MissingExtra."""
    data, notes = map_file(path), list[str]()
    stored_tensors, text = safetensors_file.stored_tensors(data, path, manifest.NAME)
    if text is not None:
        entries = manifest.parse(text.encode("utf-8", "replace"), f"{path}: {manifest.NAME}")
        records = [_record(data, stored_tensors, path, *entry) for entry in entries]
        return Dump(records, FORMAT.name, None, path, notes)
    records = []
    for name, stored in stored_tensors.items():
        if stored.dtype is None:
            notes.append(f"left out: tensor {name!r} has an element type that numpy cannot represent")
            continue
        tensor = Tensor(
            TensorInfo(name, stored.shape, stored.dtype), partial(safetensors_file.load, data.source, stored)
        )
        records.append(Record("out", 0, len(records), "", tensor))
    if not records:
        raise FormatError(f"{path} holds no readable tensor{': ' + notes[0] if notes else ''}")
    return Dump(records, FORMAT.name, None, path, notes)


def _record(
    data: MappedFile, stored_tensors: dict[str, StoredTensor], path: Path, record: Record, values: str
) -> Record:
    where = f"{path}: tensor {values[:80]!r}"
    info, stored = record.tensor.info, stored_tensors.get(values)
    if stored is None:
        raise FormatError(f"{where} is missing, but {manifest.NAME} names it")
    expected = _kept(info.dtype)
    if stored.dtype != expected or (info.dtype.kind == "c" and stored.shape[-1:] != (2,)):
        type_name = "an unknown type" if stored.dtype is None else name_of(stored.dtype)
        raise FormatError(f"{where} holds values of type {type_name}, but type {name_of(info.dtype)} is expected")
    manifest.check_count(record, stored.elements * expected.itemsize // info.dtype.itemsize, where)
    return replace(record, tensor=Tensor(info, partial(_load_ours, data.source, stored, info.dtype)))


def _load_ours(data: Source, stored: StoredTensor, dtype: np.dtype) -> np.ndarray:
    array = safetensors_file.load(data, stored)
    if array.dtype == dtype:
        return array
    if dtype.kind == "c":
        return array.view(dtype).reshape(stored.shape[:-1])
    return restored(in_memory(array) if bits(dtype) < 8 else array, dtype)


def _kept(dtype: np.dtype) -> np.dtype:
    """Return the element type in which the writer stores values of ``dtype``."""
    if dtype.kind == "c":
        return np.dtype(f"<f{dtype.itemsize // 2}")
    return dtype.newbyteorder("<") if name_of(dtype) in _WRITTEN else carrier(dtype)


def _as_kept(array: np.ndarray) -> np.ndarray:
    kept = _kept(array.dtype)
    if not array.flags.c_contiguous or array.dtype.newbyteorder("=") != array.dtype:
        array = in_memory(array)
    if array.dtype.kind == "c":
        little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        return little.reshape(*array.shape, 1).view(kept)
    if name_of(array.dtype) in _WRITTEN:
        return np.asarray(array, kept, order="C")
    return np.asarray(carried(array), order="C")


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write the values to an unnamed file in the same folder, then the header and the values to ``path``.

    Raises OutputError if writing fails, ConfigError for values that the format cannot hold.
    """
    taken, entries = Taken(ignores_case=False), []
    taken.free("__metadata__", "")
    header: dict[str, Any] = {"__metadata__": {}}
    path = Path(path)
    with replacing(path) as file, tempfile.TemporaryFile(dir=path.parent) as values:
        for record in records:
            name = taken.free(label(record.name), "")
            entries.append(manifest.entry_of(record, name))
            header[name] = _write_values(values, record.tensor)
            del record
        if not entries:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        header["__metadata__"] = {manifest.NAME: manifest.text_of(entries).decode("ascii")}
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > _MOST_HEADER:
            raise OutputError(
                f"cannot write {path}: the metadata of {len(entries)} tensors exceeds the header limit of safetensors"
            )
        file.write(LENGTH.pack(len(text)) + text)
        values.seek(0)
        shutil.copyfileobj(values, file, 2**20)


def _write_values(file: IO[bytes], tensor: Tensor) -> dict[str, Any]:
    array = _as_kept(npy_file.in_shape(tensor))
    start = file.tell()
    write_array(file, array)
    return {"dtype": _WRITTEN[name_of(array.dtype)], "shape": list(array.shape), "data_offsets": [start, file.tell()]}


FORMAT = Format("safetensors", recognises, read, write, manifest.loses)
