"""The result tree of a dump: ``{path}/worldsizeN_global_rankR/{time}/{device}/{graph}/{graph's number}/{step}/``.

Each step's folder has an index, ``index.jsonl``: first ``{"event": "begin"}``, then a line per tensor, last
``{"complete": true}``. A step without the last line was cut off. Files are written beside their target and renamed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.control import DISK_FULL
from sgsdump.capture.torchair.operators import logger
from sgsdump.dumps.formats.ascend.ascend_dir import INDEX

_IN_FOLDERS = re.compile(r"[./\\\s]")


class Tree:
    """Files of a process below a dump_path.

    ``used``: something was written. ``stopped``: nothing more is written, and the reason has been reported.
    """

    def __init__(self, path: Path):
        self.path = path
        self.used = self.stopped = False
        self._lock = threading.Lock()
        self._of_time: tuple[int, Path] | None = None
        self._last = 0

    def step(self, device: int, graph: str, number: int, index: int) -> Step:
        """Create the folder of a step. Raises OSError."""
        folder = self._root() / str(device) / _IN_FOLDERS.sub("_", graph) / str(number) / str(index)
        folder.mkdir(parents=True, exist_ok=True)
        return Step(self, folder, graph, index, device)

    def clock(self) -> int:
        """Return microseconds since 1970, each number once."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last

    def room(self, least: int) -> bool:
        """Return whether ``least`` bytes are free on the disk; if not, report it once and stop writing."""
        if self.stopped:
            return False
        free = shutil.disk_usage(self.path).free
        if free < least:
            self.stop(f"{DISK_FULL} {free >> 20}")
        return not self.stopped

    def stop(self, why: str) -> None:
        if not self.stopped:
            logger.error("%s; nothing more is dumped", why)
        self.stopped = True

    def _root(self) -> Path:
        """Return the folder of this process; a forked process gets its own."""
        with self._lock:
            if self._of_time is None or self._of_time[0] != os.getpid():
                self._of_time = os.getpid(), _new_folder(self.path / _ranks())
            return self._of_time[1]


class Step:
    """Folder and index of one step of one graph; the lines of an operator are written at once.

    Raises OSError if the index cannot be created.
    """

    def __init__(self, tree: Tree, folder: Path, graph: str, number: int, device: int):
        self.tree = tree
        self.folder = folder
        self._facts = {"step": number, "graph": graph, "device": device}
        self._index = open(folder / INDEX, "ab", buffering=0)  # noqa: SIM115 - open over the step
        self._index.write(_line({"event": "begin", **self._facts}))

    def tensors(self, tensors: Sequence[Mapping[str, Any]]) -> None:
        """Write a line for each tensor of an operator."""
        self.tree.used = True
        self._write(b"".join(_line({**self._facts, **facts}) for facts in tensors))

    def note(self, text: str) -> None:
        self.line({"event": "note", "text": text})

    def line(self, facts: Mapping[str, Any]) -> None:
        self._write(_line(facts))

    def _write(self, lines: bytes) -> None:
        try:
            self._index.write(lines)
        except OSError as error:
            self.tree.stop(f"cannot write {self._index.name}: {error.strerror or error}")

    def finish(self, complete: bool) -> None:
        """Close the index; ``complete`` is False after an error of the program in this step or on a full disk."""
        if complete and not self.tree.stopped:
            self.line({"complete": True})
        self._index.close()


def _line(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _ranks() -> str:
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        return f"worldsize{distributed.get_world_size()}_global_rank{distributed.get_rank()}"
    return "worldsize1_global_rank0"


def _new_folder(parent: Path) -> Path:
    """Create a folder ``YYYYMMDDHHMMSS`` of the current time, or of the next second that no other process uses."""
    parent.mkdir(parents=True, exist_ok=True)
    moment = datetime.now()
    while True:
        folder = parent / f"{moment:%Y%m%d%H%M%S}"
        try:
            folder.mkdir()
        except FileExistsError:
            moment += timedelta(seconds=1)
            continue
        return folder
