"""Torch files written opcode by opcode, as no torch would."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping


def text(word: str) -> bytes:
    data = word.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def number(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 8) // 8 or 1, "little", signed=True)
    return b"\x8b" + len(data).to_bytes(4, "little") + data


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key: str, type_name: str = "FloatStorage", elements: int = 4, view: bytes = b"") -> bytes:
    """A reference to a storage; ``view``: (key, first element, elements) of a view in the older form, or None."""
    of = b"ctorch\n" + type_name.encode() + b"\n"
    return b"(" + text("storage") + of + text(key) + text("cpu") + number(elements) + view + b"tQ"


def tensor(
    key: str = "0",
    shape: tuple[int, ...] = (4,),
    strides: tuple[int, ...] = (1,),
    offset: int = 0,
    of: bytes = b"",
    function: str = "torch._utils\n_rebuild_tensor_v2",
) -> bytes:
    arguments = (of or storage(key)) + number(offset) + numbers(shape) + numbers(strides) + b"\x89}"
    return b"c" + function.encode() + b"\n(" + arguments + b"tR"


def pickled(body: bytes) -> bytes:
    return b"\x80\2" + body + b"."


def named(tensors: Mapping[str, bytes]) -> bytes:
    """A dict of pickled values."""
    return b"}(" + b"".join(text(name) + value for name, value in tensors.items()) + b"u"


def archive(body: bytes, storages: Mapping[str, bytes], more: Mapping[str, bytes] | None = None) -> bytes:
    """A file whose ``data.pkl`` is ``body``."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name, data in {"data.pkl": pickled(body), **(more or {})}.items():
            written.writestr(zipfile.ZipInfo(f"x/{name}"), data)
        for key, data in storages.items():
            written.writestr(zipfile.ZipInfo(f"x/data/{key}"), data)
    return file.getvalue()


def legacy(body: bytes, storages: Mapping[str, bytes], item: int = 4, order: str = "little") -> bytes:
    """A file of the older form."""
    facts = b"}(" + text("little_endian") + (b"\x88" if order == "little" else b"\x89") + b"u"
    keys = b"](" + b"".join(map(text, storages)) + b"e"
    magic = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
    pickles = b"".join(map(pickled, (magic, number(1001), facts, body, keys)))
    counts = ((len(data) // item).to_bytes(8, order) + data for data in storages.values())  # type: ignore[arg-type]
    return pickles + b"".join(counts)
