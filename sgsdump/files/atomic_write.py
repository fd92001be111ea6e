"""How results reach the disk: whole or not at all, and never on top of an older result folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from sgsdump.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes ``path`` when the block ends well, and leaves nothing behind when it does not.

    Missing parent folders are not made. Raises OutputError when the file cannot be opened, written or renamed.
    """
    # A link stays a link: what it points to is replaced.
    path = Path(path).resolve() if Path(path).is_symlink() else Path(path)
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is a device or a pipe; name a file")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder that becomes ``path`` when the block ends well, and vanishes when it does not.

    An existing ``path`` is set aside only then. Raises OutputError when something cannot be written.
    """
    path = Path(path)
    check_folder(path)
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}.partial")
    make_folder(partial)
    try:
        yield partial
        set_aside(path)
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write the folder {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_folder(path: Path) -> None:
    """Raises OutputError for what cannot become a result folder: a file, or the folder one stands in."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"cannot write the folder {path}: a file has that name; name another with -o")
    if Path.cwd().is_relative_to(path.resolve()):
        raise OutputError(f"cannot write the folder {path}: you are in it; name another with -o")


def check_outputs(outputs: Iterable[str | Path | None], inputs: Iterable[str | Path | None]) -> None:
    """Raises OutputError when a result would overwrite one of the inputs, or another result. None stands for none."""
    taken = {Path(path).resolve() for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if Path(path).resolve() in taken:
            raise OutputError(f"cannot write {path}: the same command reads or writes it already; name another file")
        taken.add(Path(path).resolve())


def check_not_around(folder: Path, inputs: Iterable[Path | None]) -> None:
    """Raises OutputError when an input lies in a folder that is to be replaced: it would be moved aside with it."""
    for path in inputs:
        if path is not None and folder.resolve() in path.resolve().parents:
            raise OutputError(f"cannot write {folder}: that folder holds {path}, which is read; name another")


def make_folder(path: Path) -> Path:
    """Make a folder and its parents; fine when it is there already. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {path}: {error.strerror}") from error
    return path


def set_aside(path: Path) -> Path | None:
    """Move an existing folder out of the way as ``NAME_DATE``; returns its new place, None when there was none."""
    if not path.exists():
        return None
    stamp = datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}_{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}_{stamp}_{number}")
    try:
        path.rename(aside)
    except OSError as error:
        raise OutputError(f"cannot move {path} aside: {error.strerror}") from error
    return aside
