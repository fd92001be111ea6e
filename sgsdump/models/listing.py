"""A model file as its own format has it, for ``show``: what a model reader lists without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

NAME = "name"


@dataclass(frozen=True)
class ModelListing:
    """A listed model file.

    kind       what the file is, as a user calls it.
    facts      what holds for the whole file, by a word for it.
    operators  a row per operator: ``name`` of its first output, its type and options.
    tensors    a row per tensor: ``name``, and what the file says of it. All rows of a list have the same keys.
    """

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    operators: Sequence[Mapping[str, Any]] = ()
    tensors: Sequence[Mapping[str, Any]] = ()

    def selected(self, patterns: Sequence[str]) -> ModelListing:
        """Return the rows whose names match one of the patterns; all of them without patterns."""
        if not patterns:
            return self

        def kept(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
            return [row for row in rows if any(fnmatchcase(row[NAME], pattern) for pattern in patterns)]

        return replace(self, operators=kept(self.operators), tensors=kept(self.tensors))


@dataclass(frozen=True)
class ListedDifference:
    """A tensor of which two files say different things; None for a file that lacks the tensor or the word."""

    name: str
    word: str
    sample: Any
    benchmark: Any


def differences(sample: ModelListing, benchmark: ModelListing, words: Sequence[str]) -> list[ListedDifference]:
    """Return where two files differ in these words of their tensors, and which tensors one of them lacks, in the order
    of the sample."""
    rows, others = ({row[NAME]: row for row in listing.tensors} for listing in (sample, benchmark))
    found = []
    for name in dict.fromkeys((*rows, *others)):
        row, other = rows.get(name), others.get(name)
        if row is None or other is None:
            found.append(ListedDifference(name, "tensor", row and "present", other and "present"))
            continue
        found += [
            ListedDifference(name, word, row.get(word), other.get(word))
            for word in words
            if row.get(word) != other.get(word)
        ]
    return found
