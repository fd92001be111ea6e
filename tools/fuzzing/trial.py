"""Reading one file that may be damaged, and what counts as a finding: anything but a dump or one line of complaint.

* an exception outside ``SgsdumpError``, or a warning that would be printed
* a message or note of several lines
* values of another shape or type than the facts said
* more than SECONDS of computing, or BLOCKED_SECONDS of any time: waiting for a pipe (tried again, to be sure)
* more memory than the file has bytes and ALLOWED more, as ``tracemalloc`` counts it, which sees numpy's arrays too. The
  constant covers what the smallest file costs (numpy's and zlib's buffers, a .npy header) and what small files, which
  these are, may honestly become: 24 times their bytes as float32 by way of int64, 30 times as parsed JSON.
"""

from __future__ import annotations

import resource
import signal
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from sgsdump.errors import SgsdumpError

SECONDS = 2.0
BLOCKED_SECONDS = 10.0
_TRACED_SLOWER = 6
ALLOWED = 4 * 2**20
MOST_RSS = 64 * 2**20
_LONGEST = 2000


class Finding(NamedTuple):
    """``what`` went wrong, one line, the same for the same defect; ``details`` for people."""

    what: str
    details: str


class Hang(BaseException):
    """Raised by the timer; no reader catches it."""


class Contradiction(Exception):
    """What a reader gave is not what it said."""


def tried(
    read: Callable[[Path], Any], path: Path, size: int, traced: bool, slower: int = 1
) -> tuple[bool, Finding | None]:
    """Read a file or folder of ``size`` bytes: whether it was opened, and the finding if there is one.

    ``slower`` multiplies the limits of time and memory."""
    try:
        return _measured(read, path, size, traced, slower), None
    except Hang:
        try:
            return _measured(read, path, size, traced, slower), None
        except Hang as again:
            return False, _finding(again)
        except Exception as error:
            return False, _finding(error)
    except Exception as error:
        return False, _finding(error)


def check_lines(*lines: str) -> None:
    """Raises Contradiction for a message that is not one line of a length to be read."""
    for line in lines:
        if "\n" in line or len(line) > _LONGEST:
            raise Contradiction(f"a message of several lines or {len(line)} characters: {line[:300]!r}")


def _measured(read: Callable[[Path], Any], path: Path, size: int, traced: bool, slower: int) -> bool:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    opened, peak = _traced(read, path, slower) if traced else (_timed(read, path, slower), 0)
    if peak > size + ALLOWED * slower:
        # The first reading may have imported modules, which counts too.
        opened, peak = _traced(read, path, slower)
    if peak > size + ALLOWED * slower:
        raise Contradiction(f"takes {peak} bytes of memory for a file of {size}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > MOST_RSS * slower:
        raise Contradiction(f"the process grows by {grown} bytes for a file of {size}")
    return opened


def _timed(read: Callable[[Path], Any], path: Path, slower: int) -> bool:
    with _alarm(slower), warnings.catch_warnings():
        for kind in (RuntimeWarning, UserWarning, SyntaxWarning, FutureWarning):
            warnings.simplefilter("error", kind)
        start = time.process_time()
        try:
            read(path)
            opened = True
        except SgsdumpError as error:
            check_lines(str(error))
            opened = False
        if time.process_time() - start > SECONDS * slower:
            raise Hang
    return opened


@contextmanager
def _alarm(slower: int) -> Iterator[None]:
    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, SECONDS * slower),
        signal.ITIMER_REAL: (signal.SIGALRM, BLOCKED_SECONDS * slower),
    }
    before = {number: signal.signal(number, _ring) for number, _ in timers.values()}
    try:
        for timer, (_, limit) in timers.items():
            signal.setitimer(timer, limit)
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _ring(number: int, frame: FrameType | None) -> None:
    raise Hang


def _finding(error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "sgsdump" in Path(frame.filename).parts] or frames[-1:]
    message = " ".join(str(error).split())[:60] if isinstance(error, Contradiction) else ""
    words = " ".join(word for word in message.split() if not any(map(str.isdigit, word)))
    where = "" if isinstance(error, Contradiction) else f" in {own[-1].name} ({Path(own[-1].filename).name})"
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-3000:]
    return Finding(f"{type(error).__name__}{where} {words}".strip(), details)


def _traced(read: Callable[[Path], Any], path: Path, slower: int) -> tuple[bool, int]:
    """Whether the file was opened, and the most memory that reading it took."""
    tracemalloc.start(1)
    try:
        return _timed(read, path, slower * _TRACED_SLOWER), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
