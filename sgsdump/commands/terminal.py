"""The terminal: its window, and progress on it: bars on standard error for work over a second, one-line messages
between them. Where standard error is no terminal there are no bars."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Literal, NoReturn

from sgsdump.files.escaping import for_terminal
from sgsdump.progress import Advance, Progress, unwatched

if TYPE_CHECKING:
    from tqdm import tqdm

    from sgsdump.reports.terminal.window import Window

DELAY_SECONDS = 1.0


@dataclass(frozen=True)
class Terminal:
    """The ``Progress`` of the commands.

    lines  where ``say`` prints: messages that belong to the result on standard output, warnings on standard error.
    bars   False draws none.
    """

    lines: Literal["stdout", "stderr"] = "stdout"
    bars: bool = True

    @contextmanager
    def bar(self, what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
        if not self.bars or not sys.stderr.isatty():
            yield unwatched
            return
        started, known = monotonic(), total
        drawn: tqdm[NoReturn] | None = None

        def advance(done: int, total: int | None = None) -> None:
            nonlocal drawn, known
            known = known if total is None else total
            if drawn is None:
                lasted = monotonic() - started
                if lasted < DELAY_SECONDS:
                    return
                drawn = _bar(what, unit, known, lasted)
            drawn.total = None if known is None else max(done, known)  # estimates may be too low
            drawn.update(done - drawn.n)

        try:
            yield advance
        finally:
            if drawn is not None:
                drawn.close()

    def say(self, line: str) -> None:
        print(for_terminal(line), file=getattr(sys, self.lines))


TERMINAL: Progress = Terminal()


def _bar(what: str, unit: str, total: int | None, seconds: float) -> tqdm[NoReturn]:
    """A bar of work that has lasted ``seconds``."""
    from tqdm import tqdm  # here, since only work that lasts needs it

    bar: tqdm[NoReturn] = tqdm(desc=what, unit=unit, total=total, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True)
    bar.start_t = bar.last_print_t = bar.start_t - seconds
    return bar


def window() -> Window | None:
    """The window that standard output goes to, None for a pipe or a file. Colours by https://no-color.org."""
    from sgsdump.reports.terminal.window import Window

    if not sys.stdout.isatty():
        return None
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    old_console = os.name == "nt" and "WT_SESSION" not in os.environ
    return Window(shutil.get_terminal_size().columns, not plain and not old_console, sys.stdout.encoding or "utf-8")
