"""Samples of other vendors' tools that are kept in zip files, unpacked once for all tests of a process."""

from __future__ import annotations

import tempfile
import zipfile
from functools import cache
from pathlib import Path

VENDORS = Path(__file__).resolve().parent / "golden" / "vendors"
_FOLDER = tempfile.TemporaryDirectory()


@cache
def unpacked(tool: str) -> Path:
    """Return the folder of a tool's samples."""
    with zipfile.ZipFile(VENDORS / f"{tool}.zip") as archive:
        archive.extractall(_FOLDER.name)
    return Path(_FOLDER.name) / tool
