"""A dump in another format, layout, shape or element type, in parts or merged; and a report of what is lost by it.

Everything is lazy: a record's values are converted when the writer asks for them, one tensor at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record, selected
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.targets import Target, losses
from sgsdump.errors import ConfigError, FileChanged, SgsdumpError, ValuesError
from sgsdump.files.names import Taken, file_stem
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.device import is_device
from sgsdump.tensors.dtypes import is_complex, is_integer, is_number
from sgsdump.tensors.tensor import DEVICE_LAYOUTS, Tensor, in_device_layout, with_original_shape

LAYOUTS = ("logical", "NCHW", "NHWC", "HWCN", *DEVICE_LAYOUTS)
FLOAT32 = np.dtype(np.float32)
SHOWN = 3
# From records to their stored values in the same order, or why they cannot be loaded.
Loading = Callable[[Iterable[Record]], Iterator["np.ndarray | SgsdumpError"]]
REST = "rest"


class Saved(NamedTuple):
    """The numbers of tensors written and left out."""

    written: int
    left_out: int

    def __str__(self) -> str:
        return f"; {self.left_out} tensors are left out" if self.left_out else ""


class Part(NamedTuple):
    """A file to be: its name, and its records."""

    file: str
    records: tuple[Record, ...]


def with_shapes(records: Sequence[Record], shapes: Sequence[tuple[str, tuple[int, ...]]]) -> list[Record]:
    """The records, those in a device's layout with the original shape that the last pattern of their name gives.

    Raises ConfigError for a pattern of no tensor in a device's layout, ValuesError for a shape that does not fit.
    """
    device = {id(record) for record in records if is_device(record.tensor.info.layout)}
    changed: dict[int, Record] = {}
    for pattern, shape in shapes:
        fitting = [record for record in selected(records, [pattern]) if id(record) in device]
        if not fitting:
            raise ConfigError(f"no tensor that fits {pattern!r} is in a device's layout: it has its original shape")
        changed |= {id(record): replace(record, tensor=with_original_shape(record.tensor, shape)) for record in fitting}
    return [changed.get(id(record), record) for record in records]


def in_layout(record: Record, layout: str) -> Record:
    """The record in ``logical``, a plain layout, or a device's; as it is where its own is not known, or is of other
    dimensions.

    Blocks of a device's layout are taken apart where the original shape is known.
    """
    tensor = record.tensor
    with suppress(ValuesError):
        if layout in DEVICE_LAYOUTS:
            return replace(record, tensor=in_device_layout(tensor, layout))
        tensor = tensor.logical()
        if layout != "logical":
            tensor = tensor.in_layout(layout)
    return replace(record, tensor=tensor)


def stays(record: Record, layout: str) -> bool:
    """Whether ``in_layout`` could not do what is asked of it."""
    info = in_layout(record, layout).tensor.info
    if layout in DEVICE_LAYOUTS:
        return info.layout != layout
    if layout == "logical":
        return is_device(info.layout)
    return is_device(info.layout) or (info.shape is not None and len(info.shape) == 4 and info.layout != layout)


def as_float32(record: Record) -> Record:
    """The record with the float32 values it means; text, raw bytes, complex numbers, and integers whose true scale is
    not known as they are."""
    tensor = record.tensor
    info = tensor.info
    coarse = is_integer(info.dtype) and info.quant is not None and not info.quant.exact
    if info.dtype == FLOAT32 or not is_number(info.dtype) or is_complex(info.dtype) or coarse:
        return record
    return replace(record, tensor=Tensor(replace(info, dtype=FLOAT32), tensor.real, tensor.statistics))


def load(records: Iterable[Record]) -> Iterator[np.ndarray | SgsdumpError]:
    """``Loading`` in this process, each when it is asked for."""
    for record in records:
        try:
            yield record.tensor.raw_view()
        except FileChanged:  # noqa: PERF203
            raise
        except SgsdumpError as error:
            yield error


def save(
    records: Sequence[Record],
    path: Path,
    target: Target,
    progress: Progress = SILENT,
    strict: bool = False,
    loading: Loading = load,
) -> Saved:
    """Write what can be written, one tensor in memory at a time, whole or not at all.

    progress  counts the tensors written, and says before anything is written what the target loses, and at the end
              what could not be read.
    strict   write nothing when the target cannot hold everything.
    loading  where values come from, of records that are not statistics alone.

    Raises ValuesError when nothing is left to write or ``strict`` forbids it, OutputError when the disk refuses.
    """
    lost = losses(records, *target)
    for line in lost:
        progress.say(f"{target.format} cannot hold everything: {line}")
    if lost and strict:
        raise ValuesError(f"nothing is written: {target.format} cannot hold everything, and --strict was given")
    refused = {id(record) for record in unwritable(records, target)}
    kept = [record for record in records if id(record) not in refused]
    if not kept:
        raise ValuesError(f"nothing is written: {target.format} cannot hold any of these tensors; try another --to")
    left_out: list[tuple[str, str]] = []
    loaded = loading(record for record in kept if record.tensor.statistics is None)
    write(readable(each(progress, kept, "write", "tensor", len(kept)), left_out, loaded), path, target)
    for line in reasons(left_out):
        progress.say(line)
    return Saved(len(kept) - len(left_out), len(left_out) + len(refused))


def readable(
    records: Iterable[Record],
    left_out: list[tuple[str, str]],
    loaded: Iterator[np.ndarray | SgsdumpError] | None = None,
) -> Iterator[Record]:
    """The records, loaded, one at a time; the name and the reason of each that cannot be loaded go into
    ``left_out``. Tensors with only statistics pass as they are; ``loaded`` has the others' values in their order."""
    for record in records:
        if record.tensor.statistics is not None:
            yield record
            continue
        array = next(load([record]) if loaded is None else loaded)
        if isinstance(array, SgsdumpError):
            why = array.reason_of(record.name)
            left_out.append((record.name, f"it {why}" if array.tensor == record.name else why))
            continue
        yield replace(record, tensor=Tensor(record.tensor.info, partial(np.asarray, array)))
        del array, record


def reasons(left_out: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each reason of those that ``readable`` left out, with the names of the first."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out:
        names.setdefault(reason, []).append(repr(name))
    for reason, those in names.items():
        yield f"{len(those)} left out: {', '.join(those[:SHOWN])}{', …' if len(those) > SHOWN else ''}: {reason}"


def unwritable(records: Sequence[Record], target: Target) -> list[Record]:
    """The records that the target refuses."""
    lost = FORMATS[target.format].loses(records, target.variant)
    refused = {id(loss.record) for loss in lost if loss.refused}
    return [record for record in records if id(record) in refused]


def write(records: Iterable[Record], path: Path, target: Target) -> None:
    """Write records as they come, whole or not at all; see ``Format.write``."""
    writer = FORMATS[target.format].write
    assert writer is not None, f"{target.format} is in target_names"
    writer(records, path, target.variant)


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
    """The records of several dumps, one dump after the other, each in its order.

    dumps    label and dump; with ``prefix`` the label and a ``/`` go before every name, so that several runs of one
             model can stand in one dump.

    Operators keep their indexes where no two dumps use one in the same place (parts of one dump, in which a name may
    stand twice), else those of each dump follow those of the dump before. Raises ValuesError when an output or a
    constant of one name is then in two dumps.
    """
    if prefix:
        _check_labels([label for label, _ in dumps])
        dumps = [(label, Dump([_named(record, label) for record in dump.records])) for label, dump in dumps]
    slots = Counter(slot for _, dump in dumps for slot in {_slot(record) for record in dump.records})
    if all(count == 1 for count in slots.values()):
        return [record for _, dump in dumps for record in dump.records]
    _check_names(dumps)
    merged: list[Record] = []
    first = 0
    for _, dump in dumps:
        merged += [replace(record, op_index=record.op_index + first) for record in dump.records]
        first = 1 + max((record.op_index for record in merged), default=-1)
    return merged


def _slot(record: Record) -> tuple[str, int, int, bool]:
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
        shown = ", ".join(f"{name!r} ({first} and {second})" for name, (first, second) in list(both.items())[:SHOWN])
        more = ", …" if len(both) > SHOWN else ""
        raise ValuesError(
            f"{len(both)} names stand in more than one dump: {shown}{more}; --prefix puts the dumps' names before them"
        )
