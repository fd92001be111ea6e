"""A ``Progress`` that remembers what it was shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sgsdump.progress import Advance


@dataclass
class Bar:
    """``steps`` are (done, total known by then); ``open`` until the ``with`` block ends."""

    what: str
    unit: str
    total: int | None
    steps: list[tuple[int, int | None]] = field(default_factory=list)
    open: bool = True

    @property
    def is_full(self) -> bool:
        """Ended, having counted up to its total without a step back."""
        return not self.open and self.steps == sorted(self.steps) and self.steps[-1] == (self.total, self.total)


@dataclass
class Watched:
    bars: list[Bar] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @contextmanager
    def bar(self, what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
        bar = Bar(what, unit, total)
        self.bars.append(bar)

        def advance(done: int, total: int | None = None) -> None:
            bar.total = bar.total if total is None else total
            bar.steps.append((done, bar.total))

        try:
            yield advance
        finally:
            bar.open = False

    def say(self, line: str) -> None:
        self.lines.append(line)
