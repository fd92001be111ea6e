"""Commands whose tasks read the user's files where they run: ``--scheduler`` for dumps.

Dumps are not sent to a cluster's workers, as the models of calibrate and tune are: reading them is the work. The
contract is a file system that all machines share, the files under the same path on each. A worker that does not find
them there, or finds other ones, ends the command with one line.
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
SHARED = "--scheduler needs a file system that all machines share, the same paths on each"


def absolute(path: Optional) -> Optional:
    """The path as every machine finds it, whatever folder it works in; links are left as they are."""
    return None if path is None else Path.cwd() / path  # type: ignore[return-value]


def shared(reading: Reading) -> Reading:
    """The same options with the paths as every machine finds them."""
    paths = {"ranges": absolute(reading.ranges), "parse_net": absolute(reading.parse_net)}
    return replace(reading, **paths)  # type: ignore[arg-type]


def in_tasks(items: Iterable[Item], sizes: Iterable[int], most_values: int, most_items: int) -> Iterator[list[Item]]:
    """Neighbours together as one task, large enough to be worth handing over: it ends at ``most_values`` values (each
    item has its size) or ``most_items`` items."""
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
    """How many values a record's tensor has; 0 where the dump does not say."""
    return math.prod(record.tensor.info.shape or (0,))


def on_this_worker(open_files: Callable[[], Opened]) -> Opened:
    """The result of ``open_files``. Raises WorkerError for what this machine cannot open although the user's could."""
    try:
        return open_files()
    except (SgsdumpError, OSError) as error:
        raise WorkerError(
            f"a worker on {socket.gethostname()} cannot open what is open here: {error}; {SHARED}"
        ) from error


def record_at(records: Sequence[Record], index: int, name: str, path: Path) -> Record:
    """A record of the dump at ``path`` by its index. Raises WorkerError where the user's dump has another one there."""
    here = records[index].name if index < len(records) else None
    if here != name:
        raise WorkerError(
            f"{path} on {socket.gethostname()} is another dump than here: it has {here!r} where this one has {name!r}; "
            f"{SHARED}"
        )
    return records[index]
