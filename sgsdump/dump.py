"""A dump: the tensors of one run of one model on one input, in file order, and a mapping of its outputs by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sgsdump.errors import ConfigError, FormatError, SgsdumpError, one_line
from sgsdump.family import hint
from sgsdump.format import HEAD_BYTES, formats
from sgsdump.tensor import Tensor


@dataclass(frozen=True)
class Record:
    """One tensor in its place in the file: input or output ``slot`` of operator ``op_index``.

    The same tensor stands once as an output and again as the input of each consumer. ``constant`` marks weights,
    biases and shape parameters. ``cut`` marks a header that the old writer cut at 255 bytes: its op_index is inferred,
    and its op_type, constant and the end of its name may be lost.
    """

    io: Literal["in", "out"]
    slot: int
    op_index: int
    op_type: str
    tensor: Tensor
    constant: bool = False
    cut: bool = False

    @property
    def name(self) -> str:
        return self.tensor.info.name


class Dump(Mapping[str, Tensor]):
    """Records in file order; as a mapping, the output tensors by name.

    When several output records bear one name, ``dump[name]`` is the **first** of them in file order (a later one is
    reachable through ``records``). Names that are never an output stand in ``inputs`` (the network's inputs) or
    ``constants``. ``format`` and ``variant`` say how the file was written: saving it again gives its bytes back.
    ``notes`` is what the reader wants said, a line each: files skipped, bytes left over, tensors the run did not dump.
    """

    def __init__(
        self,
        records: Sequence[Record],
        format: str = "",
        variant: Any = None,
        path: Path | None = None,
        notes: Iterable[str] = (),
    ):
        self.records: tuple[Record, ...] = tuple(records)
        self.format = format
        self.variant = variant
        self.path = path
        self.notes: tuple[str, ...] = tuple(map(one_line, notes))
        self._outputs: dict[str, Tensor] = {}
        for record in self.records:
            if record.io == "out" and not record.constant:
                self._outputs.setdefault(record.name, record.tensor)

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Variable tensors that no operator of the dump puts out: the network's inputs."""
        return self._first(constant=False)

    @property
    def constants(self) -> dict[str, Tensor]:
        """Weights, biases and shape parameters, by name."""
        return self._first(constant=True)

    def _first(self, constant: bool) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for record in self.records:
            if record.constant == constant and record.name not in self._outputs:
                found.setdefault(record.name, record.tensor)
        return found

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._outputs[name]
        except KeyError:
            raise KeyError(f"no output tensor {name!r} in this dump{hint(name, self._outputs)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        where = f" of {self.path}" if self.path else ""
        return f"<Dump{where}: {len(self.records)} records, {len(self)} outputs>"


def open_dump(path: str | Path) -> Dump:
    """Read a dump of any known format, recognised by its content. Headers are read now, values when asked for.

    Raises FormatError when the file is missing, empty, damaged or of no known format.
    """
    path = Path(path)
    head = _head(path)
    for format in formats().values():
        if format.recognises(path, head):
            return format.read(path)
    if not head and path.is_file():
        raise FormatError(f"{path} is empty; was the run that wrote it cut off, or is dumpTensor off?")
    if path.is_dir():
        marks = [format.looks_for for format in formats().values() if format.looks_for]
        raise FormatError(f"{path} is a folder, not a dump (looked for: {', '.join(marks)})")
    raise FormatError(f"{path} is not a dump of a known format (known: {', '.join(formats())})")


def save_dump(dump: Dump | Iterable[Tensor | Record], path: str | Path, format: str | None = None) -> None:
    """Write a dump, or a stream of tensors or records (one in memory at a time), whole or not at all.

    format None keeps a Dump's own format and variant, byte for byte; for a stream it means ``sigmastar_bin``.
    """
    own = isinstance(dump, Dump) and bool(dump.format) and format in (None, dump.format)
    name = dump.format if own else (format or "sigmastar_bin")  # type: ignore[union-attr]
    writer = formats()[name].write
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
