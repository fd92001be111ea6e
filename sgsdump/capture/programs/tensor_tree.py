"""The tree of tensors, built while the program runs.

The program's processes write values once, and a line for each input and output (``hook/sgsdump_session.py``,
``hook/sgsdump_records.py``). Folders, links and headers are created here and cost the program nothing; the thread
``TreeThread`` leaves the processors to the program. A file is complete when a line names it, whatever happens to the
program's process or to this one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.hook.sgsdump_records import header_alone
from sgsdump.capture.programs.process_index import INDEX, PROCESSES
from sgsdump.dumps.formats.shared.hooked import MOST_BYTES, Line, Lines
from sgsdump.errors import OutputError, SgsdumpError

VALUES = "values"
_AT_ONCE = 1 << 16
_MOST_REMEMBERED = 50_000
_FILE = re.compile(r"tensors(?:/(?!\.\.?/)[A-Za-z0-9_.-]+)+\.bin", re.ASCII)
_STORED = re.compile(rf"[0-9]+/{VALUES}/[0-9]+\.bin", re.ASCII)
_FOLDER_MODE = 0o750
MAKE_EVERY, MAKE_AT_LEAST_EVERY = 0.1, 1.0
NICE = 10


class TensorTree:
    """Tree below ``root``, as far as it is built."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._tails: dict[str, Tail] = {}
        self._folders: set[str] = set()
        self._headers: dict[bytes, str] = {}

    def advance(self) -> bool:
        """Build the files reported since the last call; return whether there were any. Raises OutputError."""
        return sum(self._advance(tail) for tail in self._all_tails()) > 0

    def finish(self) -> None:
        """Build everything that is left after the program ended. Raises OutputError."""
        while self.advance():
            pass
        for tail in self._tails.values():
            shutil.rmtree(os.path.join(tail.folder, VALUES), ignore_errors=True)

    def _all_tails(self) -> list[Tail]:
        processes = os.path.join(self._root, PROCESSES)
        try:
            names = [name for name in os.listdir(processes) if name not in self._tails and name.isdecimal()]
        except OSError:
            return []
        self._tails.update((name, Tail(os.path.join(processes, name))) for name in names)
        return list(self._tails.values())

    def _advance(self, tail: Tail) -> bool:
        if tail.failed:
            return False
        data = tail.read()
        for line in (line for text in data for line in tail.lines.read(text)):
            if not _names_a_file(line):
                continue
            try:
                self._make(line, tail)
            except (LookupError, TypeError, ValueError):
                continue
            except OSError as error:
                tail.fail(f"{line['file']}: {error.strerror or error}")
                break
        return bool(data)

    def _make(self, line: Line, tail: Tail) -> None:
        """Build one file. Raises OSError; LookupError, TypeError or ValueError for a damaged line."""
        path = f"{self._root}/{line['file']}"
        self._folder(os.path.dirname(path))
        if "same" in line:
            return
        if "stored" not in line:
            self._header(header_alone(line["dtype"], line["shape"], line.get("stats")), path, tail)
            return
        link = line.get("link")
        if link is None:
            self._stored(f"{self._root}/{PROCESSES}/{line['stored']}", path)
        elif _FILE.fullmatch(link):
            target = os.path.relpath(f"{self._root}/{link}", os.path.dirname(path))
            try:
                _instead(path, lambda free: os.symlink(target, free))
            except OSError:  # symbolic links are not permitted, as on Windows, or not supported
                self._stored(f"{self._root}/{link}", path)

    def _stored(self, source: str, path: str) -> None:
        try:
            _instead(path, lambda free: os.link(source, free))
        except FileNotFoundError:
            raise
        except OSError:  # hard links are not supported, or the file has its maximum number
            _instead(path, lambda free: shutil.copyfile(source, free))

    def _header(self, header: bytes, path: str, tail: Tail) -> None:
        """Write a file that is a header alone; equal headers share one file: a link is far faster than a file."""
        if os.path.lexists(path):
            self._headers.clear()  # a shared header file is about to be replaced
        first = self._headers.get(header)
        if first is not None:
            try:
                _instead(path, lambda free: os.link(first, free))
                return
            except OSError:
                pass
        part = f"{tail.folder}/.header"
        with open(part, "wb") as file:
            file.write(header)
        os.replace(part, path)
        if len(self._headers) >= _MOST_REMEMBERED:
            self._headers.clear()
        self._headers[header] = path

    def _folder(self, folder: str) -> None:
        if folder in self._folders:
            return
        try:
            os.mkdir(folder, _FOLDER_MODE)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._folder(os.path.dirname(folder))
            os.mkdir(folder, _FOLDER_MODE)
        if len(self._folders) >= _MOST_REMEMBERED:
            self._folders.clear()
        self._folders.add(folder)


class TreeThread(threading.Thread):
    """Thread that builds the tree within a with-block while the program runs, and finishes its current work."""

    def __init__(self, tree: TensorTree) -> None:
        super().__init__(daemon=True)
        self._tree = tree
        self._ended = threading.Event()
        self._failed: SgsdumpError | None = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        if self._failed is not None:
            raise self._failed

    def run(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        pause = MAKE_EVERY
        try:
            while not self._ended.is_set():
                if self._tree.advance():
                    pause = MAKE_EVERY
                else:
                    self._ended.wait(pause)
                    pause = min(2 * pause, MAKE_AT_LEAST_EVERY)
        except SgsdumpError as error:
            self._failed = error


class Tail:
    """Reader of the whole lines that were appended to a process's index since the last read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.failed = False
        self.lines = Lines(os.path.basename(folder))
        self._path = os.path.join(folder, INDEX)
        self._offset = 0
        self._rest = b""

    def read(self) -> list[bytes]:
        """Return the next lines, perhaps not all; [] if there is nothing new."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_AT_ONCE)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            self._rest = b""
        return lines or ([b""] if data else [])

    def fail(self, why: str) -> None:
        """Record in the index that the tree lacks tensors of the process. Raises OutputError."""
        self.failed = True
        try:
            with open(self._path, "ab") as file:
                file.write(json.dumps({"event": "stop", "text": why}).encode("ascii") + b"\n")
        except OSError as error:
            raise OutputError(
                f"cannot write {why}; {self._path} cannot be written either: {error.strerror or error}"
            ) from None


def _names_a_file(line: Line) -> bool:
    """Return whether a line names a file in the form that the hooks write."""
    if not _FILE.fullmatch(str(line.get("file"))):
        return False
    return bool(_STORED.fullmatch(str(line.get("stored", f"0/{VALUES}/0.bin"))))


def _instead(path: str, make: Any) -> None:
    """Let ``make`` create a file at ``path``; if one exists, create it beside and replace the old one."""
    try:
        make(path)
    except FileExistsError:
        free = f"{path}.part"
        if os.path.lexists(free):
            os.unlink(free)
        make(free)
        os.replace(free, path)
        if os.path.lexists(free):  # os.replace does nothing if both names are the same file
            os.unlink(free)
