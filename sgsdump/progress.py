"""Progress bars for the commands: shown on standard error for work over a second, silent otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
DELAY_SECONDS = 1.0


@contextmanager
def counter(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A callback for (done, total) that the library calls as it goes."""
    from tqdm import tqdm

    with tqdm(desc=what, unit=unit, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def counted(items: Iterable[Item], what: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """The items themselves, counted on a bar as they pass."""
    from tqdm import tqdm

    yield from tqdm(items, what, total, unit=unit, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True)
