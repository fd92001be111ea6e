"""Progress on the terminal: bars on standard error for work over a second, one-line messages between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sgsdump.files.terminal_text import for_terminal
from sgsdump.progress import Advance, Progress, unwatched

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
        if not self.bars:
            yield unwatched
            return
        from tqdm import tqdm

        with tqdm(desc=what, total=total, unit=unit, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True) as shown:

            def advance(done: int, total: int | None = None) -> None:
                if total is not None:
                    shown.total = total
                if shown.total is not None:
                    shown.total = max(done, shown.total)  # estimates may be too low
                shown.update(done - shown.n)

            yield advance

    def say(self, line: str) -> None:
        print(for_terminal(line), file=getattr(sys, self.lines))


TERMINAL: Progress = Terminal()
