"""Context managers for process-wide settings: current folder, signals, warnings, output of C libraries.

Settings are restored at the end of the block. ``cores`` returns the number of usable CPU cores.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED, TERMINATED = 130, 143
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
_muted = threading.Lock()
views_are_given = True  # whether users get views of large mapped files; see ``no_views``


class Terminated(KeyboardInterrupt):
    """Exception raised by SIGTERM."""


@contextmanager
def working_in(folder: Path | str) -> Iterator[None]:
    """Make ``folder`` the current folder within the block (``contextlib.chdir`` needs Python 3.11)."""
    from pathlib import Path  # keeps ``sgsdump --help`` fast

    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def ending_on_sigterm(arrived: list[type[KeyboardInterrupt]] | None = None) -> Iterator[None]:
    """Make SIGTERM raise Terminated within the block, as Ctrl-C raises KeyboardInterrupt.

    Blocks are left normally; no half-written file remains. Terminated is also appended to ``arrived``. Nothing happens
    outside the main thread, where no signal can be received, or if the caller has its own handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        if arrived is not None:
            arrived.append(Terminated)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM would interrupt the cleanup
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping_for_certain() -> Iterator[None]:
    """Ensure that a stopped command ends with KeyboardInterrupt or Terminated.

    An interrupt raised while a compiled module is imported becomes an ImportError or SystemError; this block converts
    such an error back. Nothing happens outside the main thread. The caller's own handlers stay.
    """
    arrived: list[type[KeyboardInterrupt]] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def interrupt(*_: object) -> None:
        arrived.append(KeyboardInterrupt)
        raise KeyboardInterrupt

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        with ending_on_sigterm(arrived):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        if arrived:
            raise arrived[0] from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def no_views() -> Iterator[None]:
    """Replace views of mapped files by copies within the block (``mapped.copied``), whatever their size.

    A command must not end by a signal because another program truncates the file.
    """
    global views_are_given
    before, views_are_given = views_are_given, False
    try:
        yield
    finally:
        views_are_given = before


@contextmanager
def one_line_warnings(program: str) -> Iterator[None]:
    """Print each Python warning within the block as one line on standard error.

    Warnings for developers (numpy arithmetic, Pillow decoders, deprecations) are hidden.
    """

    def text(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        for_developers = RuntimeWarning | DeprecationWarning | FutureWarning | SyntaxWarning
        if issubclass(category, for_developers) or f"{os.sep}PIL{os.sep}" in filename:
            return ""
        return f"{program}: warning: {' '.join(str(message).split())}\n"

    before = warnings.formatwarning
    warnings.formatwarning = text
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextmanager
def no_native_messages(descriptor: int = STANDARD_ERROR) -> Iterator[None]:
    """Hide output of C libraries to the file descriptor within the block.

    Use this only around calls of the library: output of other threads is lost too.
    """
    with _muted:
        try:
            kept = os.dup(descriptor)
        except OSError:  # the descriptor is closed
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        _flush_c()
        try:
            os.dup2(nowhere, descriptor)
            yield
        finally:
            _flush_c()
            os.dup2(kept, descriptor)
            os.close(kept)
            os.close(nowhere)


def _flush_c() -> None:
    """Flush the buffers of C's printf, whose text would reach a pipe after the block; Python's buffers are separate."""
    import ctypes

    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)


def cores() -> int:
    """Return the number of cores that this process may use, at most eight: more threads only wait for memory."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, available)
