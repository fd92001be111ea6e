"""Working in another folder for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def working_in(folder: Path | str) -> Iterator[None]:
    """Makes ``folder`` the current one within the block (``contextlib.chdir`` of Python 3.11)."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
