"""Pair the tensors of the sample with those of the benchmark, and give a reason for each one left over.

The key is name and output slot, as in the SDK's auto_dump_debug.sh; the operator's index is ignored, because dumps
number differently. Exact names go first, then names as that script writes them into folder names (``normalised``),
then names whose header was cut, by their beginning. Pairs that a name map or the values made (``Given``) come before
all names. Constants are never paired: a fixed model stores them as integers in the hardware's order. Nothing is
dropped: every unpaired tensor has a reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field

from sgsdump.dumps.dump import Dump, Record
from sgsdump.files.names import normalised

NAME_WAYS = ("name", "normalised name", "cut name")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Unpaired:
    """A record without partner in the other dump, and the reason; ``expected``: the other one cannot have it, so
    nothing is missing."""

    record: Record
    reason: str
    expected: bool = False


@dataclass(frozen=True)
class Given:
    """What is decided before names are compared; records are identified by their ``id``.

    apart     records that must not be paired by name, and why.
    reasons   why a record has no partner, in case names do not find one either.
    expected  of those in ``apart``, which have no partner by nature.
    """

    pairs: tuple[Pair, ...] = ()
    apart: Mapping[int, str] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    expected: Set[int] = frozenset()


@dataclass(frozen=True)
class Alignment:
    """Pairs in the benchmark's file order, and what is left on either side in its own."""

    pairs: tuple[Pair, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]


def align(sample: Dump, benchmark: Dump, inputs: bool = False, given: Given | None = None) -> Alignment:
    """Pair the output records of two dumps; with ``inputs`` the networks' variable inputs too."""
    given = given or Given()
    state = _State(compared(sample, inputs), compared(benchmark, inputs), list(given.pairs))
    apart = state.set_apart(given.apart)
    state.pair_by("name", lambda r: (r.io, _slot(r), r.name))
    state.pair_by("normalised name", lambda r: (r.io, _slot(r), normalised(r.name)))
    state.pair_cut()
    order = {id(r): i for dump in (sample, benchmark) for i, r in enumerate(dump.records)}
    pairs = sorted(state.pairs, key=lambda p: order[id(p.benchmark)])
    partners = {id(r): p for p in given.pairs for r in (p.sample, p.benchmark)}

    def reason(record: Record, others: dict[str, list[Record]], side: str) -> str:
        return (
            given.apart.get(id(record))
            or state.why.get(id(record))
            or _taken(record, others, side, partners)
            or _elsewhere(record, others, side)
            or given.reasons.get(id(record))
            or f"no {record.io}put of this name in the {side}"
        )

    left_over = (
        (sorted(state.sample + apart[0], key=lambda r: order[id(r)]), benchmark, "benchmark"),
        (sorted(state.benchmark + apart[1], key=lambda r: order[id(r)]), sample, "sample"),
    )
    named = [_by_name(other) if left else {} for left, other, _ in left_over]
    only = [
        tuple(Unpaired(r, reason(r, others, side), id(r) in given.expected) for r in left)
        for (left, _, side), others in zip(left_over, named)
    ]
    return Alignment(tuple(pairs), *only)


def compared(dump: Dump, inputs: bool = False) -> list[Record]:
    """The records a comparison looks at: outputs that are no constants, with ``inputs`` each network input once."""
    network_inputs = dump.inputs if inputs else {}
    records = [r for r in dump.records if not r.constant and (r.io == "out" or r.name in network_inputs)]
    seen: set[str] = set()
    return [r for r in records if r.io == "out" or not (r.name in seen or seen.add(r.name))]  # type: ignore[func-returns-value]


def _slot(record: Record) -> int:
    """The slot that identifies an output; a network input's slot only says where its consumer has it, so it is 0."""
    return record.slot if record.io == "out" else 0


@dataclass
class _State:
    """The records still without partner, and the pairs made so far."""

    sample: list[Record]
    benchmark: list[Record]
    pairs: list[Pair] = field(default_factory=list)
    why: dict[int, str] = field(default_factory=dict)
    done_names: set[tuple[str, str]] = field(default_factory=set)

    def set_apart(self, apart: Mapping[int, str]) -> tuple[list[Record], list[Record]]:
        """Remove the records that are paired already and those in ``apart``; returns the latter, of either dump."""
        kept = [r for r in self.sample if id(r) in apart], [r for r in self.benchmark if id(r) in apart]
        self.sample = [r for r in self.sample if id(r) not in apart]
        self.benchmark = [r for r in self.benchmark if id(r) not in apart]
        self._drop_paired()
        return kept

    def take(self, a: Record, b: Record, how: str, note: str = "") -> None:
        self.pairs.append(Pair(a, b, how, note))
        self.done_names |= {(a.io, a.name), (b.io, b.name)}

    def pair_by(self, how: str, key: Callable[[Record], Hashable]) -> None:
        """Pair what has the same key, the k-th with the k-th; refuse where different names read the same."""
        in_sample, in_benchmark = self._groups(self.sample, how, key), self._groups(self.benchmark, how, key)
        for shared in [k for k in in_benchmark if k in in_sample]:
            left, right = in_sample[shared], in_benchmark[shared]
            if len(left) == len(right) == 1:
                self.take(left[0], right[0], how)
                continue
            names = sorted({r.name for r in left}), sorted({r.name for r in right})
            if max(map(len, names)) > 1:
                reason = f"ambiguous: {_list(names[0])} of the sample and {_list(names[1])} of the benchmark read alike"
                self.why.update({id(r): reason for r in left + right})
                continue
            many = max(len(left), len(right)) > 1
            for number, (a, b) in enumerate(zip(left, right), 1):
                note = f"name not unique ({len(left)} in sample, {len(right)} in benchmark): number {number} of each"
                self.take(a, b, how, note if many else "")
            for surplus in left[len(right) :] + right[len(left) :]:
                self.why[id(surplus)] = "a further tensor of this name; the other dump has fewer"
        self._drop_paired()

    def pair_cut(self) -> None:
        """Pair names of which one was cut with the only one that begins so."""
        for a in [r for r in self.sample if r.cut] + [r for r in self.sample if not r.cut]:
            candidates = [b for b in self.benchmark if _may_be(a, b)]
            if len(candidates) == 1 and sum(_may_be(other, candidates[0]) for other in self.sample) == 1:
                self.take(a, candidates[0], "cut name", "paired by the beginning of a name that the dump cut")
                self._drop_paired()
            elif candidates:
                reason = "the name was cut in the dump and more than one begins so"
                self.why.update({id(r): reason for r in [a, *candidates]})

    def _groups(self, records: list[Record], how: str, key: Callable) -> dict[Hashable, list[Record]]:
        groups: dict[Hashable, list[Record]] = defaultdict(list)
        for record in records:
            if (record.io, record.name) not in self.done_names:
                groups[key(record)].append(record)
        return groups

    def _drop_paired(self) -> None:
        taken = {id(r) for p in self.pairs for r in (p.sample, p.benchmark)}
        self.sample = [r for r in self.sample if id(r) not in taken]
        self.benchmark = [r for r in self.benchmark if id(r) not in taken]


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
