"""Safe listing of an untrusted dump folder: regular files only.

Symlinks that leave the folder are skipped and reported in ``notes``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from sgsdump.errors import FormatError

DEPTH = 20
MOST = 200_000
_TRIED = 100
Endings = str | tuple[str, ...]
_DIGITS = re.compile(r"(\d+)")


def files_below(root: Path, ending: Endings, notes: list[str], too_deep: list[str] | None = None) -> list[str]:
    """Return the files with this ending as paths relative to ``root`` with ``/``, unordered (see ``in_order``).

    ``notes`` gets a line for each skipped entry, and ``too_deep`` gets the folders that are too deep. Raises
    FormatError if the folder cannot be listed.
    """
    return list(_walk(root, ending, notes, [] if too_deep is None else too_deep))


def has_file(root: Path, ending: Endings, accept: Callable[[Path], bool] = lambda path: True) -> bool:
    """Return whether ``files_below`` finds a file that ``accept`` accepts among the first few."""
    try:
        return any(accept(root / name) for name in islice(_walk(root, ending, [], []), _TRIED))
    except FormatError:
        return False


def in_order(name: str) -> tuple[list[str], list[int]]:
    """Return a sort key that puts ``layer.2`` before ``layer.10``."""
    parts = _DIGITS.split(name)
    return parts[0::2], [int(digits[:300]) for digits in parts[1::2]]


def inside(root: Path, name: str) -> Path:
    """Return the path of the file ``name`` directly in ``root``, for an untrusted name.

    Raises FormatError for a name that leaves the folder, a link out of the folder, and a path that is not a file.
    """
    if name in ("", ".", "..") or set(name) & {"/", "\\", "\0"} or len(name.encode("utf-8", "surrogatepass")) > 255:
        raise FormatError(f"{root} refers to the file {name[:80]!r}, which is not in the folder")
    path = root / name
    if not path.is_file():
        raise FormatError(f"{path} is missing; copy the complete folder")
    if path.is_symlink() and leads_out(path, root):
        raise FormatError(f"{path} is a link to a file outside the folder; sgsdump does not follow such links")
    return path


def leads_out_of(folder: Path, name: str) -> bool:
    """Return whether an untrusted name leaves ``folder`` by itself; links in the folder are trusted."""
    return not Path(os.path.normpath(folder / name)).is_relative_to(os.path.normpath(folder))


def leads_out(path: Path, root: Path) -> bool:
    """Return whether a link ends outside ``root`` or nowhere."""
    try:
        return not path.resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return True


def _walk(root: Path, ending: Endings, notes: list[str], too_deep: list[str]) -> Iterator[str]:
    waiting: list[tuple[str, int]] = [("", 0)]
    entries_read = 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(f"{root}/{folder}") as entries:
                for entry in entries:
                    entries_read += 1
                    if entries_read > MOST:
                        raise FormatError(f"{root} has more than {MOST} files; name the folder of one dump")
                    name = folder + entry.name
                    if entry.is_file(follow_symlinks=False):
                        if name.endswith(ending):
                            yield name
                    elif entry.is_symlink() and (leads_out(Path(entry.path), root) or entry.is_dir()):
                        notes.append(f"{name} is a link to a folder or out of this one; it is skipped")
                    elif entry.is_dir() and depth < DEPTH:
                        waiting.append((f"{name}/", depth + 1))
                    elif entry.is_dir():
                        too_deep.append(name)
                        notes.append(f"{name} is more than {DEPTH} folders deep; it is skipped")
                    elif entry.name.endswith(ending) and entry.is_file():
                        yield name
        except OSError as error:
            if not folder:
                raise FormatError(f"cannot read the folder {root}: {error.strerror}") from None
            notes.append(f"{folder} cannot be read ({error.strerror}); it is skipped")
