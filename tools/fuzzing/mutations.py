"""Damage to files: a few small edits, blind ones and ones that keep a file's outer form (an archive's directory, a
length in front of a header, valid JSON), so that the damage reaches the code behind it."""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

Edit = Callable[[bytes, bytes, Random], bytes]

NUMBERS = [
    *(b"-1", b"0", b"1", b"255", b"65536", b"2147483648", b"4294967295", b"-2147483649", b"9223372036854775807"),
    *(b"18446744073709551616", b"281474976710656", b"1e999", b"-1e999", b"nan", b"inf", b"1e-400", b"0x10", b"1_000"),
    *(b"007", b"3.5", b"", b" ", "٣".encode(), "²".encode(), b"9" * 320, b"9" * 5000, b"1" + b"0" * 4400),
]
BYTES = b"\0\1\x7f\x80\xff\n\r,;:={}[]()\"'$%/\\-.\t "
TEXTS = ["", "/", "..", "../../x", "x" * 300, "\n", "\0", "\ud800", "Größe", "float32", "int4", "\x85", "NaN", "out"]
LEAVES: list[Any] = [None, True, -1, 0, 2**31, 2**63, 2**64, 10**30, -(10**400), 1e308, 0.5, [], {}, [[]], [None] * 40]
_DIGITS = re.compile(rb"-?[0-9][0-9.]*(?:e[-+]?[0-9]+)?")
_NESTED = 20_000
_MOST_BYTES = 2**17


def mutated(data: bytes, donor: bytes, rng: Random) -> bytes:
    """``data`` with one to eight edits; ``donor`` is another file's content, for crossing."""
    form = _form(data)
    if form is not None and rng.random() < 0.6:
        data = form(data, donor, rng)
        if rng.random() < 0.8:
            return data
    return blindly(data, donor, rng)


def blindly(data: bytes, donor: bytes, rng: Random) -> bytes:
    """``data`` with edits that know nothing of its form."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        data = rng.choice(BLIND)(data, donor, rng)[:_MOST_BYTES]
    return data


def _place(data: bytes, rng: Random) -> int:
    """A byte anywhere, as often one near the beginning or the end, where lengths and directories stand."""
    where = rng.random()
    if where < 0.35:
        return rng.randrange(min(len(data), 96) or 1)
    if where < 0.5:
        return max(0, len(data) - 1 - rng.randrange(96))
    return rng.randrange(len(data) or 1)


def _block(data: bytes, rng: Random) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 16, 64, 300)))


def _flip(data: bytes, donor: bytes, rng: Random) -> bytes:
    if not data:
        return b"\1"
    at = _place(data, rng)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _set(data: bytes, donor: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes([rng.choice(BYTES)]) + data[at + 1 :]


def _cut(data: bytes, donor: bytes, rng: Random) -> bytes:
    return data[: _place(data, rng)]


def _drop(data: bytes, donor: bytes, rng: Random) -> bytes:
    start, end = _block(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, donor: bytes, rng: Random) -> bytes:
    start, end = _block(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 30)) + data[end:]


def _move(data: bytes, donor: bytes, rng: Random) -> bytes:
    start, end = _block(data, rng)
    at = _place(data, rng)
    return data[:at] + data[start:end] + data[at + end - start :]


def _cross(data: bytes, donor: bytes, rng: Random) -> bytes:
    return data[: _place(data, rng)] + donor[_place(donor, rng) :]


def _graft(data: bytes, donor: bytes, rng: Random) -> bytes:
    start, end = _block(donor, rng)
    at = _place(data, rng)
    return data[:at] + donor[start:end] + data[at:]


def _length(data: bytes, donor: bytes, rng: Random) -> bytes:
    """A little-endian number of 1 to 8 bytes set to an extreme, or to something around the file's size."""
    size = rng.choice((1, 2, 4, 4, 8, 8))
    near = len(data) + rng.randrange(-16, 17)
    extremes = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**40, near, 2**20)
    at = _place(data, rng)
    return data[:at] + (rng.choice(extremes) % 256**size).to_bytes(size, "little") + data[at + size :]


def _varint(data: bytes, donor: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return (
        data[:at] + rng.choice((b"\xff" * 9 + b"\1", b"\x80\x80\x80\x80\x20", b"\xff" * 12, b"\x80\0")) + data[at + 1 :]
    )


def _number(data: bytes, donor: bytes, rng: Random) -> bytes:
    found = _DIGITS.search(data, _place(data, rng)) or _DIGITS.search(data)
    if found is None:
        return data
    return data[: found.start()] + rng.choice(NUMBERS) + data[found.end() :]


def _run(data: bytes, donor: bytes, rng: Random) -> bytes:
    """One byte many times over: what takes the square of its length."""
    at = _place(data, rng)
    return data[:at] + bytes([rng.choice(BYTES + b"09aA#")]) * rng.choice((10, 300, 5000, 30_000)) + data[at:]


def _line(data: bytes, donor: bytes, rng: Random) -> bytes:
    """A line twice, gone, or exchanged with the next."""
    start = data.rfind(b"\n", 0, _place(data, rng)) + 1
    end = data.find(b"\n", start) + 1 or len(data)
    after = data.find(b"\n", end) + 1 or len(data)
    line = rng.choice((data[start:end] * 2, b"", data[end:after] + data[start:end]))
    return data[:start] + line + data[(after if len(line) == after - start > end - start else end) :]


def _not_text(data: bytes, donor: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\0")) + data[at:]


BLIND: tuple[Edit, ...] = (
    *(_flip, _set, _cut, _drop, _repeat, _move, _cross, _graft),
    *(_length, _length, _varint, _number, _number, _line, _run, _not_text),
)


def _form(data: bytes) -> Edit | None:
    """The edit that keeps the outer form of such a file; None for one without."""
    if data.startswith(b"PK\3\4"):
        return _zip
    if data.startswith(b"\x93NUMPY"):
        return _npy
    if data[:64].lstrip()[:1] in (b"{", b"["):
        return _json
    if 0 < int.from_bytes(data[:8], "little") <= len(data) - 8:
        return _prefixed
    return None


def _prefixed(data: bytes, donor: bytes, rng: Random) -> bytes:
    """uint64 length, header, payload: an edit of the header, the length made right."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end]
    edit = _json if header[:1] == b"{" and rng.random() < 0.7 else blindly
    header = edit(header, donor[8:], rng)
    return len(header).to_bytes(8, "little") + header + data[end:]


def _npy(data: bytes, donor: bytes, rng: Random) -> bytes:
    """An edit of a .npy header or of its values."""
    end = 10 + int.from_bytes(data[8:10], "little")
    if rng.random() < 0.2:
        return data[:end] + blindly(data[end:], donor, rng)
    header = rng.choice((_number, _number, _set, _drop, _dtype))(data[10:end], donor, rng)
    return data[:8] + (len(header) % 65536).to_bytes(2, "little") + header + data[end:]


def _dtype(data: bytes, donor: bytes, rng: Random) -> bytes:
    types = ("<f8", ">f4", "|O", "V2", "<U9", "|S0", "<U999999999", "<c16", "<M8[s]", "f4,f4", "|b1", "(2,)f4", "?", "")
    return re.sub(rb"'descr': '[^']*'", f"'descr': '{rng.choice(types)}'".encode(), data)


def _json(data: bytes, donor: bytes, rng: Random) -> bytes:
    """Valid JSON with one of its values, or a key, another one; now and then nested beyond reason."""
    if rng.random() < 0.003:
        return data[: _place(data, rng)] + rng.choice((b"[", b'{"a":')) * _NESTED
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return blindly(data, donor, rng)
    for _ in range(rng.choice((1, 1, 2))):
        document = _edited(document, rng)
    try:
        return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return data


def _edited(node: Any, rng: Random) -> Any:
    """A copy of ``node`` with one edit somewhere in it."""
    if not isinstance(node, dict | list) or not node or rng.random() < 0.06:
        return _other(node, rng)
    if isinstance(node, list):
        at, what = rng.randrange(len(node)), rng.random()
        if what < 0.06:
            return node[:at] + node[at + 1 :]
        if what < 0.12:
            return node + [node[at]] * rng.choice((1, 2, 50))
        return [*node[:at], _edited(node[at], rng), *node[at + 1 :]]
    key, what = rng.choice(list(node)), rng.random()
    if what < 0.06:
        return {name: value for name, value in node.items() if name != key}
    if what < 0.1:
        return {rng.choice(TEXTS) if name == key else name: value for name, value in node.items()}
    return {**node, key: _edited(node[key], rng)}


def _other(leaf: Any, rng: Random) -> Any:
    if isinstance(leaf, str) and leaf[:1] in ("{", "[") and rng.random() < 0.9:
        # JSON within JSON: the manifest in a safetensors file
        return _json(leaf.encode("utf-8", "replace"), b"", rng).decode("utf-8", "replace")
    if isinstance(leaf, int | float) and abs(leaf) < 2**64 and rng.random() < 0.5:
        return rng.choice((-leaf, leaf + 1, leaf * 1000, str(leaf), float(leaf)))
    if isinstance(leaf, str) and rng.random() < 0.5:
        return rng.choice((leaf + "x", leaf[:-1], leaf.upper(), rng.choice(TEXTS)))
    return rng.choice(LEAVES + TEXTS)


def _zip(data: bytes, donor: bytes, rng: Random) -> bytes:
    """An archive whose directory is right again after an edit of one member's content, name or packing."""
    members = _unzipped(data)
    if not members:
        return blindly(data, donor, rng)
    at, what = rng.randrange(len(members)), rng.random()
    written = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w") as archive:
        warnings.simplefilter("ignore")
        for number, (name, content) in enumerate(members):
            if number == at and what < 0.7:
                content = mutated(content, donor, rng)
            elif number == at and what < 0.8:
                name = rng.choice(("../../x.npy", "/x.npy", "x" * 300 + ".npy", "", "sgsdump.json", ".npy", "a\nb.npy"))
            elif number == at and what < 0.85:
                continue
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED if rng.random() < 0.3 else zipfile.ZIP_STORED
            archive.writestr(member, content)
    found = written.getvalue()
    if rng.random() < 0.3:
        # Sizes, offsets and methods in the directory at the end.
        start = max(found.rfind(b"PK\1\2"), 0)
        found = found[:start] + _length(found[start:], donor, rng)
    return found


@lru_cache(maxsize=256)
def _unzipped(data: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(info.filename, archive.read(info)) for info in archive.infolist()]
    except (OSError, ValueError, zipfile.BadZipFile, RuntimeError):
        return []
