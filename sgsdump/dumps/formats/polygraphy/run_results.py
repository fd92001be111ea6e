"""Reader of Polygraphy's RunResults: the file of ``polygraphy run MODEL --onnxrt --save-outputs FILE.json``.

::

    {"lst": [["onnxrt-runner-N0-11/27/26-05:46:29", [
        {"outputs": {"relu1": {"values": {"array": "k05VTVBZ…", "polygraphy_class": "ndarray"},
                               "polygraphy_class": "LazyArray"}, …},
         "runtime": 0.0004, "runner_name": "onnxrt-runner-…", "polygraphy_class": "IterationResult"}, …]], …],
     "polygraphy_class": "RunResults"}

The file lists runners, their iterations, and the outputs of each iteration by name. ``array`` is a ``.npy`` file in
base64 (``shared/npy_file.py``; never unpickled). Older versions mark classes by other keys; the reader ignores them.

All tensors are outputs, in file order. Outputs of the first iteration of the first runner keep their names. Names of
later iterations are ``iteration1/relu1``; names of further runners are ``runner1/relu1`` or
``runner1/iteration1/relu1``. The runner's own name is not used because it contains the time of the run.

The file may be as large as all tensors together. The reader locates the arrays in the mapped file and parses only the
rest as JSON. An array is decoded on request; this needs its size plus four thirds of its size in memory. Outputs that
are not arrays (torch tensors, which are pickles) are skipped with a note.

Sources: https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy, polygraphy/json/serde.py and
polygraphy/comparator/struct.py.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import utf8
from sgsdump.files.json_yaml import json_of
from sgsdump.files.mapped import MappedFile, Source, map_file
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_BYTES = 64 << 20
_ARRAY = re.compile(rb'"array"\s*:\s*"')
_BEGIN = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"lst"\s*:\s*\[')
_HEAD = npy_file.HEAD_BYTES // 3 * 4 + 4


class Place(NamedTuple):
    """Offset and size of an array's base64 text in the file."""

    offset: int
    size: int


def recognises(path: Path, head: bytes) -> bool:
    return _BEGIN.match(head) is not None


def read(path: Path) -> Dump:
    """Read a RunResults file; values are decoded on request. Raises FormatError."""
    data = map_file(path)
    text, places = _without_arrays(data, path)
    document = json_of(text, path)
    notes: list[str] = []
    records: list[Record] = []
    for name, value in _outputs(document, path):
        number = value.get("array") if isinstance(value, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(places):
            notes.append(f"left out: {name[:80]!r} is not a numpy array")
            continue
        tensor = _tensor(data, places[number], name, path)
        records.append(Record("out", 0, len(records), "", tensor))
    if not records:
        raise FormatError(f"{path} holds no array" + (f" ({notes[0]})" if notes else ""))
    return Dump(records, FORMAT.name, None, path, notes)


def _without_arrays(data: MappedFile, path: Path) -> tuple[str, list[Place]]:
    """Return the JSON text with numbers in place of the arrays, and the positions of the arrays.

    The search pattern cannot match inside a JSON string, because the string would escape the quotes.
    """
    parts, places, size, position = list[bytes](), list[Place](), 0, 0
    end = len(data)
    while True:
        match = _ARRAY.search(data, position)
        stop = end if match is None else match.end() - 1
        size += stop - position
        if size > MOST_BYTES:
            raise FormatError(
                f"{path} has more than {MOST_BYTES >> 20} MiB outside its arrays. Check that it is a RunResults file"
            )
        parts.append(data[position:stop])
        if match is None:
            break
        position = data.find(b'"', match.end()) + 1
        if not position:
            raise FormatError(f"{path} is cut off inside an array")
        parts.append(str(len(places)).encode())
        places.append(Place(match.end(), position - 1 - match.end()))
    return utf8(b"".join(parts), path), places


def _outputs(document: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each output of all runners and iterations. Raises FormatError."""
    for runner, entry in enumerate(_items(document.get("lst") if isinstance(document, dict) else None, path)):
        iterations = entry[1] if isinstance(entry, list) and len(entry) == 2 else None
        for number, iteration in enumerate(_items(iterations, path)):
            outputs = iteration.get("outputs") if isinstance(iteration, dict) else None
            if not isinstance(outputs, dict):
                raise FormatError(f"{path} is not a Polygraphy RunResults file: an iteration has no outputs")
            before = (f"runner{runner}/" if runner else "") + (f"iteration{number}/" if number else "")
            for name, value in outputs.items():
                lazy = value.get("values", value) if isinstance(value, dict) else value
                yield before + name, lazy


def _items(value: Any, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"{path} is not a Polygraphy RunResults file: it does not list runners and iterations")
    return value


def _tensor(data: MappedFile, place: Place, name: str, path: Path) -> Tensor:
    where = f"{path}: array {name[:80]!r}"
    padding = data[max(place.offset, place.offset + place.size - 2) : place.offset + place.size].count(b"=")
    head = _decoded(data[place.offset : place.offset + min(place.size, _HEAD)], where)
    header = npy_file.parse_header(head[: npy_file.HEAD_BYTES], place.size // 4 * 3 - padding, where)
    npy_file.check_plain(header, where)
    info = TensorInfo(name, header.shape, header.dtype)
    return Tensor(info, partial(_load, data.source, place, header, where))


def _load(source: Source, place: Place, header: npy_file.Header, where: str) -> np.ndarray:
    """Decode an array. Raises FileChanged if the file has changed since it was opened, FormatError for damage."""
    values = np.frombuffer(_decoded(source.read(place.offset, place.size).data, where), np.uint8)
    flat = values[header.offset : header.end].view(header.dtype)
    return npy_file.shaped(flat, header, header.dtype)


def _decoded(text: bytes | memoryview, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise FormatError(f"{where} is damaged: it is not base64 ({error})") from None


FORMAT = Format("polygraphy", recognises, read)
