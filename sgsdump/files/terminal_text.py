"""Text for a person's terminal, whatever its encoding."""

from __future__ import annotations

import sys


def for_terminal(text: str) -> str:
    """The text with what standard output cannot show (names in another encoding, lone surrogates) as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def shown(name: str) -> str:
    """A tensor's name in a table: quoted and escaped where it has line breaks or control characters."""
    return name if name.isprintable() else repr(name)
