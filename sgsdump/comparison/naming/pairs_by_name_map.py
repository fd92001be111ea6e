"""Pairing by a name map: benchmark name -> sample name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from sgsdump.comparison.naming.unsettled import Unsettled
from sgsdump.comparison.pairing.alignment import Pair, compared
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError


def pairs_by_names(state: Unsettled, names: Mapping[str, str]) -> None:
    """Pair by a map; k-th with k-th where a name is not unique.

    What is mapped to a tensor that its dump does not have is set apart: it is never paired by name. A map that fits
    only the other way round is read so.
    """
    of_sample, of_benchmark = _by_name(state.sample), _by_name(state.benchmark)
    how = "map"
    if not _fits(names, of_sample, of_benchmark):
        other_way = {sample: benchmark for benchmark, sample in names.items()}
        if not _fits(other_way, of_sample, of_benchmark):
            side = "sample" if any(name in of_benchmark for name in names) else "benchmark"
            raise ConfigError(
                f"the name map names no tensor of the {side}; it must map benchmark names to sample names "
                f"(it begins with {next(iter(names.items()))}): is it of other models?"
            )
        names, how = other_way, "map (sample to benchmark)"
    for benchmark_name, sample_name in names.items():
        left, right = of_sample.get(sample_name, []), of_benchmark.get(benchmark_name, [])
        state.pairs += [Pair(a, b, how) for a, b in zip(left, right)]
        for record in right[len(left) :]:
            state.apart[id(record)] = f"the name map pairs it with {sample_name!r}, {_missing(left, 'sample')}"
        for record in left[len(right) :]:
            state.apart[id(record)] = f"the name map pairs it with {benchmark_name!r}, {_missing(right, 'benchmark')}"
    state.drop_settled()


def _fits(names: Mapping[str, str], of_sample: Mapping[str, object], of_benchmark: Mapping[str, object]) -> bool:
    return any(name in of_benchmark for name in names) and any(name in of_sample for name in names.values())


def name_map_of(
    pairs: Iterable[tuple[str, str]], sample: Dump, benchmark: Dump
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The name map that makes the same pairs again, and the pairs it cannot hold (names that are not unique).

    ``pairs`` are (sample name, benchmark name). Only those whose names differ are in the map; names make the others.
    """
    of_sample, of_benchmark = (Counter(record.name for record in compared(dump, True)) for dump in (sample, benchmark))
    names: dict[str, str] = {}
    left_out = []
    for sample_name, benchmark_name in pairs:
        if sample_name == benchmark_name:
            continue
        if of_sample[sample_name] == of_benchmark[benchmark_name] == 1:
            names[benchmark_name] = sample_name
        else:
            left_out.append((sample_name, benchmark_name))
    return names, left_out


def _by_name(records: Iterable[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.name].append(record)
    return groups


def _missing(records: list[Record], side: str) -> str:
    return f"of which the {side} has fewer" if records else f"which the {side} does not have"
