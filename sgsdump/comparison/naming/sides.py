"""Two dumps that are to be paired, and what the ways of pairing have settled so far. Apart: the contract of the ways.

A way of pairing is a function ``propose(sides, settled)``: it adds pairs to ``settled``, each with its reason, and
undoes none. ``align.py`` has them in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from sgsdump.comparison.alignment import Mapper, Pair, compared, ids_of
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.dumps.dump import Dump, Network, Record
from sgsdump.dumps.onnx_network import of_names
from sgsdump.tensors.stages import Stage


class OneSided(NamedTuple):
    """An operator that only one side has: its first output, its kind and module, and the side; ``chain``: the kinds of
    all that only this side has up to there, in the order in which they ran."""

    name: str
    kind: str
    module: str
    side: str
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Places:
    """Where tensors stand in two networks; records are identified by their ``id``.

    modules  the module of each record.
    origins  what an input is that no paired operator made.
    makers   the operators without a partner that made what paired operators and modules take, or what paired modules
             around them give.
    sources  by name of a benchmark's output the outputs that feed it, where the dumps have no inputs to tell it by.
    """

    modules: Mapping[int, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origins: Mapping[int, str] = field(default_factory=dict)
    makers: Mapping[int, OneSided] = field(default_factory=dict)

    def maker_of(self, pair: Pair) -> OneSided | None:
        return self.makers.get(id(pair.benchmark)) or self.makers.get(id(pair.sample))

    def module_of(self, pair: Pair) -> str:
        return self.modules.get(id(pair.benchmark)) or self.modules.get(id(pair.sample), "")

    def origin_of(self, pair: Pair) -> str:
        of_both = (self.origins.get(id(record)) for record in (pair.sample, pair.benchmark))
        return " against ".join(dict.fromkeys(filter(None, of_both)))


@dataclass(frozen=True)
class Settled:
    """What the ways of pairing have decided so far; records are identified by their ``id``.

    pairs      those that a name map, the values, a network or a rule made.
    named      those that names made, after all others.
    unmatched  records that must not be paired by name, and why.
    refused    why names that may be meant made no pair.
    reasons    why a record has no partner, in case names do not find one either.
    expected   of those in ``unmatched``, which have no partner by nature.
    compiled   of these, what a compiled graph of one side holds.
    places     where the tensors stand in their networks.
    is_told    names or values were said to make the pairs, so the place in the network makes none.
    """

    pairs: tuple[Pair, ...] = ()
    unmatched: Mapping[int, str] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    expected: Set[int] = frozenset()
    compiled: Set[int] = frozenset()
    named: tuple[Pair, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    places: Places = field(default_factory=Places)
    is_told: bool = False

    @cached_property
    def ids(self) -> set[int]:
        """The records about which nothing is open any more."""
        return self.unmatched.keys() | ids_of(self.pairs) | ids_of(self.named)

    def with_named(self, pairs: Sequence[Pair], refused: Mapping[int, str]) -> Settled:
        """Return this with more pairs that names made, and why others were refused."""
        if not pairs and not refused:
            return self
        return replace(self, named=(*self.named, *pairs), refused={**self.refused, **refused})


@dataclass(frozen=True, eq=False)
class Sides:
    """Two dumps to pair, and what the user says of that.

    inputs                the networks' inputs are paired too.
    names                 all that mapping files and rules say; None for nothing.
    by_value              what holds the same values is paired.
    stages                the table of stages of a Caffe network; without it, names tell.
    is_measured_elsewhere other processes open both dumps again, so the dumps cannot be changed here.
    run                   maps a function over items, in threads say.
    """

    sample: Dump
    benchmark: Dump
    inputs: bool = False
    names: NameSources | None = None
    by_value: bool = False
    stages: Sequence[Stage] = ()
    is_measured_elsewhere: bool = False
    run: Mapper = map

    @cached_property
    def networks(self) -> tuple[Network, Network]:
        return self.sample.network(), self.benchmark.network()

    @cached_property
    def operators(self) -> tuple[Network, Network]:
        """The operators of both dumps; of a dump that records none, those that its names tell."""
        sample, benchmark = self.networks
        return sample or of_names(self.sample.records), benchmark or of_names(self.benchmark.records)

    def have_maps(self, _: Settled) -> bool:
        return self.names is not None and self.names.names_pairs

    def are_paired_by_value(self, _: Settled) -> bool:
        return self.by_value

    def names_differ(self, _: Settled) -> bool:
        sample, benchmark = ({record.name for record in dump.records} for dump in (self.sample, self.benchmark))
        return sample != benchmark

    def have_operators(self, _: Settled) -> bool:
        return any(self.operators)

    def is_nothing_paired(self, settled: Settled) -> bool:
        return not settled.pairs and len(self.sample.records) == len(self.benchmark.records) == 1

    def is_open(self, settled: Settled) -> bool:
        """Return whether both dumps have records about which something is open."""
        return all(self.remaining(settled))

    def remaining(self, settled: Settled) -> tuple[list[Record], list[Record]]:
        """Return the compared records of both dumps about which something is open."""
        ids = settled.ids
        sample, benchmark = (
            [record for record in compared(dump, self.inputs) if id(record) not in ids]
            for dump in (self.sample, self.benchmark)
        )
        return sample, benchmark


def slot_of(record: Record) -> int:
    """Return the slot that identifies an output; 0 for a network input, whose slot is only its consumer's."""
    return record.slot if record.io == "out" else 0


def listed_names(items: Sequence[object]) -> str:
    return " and ".join(map(str, items)) if len(items) < 4 else f"{len(items)} names ({items[0]} …)"
