"""Progress bars, drawn once the work has lasted a second: by tqdm on a terminal, by its widget in a notebook."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from sgsdump.progress import SILENT, Advance, Progress

if TYPE_CHECKING:
    from tqdm import tqdm

DELAY_SECONDS = 1.0


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
