"""A dump: the tensors of one run of one model on one input, in file order, and a mapping of them by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

from sgsdump.dumps.outside_operators import OutermostModule, OutsideOperator
from sgsdump.dumps.tables import ShortTable, data_frame, text
from sgsdump.errors import ConfigError, FormatError, NotATensor, hint, one_line
from sgsdump.plugins import as_html
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.tensor import Tensor

Value = tuple[str, int]
# ``Dump.format`` of bare values that the user described (``raw_files.py``): no member of the family.
RAW = "raw"


@dataclass(frozen=True)
class Call:
    """The ``overload`` of torch's schema, "" for the default one, and the argument that each input is, by slot:
    ``self``, ``tensors.1``."""

    overload: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """The operator of one ``op_index`` and its place in the program's network, where the dumping tool recorded that.

    module     the path of the module that it runs in, or that it is: ``layer1.0.conv``; "" for the outermost.
    kind       what it computes, in the words of the library that ran it: ``aten.convolution``, ``Conv2d``, ``Conv``.
    is_module  it is a module, whose operators may be in the dump too.
    values     what it reads ("in", slot) and makes ("out", slot), by whatever tells values of this run apart: what one
               operator makes and another reads is the same. It may name inputs that were not dumped.
    weights    the name of each value that is a weight of the network.
    arguments  those that are no tensors, by name, as JSON: ``{"eps": "1e-05"}``.
    source     the line of the program that called it, ``net.py:28``; "" where that is not known.
    parts      of a value that is a piece of memory into which operators wrote, what they wrote.
    call       which form of it ran and which argument each input is, where that was recorded.
    """

    module: str
    kind: str
    is_module: bool = False
    values: Mapping[Value, Hashable] = field(default_factory=dict, hash=False)
    weights: Mapping[Value, str] = field(default_factory=dict, hash=False)
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    source: str = ""
    call: Call | None = None
    parts: Mapping[Value, tuple[Hashable, ...]] = field(default_factory=dict, hash=False)


Network = Mapping[int, Operator]
# What a run's numbers depend on beside its network and inputs: of a group (versions, variables, settings, random) and a
# name, the value as text.
Environment = Mapping[tuple[str, str], str]


def as_arguments(values: object) -> dict[str, str]:
    """``Operator.arguments`` of what a dumping tool wrote of them; nothing for what is no mapping."""
    if not isinstance(values, Mapping):
        return {}
    return {str(name): json.dumps(value, sort_keys=True, default=str) for name, value in values.items()}


class Damage(str):
    """A note on a file or tensor that is there but cannot be read. A comparison of such a dump ends with status 2."""

    @classmethod
    def left_out(cls, error: FormatError) -> str:
        """Return the note on what a reader leaves out; what is whole and no tensor is not damaged."""
        text = f"left out: {error}"
        return text if isinstance(error, NotATensor) else cls(text)


ROWS_SHOWN = 20
NOTES_SHOWN = 3
_LONGEST = 60
_COLUMNS = ("name", "io", "shape", "dtype", "layout", "op")


@dataclass(frozen=True)
class Record:
    """One tensor in its place in the file: input or output ``slot`` of operator ``op_index``.

    ``op_index`` is the number of a layer wherever one is printed; a comparison takes the benchmark's, as it takes its
    names. The same tensor stands once as an output and again as the input of each consumer. ``constant`` marks weights,
    biases and shape parameters. ``cut`` marks a header that the old writer cut at 255 bytes: its op_index is inferred,
    and its op_type, constant and the end of its name may be lost. ``unwritten`` marks memory to which the program had
    written nothing yet, or not to all of it: it has no values, and is compared with nothing.
    """

    io: Literal["in", "out"]
    slot: int
    op_index: int
    op_type: str
    tensor: Tensor
    constant: bool = False
    cut: bool = False
    unwritten: bool = False

    @property
    def name(self) -> str:
        return self.tensor.info.name


@runtime_checkable
class Variant(Protocol):
    """A variant that also fits some of the records it was read with."""

    def of_part(self) -> Any:
        """The variant without what belongs to single records of the whole file."""


def _as_note(note: str) -> str:
    line = one_line(note)
    return note if note == line else Damage(line) if isinstance(note, Damage) else line


class _Once:
    """A network that is found out when it is first asked for, and kept."""

    def __init__(self, find: Callable[[], Mapping[int, Operator]]):
        self._find = find
        self._found: Mapping[int, Operator] | None = None

    def __call__(self) -> Mapping[int, Operator]:
        if self._found is None:
            self._found = self._find()
        return self._found


class Dump(Mapping[str, Tensor]):
    """The records in file order (``records``, a line each in ``sgsdump show``); as a mapping, their tensors by name.

    The mapping has every name that ``sgsdump show`` lists, once, in file order. ``dump[name]`` is the first output of
    that name, else the first network input, else the first constant; ``outputs``, ``inputs`` and ``constants`` are the
    three apart. A name that comes again (a later output, the input of each consumer) is in ``records``.

    format variant   how the file was written: saving the dump again gives its bytes back.
    network          asked when it is needed, tells where the operators stand in the program's network
                     (``Operator``), by op_index; {} where that was not recorded.
    environment      asked when it is needed, tells what else the run's numbers depend on; {} where that was not
                     recorded.
    before           asked when it is needed, tells which operators ran before this round of a program, outside its
                     modules; () where that was not recorded.
    outermost        the same, tells what the outermost module of the round took and gave.
    notes            messages from the reader, one line each: files skipped, bytes left over, tensors not dumped.

    >>> import numpy as np
    >>> from sgsdump import Tensor
    >>> dump = Dump([Record("in", 0, 0, "Relu", Tensor.of("data", np.float32([-1, 2]))),
    ...              Record("out", 0, 0, "Relu", Tensor.of("relu1", np.float32([0, 2])))])
    >>> list(dump), list(dump.outputs), "data" in dump
    (['data', 'relu1'], ['relu1'], True)
    >>> dump["relu1"].real().tolist()
    [0.0, 2.0]
    >>> dump.select("relu*")
    <Dump: 1 tensor (1 output)>
      name   io   shape  dtype    layout  op
      relu1  out  [2]    float32          Relu
    """

    def __init__(
        self,
        records: Sequence[Record],
        format: str = "",
        variant: Any = None,
        path: Path | None = None,
        notes: Iterable[str] = (),
        network: Callable[[], Mapping[int, Operator]] = dict,
    ):
        self.records: tuple[Record, ...] = tuple(records)
        self.format = format
        self.variant = variant
        self.path = path
        self.network = network if network is dict or isinstance(network, _Once) else _Once(network)
        self.environment: Callable[[], Environment] = dict
        self.before: Callable[[], tuple[OutsideOperator, ...]] = tuple
        self.outermost: Callable[[], OutermostModule] = OutermostModule
        # A note that is one line already stays as it is: it may be of a type that says what it is about.
        self.notes: tuple[str, ...] = tuple(_as_note(note) for note in notes)
        names = [record.tensor.info.name for record in self.records]
        outputs: dict[str, Tensor] = {}
        for name, record in zip(names, self.records):
            if record.io == "out" and not record.constant and name not in outputs:
                outputs[name] = record.tensor
        inputs: dict[str, Tensor] = {}
        constants: dict[str, Tensor] = {}
        for name, record in zip(names, self.records):
            if name not in outputs:
                (constants if record.constant else inputs).setdefault(name, record.tensor)
        self._outputs, self._inputs, self._constants = map(MappingProxyType, (outputs, inputs, constants))
        by_name = {**constants, **inputs, **outputs}
        self._by_name = {name: by_name[name] for name in names}

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """The outputs of the dump's operators, without constants."""
        return self._outputs

    @property
    def inputs(self) -> Mapping[str, Tensor]:
        """Variable tensors that no operator of the dump puts out: the network's inputs."""
        return self._inputs

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """Weights, biases and shape parameters."""
        return self._constants

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The notes on what is there but cannot be read."""
        return tuple(note for note in self.notes if isinstance(note, Damage))

    def select(self, *patterns: str) -> Dump:
        """The dump of the records whose names fit one of the shell-style patterns (``*``, ``?``, ``[ab]``), with the
        same tensors. Raises ConfigError for a pattern that fits none."""
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise ConfigError(f"select takes patterns as separate strings, not a {type(pattern).__name__}")
        records = selected(self.records, patterns)
        if len(records) == len(self.records):
            return self.with_records(records, self.variant)
        variant = self.variant.of_part() if isinstance(self.variant, Variant) else None
        return self.with_records(records, variant)

    def with_records(self, records: Sequence[Record], variant: Any) -> Dump:
        """The same dump with these records."""
        dump = Dump(records, self.format, variant, self.path, self.notes, self.network)
        return dump.in_environment(self.environment, self.before, self.outermost)

    def in_environment(
        self,
        environment: Callable[[], Environment],
        before: Callable[[], tuple[OutsideOperator, ...]] = tuple,
        outermost: Callable[[], OutermostModule] = OutermostModule,
    ) -> Dump:
        """This dump, which tells what else its run's numbers depend on."""
        self.environment, self.before, self.outermost = environment, before, outermost
        return self

    def to_pandas(self) -> Any:
        """A pandas DataFrame of facts, a row for each record; no values are read. Raises MissingExtra without pandas.

        Columns: name, io, constant, shape (a tuple or None), dtype, layout, op_index, slot, op.
        """
        columns = ["name", "io", "constant", "shape", "dtype", "layout", "op_index", "slot", "op"]
        rows = [
            (r.name, r.io, r.constant, r.tensor.shape, name_of(r.tensor.dtype), r.tensor.layout, r.op_index, r.slot, op)
            for r, op in ((record, record.tensor.info.op_type or record.op_type) for record in self.records)
        ]
        return data_frame(rows, columns)

    def close(self) -> None:
        """Let go of the files. Asking a tensor of this dump for values then raises ValuesError; arrays made before
        stay valid, and a mapped file is unmapped when the last of them is gone."""
        owner = f"the dump {self.path}" if self.path else "its dump"
        for record in self.records:
            record.tensor.close(owner)

    def __enter__(self) -> Dump:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"no tensor {name!r} in this dump{hint(str(name), self._by_name)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return text(self._table())

    def _repr_html_(self) -> str | None:
        """The same table for a notebook."""
        return as_html("table", self._table())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _title(self) -> str:
        where = f" of {self.path}" if self.path else ""
        kinds = (("output", self._outputs), ("input", self._inputs), ("constant", self._constants))
        counts = ", ".join(_counted(len(names), kind) for kind, names in kinds if names)
        format = f" {self.format}," if self.format else ""
        return _printed(f"Dump{where}:{format} {_counted(len(self), 'tensor')}{f' ({counts})' if counts else ''}")

    def _table(self) -> ShortTable:
        first: dict[str, Record] = {}
        for record in self.records:
            if self._by_name[record.name] is record.tensor:
                first.setdefault(record.name, record)
            if len(first) == ROWS_SHOWN:
                break
        rows = [_row(record) for record in first.values()]
        return ShortTable(self._title(), _COLUMNS, rows, len(self) - len(first))


def selected(records: Sequence[Record], patterns: Sequence[str]) -> list[Record]:
    """The records whose names fit one of the shell-style patterns, all when there is none.

    Raises ConfigError for a pattern that fits none.
    """
    names = {record.name for record in records}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"no tensor fits {pattern!r}{hint(pattern, list(names))}")
    return [r for r in records if not patterns or any(fnmatchcase(r.name, pattern) for pattern in patterns)]


def with_tensors(dump: Dump, tensor_of: Callable[[Record], Tensor]) -> Dump:
    """The same dump, but in each record the tensor that ``tensor_of`` makes of it."""
    records = [replace(record, tensor=tensor_of(record)) for record in dump.records]
    return dump.with_records(records, dump.variant)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _row(record: Record) -> tuple[str, ...]:
    info = record.tensor.info
    name, op = (_short(text) for text in (info.name, info.op_type or record.op_type))
    shape = "" if info.shape is None else str(list(info.shape))
    return name, "const" if record.constant else record.io, shape, name_of(info.dtype), _short(info.layout or ""), op


def _printed(text: str) -> str:
    """On one line, without the lone surrogates of names in another encoding, which no notebook can show."""
    return one_line(text).encode("utf-8", "backslashreplace").decode()


def _short(text: str) -> str:
    text = _printed(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 3]}…{text[-(_LONGEST * 2 // 3 - 1) :]}"


def note_lines(path: str | Path, notes: Sequence[str]) -> list[str]:
    """The first notes of a dump, a line each that begins with where it is, and how many more there are."""
    lines = [f"Note on {path}: {note}" for note in notes[:NOTES_SHOWN]]
    more = len(notes) - NOTES_SHOWN
    return lines + ([f"Notes on {path}: {more} more, which sgsdump show lists"] if more > 0 else [])
