"""Opening and saving dumps of any format, recognised by their content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import HEAD_BYTES
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import ConfigError, FormatError, SgsdumpError
from sgsdump.tensors.tensor import Tensor


def open_dump(path: str | Path) -> Dump:
    """Read a dump of any known format, recognised by its content. Headers are read now, values when asked for.

    Raises FormatError when the file is missing, empty, damaged or of no known format.
    """
    path = Path(path)
    head = _head(path)
    for format in FORMATS.values():
        if format.recognises(path, head):
            return format.read(path)
    if not head and path.is_file():
        raise FormatError(f"{path} is empty; was the run that wrote it cut off, or is dumpTensor off?")
    if path.is_dir():
        marks = [format.looks_for for format in FORMATS.values() if format.looks_for]
        raise FormatError(f"{path} is a folder, not a dump (looked for: {', '.join(marks)})")
    raise FormatError(f"{path} is not a dump of a known format (known: {', '.join(FORMATS)})")


def save_dump(dump: Dump | Iterable[Tensor | Record], path: str | Path, format: str | None = None) -> None:
    """Write a dump, or a stream of tensors or records (one in memory at a time), whole or not at all.

    format None keeps a Dump's own format and variant, byte for byte; for a stream it means ``sigmastar_bin``.
    """
    own = isinstance(dump, Dump) and bool(dump.format) and format in (None, dump.format)
    name = dump.format if own else (format or "sigmastar_bin")  # type: ignore[union-attr]
    writer = FORMATS[name].write
    if writer is None:
        raise ConfigError(f"format {name} can be read but not written")
    if isinstance(dump, Dump):
        writer(dump.records, Path(path), dump.variant if own else None)
    else:
        writer(as_records(dump), Path(path), None)


def as_records(tensors: Iterable[Tensor | Record]) -> Iterator[Record]:
    """Number plain tensors as the single outputs of operators 0, 1, 2 …; records pass unchanged."""
    for index, item in enumerate(tensors):
        yield item if isinstance(item, Record) else Record("out", 0, index, item.info.op_type, item)


def _head(path: Path) -> bytes:
    if path.is_dir():
        return b""
    if path.exists() and not path.is_file():
        raise FormatError(f"cannot read {path}: it is a device or a pipe; name a file or a folder")
    try:
        with open(path, "rb") as file:
            return file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise FormatError(f"no such file: {path}") from None
    except OSError as error:
        raise SgsdumpError(f"cannot read {path}: {error.strerror}") from None
