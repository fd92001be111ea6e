"""Progress reporting: one protocol, implemented by the caller of the library (``commands/terminal.py``).

    with progress.bar("calibrate", "picture", total=len(pictures)) as advance:
        for done, picture in enumerate(pictures, 1):
            ...
            advance(done)
    progress.say("a worker process was killed; its work is repeated")

A function that takes ``progress`` opens its own bars. A function that does part of the work of its caller's bar takes
``advance``. The defaults ``SILENT`` and ``unwatched`` do nothing. All calls come from the process and the thread that
called the library; work in worker processes is counted when its results arrive.

``bars`` draws the progress of functions that are called from Python, once the work has lasted a second: by tqdm on a
terminal, by its widget in a notebook.
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
    """Callable that moves a bar."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Set the bar to ``done`` of ``total`` units, counted from the beginning; None keeps the total."""


class Progress(Protocol):
    """Display of the progress of long work, and of one-line messages."""

    def bar(self, what: str, unit: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Return a bar for the work in the ``with`` block; a total of None is unknown."""

    def say(self, line: str) -> None:
        """Show one line, given without a line end."""


def unwatched(done: int, total: int | None = None) -> None:
    """Do nothing: the ``Advance`` of work without a bar."""


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
    """Yield the items and count each on its own bar when the next item is requested."""
    with progress.bar(what, unit, total) as advance:
        for done, item in enumerate(items, 1):
            yield item
            advance(done)


class Bars:
    """``Progress`` of functions that are called from Python; messages become warnings."""

    @contextmanager
    def bar(self, what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
        with late_bar(what, unit, total) as advance:
            yield advance

    def say(self, line: str) -> None:
        warnings.warn(line, stacklevel=2)


def bars() -> Progress:
    """Return ``Bars`` in a notebook and on a terminal, else ``SILENT``."""
    return Bars() if _in_notebook() or sys.stderr.isatty() else SILENT


@contextmanager
def late_bar(what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
    """Draw a bar for the work in the ``with`` block once it has lasted ``DELAY_SECONDS``."""
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
        drawn.total = None if expected is None else max(done, expected)  # the total may be an estimate that is too low
        drawn.update(done - drawn.n)

    try:
        yield advance
    finally:
        if drawn is not None:
            drawn.close()


def _bar(what: str, unit: str, total: int | None, seconds: float) -> tqdm[NoReturn]:
    """Return a bar of work that has already lasted ``seconds``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets, a notebook falls back to the terminal's bar
        from tqdm.auto import tqdm  # imported late: only long work needs it

    bar: tqdm[NoReturn] = tqdm(desc=what, unit=unit, total=total, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True)
    bar.start_t = bar.last_print_t = bar.start_t - seconds
    return bar


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules
