"""Contents of a model file in its own format, listed by ``show`` without running the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

NAME = "name"


@dataclass(frozen=True)
class ModelListing:
    """Contents of a model file.

    kind       file type in the user's words
    facts      properties of the whole file, by label
    operators  one row per operator: ``name`` of its first output, type and options
    tensors    one row per tensor: ``name`` and properties in the file; all rows of a list have the same keys
    """

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    operators: Sequence[Mapping[str, Any]] = ()
    tensors: Sequence[Mapping[str, Any]] = ()

    def selected(self, patterns: Sequence[str]) -> ModelListing:
        """Return the rows whose names match one of the patterns, or all rows without patterns."""
        if not patterns:
            return self

        def kept(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
            return [row for row in rows if any(fnmatchcase(row[NAME], pattern) for pattern in patterns)]

        return replace(self, operators=kept(self.operators), tensors=kept(self.tensors))


@dataclass(frozen=True)
class ListedDifference:
    """A tensor property that differs between two files; None for a file without the tensor or the property."""

    name: str
    word: str
    sample: Any
    benchmark: Any


def differences(sample: ModelListing, benchmark: ModelListing, words: Sequence[str]) -> list[ListedDifference]:
    """Return the differences of two files in these properties of their tensors, in the order of the sample.

    A tensor that one file lacks is a difference too.
    """
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
