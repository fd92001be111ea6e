"""Pairs with different shapes but common contents: a partly used buffer, or permuted axes.

A cache of fixed size holds the contents of a growing cache in its first rows. A program without a cache recomputes what
the other program kept. A cache may be stored as heads by positions or positions by heads. Such a pair is compared on
the part that both sides have, with a note, but only if that part agrees up to rounding. Otherwise different shapes
prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Literal

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Failed, Row, differs, is_rounding
from sgsdump.dumps.dump import Network, Record
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.tensor import Tensor

_MOST_AXES, _LARGEST = 4, 1 << 24
Side = Literal["sample", "benchmark"]
Form = Callable[[np.ndarray], np.ndarray]


def with_common_part(
    pairs: Sequence[Pair], results: Sequence[Row | Failed], measures: Measures, network: Network
) -> list[Row | Failed]:
    """Return the results; pairs of different shapes are compared on their common part if it agrees.

    Runs with different batch sizes are different runs: the batch axis is never cut. ``network`` is the benchmark's.
    """
    failed = (pair for pair, result in zip(pairs, results) if isinstance(result, Failed) and _have_values(pair))
    failed = (pair for pair in failed if not _is_weight(pair.benchmark, network))
    first = 1 if _unlike_axes(next(failed, None)) == [0] else 0
    return [
        _compared(pair, result, measures, first) if isinstance(result, Failed) and _have_values(pair) else result
        for pair, result in zip(pairs, results)
    ]


def _is_weight(record: Record, network: Network) -> bool:
    operator = network.get(record.op_index)
    return operator is not None and bool(operator.weights.get((record.io, record.slot)))


def _unlike_axes(pair: Pair | None) -> list[int]:
    if pair is None:
        return []
    sample, benchmark = (record.tensor.shape or () for record in pair.records)
    return [axis for axis, (one, other) in enumerate(zip(sample, benchmark)) if one != other]


def _compared(pair: Pair, failed: Failed, measures: Measures, first: int) -> Row | Failed:
    for candidate in _candidates(pair, first):
        row = measures.result(candidate)
        if isinstance(row, Row) and (not differs(row) or is_rounding(row)):
            return row
    return failed


def _candidates(pair: Pair, first: int) -> Iterator[Pair]:
    shapes = [tuple(record.tensor.shape or ()) for record in pair.records]
    sample, benchmark = shapes
    if len(sample) != len(benchmark) or sample == benchmark or max(map(math.prod, shapes)) > _LARGEST:
        return
    if sorted(sample) == sorted(benchmark) and len(sample) <= _MOST_AXES:
        for axes in permutations(range(len(sample))):
            if tuple(sample[axis] for axis in axes) == benchmark:
                note = f"sample axes permuted to {', '.join(map(str, axes))}"
                yield _with_note(replace(pair, sample=_turned(pair.sample, axes)), note)
        return
    unlike = _unlike_axes(pair)
    if len(unlike) == 1 and unlike[0] >= first and min(math.prod(shape) for shape in shapes):
        (axis,) = unlike
        side: Side = "sample" if sample[axis] > benchmark[axis] else "benchmark"
        length, whole = sorted((sample[axis], benchmark[axis]))
        for which, part in _parts(length, whole):
            note = f"{which} of {whole} on axis {axis} of the {side}"
            yield _with_note(_cut(pair, side, axis, part), note)


def _parts(length: int, whole: int) -> Iterator[tuple[str, slice]]:
    """Yield the parts of an axis to try; consecutive batches have the last part of each."""
    yield f"the first {length}", slice(0, length)
    yield f"the last {length}", slice(whole - length, whole)
    if length > 1 and whole % length == 0:
        step = whole // length
        yield f"the last of every {step}", slice(step - 1, whole, step)


def _with_note(pair: Pair, note: str) -> Pair:
    return replace(pair, note="; ".join(filter(None, (pair.note, f"compared: {note}"))))


def _turned(record: Record, axes: Sequence[int]) -> Record:
    shape = record.tensor.shape or ()
    return _formed(record, tuple(shape[axis] for axis in axes), partial(np.transpose, axes=tuple(axes)))


def _cut(pair: Pair, side: Side, axis: int, part: slice) -> Pair:
    record = pair.sample if side == "sample" else pair.benchmark
    shape = record.tensor.shape or ()
    length = len(range(*part.indices(shape[axis])))
    index = (*(slice(None),) * axis, part)
    cut = _formed(record, (*shape[:axis], length, *shape[axis + 1 :]), lambda values: values[index])
    return replace(pair, sample=cut) if side == "sample" else replace(pair, benchmark=cut)


def _formed(record: Record, shape: tuple[int, ...], form: Form) -> Record:
    tensor = record.tensor
    info = replace(tensor.info, shape=shape, layout=None)
    return replace(record, tensor=Tensor(info, partial(_loaded, tensor, form)))


def _loaded(tensor: Tensor, form: Form) -> np.ndarray:
    return np.ascontiguousarray(form(in_memory(tensor.stored_view())))


def _have_values(pair: Pair) -> bool:
    return not any(r.unwritten or r.tensor.statistics is not None or r.tensor.info.quant for r in pair.records)
