"""How the library reports its progress: one contract, implemented by its caller (``commands/terminal.py``).

    with progress.bar("calibrate", "picture", total=len(pictures)) as advance:
        for done, picture in enumerate(pictures, 1):
            ...
            advance(done)
    progress.say("a worker process was killed; what it had under way is done again")

A function that takes ``progress`` opens its own bars; one that does a part of the work of its caller's bar takes
``advance``. The defaults do nothing: ``SILENT`` and ``unwatched``. All calls come from the process and the thread that
called the library; what worker processes do is counted when their results arrive.

``bars`` draws the progress of the functions that are called from Python, once the work has lasted a second: by tqdm on
a terminal, by its widget in a notebook.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")
DELAY_SECONDS = 1.0


class Advance(Protocol):
    """Moves a bar."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """``done`` of ``total`` units are done, counted from the beginning; None leaves the total as it was."""


class Progress(Protocol):
    """Shows how far a long piece of work is, and one-line messages on the way."""

    def bar(self, what: str, unit: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """A bar for the work in the ``with`` block: what is done, in which unit, how many of them (None: unknown)."""

    def say(self, line: str) -> None:
        """Show one line, given without a line end."""


def unwatched(done: int, total: int | None = None) -> None:
    """An ``Advance`` that shows nothing."""


class Silent:
    """A ``Progress`` that shows nothing."""

    def bar(self, what: str, unit: str, total: int | None = None) -> AbstractContextManager[Advance]:
        return nullcontext(unwatched)

    def say(self, line: str) -> None:
        pass

    def __repr__(self) -> str:
        return "SILENT"


SILENT: Progress = Silent()


def each(progress: Progress, items: Iterable[Item], what: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """The items themselves, each counted on a bar of its own when the next one is asked for."""
    with progress.bar(what, unit, total) as advance:
        for done, item in enumerate(items, 1):
            yield item
            advance(done)


class Bars:
    """The ``Progress`` of the functions that are called from Python: what is said on the way is a warning."""

    @contextmanager
    def bar(self, what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
        with late_bar(what, unit, total) as advance:
            yield advance

    def say(self, line: str) -> None:
        warnings.warn(line, stacklevel=2)


def bars() -> Progress:
    """Bars in a notebook and on a terminal, else none."""
    return Bars() if _in_notebook() or sys.stderr.isatty() else SILENT


@contextmanager
def late_bar(what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
    """A bar of work that is in the ``with`` block."""
    started, expected = monotonic(), total
    drawn: tqdm[NoReturn] | None = None

    def advance(done: int, total: int | None = None) -> None:
        nonlocal drawn, expected
        expected = expected if total is None else total
        if drawn is None:
            lasted = monotonic() - started
            if lasted < DELAY_SECONDS:
                return
            drawn = _bar(what, unit, expected, lasted)
        drawn.total = None if expected is None else max(done, expected)  # estimates may be too low
        drawn.update(done - drawn.n)

    try:
        yield advance
    finally:
        if drawn is not None:
            drawn.close()


def _bar(what: str, unit: str, total: int | None, seconds: float) -> tqdm[NoReturn]:
    """A bar of work that has lasted ``seconds``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets the terminal's bar
        from tqdm.auto import tqdm  # here, since only work that lasts needs it

    bar: tqdm[NoReturn] = tqdm(desc=what, unit=unit, total=total, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True)
    bar.start_t = bar.last_print_t = bar.start_t - seconds
    return bar


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules
