"""Small files read whole, as bytes or text: what exceeds the limit is some other file, named by mistake."""

from __future__ import annotations

from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import read_start, reading

TEXT_LIMIT = 64 << 20


def read_bytes(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """The whole file. Raises ConfigError when it cannot be read or is larger than ``limit`` bytes."""
    with reading(path, ConfigError):
        data = read_start(path, limit + 1)
    if len(data) > limit:
        raise ConfigError(f"cannot read {path}: it is larger than {limit >> 20} MiB, so it is not the file meant here")
    return data


def decode(data: bytes, path: Path) -> str:
    """UTF-8 text; bytes that are not UTF-8 (names in another encoding) survive as surrogates, as in file names.

    Raises ConfigError for what is no text at all.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path} is saved as UTF-16; save it as UTF-8 (plain text)")
    if b"\0" in data:
        raise ConfigError(f"{path} is a binary file, not text")
    return data.decode("utf-8", "surrogateescape")


def quoted(text: str) -> str:
    """``text`` in quotes and cut to 80 characters, control characters escaped: for use in a one-line message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
