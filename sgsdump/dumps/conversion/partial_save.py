"""Saving what a target can hold of a dump, with a report of what it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.conversion.losses import losses
from sgsdump.dumps.conversion.target import Target
from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import SgsdumpError, ValuesError
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.tensor import Tensor

SHOWN = 3
REFUSED = "writing is refused"
# From records to their stored values in the same order, or why they cannot be loaded.
Loading = Callable[[Iterable[Record]], Iterator["np.ndarray | SgsdumpError"]]


def load(records: Iterable[Record]) -> Iterator[np.ndarray | SgsdumpError]:
    """``Loading`` in this process, each when it is asked for."""
    for record in records:
        try:
            yield record.tensor.raw()
        except SgsdumpError as error:  # noqa: PERF203
            yield error


class Saved(NamedTuple):
    """How many tensors were written, and how many were left out."""

    written: int
    left_out: int

    def __str__(self) -> str:
        return f"; {self.left_out} tensors are left out" if self.left_out else ""


def save(
    records: Sequence[Record],
    path: Path,
    target: Target,
    source: str,
    progress: Progress = SILENT,
    strict: bool = False,
    loading: Loading = load,
) -> Saved:
    """Write what can be written, one tensor in memory at a time, whole or not at all.

    source   how the message calls what the records come from.
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
        raise ValuesError(f"nothing is written: {target.format} cannot hold a tensor of {source}; try another --to")
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
            left_out.append((record.name, str(array)))
            continue
        yield replace(record, tensor=Tensor(record.tensor.info, partial(_same, array)))
        del array, record


def reasons(left_out: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each reason of those that ``readable`` left out, with the names of the first."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out:
        names.setdefault(reason.replace(f"tensor {name!r} ", "it "), []).append(repr(name))
    for reason, those in names.items():
        yield f"{len(those)} left out: {', '.join(those[:SHOWN])}{', …' if len(those) > SHOWN else ''}: {reason}"


def unwritable(records: Sequence[Record], target: Target) -> list[Record]:
    """The records that the target refuses."""
    loses = FORMATS[target.format].loses
    refused = {id(record) for record, what in loses(records, target.variant) if REFUSED in what}
    return [record for record in records if id(record) in refused]


def write(records: Iterable[Record], path: Path, target: Target) -> None:
    """Write records as they come, whole or not at all; see ``Format.write``."""
    writer = FORMATS[target.format].write
    assert writer is not None, f"{target.format} is in target_names"
    writer(records, path, target.variant)


def _same(array: np.ndarray) -> np.ndarray:
    return array
