"""The ``Dump`` and ``Record`` classes: the tensors of one run of one model on one input, in file order and by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from sgsdump.dumps.outside_operators import OutermostModule, OutsideOperator
from sgsdump.dumps.tables import ShortTable, data_frame, text
from sgsdump.errors import ConfigError, FormatError, NotATensor, hint, one_line
from sgsdump.plugins import as_html
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.tensor import Tensor

Value = tuple[str, int]
# ``Dump.format`` of raw files (``raw_files.py``), of a user's reader (``own_reader.py``) and of folders with one tensor
# per file. Only "folder" is also a name in ``FORMATS``.
RAW, READER, FOLDER = "raw", "reader", "folder"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Call:
    """An overload of a torch operator and the names of its tensor arguments.

    overload  name of the overload in the schema; "" for the default overload.
    inputs    argument name of each input, by slot: ``self``, ``tensors.1``.
    """

    overload: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """One operator or module (one ``op_index``), with its position in the model if the dumping tool records positions.

    module     path of the module that contains the operator; for a module, its own path: ``layer1.0.conv``; "" for
               the outermost module.
    kind       operator type in the vocabulary of its library: ``aten.convolution``, ``Conv2d``, ``Conv``.
    is_module  True for a module. The operators inside the module may be in the dump too.
    values     identity of each value that the operator reads ("in", slot) or writes ("out", slot). If operator B
               reads an output of operator A, this input of B has the same identity as the output of A. Inputs that
               were not dumped may have an identity too.
    weights    name of each value that is a weight of the model.
    arguments  non-tensor arguments by name, as JSON: ``{"eps": "1e-05"}``.
    source     program line of the call, ``net.py:28``; "" if unknown.
    parts      for a value that is a memory buffer, the identities of the values that operators wrote into the buffer.
    call       overload and argument names, if recorded.
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
# Facts beside model and inputs that influence a run's values: (group, name) -> value as text. Groups: versions,
# variables, settings, random.
Environment = Mapping[tuple[str, str], str]
# Code around lines of the program: place, ``net.py:28`` -> (number of the first line, lines).
SourceLines = Mapping[str, tuple[int, tuple[str, ...]]]


def as_arguments(values: object) -> dict[str, str]:
    """Return ``Operator.arguments`` from the mapping that a dumping tool wrote; {} if ``values`` is not a mapping."""
    if not isinstance(values, Mapping):
        return {}
    return {str(name): json.dumps(value, sort_keys=True, default=str) for name, value in values.items()}


class Damage(str):
    """Note on a file or tensor that exists but cannot be read.

    If a dump has such a note, its comparison exits with status 2.
    """

    @classmethod
    def left_out(cls, error: FormatError) -> str:
        """Return a note about a skipped file or tensor.

        If the file is intact but contains no tensors, the note is a plain ``str``. Otherwise the note is a ``Damage``.
        """
        text = f"left out: {error}"
        return text if isinstance(error, NotATensor) else cls(text)


ROWS_SHOWN = 20
NOTES_SHOWN = 3
_LONGEST = 60
_COLUMNS = ("name", "io", "shape", "dtype", "layout", "op")


@dataclass(frozen=True)
class Record:
    """One tensor of a dump and its position: input or output ``slot`` of operator ``op_index``.

    A tensor has one record as an output, and one record for each operator that reads the tensor.

    Attributes
    ----------
    io : {"in", "out"}
        Side of the operator.
    slot : int
        Position among the operator's inputs or outputs, from 0.
    op_index : int
        Number of the operator, which reports print as the layer number. A report of a comparison prints the
        benchmark's number.
    op_type : str
        Type or name of the operator, as stored in the file; "" if unknown.
    tensor : Tensor
        Metadata and values of the tensor. Values are loaded on request.
    constant : bool
        True for weights, biases and shape parameters.
    cut : bool
        True if an old SDK version cut the header of the record at 255 bytes. ``op_index`` is then inferred;
        ``op_type``, ``constant`` and the end of the name may be lost.
    unwritten : bool
        True if the tensor was dumped before the program had written all of the tensor's memory. The record has no
        values and is never compared.
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
        """Name of the tensor."""
        return self.tensor.info.name


@runtime_checkable
class Variant(Protocol):
    """Details of a file's layout, with data about individual records such as the original header of a record."""

    def of_part(self) -> Any:
        """Return a copy without the data about individual records, for a dump of only some of the records."""


def _as_note(note: str) -> str:
    line = one_line(note)
    return note if note == line else Damage(line) if isinstance(note, Damage) else line


class _Once(Generic[Result]):
    """A function without arguments whose result is computed on the first call and cached."""

    def __init__(self, find: Callable[[], Result]):
        self._find = find
        self._found: Result | None = None

    def __call__(self) -> Result:
        if self._found is None:
            self._found = self._find()
        return self._found


class Dump(Mapping[str, Tensor]):
    """The tensors of one run: ``records`` in file order, and a read-only mapping from name to tensor.

    The keys of the mapping are the tensor names in file order, without duplicates. ``dump[name]`` returns the first
    output with that name. If no output has that name, ``dump[name]`` returns the first model input with that name, or
    else the first constant with that name. The mapping leaves out all other tensors with that name, such as later
    outputs and inputs of operators. ``records`` contains all tensors.

    Parameters
    ----------
    records : sequence of Record
        All records in file order.
    format : str
        Name of the file format; "" for a dump made in memory.
    variant : object
        Details of the file's layout. Saving with the same format and variant reproduces the file byte for byte.
    path : Path or None
        File or folder of the dump.
    notes : iterable of str
        Messages of the reader: skipped files, surplus bytes, tensors without values.
    network : callable
        Function that returns the operators by ``op_index`` (``Operator``). The function is called at most once, when
        the operators are first needed.

    Attributes
    ----------
    records : tuple of Record
        All records in file order.
    notes : tuple of str
        Messages of the reader, one line each.
    network : callable
        Returns the operators by ``op_index``; {} if the dump does not record them.
    environment : callable
        Returns what else can change the values of the run: versions, environment variables, settings and the random
        state. {} if not recorded.
    before : callable
        Returns the operators that ran outside any module, between the previous round (call of the model) and this
        round; () if not recorded.
    outermost : callable
        Returns the inputs and outputs of the round's outermost module.
    source_lines : callable
        Returns excerpts of the program's code. Each key is the program line around which the excerpt was taken, such as
        ``net.py:28``. Each value is a pair: the number of the excerpt's first line, and the lines. {} if the dump has
        no code.

    Examples
    --------
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
        self.source_lines: Callable[[], SourceLines] = dict
        # _as_note keeps the type of a note (Damage).
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
        """Operator outputs by name, without constants."""
        return self._outputs

    @property
    def inputs(self) -> Mapping[str, Tensor]:
        """Model inputs by name: non-constant tensors that no operator of the dump produces."""
        return self._inputs

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """Weights, biases and shape parameters by name."""
        return self._constants

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Notes about files and tensors that exist but cannot be read."""
        return tuple(note for note in self.notes if isinstance(note, Damage))

    def select(self, *patterns: str) -> Dump:
        """Return a dump with only the records whose names match at least one pattern.

        Parameters
        ----------
        *patterns : str
            Shell-style patterns (``*``, ``?``, ``[ab]``). Without patterns, all records are returned.

        Returns
        -------
        Dump
            The matching records in file order. Tensors are shared with this dump, not copied.

        Raises
        ------
        ConfigError
            If a pattern is not a string or matches no tensor name.
        """
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise ConfigError(f"select: pass each pattern as a separate string, not as {type(pattern).__name__}")
        records = selected(self.records, patterns)
        if len(records) == len(self.records):
            return self.with_records(records, self.variant)
        variant = self.variant.of_part() if isinstance(self.variant, Variant) else None
        return self.with_records(records, variant)

    def with_records(self, records: Sequence[Record], variant: Any) -> Dump:
        """Return a copy of the dump with the given records and format variant, and the same notes, path and network.

        Parameters
        ----------
        records : sequence of Record
            Records of the new dump, in file order.
        variant : object
            Format variant of the new dump; None for the format's default variant.

        Returns
        -------
        Dump
        """
        dump = Dump(records, self.format, variant, self.path, self.notes, self.network)
        return dump.in_environment(self.environment, self.before, self.outermost, self.source_lines)

    def in_environment(
        self,
        environment: Callable[[], Environment],
        before: Callable[[], tuple[OutsideOperator, ...]] = tuple,
        outermost: Callable[[], OutermostModule] = OutermostModule,
        source_lines: Callable[[], SourceLines] = dict,
    ) -> Dump:
        """Replace the four functions that describe the dumped run, and return this dump.

        Parameters
        ----------
        environment : callable
            New value of the attribute ``environment``.
        before : callable
            New value of the attribute ``before``.
        outermost : callable
            New value of the attribute ``outermost``.
        source_lines : callable
            New value of the attribute ``source_lines``. The function is called once, when needed.

        Returns
        -------
        Dump
            This dump, modified in place.
        """
        self.environment, self.before, self.outermost = environment, before, outermost
        self.source_lines = source_lines if isinstance(source_lines, _Once) else _Once(source_lines)
        return self

    def to_pandas(self) -> Any:
        """Return a table of the records' metadata. No tensor values are read.

        Returns
        -------
        pandas.DataFrame
            One row per record in file order. Columns: name, io, constant, shape (tuple or None), dtype (name), layout
            (or None), op_index, slot, op (operator type).

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        columns = ["name", "io", "constant", "shape", "dtype", "layout", "op_index", "slot", "op"]
        rows = [
            (r.name, r.io, r.constant, r.tensor.shape, name_of(r.tensor.dtype), r.tensor.layout, r.op_index, r.slot, op)
            for r, op in ((record, record.tensor.info.op_type or record.op_type) for record in self.records)
        ]
        return data_frame(rows, columns)

    def close(self) -> None:
        """Close the dump's files.

        Notes
        -----
        After ``close``, reading values of the dump's tensors raises ValuesError. Arrays that were read before stay
        valid. A memory-mapped file is unmapped when the last array that refers to the file is deleted.
        """
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
        """Return the table of ``__repr__`` as HTML for notebooks."""
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
    """Return the records whose names match a shell-style pattern; all records if there are no patterns.

    Raises ConfigError for a pattern without a match.
    """
    names = {record.name for record in records}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"no tensor name matches {pattern!r}{hint(pattern, list(names))}")
    return [r for r in records if not patterns or any(fnmatchcase(r.name, pattern) for pattern in patterns)]


def with_tensors(dump: Dump, tensor_of: Callable[[Record], Tensor]) -> Dump:
    """Return a copy of the dump with each record's tensor replaced by the result of ``tensor_of(record)``."""
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
    """Return the text on one line. Escape lone surrogates (undecodable names), because notebooks reject them."""
    return one_line(text).encode("utf-8", "backslashreplace").decode()


def _short(text: str) -> str:
    text = _printed(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 3]}…{text[-(_LONGEST * 2 // 3 - 1) :]}"


def note_lines(path: str | Path, notes: Sequence[str]) -> list[str]:
    """Return the first notes of a dump, each prefixed with ``path``, and a line with the number of further notes."""
    lines = [f"Note on {path}: {note}" for note in notes[:NOTES_SHOWN]]
    more = len(notes) - NOTES_SHOWN
    return lines + ([f"Notes on {path}: {more} more; to list them: sgsdump show"] if more > 0 else [])
