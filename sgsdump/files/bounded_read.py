"""Read at most ``limit`` bytes without allocating ``limit`` up front, as ``file.read(limit)`` does."""

from __future__ import annotations

from pathlib import Path

_CHUNK = 2**18


def read_start(path: Path, limit: int) -> bytes:
    """The first ``limit`` bytes of a file or pipe, or all if it has fewer. Raises OSError."""
    parts: list[bytes] = []
    with open(path, "rb") as file:
        while limit and (part := file.read(min(limit, _CHUNK))):
            parts.append(part)
            limit -= len(part)
    return b"".join(parts)
