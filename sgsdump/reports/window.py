"""Output window, a terminal or a pipe: its width, its colours and its encoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sgsdump.reports.text import LONGEST_NAME, middle_cut, shown, wrapped

EIGHTHS = " ▏▎▍▌▋▊▉█"  # fill levels of a bar's last cell
_COLOURS = {"fail": 31, "warn": 33, "pass": 32, "faint": 2}


@dataclass(frozen=True)
class Window:
    """Output window.

    width     width in cells; None for a pipe, where nothing is shortened.
    colour    whether the terminal shows colours.
    encoding  encoding of the output.
    """

    width: int | None
    colour: bool = False
    encoding: str = "utf-8"

    @property
    def draws(self) -> bool:
        """True if the encoding has the characters of bars and ``…``."""
        try:
            f"{EIGHTHS}…".encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True

    @property
    def mark(self) -> str:
        """Mark that replaces the middle of a long name."""
        return "…" if self.draws else ".."

    def text(self, words: str) -> str:
        """Return the words on one line, with control characters and characters not in the encoding as escapes."""
        return shown(words).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def coloured(self, text: str, kind: str) -> str:
        """Return the text in the colour of ``fail``, ``warn``, ``pass`` or ``faint``."""
        return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m" if self.colour and text.strip() else text

    def fitted(self, line: str) -> Iterator[str]:
        """Return the line broken into lines that fit; long names lose their middle."""
        if self.width is None:
            return iter([self.text(line)])
        longest = max(min(self.width - 8, LONGEST_NAME), 8)
        words = (middle_cut(word, longest, self.mark) for word in self.text(line).split(" "))
        return wrapped(" ".join(words), self.width, self.mark)
