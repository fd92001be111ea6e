"""Conversion of dumps to another format, layout, shape or element type; splitting, merging, and reports of losses.

All conversions are lazy: the values of a record are converted when the writer reads them, one tensor at a time.
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
# Function that loads records: yields for each, in order, its stored values or the error that prevents loading.
Loading = Callable[[Iterable[Record]], Iterator["np.ndarray | SgsdumpError"]]
REST = "rest"


class Saved(NamedTuple):
    """Numbers of tensors written and left out."""

    written: int
    left_out: int

    def __str__(self) -> str:
        return f"; {self.left_out} tensors are left out" if self.left_out else ""


class Part(NamedTuple):
    """Name and records of a file to write."""

    file: str
    records: tuple[Record, ...]


def with_shapes(records: Sequence[Record], shapes: Sequence[tuple[str, tuple[int, ...]]]) -> list[Record]:
    """Return the records; tensors in a device layout get the original shape of the last matching pattern.

    Raises ConfigError if a pattern matches no tensor in a device layout, ValuesError if a shape does not fit.
    """
    device = {id(record) for record in records if is_device(record.tensor.info.layout)}
    changed: dict[int, Record] = {}
    for pattern, shape in shapes:
        fitting = [record for record in selected(records, [pattern]) if id(record) in device]
        if not fitting:
            raise ConfigError(
                f"no tensor that matches {pattern!r} is in a device layout, so no original shape can be set"
            )
        changed |= {id(record): replace(record, tensor=with_original_shape(record.tensor, shape)) for record in fitting}
    return [changed.get(id(record), record) for record in records]


def in_layout(record: Record, layout: str) -> Record:
    """Return the record in ``logical``, in a plain layout or in a device layout.

    The record is unchanged if its own layout is unknown or has other dimensions. Blocks of a device layout are unpacked
    if the original shape is known.
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
    """Return whether ``in_layout`` cannot convert the record to the layout."""
    info = in_layout(record, layout).tensor.info
    if layout in DEVICE_LAYOUTS:
        return info.layout != layout
    if layout == "logical":
        return is_device(info.layout)
    return is_device(info.layout) or (info.shape is not None and len(info.shape) == 4 and info.layout != layout)


def as_float32(record: Record) -> Record:
    """Return the record with real float32 values.

    Text, raw bytes, complex numbers, and integers with an unknown true scale stay unchanged.
    """
    tensor = record.tensor
    info = tensor.info
    coarse = is_integer(info.dtype) and info.quant is not None and not info.quant.exact
    if info.dtype == FLOAT32 or not is_number(info.dtype) or is_complex(info.dtype) or coarse:
        return record
    return replace(record, tensor=Tensor(replace(info, dtype=FLOAT32), tensor.real, tensor.statistics))


def load(records: Iterable[Record]) -> Iterator[np.ndarray | SgsdumpError]:
    """Implement ``Loading`` in this process, record by record."""
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
    """Write all writable records atomically, with one tensor in memory at a time.

    progress  counts written tensors; reports before writing what the target loses, and at the end which tensors could
              not be read.
    strict    write nothing if the target cannot hold everything.
    loading   loads the values of records that hold more than statistics.

    Raises ValuesError if no record can be written or ``strict`` forbids writing, OutputError if writing fails.
    """
    lost = losses(records, *target)
    for line in lost:
        progress.say(f"{target.format} cannot hold everything: {line}")
    if lost and strict:
        raise ValuesError(f"nothing is written: {target.format} cannot hold everything, and --strict was given")
    refused = {id(record) for record in unwritable(records, target)}
    kept = [record for record in records if id(record) not in refused]
    if not kept:
        raise ValuesError(
            f"nothing is written: {target.format} cannot hold any of these tensors. Select another format with --to"
        )
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
    """Yield the records with loaded values, one at a time; append (name, reason) of unreadable ones to ``left_out``.

    Tensors with only statistics pass unchanged. ``loaded`` yields the values of the other records in order.
    """
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
    """Yield a line per reason why ``readable`` left tensors out, with the first names."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out:
        names.setdefault(reason, []).append(repr(name))
    for reason, those in names.items():
        yield (
            f"tensors omitted from the output: {len(those)} "
            f"({', '.join(those[:SHOWN])}{', …' if len(those) > SHOWN else ''}): {reason}"
        )


def unwritable(records: Sequence[Record], target: Target) -> list[Record]:
    """Return the records that the target cannot hold."""
    lost = FORMATS[target.format].loses(records, target.variant)
    refused = {id(loss.record) for loss in lost if loss.refused}
    return [record for record in records if id(record) in refused]


def write(records: Iterable[Record], path: Path, target: Target) -> None:
    """Write records one by one and atomically; see ``Format.write``."""
    writer = FORMATS[target.format].write
    assert writer is not None, f"{target.format} is in target_names"
    writer(records, path, target.variant)


def split(dump: Dump, patterns: Sequence[str], ending: str) -> list[Part]:
    """Split a dump into parts: one per record or, with shell-style patterns, one per pattern and ``rest``.

    Parts of single records are numbered (``00012_conv1_Relu_0.npz``), so that sorted files keep the order of the dump.
    A record belongs to the first pattern that matches its name. Raises ConfigError for a pattern without a tensor.
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
            raise ConfigError(
                f"pattern {pattern!r} matches no remaining tensor, because each tensor belongs to the "
                "first pattern that matches. Reorder or remove patterns"
            )
    stems = [(REST if pattern is None else file_stem(pattern), records) for pattern, records in groups.items()]
    return [Part(taken.free(stem, ending), tuple(records)) for stem, records in stems]


def merge(dumps: Sequence[tuple[str, Dump]], prefix: bool = False) -> list[Record]:
    """Return the records of several dumps, dump by dump, each in file order.

    dumps   pairs of label and dump.
    prefix  prepend ``LABEL/`` to each name, so that one dump can hold several runs of a model.

    If no two dumps use the same operator position (parts of one dump, where names may repeat), operators keep their
    indexes. Otherwise the indexes of each dump continue after those of the previous dump. Raises ValuesError if two
    dumps then have an output or constant of the same name.
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
                f"{count} dumps have the name {label!r}, but --prefix requires unique names. Rename the dumps"
            )


def _check_names(dumps: Sequence[tuple[str, Dump]]) -> None:
    """Raise ValuesError if several dumps have the same output or constant. Parts of a model may share inputs."""
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
            f"{len(both)} names occur in more than one dump: {shown}{more}. Make them unique with --prefix"
        )
