"""Judge every operator of a run on its own: compute it again from its recorded inputs and arguments.

An operator's error is then its own, without a second run to compare with. Operators that cannot be judged are listed
with the reason.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.replay import torch_operators
from sgsdump.replay.bounds import COLLECTIVE, OF_MEMORY, RANDOM, TORCH, float_type
from sgsdump.replay.judgement import Judgement, Reference, equal, judge
from sgsdump.tensors.dtypes import is_complex, is_float

_BFLOAT16_INF = 0x7F80  # bit pattern
_ODD = ("NaN", "Infinity")  # as JSON writes them
# Reasons for not judging an operator.
Why = Literal["random", "collective", "custom", "memory", "no bound", "no values", "not recorded", "refused"]
# Result from finite inputs: "overflow" is an infinity where the exact result exceeds the type.
Odd = Literal["", "NaN", "Inf", "overflow"]


@dataclass(frozen=True)
class Place:
    """An operator: number in the dump, name of its first output, type, module, and the program line that calls it."""

    op_index: int
    name: str
    kind: str
    module: str = ""
    source: str = ""


@dataclass(frozen=True)
class Judged:
    """A judged output of an operator; ``odd``: the kind of non-finite value made from finite inputs, or ""."""

    place: Place
    slot: int
    dtype: str
    judgement: Judgement
    odd: Odd = ""


@dataclass(frozen=True)
class Unjudged:
    """An operator without a judgement; ``detail`` has the words of the library that refused."""

    place: Place
    why: Why
    detail: str = ""


@dataclass(frozen=True)
class Check:
    """The outputs that were judged, and the operators that were not, both in execution order."""

    judged: tuple[Judged, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def outside(self) -> list[Judged]:
        return [judged for judged in self.judged if judged.judgement.outside]

    @property
    def operators(self) -> int:
        """The number of operators judged."""
        return len({judged.place.op_index for judged in self.judged})

    def first_odd(self, *kinds: Odd) -> Judged | None:
        return next((judged for judged in self.judged if judged.odd in kinds), None)


def is_of_another_tool(check: Check) -> bool:
    """Return whether nothing was judged because no operator belongs to a known library."""
    return not check.judged and all(unjudged.why == "custom" for unjudged in check.unjudged)


def check(dump: Dump, network: Mapping[int, Operator] | None = None, only: Sequence[int] | None = None) -> Check:
    """Judge the operators of a torch program's run, or those with a number in ``only``.

    Raises MissingExtra without torch, ValuesError and FileChanged if a file is missing.
    """
    judged: list[Judged] = []
    unjudged: list[Unjudged] = []
    for found in each(dump, dump.network() if network is None else network, only):
        if isinstance(found, Unjudged):
            unjudged.append(found)
        else:
            judged.append(found)
    return Check(tuple(judged), tuple(unjudged))


def each(dump: Dump, network: Mapping[int, Operator], only: Sequence[int] | None = None) -> Iterator[Judged | Unjudged]:
    """Yield the judgements one by one, in execution order."""
    records: defaultdict[int, list[Record]] = defaultdict(list)
    for record in dump.records:
        records[record.op_index].append(record)
    for index in sorted(records) if only is None else only:
        operator = network.get(index)
        if operator is not None and not operator.is_module:
            yield from _of_operator(index, operator, records[index])


def has_odd_argument(operator: Operator | None) -> bool:
    """Return whether an argument is infinite or NaN, such as a mask's fill value, so that odd results are intended."""
    return operator is not None and any(word in value for value in operator.arguments.values() for word in _ODD)


def is_recorded(network: Mapping[int, Operator]) -> bool:
    """Return whether the operators of a run were recorded with their form, so that they can be computed again."""
    return any(operator.call is not None for operator in network.values())


def _of_operator(index: int, operator: Operator, records: Sequence[Record]) -> Iterator[Judged | Unjudged]:
    outputs = sorted((record for record in records if record.io == "out"), key=lambda record: record.slot)
    inputs = sorted((record for record in records if record.io == "in"), key=lambda record: record.slot)
    name = (outputs or inputs)[0].name
    place = Place(index, name, operator.kind, operator.module, operator.source)
    why = _why_not(operator, inputs, outputs)
    if why is not None:
        yield Unjudged(place, why)
        return
    try:
        tensors = {name: record.tensor.stored_view() for name, record in zip(operator.call.inputs, inputs)}  # type: ignore[union-attr]
        results = [record.tensor.stored_view() for record in outputs]
    except FileChanged:
        raise
    except SgsdumpError as error:
        yield Unjudged(place, "no values", str(error))
        return
    arguments = {name: json.loads(text) for name, text in operator.arguments.items()}
    is_asked = has_odd_argument(operator)
    call = torch_operators.Call(operator.kind, operator.call.overload, tensors, arguments, results)  # type: ignore[union-attr]
    if torch_operators.is_moved(call):
        for record, values in zip(outputs, results):
            yield Judged(place, record.slot, values.dtype.name, equal(values))
        return
    try:
        found = torch_operators.references(call, TORCH[call.name])
    except torch_operators.NotReplayed as error:
        yield Unjudged(place, "refused", str(error))
        return
    judged = judged_outputs(place, outputs, found, tensors.values())
    yield from (replace(one, odd="") if is_asked and isinstance(one, Judged) else one for one in judged)


def judged_outputs(
    place: Place, outputs: Sequence[Record], found: Sequence[list[Reference] | None], reads: Collection[np.ndarray]
) -> Iterator[Judged | Unjudged]:
    """Yield the judgement of each output of an operator that was computed again from its inputs ``reads``."""
    for record, references in zip(outputs, found):
        if references is None:
            continue
        values = record.tensor.stored_view()
        try:
            judgement = judge(values, references)
        except ValueError:
            shapes = f"{list(record.tensor.shape or ())} recorded, {list(references[0].values.shape)} computed"
            yield Unjudged(place, "refused", shapes)
            continue
        odd = _odd(values, references[0])
        odd = odd if odd and all(map(_finite, reads)) else ""
        yield Judged(place, record.slot, values.dtype.name, judgement, odd)


def _why_not(operator: Operator, inputs: Sequence[Record], outputs: Sequence[Record]) -> Why | None:
    namespace = operator.kind.partition(".")[0]
    name = torch_operators.plain_name(operator.kind)
    if namespace in COLLECTIVE:
        return "collective"
    if namespace not in torch_operators.NAMESPACES:
        return "custom"
    if name in RANDOM:
        return "random"
    if name in OF_MEMORY:
        return "memory"
    if name not in TORCH:
        return "no bound"
    if not outputs or any(record.unwritten for record in (*inputs, *outputs)):
        return "no values"
    if operator.call is None or len(operator.call.inputs) != len(inputs):
        return "not recorded"
    if any(record.tensor.statistics is not None for record in (*inputs, *outputs)):
        return "no values"
    return None


def _finite(values: np.ndarray) -> bool:
    if not (is_float(values.dtype) or is_complex(values.dtype)):
        return True
    with np.errstate(all="ignore"):
        if values.dtype.kind in "fc":
            return bool(np.isfinite(values).all())
        if values.dtype.name == "bfloat16":
            return not values.size or int((values.view(np.uint16) & 0x7FFF).max()) < _BFLOAT16_INF
        return bool(np.isfinite(values.astype(np.float32)).all())


def _odd(values: np.ndarray, reference: Reference) -> Odd:
    """Return the kind of non-finite value in an output; "" if there is none."""
    if _finite(values):
        return ""
    flat = values.reshape(-1)
    flat = flat if flat.dtype.kind in "fc" else flat.astype(np.float32)
    if np.isnan(flat).any():
        return "NaN"
    if values.dtype.kind == "c":
        return "Inf"
    exact = np.abs(reference.values.reshape(-1)[np.isinf(flat)])
    return "overflow" if (np.isfinite(exact) & (exact >= float_type(values.dtype).largest)).any() else "Inf"
