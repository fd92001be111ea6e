"""The file or folder beside a result in which it is written, until it is whole and takes the result's place.

It is called ``.NAME.PID.partial`` and locked while its writer lives. A writer that was killed leaves it behind without
the lock, and the next one of the same result removes it. Where the system has no such locks it stays.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

KEPT = 200  # characters of the result's name in that of its partial
HELD = BlockingIOError, PermissionError


@contextmanager
def partial_beside(path: Path, folder: bool = False) -> Iterator[Path]:
    """A new empty file or folder beside ``path``, removed at the end if it is still there.

    What killed writers of the same result left is removed first. Raises OSError.
    """
    sweep(path)
    place, lock = _made(path, folder)
    try:
        yield place
    finally:
        remove(place)
        if lock is not None:
            os.close(lock)


def sweep(path: Path) -> None:
    """Remove the partials of a result that no living process writes."""
    if fcntl is None or _is_own(path.parent):
        return
    mine = re.compile(re.escape(f".{path.name[:KEPT]}.") + r"\d+(-\d+)?\.partial")
    try:
        names = [name for name in os.listdir(path.parent) if mine.fullmatch(name)]
    except OSError:
        return
    for name in names:
        place = path.with_name(name)
        with suppress(OSError):
            if place.is_symlink():
                continue
            lock = os.open(place, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(place)
            finally:
                os.close(lock)


def _is_own(folder: Path) -> bool:
    """Whether a folder is one that this process is making: no killed writer left anything in it, and listing it for
    each of many files would take the square of their number."""
    return re.fullmatch(rf"\..*\.{os.getpid()}(-\d+)?\.partial", folder.name, re.DOTALL) is not None


def remove(place: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that can be done."""
    with suppress(OSError):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def _made(path: Path, folder: bool) -> tuple[Path, int | None]:
    """The partial, and its lock where there are locks."""
    for number in count(1):
        again = "" if number == 1 else f"-{number}"
        place = path.with_name(f".{path.name[:KEPT]}.{os.getpid()}{again}.partial")
        try:
            if folder:
                place.mkdir()
            else:
                place.touch(exist_ok=False)
        except FileExistsError:
            continue  # another thread's, or that of a process with the same number on another machine
        if fcntl is None:
            return place, None
        try:
            lock = os.open(place, os.O_RDONLY)
        except FileNotFoundError:
            continue  # swept in the moment between
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except HELD:
            os.close(lock)
            continue
        except OSError:  # a file system without locks
            os.close(lock)
            return place, None
        if place.exists() and os.path.samestat(os.fstat(lock), place.stat()):
            return place, lock
        os.close(lock)
    raise AssertionError("count never ends")
