"""Pair the tensors of the sample with those of the benchmark, and give a reason for each one left over.

The key is name and output slot, as in the SDK's auto_dump_debug.sh; the operator's index is ignored, because dumps
number differently. Exact names go first, then names as that script writes them into folder names (``normalised``),
then names whose header was cut, by their beginning. Pairs that a name map, a network or the values made (``Settled``)
come before all names. Constants are never paired: a fixed model stores them as integers in the hardware's order.
Nothing is dropped: every unpaired tensor has a reason.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from sgsdump.dumps.dump import RAW, Dump, Record
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import ConfigError, FileChanged, SgsdumpError, hint
from sgsdump.files.bounded_read import is_file
from sgsdump.files.names import normalised, word
from sgsdump.tensors.device import is_device
from sgsdump.tensors.dtypes import is_complex
from sgsdump.tensors.tensor import values_of

ONLY = "being the only tensor of its file"
NAME_WAYS = ("name", "normalised name", "cut name")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records of one tensor; ``how`` is one of NAME_WAYS, ``map``, ``value``, or the rule that made the pair.

    stage  what the SDK calls a Caffe blob's value, where one side is such a stage and the other the blob.
    parts  of a Concat whose parts the SDK aligned, the channels that each takes there, and its own.
    """

    sample: Record
    benchmark: Record
    how: str
    note: str = ""
    stage: str = ""
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def records(self) -> tuple[Record, Record]:
        return self.sample, self.benchmark


@dataclass(frozen=True)
class Unpaired:
    """A record without partner in the other dump, and the reason; ``expected``: the other one cannot have it, so
    nothing is missing; ``unnamed``: nothing in the other one has its name."""

    record: Record
    reason: str
    expected: bool = False
    unnamed: bool = False


@dataclass(frozen=True)
class Settled:
    """Decisions made before names are compared; records are identified by their ``id``.

    unmatched  records that must not be paired by name, and why.
    reasons    why a record has no partner, in case names do not find one either.
    expected   of those in ``unmatched``, which have no partner by nature.
    """

    pairs: tuple[Pair, ...] = ()
    unmatched: Mapping[int, str] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    expected: Set[int] = frozenset()

    @cached_property
    def ids(self) -> set[int]:
        """The records about which nothing is open any more."""
        return self.unmatched.keys() | ids_of(self.pairs)


@dataclass(frozen=True)
class Alignment:
    """Pairs in the benchmark's file order, and what is left on either side in its own."""

    pairs: tuple[Pair, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]


def ids_of(pairs: Iterable[Pair]) -> set[int]:
    """The ``id`` of every paired record."""
    return {id(record) for pair in pairs for record in (pair.sample, pair.benchmark)}


def compared(dump: Dump, inputs: bool = False) -> list[Record]:
    """The records a comparison looks at: outputs that are not constants, with ``inputs`` each network input once."""
    network_inputs = dump.inputs if inputs else {}
    records: list[Record] = []
    input_names: set[str] = set()
    for record in dump.records:
        if record.constant:
            continue
        if record.io == "in":
            if record.name in input_names or record.name not in network_inputs:
                continue
            input_names.add(record.name)
        records.append(record)
    return records


def size_of(record: Record) -> int:
    """How many real values a record holds; 0 where they cannot be had."""
    info = record.tensor.info
    if info.shape is not None and not is_device(info.layout) and not is_complex(info.dtype):
        return math.prod(info.shape)
    try:
        return values_of(record.tensor.logical()).array.size
    except FileChanged:
        raise
    except SgsdumpError:
        return 0


def has_own_inputs(dump: Dump) -> bool:
    """Whether the dump has each operator's inputs as tensors with names of their own, which are then compared too: the
    format does so (``Format.own_inputs``), or the records came from such a format into another one.

    The latter is recognised by inputs of several operators none of which has the name of an output. Dumps that record
    the data flow repeat the outputs' names as inputs; others have the network's inputs only.
    """
    if dump.format in FORMATS and FORMATS[dump.format].own_inputs:
        return True
    fed = [record for record in dump.records if record.io == "in" and not record.constant]
    several = len({record.op_index for record in fed}) > 1
    return several and not any(record.name in dump.outputs for record in fed)


def align(sample: Dump, benchmark: Dump, inputs: bool = False, settled: Settled | None = None) -> Alignment:
    """Pair the output records of two dumps; with ``inputs`` the networks' variable inputs too."""
    settled = settled or Settled()
    if pair := _only_pair(sample, benchmark):
        settled = replace(settled, pairs=settled.pairs or (pair,))
    unmatched = [
        [r for r in compared(dump, inputs) if id(r) in settled.unmatched] if settled.unmatched else []
        for dump in (sample, benchmark)
    ]
    state = _State(compared(sample, inputs), compared(benchmark, inputs), settled)
    state.pair_by("name", lambda r: (r.io, _slot(r), r.name))
    if state.sample and state.benchmark:
        apart = _named_apart(sample) | _named_apart(benchmark)
        state.pair_by("name", lambda r: (r.io, 0 if id(r) in apart else _slot(r), r.name))
        state.pair_by("normalised name", lambda r: (r.io, _slot(r), normalised(r.name)))
        state.pair_cut()
    if state.sample and state.benchmark and RAW in (sample.format, benchmark.format):
        state.pair_by("normalised name", lambda r: (r.io, _slot(r), word(r.name)))
    order = {id(r): i for dump in (sample, benchmark) for i, r in enumerate(dump.records)}
    partners = {id(r): pair for pair in settled.pairs for r in pair.records}

    def unpaired(records: list[Record], dump: Dump, side: str) -> tuple[Unpaired, ...]:
        named = _by_name(dump) if records else {}

        def reason(record: Record) -> str:
            return (
                settled.unmatched.get(id(record))
                or state.why.get(id(record))
                or _taken(record, named, side, partners)
                or _elsewhere(record, named, side)
                or settled.reasons.get(id(record), "")
            )

        def unpaired_record(record: Record) -> Unpaired:
            why, expected = reason(record), id(record) in settled.expected
            if why:
                return Unpaired(record, why, expected)
            return Unpaired(record, f"no {record.io}put of this name in the {side}", expected, unnamed=True)

        records = sorted(records, key=lambda r: order[id(r)])
        return tuple(map(unpaired_record, records))

    return Alignment(
        tuple(sorted(state.pairs, key=lambda pair: order[id(pair.benchmark)])),
        unpaired(state.sample + unmatched[0], benchmark, "benchmark"),
        unpaired(state.benchmark + unmatched[1], sample, "sample"),
    )


def _only_pair(sample: Dump, benchmark: Dump) -> Pair | None:
    """The tensors of two files of one tensor each, which are named as the files are."""
    if len(sample.records) != 1 or len(benchmark.records) != 1:
        return None
    if not all(map(_is_one_tensor, (sample, benchmark))):
        return None
    (a,), (b,) = sample.records, benchmark.records
    return Pair(a, b, "name" if a.name == b.name else ONLY)


def _is_one_tensor(dump: Dump) -> bool:
    """Whether a dump is a file that holds one tensor, named as the file is."""
    if dump.format == RAW:
        return dump.path is not None and is_file(dump.path)
    return dump.format in FORMATS and FORMATS[dump.format].one_tensor


def without(alignment: Alignment, patterns: Sequence[str]) -> tuple[Alignment, tuple[str, ...]]:
    """The alignment without the names that fit a pattern, and these. Raises ConfigError for one that fits none."""
    if isinstance(patterns, str):
        raise ConfigError(f"exclude is a list of patterns, not a string; write exclude={[patterns]}")
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
            raise ConfigError(f"nothing is named {pattern!r} among the compared tensors{hint(pattern, every)}")
    return kept, tuple(names)


def without_unwritten(alignment: Alignment) -> tuple[Alignment, tuple[str, ...]]:
    """The alignment without the pairs of which a side is memory that nothing had been written to, and their names."""
    unwritten = [pair for pair in alignment.pairs if pair.sample.unwritten or pair.benchmark.unwritten]
    if not unwritten:
        return alignment, ()
    kept = tuple(pair for pair in alignment.pairs if not (pair.sample.unwritten or pair.benchmark.unwritten))
    return replace(alignment, pairs=kept), tuple(dict.fromkeys(pair.benchmark.name for pair in unwritten))


class _State:
    """The records still without partner, the pairs made so far, and why a record was refused one, by ``id``."""

    def __init__(self, sample: list[Record], benchmark: list[Record], settled: Settled):
        self.sample, self.benchmark = sample, benchmark
        self.pairs = list(settled.pairs)
        self.why: dict[int, str] = {}
        self.done_names: set[tuple[str, str]] = set()
        if ids := settled.ids:
            self._drop(ids)

    def pair_by(self, how: str, key: Callable[[Record], Hashable]) -> None:
        """Pair what has the same key, the k-th with the k-th; refuse where different names read the same."""
        in_sample, in_benchmark = self._groups(self.sample, key), self._groups(self.benchmark, key)
        first = len(self.pairs)
        for shared, right in in_benchmark.items():
            left = in_sample.get(shared)
            if left is None:
                continue
            if len(left) == len(right) == 1:
                self._take(left[0], right[0], how)
                continue
            names = sorted({r.name for r in left}), sorted({r.name for r in right})
            if max(map(len, names)) > 1:
                reason = f"ambiguous: {_list(names[0])} of the sample and {_list(names[1])} of the benchmark read alike"
                self.why.update({id(r): reason for r in left + right})
                continue
            for number, (a, b) in enumerate(zip(left, right), 1):
                note = f"name not unique ({len(left)} in sample, {len(right)} in benchmark): number {number} of each"
                self._take(a, b, how, note)
            for surplus in left[len(right) :] + right[len(left) :]:
                self.why[id(surplus)] = "a further tensor of this name; the other dump has fewer"
        self._drop(ids_of(self.pairs[first:]))

    def pair_cut(self) -> None:
        """Pair names of which one was cut with the only one that begins so."""
        if not any(r.cut for r in (*self.sample, *self.benchmark)):
            return
        for a in [r for r in self.sample if r.cut] + [r for r in self.sample if not r.cut]:
            candidates = [b for b in self.benchmark if _may_be(a, b)]
            if len(candidates) == 1 and sum(_may_be(other, candidates[0]) for other in self.sample) == 1:
                self._take(a, candidates[0], "cut name", "paired by the beginning of a name that the dump cut")
                self._drop({id(a), id(candidates[0])})
            elif candidates:
                reason = "the name was cut in the dump and more than one begins so"
                self.why.update({id(r): reason for r in [a, *candidates]})

    def _take(self, a: Record, b: Record, how: str, note: str = "") -> None:
        self.pairs.append(Pair(a, b, how, note))
        self.done_names.add((a.io, a.name))
        self.done_names.add((b.io, b.name))

    def _groups(self, records: list[Record], key: Callable[[Record], Hashable]) -> dict[Hashable, list[Record]]:
        groups: dict[Hashable, list[Record]] = defaultdict(list)
        for record in records:
            if not self.done_names or (record.io, record.name) not in self.done_names:
                groups[key(record)].append(record)
        return groups

    def _drop(self, ids: Set[int]) -> None:
        self.sample = [r for r in self.sample if id(r) not in ids]
        self.benchmark = [r for r in self.benchmark if id(r) not in ids]


def _slot(record: Record) -> int:
    """The slot that identifies an output; a network input's slot only says where its consumer has it, so it is 0."""
    return record.slot if record.io == "out" else 0


def _named_apart(dump: Dump) -> set[int]:
    """Return the ids of outputs whose operator gives each of its outputs a name of its own: their slot says nothing.

    The other side may have an operator of its own for each: SigmaStar's converter puts a MUL behind each piece of a
    Split.
    """
    outputs: dict[int, list[Record]] = defaultdict(list)
    for record in dump.records:
        if record.io == "out" and not record.constant:
            outputs[record.op_index].append(record)
    several = (some for some in outputs.values() if len({r.name for r in some}) == len(some) > 1)
    return {id(record) for some in several for record in some}


def _may_be(a: Record, b: Record) -> bool:
    """True when a cut name may be the beginning of the other one."""
    if not (a.cut or b.cut) or (a.io, _slot(a)) != (b.io, _slot(b)):
        return False
    return (a.cut and b.name.startswith(a.name)) or (b.cut and a.name.startswith(b.name))


def _by_name(dump: Dump) -> dict[str, list[Record]]:
    named: dict[str, list[Record]] = defaultdict(list)
    for record in dump.records:
        named[normalised(record.name)].append(record)
    return named


def _taken(record: Record, others: dict[str, list[Record]], side: str, partners: Mapping[int, Pair]) -> str:
    """The reason that a name map or the values paired the other dump's tensor of this name with another one, or ""."""
    for other in others.get(normalised(record.name), []):
        pair = partners.get(id(other))
        if pair is not None and other.io == record.io and _slot(other) == _slot(record):
            partner = pair.sample if pair.benchmark is other else pair.benchmark
            return f"the {side}'s {other.name!r} is another tensor: paired by {pair.how} with {partner.name!r}"
    return ""


def _elsewhere(record: Record, others: dict[str, list[Record]], side: str) -> str:
    """The reason that the other dump has the name, but in a role it cannot be paired in, or ""."""
    role = (record.io, _slot(record))
    same = [r for r in others.get(normalised(record.name), []) if r.constant or (r.io, _slot(r)) != role]
    slots = sorted({r.slot for r in same if r.io == "out" and not r.constant})
    if record.io == "out" and slots:
        return f"the {side} has it only as output {_list(slots)}, not {record.slot}"
    if same:
        return f"the {side} has it only as a constant" if same[0].constant else f"the {side} has it only as an input"
    return ""


def _list(items: list) -> str:
    return " and ".join(map(str, items)) if len(items) < 4 else f"{len(items)} names ({items[0]} …)"
