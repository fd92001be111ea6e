"""How much may still be dumped: by what is free on the disk, and by ``--max-size``."""

from __future__ import annotations

import shutil
from pathlib import Path

from sgsdump.capture.control import DISK_FULL, DumpControl
from sgsdump.errors import OutputError


class Room:
    """folder  where dumps are added; the program's own processes have written beside it, which counts too."""

    def __init__(self, folder: Path, control: DumpControl):
        self._folder, self._control = folder, control
        self._bytes = _written_by_program(folder.parent)

    def add(self, path: Path) -> None:
        """Count a file or a folder that has been written."""
        self._bytes += _size(path)

    def why_none(self) -> str:
        """Why nothing more is dumped; "" while there is room."""
        free = shutil.disk_usage(self._folder).free
        least, most = self._control.min_free, self._control.max_bytes
        if least and free < least:
            return f"{DISK_FULL} {free >> 20}"
        if most and self._bytes >= most:
            return f"the dump has reached its {most} bytes (--max-size); nothing more is dumped"
        return ""


def _written_by_program(root: Path) -> int:
    """Bytes that the program's processes wrote, counted where there is a limit (``hook/sgsdump_files.py``)."""
    try:
        return int((root / "processes" / ".bytes").read_bytes()[:30] or b"0")
    except (OSError, ValueError):
        return 0


def _size(path: Path) -> int:
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files)
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from None
