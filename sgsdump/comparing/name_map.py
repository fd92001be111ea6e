"""Pairing by a name map, and making one of a comparison's pairs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from sgsdump.comparing.align import Given, Pair, compared
from sgsdump.dump import Dump, Record
from sgsdump.errors import ConfigError


def pairs_by_map(sample: Dump, benchmark: Dump, names: Mapping[str, str], inputs: bool = False) -> Given:
    """The pairs that ``names`` (benchmark name -> sample name) makes, k-th with k-th where a name is not unique.

    What is mapped to a tensor that its dump does not have is set apart: it is never paired by name. Raises
    ConfigError when the map names no tensor of the benchmark, or none of the sample.
    """
    ours, theirs = _by_name(compared(sample, inputs)), _by_name(compared(benchmark, inputs))
    if names:
        for side, known, wanted in (("benchmark", theirs, list(names)), ("sample", ours, list(names.values()))):
            if not any(name in known for name in wanted):
                raise ConfigError(
                    f"the name map names no tensor of the {side}; it must map benchmark names to sample names "
                    f"(it begins with {next(iter(names.items()))}): is it the other way round, or of other models?"
                )
    pairs: list[Pair] = []
    apart: dict[int, str] = {}
    for benchmark_name, sample_name in names.items():
        left, right = ours.get(sample_name, []), theirs.get(benchmark_name, [])
        pairs += [Pair(a, b, "map") for a, b in zip(left, right)]
        for record in right[len(left) :]:
            apart[id(record)] = f"the name map pairs it with {sample_name!r}, {_missing(left, 'sample')}"
        for record in left[len(right) :]:
            apart[id(record)] = f"the name map pairs it with {benchmark_name!r}, {_missing(right, 'benchmark')}"
    return Given(tuple(pairs), apart)


def names_of(
    pairs: Iterable[tuple[str, str]], sample: Dump, benchmark: Dump
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The name map that makes the same pairs again, and the pairs it cannot hold (names that are not unique).

    ``pairs`` are (sample name, benchmark name). Only those whose names differ are in the map; names make the others.
    """
    ours, theirs = (Counter(record.name for record in compared(dump, True)) for dump in (sample, benchmark))
    names: dict[str, str] = {}
    left_out = []
    for sample_name, benchmark_name in pairs:
        if sample_name == benchmark_name:
            continue
        if ours[sample_name] == theirs[benchmark_name] == 1:
            names[benchmark_name] = sample_name
        else:
            left_out.append((sample_name, benchmark_name))
    return names, left_out


def _by_name(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[record.name].append(record)
    return found


def _missing(found: list[Record], side: str) -> str:
    return f"of which the {side} has fewer" if found else f"which the {side} does not have"
