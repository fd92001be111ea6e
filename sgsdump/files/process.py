"""Settings of the whole process while a block runs, restored afterwards: the current folder, signals, the output of
warnings and C libraries; and the cores that it may use."""

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
views_are_given = True  # of the values of large mapped files; see ``no_views``


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def working_in(folder: Path | str) -> Iterator[None]:
    """Makes ``folder`` the current one within the block (``contextlib.chdir`` of Python 3.11)."""
    from pathlib import Path  # ``sgsdump --help`` does without it

    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def ending_on_sigterm(arrived: list[type[KeyboardInterrupt]] | None = None) -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: it raises Terminated, and blocks are left, so nothing half-written stays.

    ``arrived`` gets Terminated then. Does nothing outside the main thread, where no signal can be received, and where
    the caller has its own handler.
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
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the second one would stop the tidying up
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping_for_certain() -> Iterator[None]:
    """A command that was told to stop ends by KeyboardInterrupt or Terminated, whatever became of these on the way: one
    that is raised while a compiled module is being imported comes out of it as ImportError or SystemError.

    Does nothing outside the main thread. Handlers that the caller has of its own stay.
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
    """Within the block no tensor gives a view of a mapped file, however large it is (``mapped.copied``): a command must
    not end by a signal because another program truncates the file."""
    global views_are_given
    before, views_are_given = views_are_given, False
    try:
        yield
    finally:
        views_are_given = before


@contextmanager
def one_line_warnings(program: str) -> Iterator[None]:
    """Python's warnings in the block are one line each on standard error; those for developers (of numpy's arithmetic,
    of Pillow's decoders, of what will be removed) are not shown."""

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
    """Hides what a C library writes to the file descriptor in the block.

    For blocks that only call the library: what another thread writes in the meantime is lost too.
    """
    with _muted:
        try:
            kept = os.dup(descriptor)
        except OSError:  # it is closed
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
    """Write out what C's printf holds back: into a pipe it would come out after the block. Python has its own buffers,
    which this leaves alone."""
    import ctypes

    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)


def cores() -> int:
    """The cores this process may use; more threads than eight only wait for memory."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, available)
