"""Judgement: compare a recorded result with the exact one, element by element, in units in the last place.

Uses numpy in chunks, because the result may be large. ``bounds.py`` has the source of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.replay.bounds import OF_FLOAT32, SLACK, FloatType, accumulation, float_type
from sgsdump.tensors.dtypes import is_complex, is_float

CHUNK = 1 << 18
_NEAR = 1 + 2.0**-10  # margin of a bound for a float64 that was rounded twice
_NEAR_ONE = 1 + 2.0**-30


@dataclass(frozen=True, eq=False)
class Reference:
    """The exact values of one output, float64 or complex128 (integers and booleans unchanged).

    magnitude  of each element, for the units of the bound (``bounds.py``); None: the values' own size.
    units      factor of the magnitude.
    roundings  of the result in its own type; 0 for "nearest or equal".
    """

    values: np.ndarray
    magnitude: np.ndarray | None = None
    units: float = 0.0
    roundings: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """The judgement of one output.

    outside    number of ``count`` elements outside their bound.
    index      flat index of the element furthest outside, or nearest to its bound; -1 for none.
    value      value there; ``reference``: the exact one.
    error      in units in the last place of the larger of the two; infinite if only one is NaN or infinite. For
               integers, the difference.
    bound      in the same units.
    """

    count: int
    outside: int = 0
    index: int = -1
    value: float = 0.0
    reference: float = 0.0
    error: float = 0.0
    bound: float = 0.0

    @property
    def ratio(self) -> float:
        """The error as a share of its bound."""
        return self.error / self.bound if self.bound else math.inf if self.error else 0.0


def judge(output: np.ndarray, references: Sequence[Reference]) -> Judgement:
    """Judge a recorded ``output``; an element is within bounds if it is for one of the ``references``."""
    if any(output.size != reference.values.size for reference in references):
        raise ValueError("another number of elements")
    flat = output.reshape(-1)
    if not (is_float(output.dtype) or is_complex(output.dtype)):
        return _whole_numbers(flat, references[0])
    kind, judged = float_type(output.dtype), []
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        each = [_errors(flat[part], reference, part, kind) for reference in references]
        error, bound, exact = min(each, key=lambda one: float(np.max(_ratio(*one[:2]), initial=0.0)))
        if len(each) > 1:
            better = _ratio(*each[1][:2]) < _ratio(*each[0][:2])
            error, bound = (np.where(better, two, one) for one, two in zip(each[0][:2], each[1][:2]))
        judged.append(_worst(flat[part], exact, error, bound, (start, kind)))
    return _joined(judged, flat.size)


def equal(output: np.ndarray) -> Judgement:
    """Return the judgement of an ``output`` that equals the exact one bit by bit."""
    if not output.size:
        return Judgement(0)
    value = float(np.real(output.reshape(-1)[0]))
    return Judgement(output.size, index=0, value=value, reference=value)


def _errors(
    values: np.ndarray, reference: Reference, part: slice, kind: FloatType
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the error and the bound of each element, and the exact values."""
    complex_values = is_complex(values.dtype) or reference.values.dtype.kind == "c"
    wide = np.complex128 if complex_values else np.float64
    with np.errstate(all="ignore"):
        exact = reference.values.reshape(-1)[part].astype(wide)
        given = values.astype(wide)
        size = np.abs(exact)
        error = np.abs(given - exact)
        if not reference.roundings and not complex_values:
            nearest = exact.astype(values.dtype).astype(wide)
            error = np.where(given == nearest, 0.0, error)
            bound = np.where(nearest == exact, 0.0, kind.u * size * _NEAR + kind.flushed / 2)
        else:
            magnitude = size if reference.magnitude is None else reference.magnitude.reshape(-1)[part]
            bound = max(reference.roundings, 1.0) * (kind.u * size * _NEAR + kind.flushed)
            bound = bound + reference.units * accumulation(kind) * SLACK * magnitude
            if kind.u < OF_FLOAT32:  # the reference is not more precise
                bound = 2 * bound
            bound = np.where(np.isnan(exact), 0.0, np.where(np.isnan(bound), np.inf, bound))
        same = (np.isnan(given) & np.isnan(exact)) | (given == exact)
        before_rounding = size + np.maximum(bound - kind.u * size, 0.0)
        beyond = np.isinf(given) & np.isfinite(exact) & (before_rounding >= kind.largest * (1 + kind.u) / _NEAR_ONE)
        error = np.where(same | beyond, 0.0, np.where(np.isnan(error), np.inf, error))
        bound = np.where(np.isinf(bound) & ~np.isfinite(given), 0.0, bound)
    return error, bound, exact


def _ratio(error: np.ndarray, bound: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.where(error == 0, 0.0, error / bound)


def _worst(
    values: np.ndarray, exact: np.ndarray, error: np.ndarray, bound: np.ndarray, where: tuple[int, FloatType]
) -> Judgement:
    if not values.size:
        return Judgement(0)
    start, kind = where
    ratio = _ratio(error, bound)
    index = int(np.argmax(ratio))
    given = values[index].astype(np.complex128 if is_complex(values.dtype) else np.float64)
    sizes = [abs(complex(number)) for number in (given, exact[index]) if np.isfinite(number)]
    unit = _last_place(max(sizes, default=1.0), kind)
    return Judgement(
        values.size,
        int(np.count_nonzero(error > bound)),
        start + index,
        float(np.real(given)),
        float(np.real(exact[index])),
        float(error[index]) / unit,
        float(bound[index]) / unit,
    )


def _last_place(size: float, kind: FloatType) -> float:
    """Return the unit in the last place of a type for a number of this size."""
    if not 0 < size < math.inf:
        return kind.subnormal if size == 0 else 1.0
    return max(2.0 ** (math.floor(math.log2(min(size, kind.largest))) + 1 - kind.digits), kind.subnormal)


def _whole_numbers(values: np.ndarray, reference: Reference) -> Judgement:
    exact = reference.values.reshape(-1)
    if exact.dtype.kind == "f":
        with np.errstate(all="ignore"):
            exact = exact.astype(np.int64)
    if values.dtype == bool or exact.dtype == bool:
        values, exact = values.astype(np.int64), exact.astype(np.int64)
    differing = np.flatnonzero(values != exact)
    if not differing.size:
        return Judgement(values.size)
    index = int(differing[0])
    given, right = int(values[index]), int(exact[index])
    return Judgement(values.size, int(differing.size), index, float(given), float(right), float(abs(given - right)))


def _joined(parts: Sequence[Judgement], count: int) -> Judgement:
    if not parts:
        return Judgement(count)
    worst = max(parts, key=lambda part: (part.outside > 0, part.ratio))
    outside = sum(part.outside for part in parts)
    return Judgement(count, outside, worst.index, worst.value, worst.reference, worst.error, worst.bound)
