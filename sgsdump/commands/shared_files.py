"""``--scheduler`` for dumps: tasks that read the user's files on the worker.

Models of calibrate and tune are sent to the workers of a cluster, but dumps are not, because reading them is the work.
All machines must share a file system with the same paths. If a worker does not find the files, or finds other files,
the command ends with an error line.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgsdump.commands.options import Reading
from sgsdump.errors import SgsdumpError, WorkerError

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Record

Item = TypeVar("Item")
Opened = TypeVar("Opened")
Optional = TypeVar("Optional", Path, Path | None)
SHARED = "--scheduler needs a shared file system with the same paths on every machine"


def absolute(path: Optional) -> Optional:
    """Return an absolute path for all machines; links are not resolved."""
    return None if path is None else Path.cwd() / path  # type: ignore[return-value]


def shared(reading: Reading) -> Reading:
    """Return the options with absolute paths."""
    paths = {"ranges": absolute(reading.ranges), "parse_net": absolute(reading.parse_net)}
    readers = tuple((pattern, str(absolute(Path(reader)))) for pattern, reader in reading.reader)
    return replace(reading, reader=readers, **paths)  # type: ignore[arg-type]


def in_tasks(items: Iterable[Item], sizes: Iterable[int], most_values: int, most_items: int) -> Iterator[list[Item]]:
    """Group neighbouring items into tasks of ``most_values`` values (by the size of each item) or ``most_items``."""
    task: list[Item] = []
    values = 0
    for item, size in zip(items, sizes):
        task.append(item)
        values += size
        if values >= most_values or len(task) >= most_items:
            yield task
            task, values = [], 0
    if task:
        yield task


def size_of(record: Record) -> int:
    """Return the number of values of a record's tensor; 0 if unknown."""
    return math.prod(record.tensor.info.shape or (0,))


def on_this_worker(open_files: Callable[[], Opened]) -> Opened:
    """Return the result of ``open_files``. Raises WorkerError if this machine cannot open the files."""
    try:
        return open_files()
    except (SgsdumpError, OSError) as error:
        raise WorkerError(
            f"a worker on {socket.gethostname()} cannot open a file that this machine opened: {error}; {SHARED}"
        ) from error


def record_at(records: Sequence[Record], index: int, name: str, path: Path) -> Record:
    """Return a record of the dump at ``path`` by index. Raises WorkerError if its name differs from the user's dump."""
    here = records[index].name if index < len(records) else None
    if here != name:
        found = (
            f"contains the tensor {here!r} instead of {name!r}" if here is not None else f"lacks the tensor {name!r}"
        )
        raise WorkerError(f"{path} on {socket.gethostname()} is a different dump: it {found}; {SHARED}")
    return records[index]
