"""Pair tensors by name: exact names, then names normalised as by the SDK's scripts, then names that a header truncated.

The key is name and output slot, as in the SDK's auto_dump_debug.sh. The operator's index is ignored, because dumps
number operators differently. Constants are never paired: a fixed model stores them as integers in the hardware's order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from sgsdump.comparison.alignment import NAME_WAYS, Pair
from sgsdump.comparison.naming.sides import Settled, Sides, listed_names, slot_of
from sgsdump.dumps.dump import FOLDER, RAW, READER, Dump, Record
from sgsdump.dumps.formats import FORMATS
from sgsdump.files.bounded_read import is_file
from sgsdump.files.names import normalised, word

NAME, NORMALISED, CUT = NAME_WAYS
ONLY = "being the only tensor of its file"


def only_tensor(sides: Sides, settled: Settled) -> Settled:
    """Pair the tensors of two files with one tensor each, which are named after the files."""
    dumps = sides.sample, sides.benchmark
    if not all(map(_is_one_tensor, dumps)):
        return settled
    a, b = (dump.records[0] for dump in dumps)
    return replace(settled, pairs=(Pair(a, b, NAME if a.name == b.name else ONLY),))


def same_name(sides: Sides, settled: Settled) -> Settled:
    return _by_key(sides, settled, NAME, lambda record: (record.io, slot_of(record), record.name))


def same_name_of_another_slot(sides: Sides, settled: Settled) -> Settled:
    """Pair outputs of operators that name each output; their slots carry no information."""
    apart = _named_apart(sides.sample) | _named_apart(sides.benchmark)
    return _by_key(sides, settled, NAME, lambda r: (r.io, 0 if id(r) in apart else slot_of(r), r.name))


def normalised_name(sides: Sides, settled: Settled) -> Settled:
    return _by_key(sides, settled, NORMALISED, lambda r: (r.io, slot_of(r), normalised(r.name)))


def cut_name(sides: Sides, settled: Settled) -> Settled:
    """Pair a truncated name with the only name that starts with it."""
    of_sample, of_benchmark = sides.remaining(settled)
    if not any(record.cut for record in (*of_sample, *of_benchmark)):
        return settled
    pairs: list[Pair] = []
    refused: dict[int, str] = {}
    for a in [r for r in of_sample if r.cut] + [r for r in of_sample if not r.cut]:
        candidates = [b for b in of_benchmark if _may_be(a, b)]
        if len(candidates) == 1 and sum(_may_be(other, candidates[0]) for other in of_sample) == 1:
            pairs.append(Pair(a, candidates[0], CUT, "paired by the start of a name that the dump truncated"))
            of_sample = [r for r in of_sample if r is not a]
            of_benchmark = [r for r in of_benchmark if r is not candidates[0]]
        elif candidates:
            reason = "the dump truncated the name, and several names start with it"
            refused.update({id(r): reason for r in [a, *candidates]})
    return settled.with_named(pairs, refused)


def word_of_name(sides: Sides, settled: Settled) -> Settled:
    """Pair tensors of raw files, folders and readers, whose names are those of files, by the letters of a name."""
    if {RAW, FOLDER, READER}.isdisjoint((sides.sample.format, sides.benchmark.format)):
        return settled
    return _by_key(sides, settled, NORMALISED, lambda r: (r.io, slot_of(r), word(r.name)))


def _by_key(sides: Sides, settled: Settled, how: str, key: Callable[[Record], Hashable]) -> Settled:
    """Pair records with equal keys in order; refuse if different names share a key."""
    of_sample, of_benchmark = sides.remaining(settled)
    done: set[tuple[str, str]] = {(record.io, record.name) for pair in settled.named for record in pair.records}
    in_sample, in_benchmark = (_groups(records, key, done) for records in (of_sample, of_benchmark))
    pairs: list[Pair] = []
    refused: dict[int, str] = {}
    for shared, right in in_benchmark.items():
        left = in_sample.get(shared)
        if left is None:
            continue
        if len(left) == len(right) == 1:
            pairs.append(Pair(left[0], right[0], how))
            continue
        names = sorted({r.name for r in left}), sorted({r.name for r in right})
        if max(map(len, names)) > 1:
            both = f"{listed_names(names[0])} of the sample and {listed_names(names[1])} of the benchmark"
            reason = f"ambiguous: {both} are equal after normalisation"
            refused.update({id(r): reason for r in left + right})
            continue
        for number, (a, b) in enumerate(zip(left, right), 1):
            note = (
                f"name not unique ({len(left)} in sample, {len(right)} in benchmark): paired by position, number "
                f"{number} of each"
            )
            pairs.append(Pair(a, b, how, note))
        for surplus in left[len(right) :] + right[len(left) :]:
            refused[id(surplus)] = "the other dump has fewer tensors of this name"
    return settled.with_named(pairs, refused)


def _groups(
    records: Sequence[Record], key: Callable[[Record], Hashable], done: set[tuple[str, str]]
) -> Mapping[Hashable, list[Record]]:
    groups: defaultdict[Hashable, list[Record]] = defaultdict(list)
    for record in records:
        if not done or (record.io, record.name) not in done:
            groups[key(record)].append(record)
    return groups


def _is_one_tensor(dump: Dump) -> bool:
    """Return whether a dump is a file with one tensor, named after the file."""
    if dump.format == RAW:
        return dump.path is not None and is_file(dump.path)
    return dump.format in FORMATS and FORMATS[dump.format].one_tensor


def _named_apart(dump: Dump) -> set[int]:
    """Return the ids of outputs whose operator names each output separately; their slot carries no information.

    The other side may have a separate operator for each output: SigmaStar's converter adds a MUL after each part of a
    Split.
    """
    outputs: dict[int, list[Record]] = defaultdict(list)
    for record in dump.records:
        if record.io == "out" and not record.constant:
            outputs[record.op_index].append(record)
    several = (some for some in outputs.values() if len({r.name for r in some}) == len(some) > 1)
    return {id(record) for some in several for record in some}


def _may_be(a: Record, b: Record) -> bool:
    """Return whether one name may be the truncated form of the other."""
    if not (a.cut or b.cut) or (a.io, slot_of(a)) != (b.io, slot_of(b)):
        return False
    return (a.cut and b.name.startswith(a.name)) or (b.cut and a.name.startswith(b.name))
