"""Atomic output: a result is written completely or not at all, and never into an older result folder.

A result is written beside its path as ``.NAME.PID.partial``, which is locked while its writer lives. A killed writer
leaves the partial without a lock, and the next writer of the same result removes it. On a system without such locks it
stays.

Windows cannot rename over an open or mapped file, or rename a folder that contains one. Messages then name the path and
what to close.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from sgsdump.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WHOLE = ".whole"
KEPT = 200  # characters of the result's name that its partial's name keeps
HELD = BlockingIOError, PermissionError
_AT_FDCWD, _EXCHANGE = -100, 2


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that becomes ``path`` if the block succeeds and is removed otherwise.

    Within ``together`` the file is renamed when that block ends. Missing parent folders are not created. Raises
    OutputError if the file cannot be opened, written or renamed.
    """
    path = Path(path)
    check_file(path)
    if path.is_symlink():  # A link stays a link: its target is replaced.
        path = path.resolve()
        check_file(path)
    waiting = _waiting.get()
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(partial_beside(path))
            with open(partial, "wb") as file:
                yield file
            if waiting is None:
                partial.replace(path)
            else:
                waiting.append(_Whole(partial, path, stack.pop_all()))
        except OSError as error:
            raise OutputError(f"cannot write {path}: {_why_not(path, error)}") from error


def replace_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 with ``replacing``; surrogates become the original bytes that were not UTF-8."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


@contextmanager
def together() -> Iterator[None]:
    """Rename the files of ``replacing`` together at the end of the block, or none if the block fails.

    If the reader of standard output stops reading (``sgsdump … | head``), the files are renamed, too. If a rename
    fails, OutputError names the files already replaced.
    """
    if _waiting.get() is not None:
        yield
        return
    waiting: list[_Whole] = []
    token = _waiting.set(waiting)
    done: list[str] = []
    unread: BrokenPipeError | None = None
    with ExitStack() as stack:
        try:
            yield
        except BrokenPipeError as error:
            unread = error
        finally:
            _waiting.reset(token)
            for whole in waiting:
                stack.push(whole.hold)
        for whole in waiting:
            try:
                whole.partial.replace(whole.path)
            except OSError as error:
                already = f"; already written: {', '.join(done)}" if done else ""
                raise OutputError(f"cannot write {whole.path}: {_why_not(whole.path, error)}{already}") from error
            done.append(str(whole.path))
    if unread is not None:
        raise unread


def _why_not(path: Path, error: OSError) -> str:
    """Return the reason why ``path`` cannot be renamed or replaced, and what to close if it is open on Windows.

    On Windows only a read-only file is refused with the same error.
    """
    if fcntl is not None or not isinstance(error, PermissionError) or not path.exists():
        return error.strerror or str(error)
    if not os.access(path, os.W_OK):
        return "it is read-only; remove it, or allow writing"
    opened = "a file in it" if path.is_dir() else "it"
    return f"{opened} is open; close the program that uses it (in Python, close the dump), then run the command again"


class _Whole(NamedTuple):
    """A completely written file that waits for its rename."""

    partial: Path
    path: Path
    hold: ExitStack


_waiting: ContextVar[list[_Whole] | None] = ContextVar("waiting", default=None)


@contextmanager
def replacing_folder(
    path: Path, moved: Callable[[Path], object] | None = None, keep: Callable[[str], bool] | None = None
) -> Iterator[Path]:
    """Create a new folder that becomes ``path`` if the block succeeds and is removed otherwise.

    Until then an existing ``path`` is unchanged. Then it is set aside, and ``moved`` is called with its new path. With
    ``keep`` it is deleted instead; entries whose names ``keep`` accepts are in the new folder from the start. A folder
    that another process puts there meanwhile is always set aside, so that no result is lost. Raises OutputError if
    something cannot be written.
    """
    path = Path(path)
    if keep is not None and path.is_symlink():
        path = path.resolve()
    check_folder(path)
    make_folder(path.parent)
    _sweep_whole(path)
    try:
        with partial_beside(path, folder=True) as partial:
            replaced = _identity(path) if keep is not None else None
            if keep is not None and path.is_dir():
                _link_over(path, partial, keep)
            token = _waiting.set(None)  # files in the partial folder are renamed immediately
            try:
                yield partial
            finally:
                _waiting.reset(token)
            aside = _swap(partial, path, replaced)
    except OSError as error:
        raise OutputError(f"cannot write the folder {path}: {error.strerror or error}") from error
    if aside is not None and moved is not None:
        moved(aside)


def _swap(partial: Path, path: Path, replaced: tuple[int, int] | None) -> Path | None:
    """Rename the partial folder to ``path`` and return the new path of the older folder, or None if it is gone.

    replaced  identifies the folder whose content the new folder has; any other folder found there is set aside
    """
    while True:
        if not path.exists():
            if _renamed(partial, path):
                return None
            continue  # another process was faster
        if replaced is not None and _identity(path) == replaced and exchange(partial, path):
            if _identity(partial) == replaced:
                return None  # the caller removes it as a partial
            return set_aside(partial, path)
        whole = partial.with_suffix(WHOLE)
        partial.rename(whole)
        if exchange(whole, path):
            return set_aside(whole, path)
        is_replaced = replaced is not None and _identity(path) == replaced
        try:
            older = set_aside(path)
        except OutputError:  # Windows: a file in the folder is open
            whole.rename(partial)
            raise
        if not _renamed(whole, path):
            whole.rename(partial)
            continue
        if is_replaced and older is not None:
            remove(older)
            return None
        return older


def _identity(path: Path) -> tuple[int, int] | None:
    """Return (device, inode), or None if the path does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _renamed(folder: Path, path: Path) -> bool:
    """Rename a folder; return False if ``path`` exists by now."""
    try:
        folder.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _sweep_whole(path: Path) -> None:
    """Set aside the complete folders, older or newer, that a writer left when it was killed during a swap."""
    for whole in path.parent.glob(f".{glob.escape(path.name[:KEPT])}.*{WHOLE}"):
        if not _is_held(whole):
            set_aside(whole, path)


def _is_held(folder: Path) -> bool:
    """Return whether a living process is moving the folder into place."""
    if fcntl is None:
        return False
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return True  # the folder is gone already
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, HELD)
    finally:
        os.close(lock)
    return False


def _link_over(older: Path, newer: Path, keep: Callable[[str], bool]) -> None:
    """Copy the kept entries of the older folder to the newer one, as hard links if the system supports them."""
    for entry in older.iterdir():
        if not keep(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, newer / entry.name, symlinks=True, copy_function=_link_or_copy)
        else:
            _link_or_copy(entry, newer / entry.name)


def _link_or_copy(source: Path | str, target: Path | str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def check_file(path: Path) -> None:
    """Raise OutputError if ``path`` cannot become a result file."""
    if _stands_there(path) and path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is a device or a pipe; name a file")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}; make it first")


def check_folder(path: Path, option: str = "-o") -> None:
    """Raise OutputError if ``path`` cannot become a result folder: a file, or a parent of the current folder."""
    if _stands_there(path) and not path.is_dir():
        raise OutputError(f"cannot write the folder {path}: a file has that name; select another folder with {option}")
    if Path.cwd().is_relative_to(path.resolve()):
        raise OutputError(
            f"cannot write the folder {path}: it is or contains the current folder; select another folder with {option}"
        )


def _stands_there(path: Path) -> bool:
    """Return whether a path exists; raise OutputError for a name that the system does not accept."""
    try:
        return path.exists()
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def check_outputs(outputs: Iterable[str | Path | None], inputs: Iterable[str | Path | None]) -> None:
    """Raise OutputError if a result would overwrite an input or another result; None is ignored."""
    taken = {Path(path).resolve() for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if Path(path).resolve() in taken:
            raise OutputError(
                f"cannot write {path}: this command reads or writes that file already; choose another name"
            )
        taken.add(Path(path).resolve())


def check_not_around(folder: Path, inputs: Iterable[Path | None]) -> None:
    """Raise OutputError if an output folder is an input, or contains one: replacing it would move the input aside."""
    read = [path for path in inputs if path is not None]
    check_outputs([folder], read)
    for path in read:
        if folder.resolve() in path.resolve().parents:
            raise OutputError(f"cannot write {folder}: it contains the input {path}; name another folder")


def make_folder(path: Path) -> Path:
    """Create a folder and its parents if missing. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {path}: {error.strerror}") from error
    return path


def set_aside(path: Path, name: Path | None = None, mark: str = "_", date: datetime | None = None) -> Path | None:
    """Rename an existing folder to ``NAME_DATE`` and return its new path, or None if there was none.

    name  path that gives NAME; the folder's own if None
    mark  text between name and date
    date  time of the folder's last change if None

    Raises OutputError.
    """
    if not path.exists():
        return None
    name = path if name is None else name
    try:
        stamp = (date or datetime.fromtimestamp(path.stat().st_mtime)).strftime("%Y%m%d-%H%M%S")
        for number in count(1):
            aside = name.with_name(f"{name.name}{mark}{stamp}" + ("" if number == 1 else f"_{number}"))
            if not aside.exists() and _renamed(path, aside):
                return aside
    except FileNotFoundError:
        return None  # another process has moved it
    except OSError as error:
        raise OutputError(f"cannot move {path} aside: {_why_not(path, error)}") from error
    raise AssertionError("count never ends")


@contextmanager
def partial_beside(path: Path, folder: bool = False) -> Iterator[Path]:
    """Create an empty file or folder beside ``path``, and remove it at the end if it still exists.

    Partials of killed writers of the same result are removed first. Raises OSError.
    """
    sweep(path)
    partial, lock = _new_partial(path, folder)
    try:
        yield partial
    finally:
        remove(partial)
        if lock is not None:
            os.close(lock)


def sweep(path: Path) -> None:
    """Remove the partials of a result that no living process writes."""
    if fcntl is None or _is_own(path.parent):
        return
    ours = re.compile(re.escape(f".{path.name[:KEPT]}.") + r"\d+(-\d+)?\.partial")
    try:
        names = [name for name in os.listdir(path.parent) if ours.fullmatch(name)]
    except OSError:
        return
    for name in names:
        partial = path.with_name(name)
        with suppress(OSError):
            if partial.is_symlink():
                continue
            lock = os.open(partial, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(partial)
            finally:
                os.close(lock)


def _is_own(folder: Path) -> bool:
    """Return whether this process is creating the folder.

    Such a folder has no partials of killed writers. Listing the folder for each of many files would take quadratic
    time.
    """
    return re.fullmatch(rf"\..*\.{os.getpid()}(-\d+)?\.partial", folder.name, re.DOTALL) is not None


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, ignoring errors."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _new_partial(path: Path, folder: bool) -> tuple[Path, int | None]:
    """Create a partial and return it with its lock, or None on systems without locks."""
    for number in count(1):
        again = "" if number == 1 else f"-{number}"
        partial = path.with_name(f".{path.name[:KEPT]}.{os.getpid()}{again}.partial")
        try:
            if folder:
                partial.mkdir()
            else:
                partial.touch(exist_ok=False)
        except FileExistsError:
            continue  # of another thread, or of a process with the same PID on another machine
        if fcntl is None:
            return partial, None
        try:
            lock = os.open(partial, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process swept it in between
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except HELD:
            os.close(lock)
            continue
        except OSError:  # a file system without locks
            os.close(lock)
            return partial, None
        if partial.exists() and os.path.samestat(os.fstat(lock), partial.stat()):
            return partial, lock
        os.close(lock)
    raise AssertionError("count never ends")


def exchange(first: Path, second: Path) -> bool:
    """Swap two paths atomically; return False, with nothing changed, if the system cannot."""
    function = _renameat2()
    if function is None:
        return False
    return function(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0


@cache
def _renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        return ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return None
