"""Two dumps to pair, and the decisions of the ways of pairing so far: the interface of all ways.

A way of pairing is a function ``propose(sides, settled)``. It adds pairs to ``settled``, each with its reason, and
never removes one. ``align.py`` lists the ways in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from sgsdump.comparison.alignment import Mapper, Pair, compared, ids_of
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.dumps.dump import Dump, Network, Record
from sgsdump.dumps.onnx_network import of_names, of_paths
from sgsdump.tensors.stages import Stage

# Parts of the names of fused layers, as TensorRT makes them.
FUSION_MARKS = (" + ", " || ", "PWN(", "{ForeignNode[")


class OneSided(NamedTuple):
    """Operator that only one side has: its first output, kind, module and side.

    ``chain`` lists the kinds of all one-sided operators up to it, in execution order. ``read`` holds what the paired
    operators read from it and from its counterpart, if a dump records no inputs.
    """

    name: str
    kind: str
    module: str
    side: str
    chain: tuple[str, ...] = ()
    read: tuple[Record, Record] | None = None


@dataclass(frozen=True)
class Places:
    """Positions of tensors in two networks; records are identified by their ``id``.

    modules  module of each record.
    origins  origin of an input that no paired operator produced.
    makers   operators without a partner that produced inputs of paired operators and modules, or outputs of paired
             modules.
    sources  benchmark output -> outputs that feed it, if the dumps have no inputs that show it.
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
    """Decisions of the ways of pairing so far; records are identified by their ``id``.

    pairs      pairs from a name map, values, a network or a rule.
    named      pairs from names, made after all others.
    unmatched  records that must not be paired by name, with the reason.
    refused    reasons why possible names made no pair.
    reasons    reasons for records without a partner, in case names find none either.
    expected   records of ``unmatched`` that cannot have a partner.
    compiled   records of ``expected`` that a compiled graph of one side contains.
    places     positions of the tensors in their networks.
    is_told    names or values make the pairs on request, so positions in the network make none.
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
        """Records that are decided."""
        return self.unmatched.keys() | ids_of(self.pairs) | ids_of(self.named)

    def with_named(self, pairs: Sequence[Pair], refused: Mapping[int, str]) -> Settled:
        """Return a copy with more pairs from names, and the reasons why others were refused."""
        if not pairs and not refused:
            return self
        return replace(self, named=(*self.named, *pairs), refused={**self.refused, **refused})


@dataclass(frozen=True, eq=False)
class Sides:
    """Two dumps to pair, and the user's options.

    inputs                pair the networks' inputs too.
    names                 contents of mapping files and rules, or None.
    by_value              pair tensors with equal values.
    stages                table of stages of a Caffe network; if empty, names decide.
    is_measured_elsewhere other processes open both dumps again, so the dumps cannot be changed here.
    run                   maps a function over items, possibly in threads.
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
        """Operators of both dumps; for a dump that records none, the operators or modules implied by its names."""
        records = self.sample.records, self.benchmark.records
        sample, benchmark = (network or of_names(side) for network, side in zip(self.networks, records))
        return sample or of_paths(records[0], benchmark), benchmark or of_paths(records[1], sample)

    def have_maps(self, _: Settled) -> bool:
        return self.names is not None and self.names.names_pairs

    def are_paired_by_value(self, _: Settled) -> bool:
        return self.by_value

    def names_differ(self, _: Settled) -> bool:
        sample, benchmark = ({record.name for record in dump.records} for dump in (self.sample, self.benchmark))
        return sample != benchmark

    def have_fused_names(self, settled: Settled) -> bool:
        """Return whether a tensor is named after several operators, ``/conv1/Conv + /relu1/Relu``."""
        names = (record.name for dump in (self.sample, self.benchmark) for record in dump.records)
        return any(mark in name for name in names for mark in FUSION_MARKS)

    def have_operators(self, _: Settled) -> bool:
        return any(self.operators)

    def is_nothing_paired(self, settled: Settled) -> bool:
        return not settled.pairs and len(self.sample.records) == len(self.benchmark.records) == 1

    def is_open(self, settled: Settled) -> bool:
        """Return whether both dumps have undecided records."""
        return all(self.remaining(settled))

    def remaining(self, settled: Settled) -> tuple[list[Record], list[Record]]:
        """Return the undecided compared records of both dumps."""
        ids = settled.ids
        sample, benchmark = (
            [record for record in compared(dump, self.inputs) if id(record) not in ids]
            for dump in (self.sample, self.benchmark)
        )
        return sample, benchmark


def slot_of(record: Record) -> int:
    """Return the slot that identifies an output; 0 for a network input, whose slot only belongs to its consumer."""
    return record.slot if record.io == "out" else 0


def listed_names(items: Sequence[object]) -> str:
    return " and ".join(map(str, items)) if len(items) < 4 else f"{len(items)} names ({items[0]} …)"
