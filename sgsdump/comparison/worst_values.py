"""Elements of a pair of tensors with the largest errors: index, both values and the error."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from sgsdump.comparison.align import align_names
from sgsdump.comparison.alignment import Pair, has_own_inputs
from sgsdump.comparison.metrics import Accumulator, Settings
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.stored_integers import IN_STEPS, measured_in_steps
from sgsdump.comparison.sums.summation import feed_all
from sgsdump.dumps.dump import Dump
from sgsdump.errors import ConfigError, hint
from sgsdump.tensors.tensor import Values

Number = int | float | complex


@dataclass(frozen=True)
class WorstValue:
    """One element with its real values as in the tensors.

    error     |sample - benchmark|; infinite if one side is NaN or Inf and the other differs.
    relative  error / |benchmark|.
    """

    index: tuple[int, ...]
    sample: Number
    benchmark: Number
    error: float
    relative: float

    @property
    def numbers(self) -> tuple[Number, ...]:
        return self.sample, self.benchmark, self.error, self.relative


@dataclass(frozen=True)
class WorstValues:
    """Elements with the largest errors, worst first, without equal elements.

    shape      shape that ``index`` refers to: the sample's, unless ``note`` says otherwise.
    differing  number of differing elements.
    """

    pair: Pair
    shape: tuple[int, ...]
    note: str
    differing: int
    values: tuple[WorstValue, ...]


def worst_values(sample: Dump, benchmark: Dump, name: str, count: int) -> WorstValues:
    """Return the ``count`` elements of the tensor ``name`` (of the benchmark or sample) with the largest errors.

    Tensors are paired, and their layouts matched, as in ``compare``. Among equal errors, the first elements come first.
    Raises ConfigError for a name that is not compared, ValuesError if the two tensors do not fit.
    """
    if count < 1:
        raise ConfigError(f"the number of worst values must be 1 or more, not {count}")
    pair = _pair_of(sample, benchmark, name)
    crop = not (has_own_inputs(sample) or has_own_inputs(benchmark))
    measured, notes = Measures({}, crop=crop).measured(pair)
    farthest = _Farthest(count)
    feed_all(measured.sample, measured.benchmark, [farthest])
    shape = measured.sample.array.shape
    values = [
        _worst(measured.sample, measured.benchmark, tuple(map(int, np.unravel_index(index, shape))), error)
        for index, error in farthest.found()
    ]
    steps = IN_STEPS if farthest.differing and measured_in_steps(pair) else ""
    note = "; ".join(filter(None, [*notes, measured.note, steps]))
    return WorstValues(pair, shape, note, farthest.differing, tuple(values))


def _pair_of(sample: Dump, benchmark: Dump, name: str) -> Pair:
    """Return the pair with this name, outputs before inputs."""
    alignment = align_names(sample, benchmark, inputs=True)
    pairs = sorted(alignment.pairs, key=lambda pair: pair.benchmark.io != "out")
    for named in ([p for p in pairs if p.benchmark.name == name], [p for p in pairs if p.sample.name == name]):
        if named:
            more = f"; {len(named)} tensors have this name, only the first is shown" if len(named) > 1 else ""
            return replace(named[0], note=named[0].note + more if named[0].note else more.removeprefix("; "))
    unpaired = alignment.only_in_benchmark + alignment.only_in_sample
    reason = next((f": {item.reason}" for item in unpaired if item.record.name == name), "")
    names = [pair.benchmark.name for pair in pairs]
    raise ConfigError(f"{name!r} is not among the compared tensors{reason or hint(name, names)}")


class _Farthest(Accumulator):
    """Positions of the largest errors; memory is that of a few chunks."""

    def __init__(self, count: int):
        super().__init__(Settings())
        self.count = count
        self.seen = self.differing = 0
        self.heap: list[tuple[float, int]] = []  # (error, -place): the first entry is replaced next

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        errors = np.abs(d)
        odd = ~np.isfinite(errors)
        if odd.any():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            errors[odd] = np.where(same[odd], 0.0, math.inf)
        self.differing += int(np.count_nonzero(errors))
        least = self.heap[0][0] if len(self.heap) == self.count else 0.0
        for place in self._candidates(errors, least):
            entry = float(errors[place]), -(self.seen + int(place))
            if len(self.heap) < self.count:
                heapq.heappush(self.heap, entry)
            else:
                heapq.heappushpop(self.heap, entry)
        self.seen += d.size

    def _candidates(self, errors: np.ndarray, least: float) -> np.ndarray:
        """Return the first positions of the ``count`` largest errors above ``least``."""
        (above,) = np.nonzero(errors > least)
        return above[np.argsort(-errors[above], kind="stable")[: self.count]]

    def found(self) -> list[tuple[int, float]]:
        """Return (place, error), largest error first, then first place."""
        return [(-place, error) for error, place in sorted(self.heap, reverse=True)]


def _worst(sample: Values, benchmark: Values, index: tuple[int, ...], error: float) -> WorstValue:
    a, b = _value(sample, index), _value(benchmark, index)
    size = abs(b)
    return WorstValue(index, a, b, error, error / size if size else math.inf)


def _value(values: Values, index: tuple[int, ...]) -> Number:
    element = np.asarray(values.array[index]).reshape(1)
    value: Number = (element if values.to_real is None else values.to_real(element)).tolist()[0]
    return value
