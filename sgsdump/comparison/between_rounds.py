"""Differences between two rounds of two programs outside their modules: sampling, logits processing, bookkeeping.

Operators outside the modules are known by their arguments and by the checksums and statistics of their tensors
(``Dump.before``). An operator is at fault if both programs run it on equal inputs with a different argument or
constant. In addition, everything that both programs compute from its result must differ; otherwise the difference has
no effect. The inputs of a round are at fault by themselves if all earlier rounds are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.row import Row, differs, is_rounding
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.outside_operators import OutsideOperator, OutsideTensor
from sgsdump.replay.bounds import RANDOM
from sgsdump.tensors.dtypes import KNOWN, is_float

KIND = "between rounds"
# State of all earlier rounds; None if an earlier round was not compared.
Before = Literal["equal", "within rounding"] | None
# Largest change of statistics for equal tensors computed in another way, and the least change of different tensors.
_ALIKE = 0.02
_TIMES = 10.0
_LEAST = {"float16": 1e-2, "bfloat16": 3e-2}
_LEAST_OF_WIDER = 1e-3

Calls = tuple[OutsideOperator, OutsideOperator]


def between_findings(dumps: tuple[Dump, Dump], rows: Sequence[Row], before: Before) -> tuple[Finding, ...]:
    """Return the finding on operators that ran before this round outside any module, or nothing if none is at fault."""
    sample, benchmark = (dump.before() for dump in dumps)
    calls = list(_paired(sample, benchmark))
    inputs = tuple(_other_inputs(dumps, rows)) if before == "equal" else ()
    culprit = next(_culprits(calls, before), None)
    if culprit is None and inputs:
        culprit = next(_first_that_differ(calls), None)
    if culprit is None and not inputs:
        return ()
    facts = {"recorded": "yes" if sample and benchmark else "no"}
    if culprit is None:
        facts |= _unlike(sample, benchmark)
        return (Finding(KIND, inputs[0], evidence="by value", names=inputs, facts=facts),)
    kind = culprit[1].kind
    return (Finding(KIND, kind, kind, evidence="by value", names=inputs, facts=facts | _facts(*culprit)),)


def _paired(sample: Sequence[OutsideOperator], benchmark: Sequence[OutsideOperator]) -> Iterator[Calls]:
    """Yield pairs of operators of the same kinds in the same order."""
    kinds = [[operator.kind for operator in side] for side in (sample, benchmark)]
    for first, second, count in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_matching_blocks():
        yield from zip(sample[first : first + count], benchmark[second : second + count])


def _unlike(sample: Sequence[OutsideOperator], benchmark: Sequence[OutsideOperator]) -> dict[str, str]:
    """Return the first operator of each side where the two sides run different operators."""
    kinds = [[operator.kind for operator in side] for side in (sample, benchmark)]
    for tag, *places in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_opcodes():
        if tag != "equal":
            parts = (("sample", sample[places[0] : places[1]]), ("benchmark", benchmark[places[2] : places[3]]))
            return {f"unlike {side}": f"{part[0].kind} ({part[0].source})" for side, part in parts if part}
    return {}


def _culprits(calls: Sequence[Calls], before: Before) -> Iterator[Calls]:
    """Yield operators with equal inputs but different arguments whose results still differ downstream."""
    for place, (mine, theirs) in enumerate(calls):
        is_other = mine.arguments != theirs.arguments or (before and _other_constant(calls[:place], mine, theirs))
        if not (is_other and _reads_alike(mine, theirs) and _gives_others(mine, theirs)):
            continue
        if _stays_other((mine, theirs), calls[place + 1 :]):
            yield mine, theirs


def _first_that_differ(calls: Sequence[Calls]) -> Iterator[Calls]:
    """Return operators with equal inputs and different outputs."""
    return (pair for pair in calls if _reads_alike(*pair) and _gives_others(*pair, floats_alone=False))


def _reads_alike(mine: OutsideOperator, theirs: OutsideOperator) -> bool:
    """Return whether all inputs are alike; single numbers may differ, because they are constants of the program."""
    return len(mine.inputs) == len(theirs.inputs) and all(
        _are_alike(one, other) or math.prod(one.shape) == 1 == math.prod(other.shape)
        for one, other in zip(mine.inputs, theirs.inputs)
    )


def _other_constant(earlier: Sequence[Calls], mine: OutsideOperator, theirs: OutsideOperator) -> bool:
    """Return whether a single-number input that no operator between the rounds produced differs."""
    made = {tensor.checksum for pair in earlier for operator in pair for tensor in operator.outputs}
    return any(
        math.prod(one.shape) == 1
        and one.shape == other.shape
        and _are_others(one, other, 0.0)
        and not {one.checksum, other.checksum} & made
        for one, other in zip(mine.inputs, theirs.inputs)
    )


def _stays_other(culprit: Calls, later: Sequence[Calls]) -> bool:
    """Return whether any floats are computed from both operators' results, and all of them differ."""
    made = [{tensor.checksum for tensor in operator.outputs} - {None} for operator in culprit]
    is_read = False
    for pair in later:
        if not all(own & {tensor.checksum for tensor in operator.inputs} for own, operator in zip(made, pair)):
            continue
        if not any(map(_is_float, pair[1].outputs)):
            continue
        if not _gives_others(*pair):
            return False
        is_read = True
        for own, operator in zip(made, pair):
            own |= {tensor.checksum for tensor in operator.outputs} - {None}
    return is_read


def _gives_others(mine: OutsideOperator, theirs: OutsideOperator, floats_alone: bool = True) -> bool:
    """Return whether outputs of equal shape differ by more than their inputs and rounding explain."""
    changes = [_change(*pair) for pair in zip(mine.inputs, theirs.inputs) if _are_alike(*pair)]
    outputs = list(zip(mine.outputs, theirs.outputs))
    if any(one.shape != other.shape or one.dtype != other.dtype for one, other in outputs):
        return False
    return any(
        _are_others(one, other, max(changes, default=0.0))
        for one, other in outputs
        if _is_float(one) or not floats_alone
    )


def _are_alike(one: OutsideTensor, other: OutsideTensor) -> bool:
    if one.shape != other.shape:
        return False
    is_equal = one.checksum is not None and one.checksum == other.checksum
    return is_equal or (_is_float(one) and _change(one, other) <= _ALIKE)


def _are_others(one: OutsideTensor, other: OutsideTensor, change: float) -> bool:
    if one.checksum is None or one.checksum == other.checksum:
        return False
    return not _is_float(one) or _change(one, other) > max(_TIMES * change, _LEAST.get(one.dtype, _LEAST_OF_WIDER))


def _change(one: OutsideTensor, other: OutsideTensor) -> float:
    """Return the relative distance of two tensors by minimum, maximum and norm; infinite if unknown."""
    if one.checksum is not None and one.checksum == other.checksum:
        return 0.0
    if len(one.figures) != 4 or len(other.figures) != 4:
        return math.inf
    largest = max(abs(value) for tensor in (one, other) for value in tensor.figures[:2] if math.isfinite(value))
    apart = max(_apart(*pair, largest) for pair in zip(one.figures[:2], other.figures[:2]))
    return max(apart, _apart(one.figures[3], other.figures[3], max(one.figures[3], other.figures[3])))


def _apart(one: float, other: float, scale: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    difference = abs(one - other)
    return difference / scale if math.isfinite(difference) and scale else math.inf


def _is_float(tensor: OutsideTensor) -> bool:
    dtype = KNOWN.get(tensor.dtype)
    return dtype is not None and is_float(dtype)


def _facts(mine: OutsideOperator, theirs: OutsideOperator) -> dict[str, str]:
    """Return the facts of a finding on two operators that are at fault."""
    facts = {"source": theirs.source, "sample source": mine.source}
    for name in dict.fromkeys([*theirs.arguments, *mine.arguments]):
        values = [operator.arguments.get(name, "not given") for operator in (mine, theirs)]
        if values[0] != values[1]:
            return facts | {"argument": name, "sample": values[0], "benchmark": values[1]}
    for one, other in zip(mine.inputs, theirs.inputs):
        if math.prod(one.shape) == 1 and one.figures and one.checksum != other.checksum:
            numbers = f"{one.figures[0]:g}", f"{other.figures[0]:g}"
            return facts | dict(zip(("argument", "sample", "benchmark"), ("constant", *numbers)))
    is_random = theirs.kind.partition(".")[2].strip("_") in RANDOM
    return facts | ({"random": "yes"} if is_random else {})


def _other_inputs(dumps: tuple[Dump, Dump], rows: Sequence[Row]) -> Iterator[str]:
    """Yield inputs of the round that differ by more than rounding and are neither weights nor computed in the round."""
    networks = [dump.network() for dump in dumps]
    made = [
        {value for operator in network.values() for (io, _), value in operator.values.items() if io == "out"}
        for network in networks
    ]
    records = [{record.name: record for record in dump.records} for dump in dumps]

    def is_from_outside(side: int, name: str) -> bool:
        record: Record | None = records[side].get(name)
        operator = None if record is None else networks[side].get(record.op_index)
        if record is None or operator is None or (record.io, record.slot) in operator.weights:
            return False
        value = operator.values.get((record.io, record.slot))
        return value is not None and value not in made[side]

    for row in rows:
        is_other = row.io == "in" and differs(row) and not (is_rounding(row) or row.rearranged or row.misnamed)
        if is_other and is_from_outside(0, row.sample_name or row.name) and is_from_outside(1, row.name):
            yield row.name
