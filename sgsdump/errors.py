"""Errors that sgsdump raises on purpose.

Each message is one line that says what is wrong, where, and what to do next.

Everything that a user can cause (a bad file, a wrong option, a full disk) ends as a ``SgsdumpError``. The command line
prints its text after ``sgsdump: error:`` and exits with status 2. Any other exception is a bug in sgsdump.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"  # compiled on first use, which keeps the start fast
_BEGINNING, _END = 1500, 300


def one_line(text: str) -> str:
    """Return ``text`` on one line of at most about 1800 characters.

    Tensor names and file names come from files: they may have any length and hold line ends or terminal commands.
    """
    text = re.sub(_CONTROL, lambda match: repr(match[0])[1:-1], text)
    return text if len(text) <= _BEGINNING + _END + 3 else f"{text[:_BEGINNING]} … {text[-_END:]}"


class SgsdumpError(Exception):
    """Base class of all errors that sgsdump raises on purpose; its text is always one line.

    Parameters
    ----------
    reason : str
        What is wrong and, where possible, what to do next.
    tensor : str, optional
        Name of the tensor, placed at the beginning of the text.

    Notes
    -----
    Code raises the subclasses, never this class itself.

    Examples
    --------
    >>> str(ValuesError("has no values", tensor="x"))
    "tensor 'x' has no values"
    """

    def __init__(self, reason: str = "", tensor: str | None = None) -> None:
        super().__init__(reason if tensor is None else f"tensor {tensor!r} {reason}")
        self._reason = reason
        self.tensor = tensor

    def reason_of(self, *names: str) -> str:
        """Return the text without its tensor's name if that name is one of ``names``.

        Callers that print the tensor name themselves use this method, so that several tensors can share a reason.
        """
        return one_line(self._reason) if self.tensor in names else str(self)

    def __str__(self) -> str:
        return one_line(super().__str__())


class FormatError(SgsdumpError):
    """A file is truncated, has another format, or contradicts itself."""


class UnknownFormat(FormatError):
    """No format recognises a path.

    Parameters
    ----------
    reason : str
        What the path looks like, and the option that most likely opens it.
    hints : sequence of str, optional
        Further lines: the most likely formats, each with the option that opens it. The command line prints them below
        the error.
    """

    def __init__(self, reason: str, hints: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.hints = tuple(map(one_line, hints))


class NotATensor(FormatError):
    """A file or archive member is intact but does not hold numbers; for example, it holds Python objects."""


class FileChanged(FormatError):
    """A file was truncated, rewritten, replaced or deleted after it was opened.

    The values read before and after the change belong to different runs, so a command ends.
    """


class ConfigError(SgsdumpError):
    """An option or a side file contains an invalid setting."""


class ModelError(SgsdumpError):
    """A model cannot be read, or cannot be used for the requested operation."""


class InputError(SgsdumpError):
    """An image, array or preprocess file cannot feed the model."""


class ValuesError(SgsdumpError):
    """The values of a tensor are not available: missing from the file, padded, or with an unknown scale."""


class LossWarning(UserWarning):
    """Warning of ``save_dump``: the format cannot hold all metadata or values. The message names the lost items."""


class OutputError(SgsdumpError):
    """A result could not be written: missing folder, full disk, no permission."""


class MissingExtra(SgsdumpError):
    """An optional package is missing; the message names the extra that installs it."""


class WorkerError(SgsdumpError):
    """Worker processes or the cluster cannot be reached, have stopped, or are unsuitable for the task."""


LONGEST = 200


def hint(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """Return ``; did you mean 'conv1'?`` for a near miss, the choices if they are few, else ""."""
    if near := did_you_mean(name, known):
        return near
    return f"; choose one of: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def did_you_mean(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """Return ``; did you mean 'conv1'?`` for a near miss, else ""."""
    import difflib

    # difflib's run time grows with the product of both lengths
    name, short = name[:LONGEST], [n for n in known if len(n) <= LONGEST]
    near = difflib.get_close_matches(name, short, n=3, cutoff=0.6) or _alike(name, short)
    return "; did you mean " + " or ".join(repr(n) for n in near) + "?" if near else ""


def _alike(name: str, known: list[str]) -> list[str]:
    """Return at most three names that match without case, ``_`` and ``-``: equal, with this prefix, or similar."""
    import difflib

    letters = _letters(name)
    names = {_letters(n): n for n in reversed(known)}
    begun = [n for other, n in names.items() if len(letters) > 2 and other.startswith(letters)]
    near = [names[letters]] if letters in names else begun[::-1]
    return (near or [names[n] for n in difflib.get_close_matches(letters, names, n=3, cutoff=0.6)])[:3]


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def listed(names: Sequence[str], most: int = 3, shown: Callable[[str], str] = str) -> str:
    """Return ``a, b, c and 4 more``: the first names, each formatted by ``shown``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more
