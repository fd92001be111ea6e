"""The window of a terminal, or a pipe: what fits into it, its colours, and what its encoding can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sgsdump.reports.text import LONGEST_NAME, middle_cut, shown, wrapped

EIGHTHS = " ▏▎▍▌▋▊▉█"  # of a bar's last cell
_COLOURS = {"fail": 31, "warn": 33, "pass": 32, "faint": 2}


@dataclass(frozen=True)
class Window:
    """Where text goes: the width of a terminal in cells, None of a pipe, in which nothing is cut; whether it shows
    colours; and the encoding of what is written to it."""

    width: int | None
    colour: bool = False
    encoding: str = "utf-8"

    @property
    def draws(self) -> bool:
        """Whether it can show bars, and ``…`` for what is left out."""
        try:
            f"{EIGHTHS}…".encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True

    @property
    def mark(self) -> str:
        """Stands for the middle of a name that is too long."""
        return "…" if self.draws else ".."

    def text(self, words: str) -> str:
        """The words on one line without control characters, and as escapes what the encoding does not have."""
        return shown(words).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def coloured(self, text: str, kind: str) -> str:
        """As ``fail``, ``warn`` and ``pass`` are shown, and what is ``faint``."""
        return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m" if self.colour and text.strip() else text

    def fitted(self, line: str) -> Iterator[str]:
        """A line of text in lines that fit, long names without their middle."""
        if self.width is None:
            return iter([self.text(line)])
        longest = max(min(self.width - 8, LONGEST_NAME), 8)
        words = (middle_cut(word, longest, self.mark) for word in self.text(line).split(" "))
        return wrapped(" ".join(words), self.width, self.mark)
