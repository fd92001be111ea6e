"""Pair the output of a fused layer, named after its parts as in TensorRT, with the output of the last part.

A tool that fuses ``/conv1/Conv`` and ``/relu1/Relu`` may name the result ``/conv1/Conv + /relu1/Relu``. The other dump
has a tensor of the last part's name, or a tensor whose operator has this name. TensorRT also writes::

    PWN(/conv1/Conv + /relu1/Relu)         operators on single elements
    PWN(PWN(/act/Sigmoid), /act/Mul)       the same, nested
    {ForeignNode[/a/MatMul.../a/Softmax]}  all operators from the first to the last

``A || B`` are layers side by side, whose outputs are concatenated; no tensor of the model equals them. A copy
(``Reformatting CopyNode for ... to A + B``) bears the names of another layer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from sgsdump.comparison.alignment import NAME_WAYS, Pair
from sgsdump.comparison.naming.sides import FUSION_MARKS, Settled, Sides
from sgsdump.dumps.dump import Record

NOTE = "paired by the last part of the fused layer's name"
_PARTS = re.compile(r" \+ |, |\.\.\.|PWN\(|\{ForeignNode\[")
_FIRST = "_output_0"  # torch.onnx names the first output of the node /conv1/Conv /conv1/Conv_output_0
_OTHERS = re.compile(r" \|\| |^Reformatting CopyNode", re.IGNORECASE)


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair each fused name with the only tensor of its last part."""
    of_sample, of_benchmark = sides.remaining(settled)
    pairs = [Pair(fused, last, NAME_WAYS[1], NOTE) for fused, last in _found(of_sample, of_benchmark)]
    taken = {id(record) for pair in pairs for record in pair.records}
    others = ([r for r in records if id(r) not in taken] for records in (of_benchmark, of_sample))
    pairs += [Pair(last, fused, NAME_WAYS[1], NOTE) for fused, last in _found(*others)]
    return settled.with_named(pairs, {})


def is_fused(name: str) -> bool:
    """Return whether a name consists of the names of several operators, or marks fused ones."""
    return any(mark in name for mark in FUSION_MARKS)


def last_part(name: str) -> str:
    """Return the last operator of a fused layer; "" if the layer outputs another tensor, such as a copy or a join."""
    return "" if _OTHERS.search(name) else _PARTS.split(name)[-1].strip("() ]}")


def _found(fused: Sequence[Record], others: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return the fused tensors with the only tensor of the other dump that their last part names."""
    named: defaultdict[str, list[Record]] = defaultdict(list)
    for record in others:
        if record.io == "out" and not is_fused(record.name):
            for name in {record.name, record.op_type, record.name.removesuffix(_FIRST)}:
                named[name].append(record)
    ends: defaultdict[str, list[Record]] = defaultdict(list)
    for record in fused:
        if record.io == "out" and is_fused(record.name) and (end := last_part(record.name)):
            ends[end].append(record)
    return [(records[0], named[end][0]) for end, records in ends.items() if len(records) == len(named[end]) == 1]
