"""A configuration file that is edited while the program runs: read again when it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sgsdump.capture.control import DumpControl
from sgsdump.errors import SgsdumpError


class LiveConfig:
    """Called again and again it gives the control when the file has changed since, else None.

    ``read`` makes the control of the file; where it cannot, ``tell`` is called with the reason, and the last control
    stays in force: ``latest`` is the last that it gave.
    """

    def __init__(self, path: Path, read: Callable[[], DumpControl], tell: Callable[[str], None]) -> None:
        self._path, self._read, self._tell = path, read, tell
        self._seen = self._state()
        self.latest: DumpControl | None = None

    def __call__(self) -> DumpControl | None:
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state
        try:
            self.latest = self._read()
        except SgsdumpError as error:
            self._tell(f"the changed configuration is not taken: {error}")
            return None
        return self.latest

    def _state(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino
