"""Pair tensors by the user's name maps, mapping files and rules.

The most reliable source goes first: a name map, then mapping files of operators and layers, then rules. A later source
never overrides an earlier one. A tensor with several possible partners gets none; this is reported, not guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sgsdump.comparison.alignment import Pair, compared, ids_of
from sgsdump.comparison.naming.name_files import LONGEST_NAME, Rule, described, renamed
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.comparison.naming.operator_maps import Key, Link, Output, operator_keys
from sgsdump.comparison.naming.pairs_by_layer import pairs_by_layer
from sgsdump.comparison.naming.sides import Settled, Sides
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError, listed
from sgsdump.files.names import word

SHOWN = 3

K = TypeVar("K")
T = TypeVar("T")
_Operators = Callable[[Output], list[Record]]


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair tensors by the user's name maps, mapping files and rules. Raises ConfigError if they match nothing."""
    assert sides.names is not None, "the way applies only with names from the user"
    told = pairs_by_map(sides.sample, sides.benchmark, sides.names, sides.inputs)
    return replace(told, pairs=(*settled.pairs, *told.pairs), is_told=True)


def pairs_by_map(
    sample: Dump, benchmark: Dump, names: Mapping[str, str] | NameSources, inputs: bool = False
) -> Settled:
    """Return the pairs from a name map (benchmark name -> sample name) or from all name sources of a user.

    Raises ConfigError for a map, an operator file or rules that match no tensor of the two dumps.
    """
    sources = names if isinstance(names, NameSources) else NameSources(names)
    state = Unsettled(compared(sample, inputs), compared(benchmark, inputs))
    if sources.names:
        pairs_by_names(state, sources.names)
    if sources.links:
        pairs_by_links(state, sources.links, (_is_pipeline(sample), _is_pipeline(benchmark)))
    if sources.layers is not None:
        pairs, empty = pairs_by_layer(sample, state.sample, benchmark, state.benchmark, sources.layers)
        state.take(pairs)
    if sources.rules:
        pairs_by_rules(state, sources.rules)
    if sources.layers is not None:
        # the same name elsewhere in the network means another tensor
        state.unmatched.update({id(record): empty[id(record)] for record in state.sample if id(record) in empty})
        state.drop_settled()
    return Settled(tuple(state.pairs), state.unmatched, state.reasons)


def _is_pipeline(dump: Dump) -> bool:
    return dump.format == "dump_info_dir"


def name_map_of(
    pairs: Iterable[tuple[str, str]], sample: Dump, benchmark: Dump
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the name map that reproduces the pairs, and the pairs that it cannot hold (names that are not unique).

    ``pairs`` are (sample name, benchmark name). The map contains only pairs with different names; names make the
    others.
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


@dataclass
class Unsettled:
    """Undecided records, the pairs made, and reasons by record ``id``.

    unmatched  records that must not be paired by name.
    reasons    records that are still unpaired.
    """

    sample: list[Record]
    benchmark: list[Record]
    pairs: list[Pair] = field(default_factory=list)
    unmatched: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)

    def take(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs whose records have one partner.

        The other records become unmatched, with all candidates as the reason.
        """
        unique = {(id(pair.sample), id(pair.benchmark)): pair for pair in pairs}
        partners: defaultdict[int, list[Pair]] = defaultdict(list)
        for pair in unique.values():
            partners[id(pair.sample)].append(pair)
            partners[id(pair.benchmark)].append(pair)
        for pair in unique.values():
            of_sample, of_benchmark = partners[id(pair.sample)], partners[id(pair.benchmark)]
            if len(of_sample) == len(of_benchmark) == 1:
                self.pairs.append(pair)
                continue
            self.unmatched[id(pair.sample)] = _ambiguous(
                of_sample, [p.benchmark for p in of_sample], "benchmark", len(of_benchmark) > 1
            )
            self.unmatched[id(pair.benchmark)] = _ambiguous(
                of_benchmark, [p.sample for p in of_benchmark], "sample", len(of_sample) > 1
            )
        self.drop_settled()

    def drop_settled(self) -> None:
        settled = ids_of(self.pairs) | self.unmatched.keys()
        self.sample = [record for record in self.sample if id(record) not in settled]
        self.benchmark = [record for record in self.benchmark if id(record) not in settled]


def _ambiguous(pairs: list[Pair], partners: list[Record], side: str, contested: bool) -> str:
    hows = " and ".join(dict.fromkeys(pair.how for pair in pairs))
    others = ", which also matches other tensors" if len(pairs) == 1 and contested else ""
    return (
        f"ambiguous: {hows} would pair this tensor with "
        f"{listed([r.name for r in partners], SHOWN, repr)} of the {side}{others}"
    )


def pairs_by_links(state: Unsettled, links: Sequence[Link], pipelines: tuple[bool, bool]) -> None:
    """Pair by operators; ``pipelines`` tells whether sample and benchmark are pipeline folders.

    Files that match only in the other direction (the framework's run is the sample) are read in that direction.
    """
    of_sample, of_benchmark = _by_operator(state.sample, pipelines[0]), _by_operator(state.benchmark, pipelines[1])
    pairs, reasons = _linked(links, of_sample, of_benchmark)
    if not pairs:
        pairs, other_reasons = _linked([link.swapped() for link in links], of_sample, of_benchmark)
        reasons = other_reasons if pairs else reasons
    if not pairs and not reasons:
        first = links[0]
        raise ConfigError(
            f"the {first.rule} names no operator of the two dumps (the first entry of the "
            f"file pairs {first.sample} with {first.benchmark}). Check that the file belongs to this model"
        )
    state.reasons |= reasons
    state.take(pairs)


def _linked(
    links: Sequence[Link], of_sample: _Operators, of_benchmark: _Operators
) -> tuple[list[Pair], dict[int, str]]:
    """Return the pairs of links with both ends present, and reasons for ends without the other."""
    pairs: list[Pair] = []
    reasons: dict[int, str] = {}
    for link in links:
        samples, benchmarks = of_sample(link.sample), of_benchmark(link.benchmark)
        if link.unknown:
            reasons |= dict.fromkeys(map(id, samples), link.unknown)
        elif samples and benchmarks:
            pairs += _each(samples, benchmarks, link.rule)
        else:
            for records, other, side in ((samples, link.benchmark, "benchmark"), (benchmarks, link.sample, "sample")):
                reason = f"the {link.rule} pairs it with {other}, which the {side} does not have"
                reasons |= dict.fromkeys(map(id, records), reason)
    return pairs, reasons


def _each(samples: list[Record], benchmarks: list[Record], rule: str) -> list[Pair]:
    """Pair in order if either side has one name; otherwise pair all with all, which is ambiguous."""
    if len({r.name for r in samples}) == len({r.name for r in benchmarks}) == 1:
        return [Pair(a, b, rule) for a, b in zip(samples, benchmarks)]
    return [Pair(a, b, rule) for a in samples for b in benchmarks]


def _by_operator(records: Iterable[Record], is_pipeline: bool) -> _Operators:
    """Return a function from an operator's output to its records; in a pipeline folder, op_type is the node's name."""
    outputs: defaultdict[Key, dict[int, Record]] = defaultdict(dict)
    for record in records:
        if record.io == "in":
            continue
        keys = operator_keys(record.name, record.slot)
        if is_pipeline and record.op_type:
            keys |= operator_keys(record.op_type, record.slot)
        for key in keys:
            outputs[key][id(record)] = record

    def of(output: Output) -> list[Record]:
        records: dict[int, Record] = {}
        for key in output.keys():  # noqa: SIM118 (no mapping)
            records |= outputs.get(key, {})
        return [*records.values()]

    return of


def pairs_by_names(state: Unsettled, names: Mapping[str, str]) -> None:
    """Pair by a map; in order if a name is not unique.

    A name that is mapped to a missing tensor is never paired by name. A map that matches only in the other direction is
    read in that direction.
    """
    of_sample, of_benchmark = (_grouped(side, lambda r: r.name) for side in (state.sample, state.benchmark))
    how = "map"
    if not _fits(names, of_sample, of_benchmark):
        other_way = {sample: benchmark for benchmark, sample in names.items()}
        if not _fits(other_way, of_sample, of_benchmark):
            side = "sample" if any(name in of_benchmark for name in names) else "benchmark"
            raise ConfigError(
                f"no name in the name map is a tensor of the {side}; each entry must map a benchmark "
                f"name to a sample name (the first entry is {next(iter(names.items()))}). Check that "
                "the map belongs to these models"
            )
        names, how = other_way, "map (sample to benchmark)"
    for benchmark_name, sample_name in names.items():
        samples, benchmarks = of_sample.get(sample_name, []), of_benchmark.get(benchmark_name, [])
        state.pairs += [Pair(a, b, how) for a, b in zip(samples, benchmarks)]
        for record in benchmarks[len(samples) :]:
            state.unmatched[id(record)] = f"the name map pairs it with {sample_name!r}, {_missing(samples, 'sample')}"
        for record in samples[len(benchmarks) :]:
            state.unmatched[id(record)] = (
                f"the name map pairs it with {benchmark_name!r}, {_missing(benchmarks, 'benchmark')}"
            )
    state.drop_settled()


def _fits(names: Mapping[str, str], of_sample: Mapping[str, object], of_benchmark: Mapping[str, object]) -> bool:
    return any(name in of_benchmark for name in names) and any(name in of_sample for name in names.values())


def _missing(records: list[Record], side: str) -> str:
    return f"of which the {side} has fewer" if records else f"which the {side} does not have"


def pairs_by_rules(state: Unsettled, rules: Sequence[Rule]) -> None:
    """Pair the sample's rewritten names with the benchmark's names."""
    of_sample, of_benchmark = (_grouped(side, lambda r: (r.io, r.name)) for side in (state.sample, state.benchmark))
    # Rewritten names of files have _ for every special character.
    by_word = _grouped(of_benchmark, lambda key: (key[0], word(key[1])))
    pairs: list[Pair] = []
    changed = 0
    for (io, name), records in of_sample.items():
        new_name, used = renamed(name, rules)
        changed += bool(used)
        alike = by_word.get((io, word(new_name)), [])
        key = alike[0] if (io, new_name) not in of_benchmark and len(alike) == 1 else (io, new_name)
        others = of_benchmark.get(key, []) if used else []
        pairs += [Pair(a, b, described(used)) for a, b in zip(records, others)]
        if used and not others:
            reason = f"{described(used)} turns the name into {new_name[:200]!r}, which is not in the benchmark"
            state.reasons |= dict.fromkeys(map(id, records), reason)
        elif len(name) > LONGEST_NAME:
            reason = f"its name has more than {LONGEST_NAME} characters, so no rule is applied"
            state.reasons |= dict.fromkeys(map(id, records), reason)
    if not changed and not state.pairs:
        raise ConfigError(
            f"{described(rules)} matches no name of the sample; rules turn sample names into benchmark names"
        )
    # A rewritten name that the sample already has is claimed by two tensors.
    kept = {(record.io, record.name): record for record in state.sample if not renamed(record.name, rules)[1]}
    claims = [
        Pair(kept[key], p.benchmark, "name") for p in pairs if (key := (p.benchmark.io, p.benchmark.name)) in kept
    ]
    state.take([*pairs, *claims])


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: defaultdict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)
