"""Tests that need more of the system than Windows has, and what Windows refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sgsdump.files import atomic_write

unix_only = pytest.mark.skipif(
    not hasattr(os, "pread"), reason="signals, locks, pipes and reads at an offset are those of Unix"
)


@contextmanager
def open_on_windows(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file that a program has open, so that Windows renames neither it nor its folder, nor another over it."""
    with path.open("rb"), monkeypatch.context() as patch:
        if hasattr(os, "pread"):
            patch.setattr(atomic_write, "fcntl", None)
            patch.setattr(atomic_write, "exchange", lambda first, second: False)
            for name in ("rename", "replace"):
                patch.setattr(Path, name, _refusing(getattr(Path, name), path.resolve()))
        yield


def _refusing(real, used):
    def refused(source, target):
        for each in (source.resolve(), Path(target).resolve()):
            if each == used or each in used.parents:
                raise PermissionError(errno.EACCES, "Access is denied", str(source), None, str(target))
        return real(source, target)

    return refused
