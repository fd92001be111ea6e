"""Results reach the disk whole or not at all, and never on top of an older result folder.

A result is written beside its path, as ``.NAME.PID.partial``, which is locked while its writer lives. A writer that was
killed leaves it there without the lock, and the next one of the same result removes it. Where the system has no such
locks it stays.

Windows renames nothing over a file that is open or mapped, and no folder with such a file in it: what refuses is then
named, with what to close.
"""

from __future__ import annotations

import ctypes
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
KEPT = 200  # characters of the result's name in that of its partial
HELD = BlockingIOError, PermissionError
_AT_FDCWD, _EXCHANGE = -100, 2


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes ``path`` when the block ends well, and leaves nothing when it does not.

    Within ``together`` it becomes so when that ends. Missing parent folders are not made. Raises OutputError when the
    file cannot be opened, written or renamed.
    """
    path = Path(path)
    check_file(path)
    if path.is_symlink():  # A link stays a link: what it points to is replaced.
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
    """Write ``text`` as UTF-8 by ``replacing``; surrogates, as which names that are not UTF-8 are read, become the
    bytes they were."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


@contextmanager
def together() -> Iterator[None]:
    """The files that ``replacing`` writes in the block are renamed at its end, one right after the other; none
    does when the block fails. Raises OutputError that names those already replaced when one cannot be renamed."""
    if _waiting.get() is not None:
        yield
        return
    waiting: list[_Whole] = []
    token = _waiting.set(waiting)
    done: list[str] = []
    with ExitStack() as stack:
        try:
            yield
        finally:
            _waiting.reset(token)
            for whole in waiting:
                stack.push(whole.hold)
        for whole in waiting:
            try:
                whole.partial.replace(whole.path)
            except OSError as error:
                already = f"; {', '.join(done)} is written" if done else ""
                raise OutputError(f"cannot write {whole.path}: {_why_not(whole.path, error)}{already}") from error
            done.append(str(whole.path))


def _why_not(path: Path, error: OSError) -> str:
    """Why something cannot be renamed to ``path``, or from it; and what to close where it is open on Windows.

    There only a file that is read-only is refused with the same error.
    """
    if fcntl is not None or not isinstance(error, PermissionError) or not path.exists():
        return error.strerror or str(error)
    if not os.access(path, os.W_OK):
        return "it is read-only; remove it, or allow writing"
    opened = "a file in it" if path.is_dir() else "it"
    return f"{opened} is open; close the program that has it open, or in Python the dump, and run this again"


class _Whole(NamedTuple):
    """A file that is written and waits to be renamed."""

    partial: Path
    path: Path
    hold: ExitStack


_waiting: ContextVar[list[_Whole] | None] = ContextVar("waiting", default=None)


@contextmanager
def replacing_folder(
    path: Path, moved: Callable[[Path], object] | None = None, keep: Callable[[str], bool] | None = None
) -> Iterator[Path]:
    """A new folder that becomes ``path`` when the block ends well, and vanishes when it does not.

    Until then an existing ``path`` stays as it is. Then it is set aside, and ``moved`` is called with its new path.
    With ``keep`` it goes instead: what it holds under a name that is to be kept is in the new folder from the start.
    A folder that another process put there meanwhile is always set aside: no result is lost.
    Raises OutputError when something cannot be written.
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
            token = _waiting.set(None)  # the files of the folder are renamed in it at once
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
    """Rename the partial folder to ``path``; returns where the older one is now, None when there is none any more.

    replaced  identifies the folder whose content the new one has; any other that is found there is set aside.
    """
    while True:
        if not path.exists():
            if _renamed(partial, path):
                return None
            continue  # another process was faster
        if replaced is not None and _identity(path) == replaced and exchange(partial, path):
            if _identity(partial) == replaced:
                return None  # it goes as a partial does
            return set_aside(partial, path)
        whole = partial.with_suffix(WHOLE)
        partial.rename(whole)
        if exchange(whole, path):
            return set_aside(whole, path)
        is_replaced = replaced is not None and _identity(path) == replaced
        try:
            older = set_aside(path)
        except OutputError:  # a file in it is open, on Windows
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
    """Device and inode; None where there is nothing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _renamed(folder: Path, path: Path) -> bool:
    """Rename a folder; False where something stands there by now."""
    try:
        folder.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _sweep_whole(path: Path) -> None:
    """Set aside the whole folders, older or newer, that a writer killed in the middle of swapping them left."""
    for whole in path.parent.glob(f".{glob.escape(path.name[:KEPT])}.*{WHOLE}"):
        if not _is_held(whole):
            set_aside(whole, path)


def _is_held(folder: Path) -> bool:
    """Whether a living process is swapping the folder in."""
    if fcntl is None:
        return False
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return True  # it is gone already
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, HELD)
    finally:
        os.close(lock)
    return False


def _link_over(older: Path, newer: Path, keep: Callable[[str], bool]) -> None:
    """Give the newer folder the files of the older one, without copying where the system has links."""
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
    """Raises OutputError for what cannot become a result file."""
    if _stands_there(path) and path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is a device or a pipe; name a file")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}; make it first")


def check_folder(path: Path, option: str = "-o") -> None:
    """Raises OutputError for what cannot become a result folder: a file, or the folder one stands in."""
    if _stands_there(path) and not path.is_dir():
        raise OutputError(f"cannot write the folder {path}: a file has that name; name another with {option}")
    if Path.cwd().is_relative_to(path.resolve()):
        raise OutputError(f"cannot write the folder {path}: you are in it; name another with {option}")


def _stands_there(path: Path) -> bool:
    """Whether a path exists. Raises OutputError for a name that the system does not take."""
    try:
        return path.exists()
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def check_outputs(outputs: Iterable[str | Path | None], inputs: Iterable[str | Path | None]) -> None:
    """Raises OutputError when a result would overwrite one of the inputs, or another result. None stands for none."""
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
            raise OutputError(f"cannot write {folder}: that folder holds {path}, which is read; name another")


def make_folder(path: Path) -> Path:
    """Make a folder and its parents; fine when it is there already. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {path}: {error.strerror}") from error
    return path


def set_aside(path: Path, name: Path | None = None, mark: str = "_", date: datetime | None = None) -> Path | None:
    """Move an existing folder out of the way as ``NAME_DATE``; returns its new path, None when there was none.

    name  the path whose name it takes, its own when None.
    mark  stands between the name and the date.
    date  None: the time of the folder's last change.

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
    """A new empty file or folder beside ``path``, removed at the end if it is still there.

    What killed writers of the same result left is removed first. Raises OSError.
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
    """Whether a folder is one that this process is making: no killed writer left anything in it, and listing it for
    each of many files would take the square of their number."""
    return re.fullmatch(rf"\..*\.{os.getpid()}(-\d+)?\.partial", folder.name, re.DOTALL) is not None


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that can be done."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _new_partial(path: Path, folder: bool) -> tuple[Path, int | None]:
    """The partial, and its lock where there are locks."""
    for number in count(1):
        again = "" if number == 1 else f"-{number}"
        partial = path.with_name(f".{path.name[:KEPT]}.{os.getpid()}{again}.partial")
        try:
            if folder:
                partial.mkdir()
            else:
                partial.touch(exist_ok=False)
        except FileExistsError:
            continue  # another thread's, or that of a process with the same number on another machine
        if fcntl is None:
            return partial, None
        try:
            lock = os.open(partial, os.O_RDONLY)
        except FileNotFoundError:
            continue  # swept in the moment between
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
    """Swap two paths in one step, each there at every moment; False, nothing changed, where the system cannot."""
    function = _renameat2()
    if function is None:
        return False
    return function(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0


@cache
def _renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return None
