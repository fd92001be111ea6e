"""How much of a mapped file is in this process's memory."""

from __future__ import annotations

from pathlib import Path

import pytest


def resident(path: Path) -> int:
    """KiB of a mapped file that are in this process's memory, as the system counts them."""
    smaps = Path("/proc/self/smaps")
    if not smaps.is_file():
        pytest.skip("only Linux tells what is resident")
    found, here = 0, False
    for line in smaps.read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found
