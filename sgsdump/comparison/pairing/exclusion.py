"""Layers that a comparison leaves out: by patterns of their names, and what has no values that mean anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from sgsdump.comparison.pairing.alignment import Alignment
from sgsdump.dumps.dump import Record
from sgsdump.errors import ConfigError
from sgsdump.registry import hint


def without(alignment: Alignment, patterns: Sequence[str]) -> tuple[Alignment, tuple[str, ...]]:
    """What is left without the names that fit a pattern, and these names. Raises ConfigError for one that fits none."""
    if isinstance(patterns, str):
        raise ConfigError(f"exclude is a list of patterns, not a string; write exclude={[patterns]}")
    names: dict[str, None] = {}

    def stays(*records: Record) -> bool:
        fitting = [r.name for r in records if any(fnmatchcase(r.name, pattern) for pattern in patterns)]
        names.update(dict.fromkeys(fitting[-1:]))
        return not fitting

    kept = Alignment(
        tuple(pair for pair in alignment.pairs if stays(pair.sample, pair.benchmark)),
        tuple(one for one in alignment.only_in_sample if stays(one.record)),
        tuple(one for one in alignment.only_in_benchmark if stays(one.record)),
    )
    every = [r.name for pair in alignment.pairs for r in (pair.sample, pair.benchmark)]
    every += [one.record.name for one in alignment.only_in_sample + alignment.only_in_benchmark]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ConfigError(f"nothing is named {pattern!r} among the compared tensors{hint(pattern, every)}")
    return kept, tuple(names)


def without_unwritten(alignment: Alignment) -> tuple[Alignment, tuple[str, ...]]:
    """What is left without the pairs of which a side is memory that nothing had been written to, and their names."""
    apart = [pair for pair in alignment.pairs if pair.sample.unwritten or pair.benchmark.unwritten]
    if not apart:
        return alignment, ()
    left = tuple(pair for pair in alignment.pairs if not (pair.sample.unwritten or pair.benchmark.unwritten))
    return replace(alignment, pairs=left), tuple(dict.fromkeys(pair.benchmark.name for pair in apart))
