"""A dump in parts, and parts as one dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError, ValuesError
from sgsdump.files.names import Taken, file_stem
from sgsdump.tensors.tensor import Tensor

REST = "rest"
_SHOWN = 3


class Part(NamedTuple):
    """A file to be: its name, and its records."""

    file: str
    records: tuple[Record, ...]


def split(dump: Dump, patterns: Sequence[str], ending: str) -> list[Part]:
    """A part for each record, in file order, numbered ``00012_conv1_Relu_0.npz`` so that the files' order is the
    dump's; with shell-style patterns one for each of them (a record goes to the first that fits its name), and
    ``rest``.

    Raises ConfigError for a pattern that gets no tensor.
    """
    taken = Taken()
    if not patterns:
        digits = max(5, len(str(len(dump.records))))
        names = (f"{number:0{digits}}_{file_stem(record.name)}" for number, record in enumerate(dump.records))
        return [Part(taken.free(name, ending), (record,)) for name, record in zip(names, dump.records)]
    groups: dict[str | None, list[Record]] = {pattern: [] for pattern in patterns}
    for record in dump.records:
        fitting = next((pattern for pattern in patterns if fnmatchcase(record.name, pattern)), None)
        groups.setdefault(fitting, []).append(record)
    for pattern in patterns:
        if not groups[pattern]:
            raise ConfigError(f"no tensor is left for {pattern!r}; patterns are tried in the order given")
    stems = [(REST if pattern is None else file_stem(pattern), records) for pattern, records in groups.items()]
    return [Part(taken.free(stem, ending), tuple(records)) for stem, records in stems]


def merge(dumps: Sequence[tuple[str, Dump]], prefix: bool = False) -> list[Record]:
    """The records of several dumps, one dump behind the other, each in its order.

    dumps    label and dump; with ``prefix`` the label and a ``/`` go before every name, so that several runs of one
             model can stand in one dump.

    Operators keep their indexes where no two dumps use one in the same place (parts of one dump, in which a name may
    stand twice), else those of each dump follow those of the dump before. Raises ValuesError when an output or a
    constant of one name is then in two dumps.
    """
    if prefix:
        _check_labels([label for label, _ in dumps])
        dumps = [(label, Dump([_named(record, label) for record in dump.records])) for label, dump in dumps]
    places = Counter(place for _, dump in dumps for place in {_place(record) for record in dump.records})
    if all(count == 1 for count in places.values()):
        return [record for _, dump in dumps for record in dump.records]
    _check_names(dumps)
    merged: list[Record] = []
    first = 0
    for _, dump in dumps:
        merged += [replace(record, op_index=record.op_index + first) for record in dump.records]
        first = 1 + max((record.op_index for record in merged), default=-1)
    return merged


def _place(record: Record) -> tuple[str, int, int, bool]:
    return record.io, record.slot, record.op_index, record.constant


def _named(record: Record, label: str) -> Record:
    tensor = record.tensor
    info = replace(tensor.info, name=f"{label}/{tensor.info.name}")
    return replace(record, tensor=Tensor(info, tensor.raw, tensor.statistics))


def _check_labels(labels: Sequence[str]) -> None:
    for label, count in Counter(labels).items():
        if count > 1:
            raise ConfigError(
                f"{count} of the dumps are called {label!r}, so it cannot go before their names; rename one"
            )


def _check_names(dumps: Sequence[tuple[str, Dump]]) -> None:
    """An input may well be in several: it is where one part of a model reads what another put out."""
    labels: dict[str, str] = {}
    both: dict[str, tuple[str, str]] = {}
    for label, dump in dumps:
        names = {record.name for record in dump.records if record.io == "out" or record.constant}
        both |= {name: (labels[name], label) for name in sorted(names) if name in labels}
        labels |= dict.fromkeys(names, label)
    if both:
        shown = ", ".join(f"{name!r} ({one} and {other})" for name, (one, other) in list(both.items())[:_SHOWN])
        more = ", …" if len(both) > _SHOWN else ""
        raise ValuesError(
            f"{len(both)} names stand in more than one dump: {shown}{more}; --prefix puts the dumps' names before them"
        )
