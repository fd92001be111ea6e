"""The offline image (.img): a header, followed by the fixed model as a .sim file.

docs/formats/sim.md describes the layout. The hardware commands after the fixed model are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgsdump.errors import FormatError, ModelError
from sgsdump.files.flatbuffer import Buffer
from sgsdump.fixedpoint.sim.file import DTYPES, IMAGE, SimFile, mapped, of_bytes

MAGIC = b"SGSI"
_MODEL = 0x2000
_LENGTH, _WORKING_MEMORY, _VERSION, _VERSION_BYTES = 0x131C, 0x1320, 0x136E, 64
_COMMANDS, _HASH, _HASH_BYTES, _PAGE, _MACS = 0x1324, 0x132C, 32, 0x1362, 0x1366
# Offsets of the records of inputs and outputs, and of their number.
_INPUTS, _OUTPUTS = (0x004, 0x98C), (0x990, 0x1318)
_RECORD = struct.Struct("<8i2i")
_MOST_RECORDS = 61
_HEADER_BYTES = 5036


@dataclass(frozen=True)
class ImageEnd:
    """An input or output in the header: eight dimensions, and the channels per pixel in memory (``stride``)."""

    dtype: np.dtype
    stride: int
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Image:
    """An offline image: the fixed ``model``, and fields of the header.

    memory    bytes of working memory.
    commands  bytes of the hardware's commands.
    page      bytes of a page.
    version   of the SDK that compiled the image.
    macs      multiplications of a run.
    hash      hexadecimal digits.
    """

    model: SimFile
    model_bytes: int
    memory: int
    commands: int
    page: int
    version: str
    macs: int
    hash: str
    inputs: tuple[ImageEnd, ...]
    outputs: tuple[ImageEnd, ...]


def read(path: Path | str) -> Image:
    """Read an image. Raises ModelError for another or a damaged file, or an unknown layout."""
    path = Path(path)
    data = mapped(path)
    try:
        if data[:4] != MAGIC or len(data) < _MODEL + 8:
            raise ModelError(f"{path} is not an offline image: the identifier SGSI is missing, or the file is cut off")
        length, memory, commands, page = (
            struct.unpack_from("<I", data, place)[0] for place in (_LENGTH, _WORKING_MEMORY, _COMMANDS, _PAGE)
        )
        if _MODEL + length > len(data):
            raise FormatError(f"has {len(data)} bytes, but its model ends at byte {_MODEL + length}")
        version = bytes(data[_VERSION : _VERSION + _VERSION_BYTES]).partition(b"\0")[0].decode("ascii", "replace")
        macs = struct.unpack_from("<Q", data, _MACS)[0]
        digits = bytes(data[_HASH : _HASH + _HASH_BYTES]).hex()
        inputs, outputs = (tuple(_ends(data, *place)) for place in (_INPUTS, _OUTPUTS))
        model = of_bytes(path, bytes(data[_MODEL : _MODEL + length]))
    except FormatError as error:
        raise ModelError(f"{path}: the image {error}. Is the file cut off or damaged? Compile it again") from None
    if model.kind != IMAGE:
        raise ModelError(f"{path}: the image holds a .sim model of unknown kind {model.kind!r}")
    return Image(model, length, memory, commands, page, version, macs, digits, inputs, outputs)


def _ends(data: Buffer, place: int, count_at: int) -> Iterator[ImageEnd]:
    """Yield the inputs or outputs. Raises FormatError."""
    count = struct.unpack_from("<I", data, count_at)[0]
    if count > _MOST_RECORDS:
        raise FormatError(f"declares {count} inputs or outputs, but at most {_MOST_RECORDS} are allowed")
    for index in range(count):
        *shape, stride, kind = _RECORD.unpack_from(data, place + index * _RECORD.size)
        if kind not in DTYPES:
            raise FormatError(f"has an input or output of the unknown type {kind}")
        yield ImageEnd(DTYPES[kind], stride, tuple(shape))


def header_text(image: Image) -> str:
    """Return the lines that the SDK's ``parse_img`` prints of the header.

    SGS_FASRRUN_MODEL_SIZE is missing, because its position is unknown.
    """
    return "".join(f"{line}\n" for line in _header_lines(image))


def _header_lines(image: Image) -> Iterator[str]:
    yield f"SGS_HEADER size {_HEADER_BYTES}"
    yield f"SGS_MAGIC {MAGIC.decode()}"
    yield f"SGS_SDK_VERSION {image.version}"
    for title, name, ends in (("INPUT", "Input", image.inputs), ("OUTPUT", "output", image.outputs)):
        yield f"SGS_{title}_SIZE {len(ends)}"
        for index, end in enumerate(ends):
            yield f"{name}[{index}]:"
            yield f"  |---Type {str(end.dtype).upper()}"
            yield f"  |---Stride {end.stride}"
            yield f"  |---Shape: {' x '.join(map(str, end.shape))}"
    yield f"SGS_MODEL_SIZE {image.model_bytes}"
    yield f"SGS_OFFLINE_CMD_SIZE {image.commands}"
    yield f"SGS_BUFFER_SIZE {image.memory}"
    yield f"SGS_MACS {image.macs}"
    yield f"SGS_PAGE_SIZE {image.page}"
    yield f"SGS_HASH_VALUE:0x{image.hash}"
