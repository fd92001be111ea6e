"""Genuine files, where there are any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuzzing.seeds.seed import MOST_BYTES, Seed, content_of
from sgsdump import open_dump
from sgsdump.comparison.naming import NAME_FILES
from sgsdump.errors import SgsdumpError
from sgsdump.sidecars import SIDECARS

SIDE_FILES = {**SIDECARS, **NAME_FILES}
MOST_GENUINE = 24


def genuine_files(root: Path) -> Iterator[Seed]:
    """Small files, and folders cut to a few small files, that a reader opens; in the order of their names."""
    paths = [path for path in sorted(root.rglob("*")) if not path.is_symlink()]
    taken: defaultdict[str, int] = defaultdict(int)
    for path in paths:
        files = content_of(path) if path.is_file() or path.parent.parent == root else {}
        if not files or (path.is_file() and sum(map(len, files.values())) > MOST_BYTES):
            continue
        for format in (_dump_format(path), *_side_formats(path)):
            if format and taken[format] < MOST_GENUINE:
                taken[format] += 1
                yield Seed(format, path.name, files)


def _dump_format(path: Path) -> str:
    try:
        return open_dump(path).format
    except SgsdumpError:
        return ""


def _side_formats(path: Path) -> Iterator[str]:
    for name, read in SIDE_FILES.items():
        if path.is_file() and name != "debug_config" and _reads(read, path):
            yield name


def _reads(read: Callable[[Path], Any], path: Path) -> bool:
    try:
        return bool(read(path))
    except SgsdumpError:
        return False
