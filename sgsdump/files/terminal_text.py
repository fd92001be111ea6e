"""Text for a person's terminal, whatever its encoding."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def for_terminal(text: str) -> str:
    """The text with what standard output cannot show (names in another encoding, lone surrogates) as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def shown(name: str) -> str:
    """A tensor's name in a table: quoted and escaped where it has line breaks or control characters."""
    return name if name.isprintable() else repr(name)


@contextmanager
def one_line_warnings(program: str) -> Iterator[None]:
    """Python's warnings in the block are one line each on standard error; those for developers (of numpy's arithmetic,
    of Pillow's decoders, of what will be removed) are none."""

    def text(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, RuntimeWarning | DeprecationWarning | FutureWarning | SyntaxWarning):
            return ""
        if f"{os.sep}PIL{os.sep}" in filename:
            return ""
        return f"{program}: warning: {' '.join(str(message).split())}\n"

    before = warnings.formatwarning
    warnings.formatwarning = text
    try:
        yield
    finally:
        warnings.formatwarning = before
