"""How the library reports its progress: one contract, implemented by its caller (``commands/terminal.py``).

    with progress.bar("calibrate", "picture", total=len(pictures)) as advance:
        for done, picture in enumerate(pictures, 1):
            ...
            advance(done)
    progress.say("a worker process was killed; what it had under way is done again")

A function that takes ``progress`` opens its own bars; one that does a part of the work of its caller's bar takes
``advance``. The defaults do nothing: ``SILENT`` and ``unwatched``. All calls come from the process and the thread that
called the library; what worker processes do is counted when their results arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

Item = TypeVar("Item")


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
