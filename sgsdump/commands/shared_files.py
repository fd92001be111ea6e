"""Commands whose tasks read the user's files where they run: ``--scheduler`` for dumps.

Dumps are not sent to a cluster's workers, as the models of calibrate and tune are: reading them is the work. The
contract is a file system that all machines share, the files under the same path on each. A worker that does not find
them there, or finds other ones, ends the command with one line.
"""

from __future__ import annotations

import argparse
import math
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgsdump.errors import SgsdumpError, WorkerError

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Record

Item = TypeVar("Item")
Opened = TypeVar("Opened")
SHARED = "--scheduler needs a file system that all machines share, the same paths on each"


def add_scheduler(parser: argparse._ActionsContainer, what: str) -> None:
    """``--scheduler``; ``what`` its workers do."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help=f"{what} on the Dask cluster whose scheduler is here (tcp://host:8786); its workers read the dumps "
        f"themselves, from a file system that all machines share",
    )


def absolute(path: Path | None) -> Path | None:
    """The path as every machine finds it, whatever folder it works in; links are left as they are."""
    return None if path is None else Path.cwd() / path


def in_tasks(items: Iterable[Item], sizes: Iterable[int], most_values: int, most_items: int) -> Iterator[list[Item]]:
    """Neighbours together as one task, which takes a worker longer than handing it over: closed when it has so many
    values, of which each item has its size, or so many items."""
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
    """What ``open_files`` gives. Raises WorkerError for what this machine cannot open although the user's could."""
    try:
        return open_files()
    except (SgsdumpError, OSError) as error:
        raise WorkerError(
            f"a worker on {socket.gethostname()} cannot open what is open here: {error}; {SHARED}"
        ) from error


def another_dump(path: Path, here: str | None, wanted: str) -> WorkerError:
    """For a worker whose file has another tensor in a place than the user's has."""
    return WorkerError(
        f"{path} on {socket.gethostname()} is another dump than here: it has {here!r} where this one has {wanted!r}; "
        f"{SHARED}"
    )
