"""Pair the output of a fused layer, named after its parts as in TensorRT, with the output of the last part.

A tool that fuses ``/conv1/Conv`` and ``/relu1/Relu`` may name the result ``/conv1/Conv + /relu1/Relu``. The other dump
has a tensor of the last part's name, or a tensor whose operator has this name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sgsdump.comparison.alignment import NAME_WAYS, Pair
from sgsdump.comparison.naming.sides import Settled, Sides
from sgsdump.dumps.dump import Record

BETWEEN = " + "
NOTE = "paired by the last part of the fused layer's name"


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair each fused name with the only tensor of its last part."""
    of_sample, of_benchmark = sides.remaining(settled)
    pairs = [Pair(fused, last, NAME_WAYS[1], NOTE) for fused, last in _found(of_sample, of_benchmark)]
    taken = {id(record) for pair in pairs for record in pair.records}
    others = ([r for r in records if id(r) not in taken] for records in (of_benchmark, of_sample))
    pairs += [Pair(last, fused, NAME_WAYS[1], NOTE) for fused, last in _found(*others)]
    return settled.with_named(pairs, {})


def _found(fused: Sequence[Record], others: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return the fused tensors with the only tensor of the other dump that their last part names."""
    named: defaultdict[str, list[Record]] = defaultdict(list)
    for record in others:
        if record.io == "out" and BETWEEN not in record.name:
            for name in {record.name, record.op_type}:
                named[name].append(record)
    ends: defaultdict[str, list[Record]] = defaultdict(list)
    for record in fused:
        if record.io == "out" and BETWEEN in record.name:
            ends[record.name.rpartition(BETWEEN)[2].strip("() ")].append(record)
    return [(records[0], named[end][0]) for end, records in ends.items() if len(records) == len(named[end]) == 1]
