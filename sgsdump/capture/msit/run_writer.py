"""Writer of ``register_hook``'s files: a folder per token.

Tensor files are written whole, the index line by line. A write that fails ends the dump, never the program. The failure
is reported once as a warning, and the index of that token has no last line, which marks it as incomplete.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sgsdump.capture.programs.control import DISK_FULL
from sgsdump.dumps.formats.torch import model_tree, run_index
from sgsdump.files.atomic_write import make_folder
from sgsdump.files.names import fitting, safe

ENDING = ".pth"
_UNSAFE = re.compile(r"[^\w.@-]")
_FOLDER_MODE = 0o750


@dataclass(frozen=True)
class Taken:
    """A tensor that a module or function reads or returns.

    name    name of the call, ``root.a@1``; ``kind``: the class or function.
    side    in or out; ``part``: index within the arguments, ``0`` or ``0_1``, "" for a single output.
    stats   the tensor's statistics, or None.
    """

    tensor: Any
    name: str
    kind: str
    side: str
    part: str
    stats: Mapping[str, float] | None = None


class RunWriter:
    """Folder ``torch_tensors/{device}_{pid}`` of one process.

    ``min_free`` is the free disk space to leave, in bytes. With ``with_values`` False, only the index is written.
    """

    def __init__(self, torch: Any, folder: Path, min_free: int, with_values: bool):
        self.folder = folder
        self._torch, self._min_free, self._with_values = torch, min_free, with_values
        self._index: IO[str] | None = None
        self._run = folder
        self._numbers: dict[tuple[str, str], int] = {}
        self._reasons: set[str] = set()
        self.stopped = False

    def start(self, token: int) -> None:
        """Begin a token's folder."""
        self.finish(False)
        self._run = self.folder / str(token)
        self._numbers = {}
        self._reasons = set()
        try:
            make_folder(self._run)
            self._index = open(self._run / run_index.NAME, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
        except OSError as error:
            self._stop(f"cannot write {self._run}: {error.strerror}")

    def finish(self, complete: bool) -> None:
        """End the token's folder; if ``complete``, the index says so."""
        if self._index is None:
            return
        if complete and not self.stopped:
            self._write_line({"complete": True})
        self._index.close()
        self._index = None

    def tensor(self, taken: Taken) -> None:
        """Write a tensor and its line."""
        if self.stopped or self._index is None:
            return
        module, side, tensor = taken.name, taken.side, taken.tensor
        word = "input" if side == "in" else "output"
        folder = safe(module.replace("\\", "_"))
        name = f"{folder}/{word}_{taken.part}" if taken.part else f"{folder}/{word}"
        file = f"{fitting(folder, '')}/{fitting(name.rpartition('/')[2], ENDING)}" if self._with_values else None
        slot = self._numbers[module, side] = self._numbers.get((module, side), -1) + 1
        if file is not None and not self.save(tensor, self._run / file):
            return
        dtype = str(tensor.dtype).removeprefix("torch.")
        line = {"name": name, "file": file, "module": module, "type": taken.kind, "side": side, "slot": slot}
        self._write_line({**line, "dtype": dtype, "shape": list(map(int, tensor.shape)), "stats": taken.stats})

    def arguments(self, name: str, kind: str, values: Mapping[str, Any]) -> None:
        """Write the simple arguments or attributes of a call, before the lines of its tensors."""
        if not self.stopped and self._index is not None and values:
            self._write_line({"event": "arguments", "module": name, "type": kind, "param": values})

    def left_out(self, name: str, why: str) -> None:
        """Write the reason why a tensor has no values, once per reason and token."""
        if self.stopped or self._index is None or why in self._reasons:
            return
        self._reasons.add(why)
        self._write_line({"event": "note", "text": f"{name} and similar tensors are not dumped: {why}"})

    def save(self, tensor: Any, path: Path) -> bool:
        """Write one tensor whole, or stop; return whether it was written."""
        if self.stopped or not self._has_room(path):
            return False
        beside = path.with_name(f".{os.getpid()}.partial")
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._torch.save(tensor, beside)
            beside.replace(path)
        except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError on a full disk
            beside.unlink(missing_ok=True)
            self._stop(f"cannot write {path}: {' '.join(str(error).split())[:200]}")
            return False
        return True

    def modules(self, document: dict[str, Any]) -> None:
        """Write ``model_tree.json``."""
        beside = self.folder / f".{os.getpid()}.partial"
        try:
            make_folder(self.folder)
            beside.write_text(json.dumps(document), encoding="utf-8")
            beside.replace(self.folder / model_tree.NAME)
        except OSError as error:
            self._stop(f"cannot write {self.folder / model_tree.NAME}: {error.strerror}")

    def _write_line(self, line: dict[str, Any]) -> None:
        assert self._index is not None
        try:
            self._index.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._index.flush()
        except OSError as error:
            self._stop(f"cannot write {self._run / run_index.NAME}: {error.strerror}")

    def _has_room(self, path: Path) -> bool:
        free = shutil.disk_usage(self.folder).free
        if free >= self._min_free:
            return True
        self._stop(f"{DISK_FULL} {free >> 20}")
        return False

    def _stop(self, why: str) -> None:
        self.stopped = True
        warnings.warn(f"nothing more is dumped: {why}", stacklevel=2)


def part_of(keys: Iterable[Any]) -> str:
    """Return the end of a file name after ``input_``: indices and keywords of nested arguments, joined by ``_``."""
    return "_".join(_UNSAFE.sub("_", str(key))[:80] for key in keys)
