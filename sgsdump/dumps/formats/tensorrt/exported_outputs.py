"""Reader of the JSON file that ``trtexec --exportOutput=FILE`` of TensorRT writes.

::

    [
      { "name" : "prob"
      , "dimensions" : "1x10"
      , "values" : [ 0.0861729, 0.0612263, … ]
      }
    , { "name" : …
      }
    ]

The numbers have six significant digits and no type: they are read as float32. Infinite values and NaN are printed as
``inf`` and ``nan``, so the file may not be valid JSON; the reader looks for the heads of the tensors instead. Values
are parsed on request. All tensors are outputs.

Source: https://github.com/NVIDIA/TensorRT, samples/common/sampleReporting.cpp. No file of trtexec was available.
"""

from __future__ import annotations

import json
import math
import re
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.dumps.formats.shared.text_numbers import floats
from sgsdump.errors import FormatError
from sgsdump.files.mapped import Source, map_file
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_TENSORS = 100_000
_TENSOR = re.compile(
    rb'\{\s*"name"\s*:\s*("(?:[^"\\\n]|\\.){0,4096}")\s*,\s*"dimensions"\s*:\s*"(\d{0,18}(?:x\d{1,18}){0,31})"'
    rb'\s*,\s*"values"\s*:\s*\['
)
_BEGIN = re.compile(rb'\s*\[\s*\{\s*"name"\s*:\s*"(?:[^"\\\n]|\\.)*"\s*,\s*"dimensions"\s*:\s*"')
_END = re.compile(rb"\]\s*\}\s*")
_TYPE = np.dtype(np.float32)


def recognises(path: Path, head: bytes) -> bool:
    return _BEGIN.match(head) is not None


def read(path: Path) -> Dump:
    """Read a file; values are parsed on request. Raises FormatError if it has no complete tensor."""
    data = map_file(path)
    notes: list[str] = []
    records: list[Record] = []
    position = 0
    while (match := _TENSOR.search(data, position)) is not None:
        if len(records) == MOST_TENSORS:
            raise FormatError(f"{path} has more than {MOST_TENSORS} tensors")
        between = bytes(data[position : min(match.start(), position + 80)]).strip()
        if between != (b"," if records else b"["):
            notes.append(Damage(f"{between[:40].decode('utf-8', 'replace')!r} before a tensor is left out"))
        end = data.find(b"]", match.end())
        closed = _END.match(data, end) if end >= 0 else None
        if closed is None:
            break
        position = closed.end()
        try:
            tensor = _tensor(data.source, match[1], match[2], match.end(), end - match.end(), path)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        records.append(Record("out", 0, len(records), "", tensor))
    if bytes(data[position : position + 80]).strip() != b"]":
        notes.append(Damage(f"the file is cut off or damaged after {len(records)} tensors"))
    if not records:
        raise FormatError(f"{path} has no complete tensor{f' ({notes[0]})' if notes else ''}")
    return Dump(records, FORMAT.name, None, path, notes)


def _tensor(source: Source, name: bytes, sizes: bytes, offset: int, size: int, path: Path) -> Tensor:
    try:
        text = str(json.loads(name))
    except ValueError:
        text = name[1:-1].decode("utf-8", "replace")
    try:
        shape = checked_shape(int(part) for part in sizes.split(b"x") if part)
    except FormatError as error:
        raise FormatError(f"{path}: tensor {text[:80]!r}: {error}") from None
    # A value takes a digit and a comma at least.
    if 2 * math.prod(shape) - 1 > size:
        raise FormatError(f"{path}: tensor {text[:80]!r} has fewer values than its shape {list(shape)} needs")
    return Tensor(TensorInfo(text, shape, _TYPE), partial(_load, source, offset, size, shape, text))


def _load(source: Source, offset: int, size: int, shape: tuple[int, ...], name: str) -> np.ndarray:
    try:
        values = floats(source.read(offset, size).tobytes(), b",")
    except ValueError:
        raise FormatError("has something other than numbers", tensor=name) from None
    if values.size != math.prod(shape):
        raise FormatError(
            f"has {values.size} values, but its shape {list(shape)} has a different number of elements", tensor=name
        )
    return values.reshape(shape)


FORMAT = Format("tensorrt_outputs", recognises, read)
