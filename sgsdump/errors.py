"""The errors sgsdump raises on purpose. Each message is one line: what is wrong, where, and what to do next.

Everything a user can cause (a bad file, a wrong option, a full disk) ends as a ``SgsdumpError``; the command line
prints its text after ``sgsdump: error:`` and exits with status 2. Any other exception is a bug in sgsdump.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"  # compiled when it is used, not at every start
_BEGINNING, _END = 1500, 300


def one_line(text: str) -> str:
    """``text`` on one line of at most some 1800 characters: what a file says of itself (its tensors' names, its own
    name) may be of any length and hold line ends and a terminal's commands."""
    text = re.sub(_CONTROL, lambda match: repr(match[0])[1:-1], text)
    return text if len(text) <= _BEGINNING + _END + 3 else f"{text[:_BEGINNING]} … {text[-_END:]}"


class SgsdumpError(Exception):
    """Root of the tree; raise a kind below. As text it is one line, whatever names are in it.

    tensor  the name of the tensor that the text begins with: ``ValuesError("has no values", tensor="x")`` reads
            ``tensor 'x' has no values``.
    """

    def __init__(self, reason: str = "", tensor: str | None = None) -> None:
        super().__init__(reason if tensor is None else f"tensor {tensor!r} {reason}")
        self._reason = reason
        self.tensor = tensor

    def reason_of(self, *names: str) -> str:
        """The text, without the name of its tensor where that is one of ``names``: it is told beside the reason then,
        which other tensors may share."""
        return one_line(self._reason) if self.tensor in names else str(self)

    def __str__(self) -> str:
        return one_line(super().__str__())


class FormatError(SgsdumpError):
    """A file is not what it should be: truncated, of another format, or contradicting itself."""


class NotATensor(FormatError):
    """A file or member that is whole and holds something other than numbers, such as Python objects."""


class FileChanged(FormatError):
    """A file is not the one that was opened any more: truncated, rewritten, replaced or gone. What was read of it and
    what would be read now are of two runs, so a command ends."""


class ConfigError(SgsdumpError):
    """A side file or an option asks for something that cannot be."""


class ModelError(SgsdumpError):
    """A model cannot be read, or cannot do what is asked of it."""


class InputError(SgsdumpError):
    """A picture, array or preprocess file cannot feed the model."""


class ValuesError(SgsdumpError):
    """A tensor is known but its values are not: left out of the file, padded, or of unknown scale."""


class LossWarning(UserWarning):
    """``save_dump`` wrote a dump in a format that cannot hold everything; the message names what was lost."""


class OutputError(SgsdumpError):
    """A result could not be written: missing folder, full disk, no permission."""


class MissingExtra(SgsdumpError):
    """An optional package is absent; the message names the extra that brings it."""


class WorkerError(SgsdumpError):
    """The processes or the cluster that were to share the work cannot be reached, were lost, or do not fit."""


LONGEST = 200


def hint(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """``; did you mean 'conv1'?`` for a near miss, the choices when they are few, else an empty string."""
    if near := did_you_mean(name, known):
        return near
    return f"; choose one of: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def did_you_mean(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """As ``hint``, of a near miss alone."""
    import difflib

    # difflib takes the product of both lengths
    name, short = name[:LONGEST], [n for n in known if len(n) <= LONGEST]
    near = difflib.get_close_matches(name, short, n=3, cutoff=0.6) or _alike(name, short)
    return "; did you mean " + " or ".join(repr(n) for n in near) + "?" if near else ""


def _alike(name: str, known: list[str]) -> list[str]:
    """At most three names that are near but for case, ``_`` and ``-``: the same, begun so, else of like letters."""
    import difflib

    letters = _letters(name)
    names = {_letters(n): n for n in reversed(known)}
    begun = [n for other, n in names.items() if len(letters) > 2 and other.startswith(letters)]
    near = [names[letters]] if letters in names else begun[::-1]
    return (near or [names[n] for n in difflib.get_close_matches(letters, names, n=3, cutoff=0.6)])[:3]


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def listed(names: Sequence[str], most: int = 3, shown: Callable[[str], str] = str) -> str:
    """``a, b, c and 4 more``: the first of many names, each as it is to be ``shown``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more
