"""First stage of ``compare``: pair the tensors of two dumps, and give a reason for each tensor without a partner.

``WAYS`` lists all ways of pairing, the most reliable first. Each is a function ``propose(sides, settled)`` that adds
pairs with their reasons and never removes a pair. Every unpaired tensor is kept with a reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from sgsdump.comparison.account import Completeness
from sgsdump.comparison.alignment import Alignment, Pair, Unpaired, compared, ids_of
from sgsdump.comparison.completeness import completeness_of
from sgsdump.comparison.dataflow import known_sources
from sgsdump.comparison.environment import within_module
from sgsdump.comparison.naming.fused_parts import split_fused
from sgsdump.comparison.naming.sides import Settled, Sides, listed_names, slot_of
from sgsdump.dumps.dump import Dump, Network, Record
from sgsdump.errors import ConfigError, hint
from sgsdump.files.names import normalised
from sgsdump.registry import imported

Propose = Callable[[Sides, Settled], Settled]
Way = tuple[Callable[[Sides, Settled], bool], str]
# Name -> (test whether the way applies, target of its function); the target is imported only if the way applies.
_OF = "sgsdump.comparison.naming.pairs_by_"
BY_NAME: dict[str, Way] = {
    "stages of Caffe blobs": (Sides.names_differ, f"{_OF}stage:propose"),
    "the only tensor": (Sides.is_nothing_paired, f"{_OF}name:only_tensor"),
    "same name": (Sides.is_open, f"{_OF}name:same_name"),
    "same name, another slot": (Sides.is_open, f"{_OF}name:same_name_of_another_slot"),
    "normalised name": (Sides.is_open, f"{_OF}name:normalised_name"),
    "cut name": (Sides.is_open, f"{_OF}name:cut_name"),
    "words of a name": (Sides.is_open, f"{_OF}name:word_of_name"),
}
WAYS: dict[str, Way] = {
    "name maps and rules": (Sides.have_maps, f"{_OF}map:propose"),
    "equal values": (Sides.are_paired_by_value, f"{_OF}value:propose"),
    "quantised values": (Sides.names_differ, f"{_OF}quantisation:propose"),
    "fused names": (Sides.have_fused_names, f"{_OF}fusion:propose"),
    "place in the network": (Sides.have_operators, f"{_OF}network:propose"),
    **BY_NAME,
}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Result of the first stage.

    whole         both dumps as given, limited to one module if only that module was dumped.
    dumps         the same dumps with fused modules split.
    alignment     pairs to measure, and tensors without a partner.
    settled       positions of the tensors in their networks (``settled.places``).
    sources       benchmark output -> outputs that feed it, if the dumps' inputs do not show it.
    completeness  layers and runs that the sample lacks.
    excluded      names that the user excluded.
    unwritten     names of tensors that are unwritten memory on either side.
    """

    whole: tuple[Dump, Dump]
    dumps: tuple[Dump, Dump]
    networks: tuple[Network, Network]
    alignment: Alignment
    settled: Settled
    sources: Mapping[str, tuple[str, ...]]
    completeness: Completeness
    excluded: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()


def align(sides: Sides, exclude: Sequence[str] = ()) -> Pairs:
    """Pair the tensors of two dumps.

    Parameters
    ----------
    sides
        Both dumps, and the user's name maps and rules.
    exclude
        Patterns of names to leave out.

    Raises
    ------
    ConfigError
        If a name map fits neither dump, or a pattern matches no tensor.
    """
    networks = sides.networks
    whole = within_module((sides.sample, sides.benchmark), networks)
    sides, settled = _taken_apart(replace(sides, sample=whole[0], benchmark=whole[1]))
    dumps = sides.sample, sides.benchmark
    aligned, settled = paired(sides, settled)
    kept, excluded = without(aligned, exclude)
    sources = known_sources(dumps, kept.pairs) or settled.places.sources
    completeness = completeness_of(*dumps, aligned, kept, sources)
    kept, unwritten = without_unwritten(kept)
    return Pairs(whole, dumps, networks, kept, settled, sources, completeness, excluded, unwritten)


def paired(sides: Sides, settled: Settled | None = None, ways: Mapping[str, Way] = WAYS) -> tuple[Alignment, Settled]:
    """Apply these ways of pairing in order; return the alignment and everything they settled."""
    settled = settled or Settled()
    for applies, target in ways.values():
        if applies(sides, settled):
            propose: Propose = imported(target)
            settled = propose(sides, settled)
    return _aligned(sides, settled), settled


def align_names(sample: Dump, benchmark: Dump, inputs: bool = False) -> Alignment:
    """Pair the tensors of two dumps by their names and Caffe stages only."""
    return paired(Sides(sample, benchmark, inputs), ways=BY_NAME)[0]


def _taken_apart(sides: Sides) -> tuple[Sides, Settled]:
    """Split fused modules as the user's name map says; their parts are the first pairs. Raises ConfigError."""
    fused = sides.names.fused if sides.names is not None else ()
    if not fused:
        return sides, Settled()
    if sides.is_measured_elsewhere:
        raise ConfigError(
            "a name map that splits fused modules needs both dumps on this machine; compare without --scheduler"
        )
    (sample, benchmark), parts = split_fused((sides.sample, sides.benchmark), sides.networks, fused)
    return replace(sides, sample=sample, benchmark=benchmark), Settled(parts)


def _aligned(sides: Sides, settled: Settled) -> Alignment:
    """Return the pairs in the benchmark's file order, and the unpaired records of each side in its own order."""
    dumps = sides.sample, sides.benchmark
    order = {id(record): place for dump in dumps for place, record in enumerate(dump.records)}
    partners = {id(record): pair for pair in settled.pairs for record in pair.records}
    every = (*settled.pairs, *settled.named)
    paired_ids = ids_of(every)

    def unpaired(dump: Dump, other: Dump, side: str) -> tuple[Unpaired, ...]:
        records = [record for record in compared(dump, sides.inputs) if id(record) not in paired_ids]
        named = _by_name(other) if records else {}
        records.sort(key=lambda record: order[id(record)])
        return tuple(_unpaired(record, named, side, settled, partners) for record in records)

    return Alignment(
        tuple(sorted(every, key=lambda pair: order[id(pair.benchmark)])),
        unpaired(*dumps, "benchmark"),
        unpaired(*dumps[::-1], "sample"),
    )


def _unpaired(
    record: Record, named: Mapping[str, list[Record]], side: str, settled: Settled, partners: Mapping[int, Pair]
) -> Unpaired:
    """Return an unpaired record with its reason; ``side`` names the other dump, whose records are ``named``."""
    expected = id(record) in settled.expected
    why = (
        settled.unmatched.get(id(record))
        or settled.refused.get(id(record))
        or _taken(record, named, side, partners)
        or _elsewhere(record, named, side)
        or settled.reasons.get(id(record), "")
    )
    if why:
        return Unpaired(record, why, expected, compiled=id(record) in settled.compiled)
    return Unpaired(record, f"no {record.io}put of this name in the {side}", expected, unnamed=True)


def _by_name(dump: Dump) -> dict[str, list[Record]]:
    named: dict[str, list[Record]] = defaultdict(list)
    for record in dump.records:
        named[normalised(record.name)].append(record)
    return named


def _taken(record: Record, others: Mapping[str, list[Record]], side: str, partners: Mapping[int, Pair]) -> str:
    """Return a reason if a name map or the values paired the other dump's tensor of this name otherwise, else ""."""
    for other in others.get(normalised(record.name), []):
        pair = partners.get(id(other))
        if pair is not None and other.io == record.io and slot_of(other) == slot_of(record):
            partner = pair.sample if pair.benchmark is other else pair.benchmark
            return (
                f"not paired by name: the tensor {other.name!r} of the {side} is already paired "
                f"with {partner.name!r} (by {pair.how})"
            )
    return ""


def _elsewhere(record: Record, others: Mapping[str, list[Record]], side: str) -> str:
    """Return a reason if the other dump has the name only in a role that cannot be paired, else ""."""
    role = (record.io, slot_of(record))
    same = [r for r in others.get(normalised(record.name), []) if r.constant or (r.io, slot_of(r)) != role]
    slots = sorted({r.slot for r in same if r.io == "out" and not r.constant})
    if record.io == "out" and slots:
        return (
            f"in the {side}, the tensor of this name is output {listed_names(slots)} of its "
            f"operator, not output {record.slot}"
        )
    if same:
        return f"the {side} has it only as a constant" if same[0].constant else f"the {side} has it only as an input"
    return ""


def without(alignment: Alignment, patterns: Sequence[str]) -> tuple[Alignment, tuple[str, ...]]:
    """Return the alignment without the names that match a pattern, and these names.

    Raises ConfigError for a pattern that matches no name.
    """
    if isinstance(patterns, str):
        raise ConfigError(f"exclude must be a list of patterns, not a string; write exclude={[patterns]}")
    if not patterns:
        return alignment, ()
    names: dict[str, None] = {}

    def stays(*records: Record) -> bool:
        fitting = [r.name for r in records if any(fnmatchcase(r.name, pattern) for pattern in patterns)]
        names.update(dict.fromkeys(fitting[-1:]))
        return not fitting

    kept = Alignment(
        tuple(pair for pair in alignment.pairs if stays(pair.sample, pair.benchmark)),
        tuple(unpaired for unpaired in alignment.only_in_sample if stays(unpaired.record)),
        tuple(unpaired for unpaired in alignment.only_in_benchmark if stays(unpaired.record)),
    )
    every = [r.name for pair in alignment.pairs for r in pair.records]
    every += [unpaired.record.name for unpaired in alignment.only_in_sample + alignment.only_in_benchmark]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ConfigError(f"no compared tensor matches {pattern!r}{hint(pattern, every)}")
    return kept, tuple(names)


def without_unwritten(alignment: Alignment) -> tuple[Alignment, tuple[str, ...]]:
    """Return the alignment without pairs of which a side is unwritten memory, and their names."""
    unwritten = [pair for pair in alignment.pairs if pair.sample.unwritten or pair.benchmark.unwritten]
    if not unwritten:
        return alignment, ()
    kept = tuple(pair for pair in alignment.pairs if not (pair.sample.unwritten or pair.benchmark.unwritten))
    return replace(alignment, pairs=kept), tuple(dict.fromkeys(pair.benchmark.name for pair in unwritten))
