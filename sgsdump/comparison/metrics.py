"""Metrics of a comparison: formulas in a (sample), b (benchmark) and d = a - b, listed in ``METRICS``.

A metric is computed from the ``Sums`` of a pair of tensors, or from an ``Accumulator`` that saw every value. Either
way, any number of metrics costs one pass over the values. To add a metric, write its function and add it to
``METRICS``. If the sums are not enough, give it an accumulator, which several metrics can share.

mse, cos and rmse are always printed. The other metrics come from the SDAA dump tools, from msaccucmp, and from
Polygraphy and onnxruntime. Four formulas have two names, one per tool. Where a vendor's figure hides a problem (a
benchmark of zeros, for example), the metric here does not: values without a relative error are left out and counted.
``vendor_metrics`` reproduces the vendors' figures digit by digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from operator import add, attrgetter, methodcaller
from typing import Any

import numpy as np

from sgsdump.errors import ConfigError, hint

EPSILON = 1e-9
_FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOOR = float(np.finfo(np.float32).eps)  # lowest value of both distributions of the Kullback-Leibler divergence
TOP = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of NaN and infinite values of a sample and a benchmark.

    *_nan, *_inf  NaN and infinite values; *_minus_inf are the negative infinite values.
    odd_apart     positions where one side is NaN, +Inf or -Inf and the other side differs.
    """

    sample_nan: int = 0
    sample_inf: int = 0
    benchmark_nan: int = 0
    benchmark_inf: int = 0
    sample_minus_inf: int = 0
    benchmark_minus_inf: int = 0
    odd_apart: int = 0

    @property
    def are_none(self) -> bool:
        """True if neither side holds NaN or infinite values."""
        return not (self.sample_nan or self.sample_inf or self.benchmark_nan or self.benchmark_inf)


NO_COUNTS = Counts()
_counts = attrgetter(*(field.name for field in fields(Counts)))  # ten times as fast as astuple


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of one pass over a pair (a sample, b benchmark), accumulated in float64.

    aa, bb, ab   Σa², Σb², Σab
    dd, d1, b1   Σ(a-b)², Σ|a-b|, Σ|b|; differences of 64-bit integers are exact
    odd          counts of NaN and Inf; no value is filtered, so NaN and Inf also appear in the sums.
    """

    count: int
    aa: float
    bb: float
    ab: float
    dd: float
    d1: float
    b1: float
    odd: Counts = NO_COUNTS

    @property
    def numbers(self) -> tuple[float, ...]:
        """Count, six sums and seven counts as a flat tuple, the argument of ``of_numbers``."""
        return self.count, self.aa, self.bb, self.ab, self.dd, self.d1, self.b1, *_counts(self.odd)

    @classmethod
    def of_numbers(cls, numbers: Sequence[Any]) -> Sums:
        count, aa, bb, ab, dd, d1, b1, *odd = numbers
        return cls(count, aa, bb, ab, dd, d1, b1, Counts(*odd))


def merged_sums(sums: Iterable[Sums]) -> Sums:
    """Return the sums of all values, as if the tensors were concatenated."""
    total: Sequence[float] = Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0).numbers
    for addend in sums:
        total = list(map(add, total, addend.numbers))
    return Sums.of_numbers(total)


@dataclass(frozen=True)
class Settings:
    """Parameters of some metrics.

    th1         diff3: benchmark values with a larger magnitude are compared relatively, the others absolutely.
    rtol, atol  all_close: relative and absolute tolerance; None means th1.

    Raises ConfigError if a value is negative or NaN.
    """

    th1: float = 1e-6
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name in ("th1", "rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} must be 0 or more, not {value:g}")


class Accumulator:
    """Base class of objects that see every value of a pair, chunk by chunk, for the metrics that name their class.

    left_out  number of values that the metrics skip because they are undefined there.
    """

    left_out = 0

    def __init__(self, settings: Settings):
        self.settings = settings

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        """Add a chunk: flat float64 values of sample and benchmark, and d = a - b (exact for 64-bit integers).

        The arrays belong to the caller and may hold NaN and Inf; do not write to them or keep them.
        """
        raise NotImplementedError

    def wants_again(self) -> bool:
        """Return whether another pass over all chunks is needed; called after each pass."""
        return False


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN if any value is NaN."""
    return float(np.mean(values))


def largest(values: Sequence[float]) -> float:
    """Return the maximum, or NaN if there is any NaN."""
    return float(np.max(values))


@dataclass(frozen=True)
class Metric:
    """One number about a pair: its formula, its ideal value and how to compute it.

    of           computes the number from the ``Sums``, or from the accumulator if the metric has one.
    accumulator  class of the accumulator that the metric needs; metrics that name the same class share one object.
    merged       combines the numbers of several runs if the metric has an accumulator; the mean by default. Metrics of
                 ``Sums`` are recomputed from the sums of all runs.
    """

    name: str
    formula: str
    ideal: float
    higher_is_better: bool
    of: Callable[[Any], float]
    accumulator: type[Accumulator] | None = None
    merged: Callable[[Sequence[float]], float] = mean


def ratio(numerator: float, denominator: float) -> float:
    """Return the quotient by IEEE 754 without exceptions: x/0 is infinite and 0/0 is NaN.

    NaN if the denominator is infinite, because a sum that overflowed would turn any error into 0.
    """
    if denominator:
        return math.nan if math.isinf(denominator) else numerator / denominator
    return float("nan") if not numerator or numerator != numerator else float("inf") * numerator


def decibels(noise: float) -> float:
    """Return -10 log10 of the noise power relative to the signal power; infinite for 0."""
    return 0.0 - 10 * math.log10(noise) if noise else math.inf


# Metrics that are computed from the sums.


def mse(sums: Sums) -> float:
    """Return the mean squared error, (1/n) Σ(a-b)², in squared units of the tensor; NaN for an empty tensor."""
    return ratio(sums.dd, sums.count)


def cos(sums: Sums) -> float:
    """Return the cosine similarity, Σab / (√Σa² √Σb²), from -1 to 1; NaN if either side is all zeros.

    The metric ignores scale: a sample of half the benchmark's values still scores 1.
    """
    value = ratio(sums.ab, math.sqrt(sums.aa) * math.sqrt(sums.bb))
    # By the Cauchy-Schwarz inequality, only rounding can exceed 1
    return math.copysign(1.0, value) if 1 < abs(value) < math.inf else value


def rmse(sums: Sums) -> float:
    """Return the SDK's RMSE, Σ|a-b| / Σ|b|; infinite if only the benchmark is all zeros, NaN if both sides are.

    The name misleads: this is not a root mean square but the relative L1 error, unitless and asymmetric. It is kept
    because the SDK's reports, manuals and thresholds use it.
    """
    return ratio(sums.d1, sums.b1)


def relative_euclidean_distance(sums: Sums) -> float:
    """Return sqrt(Σd² / Σb²); infinite if only the benchmark is all zeros, NaN if both sides are (msaccucmp: 0)."""
    return math.sqrt(ratio(sums.dd, sums.bb))


def mean_absolute_error(sums: Sums) -> float:
    """Return (1/n) Σ|a-b|, in units of the tensor; NaN for an empty tensor."""
    return ratio(sums.d1, sums.count)


def root_mean_square_error(sums: Sums) -> float:
    """Return sqrt((1/n) Σ(a-b)²), which differs from the SDK's RMSE; NaN for an empty tensor."""
    return math.sqrt(ratio(sums.dd, sums.count))


def sqnr(sums: Sums) -> float:
    """Return the signal-to-quantisation-noise ratio in dB, 10 log10(Σb² / Σd²); about 6 dB per bit.

    Infinite without noise, -Inf if only the benchmark is all zeros, NaN if both sides are.
    """
    return decibels(ratio(sums.dd, sums.bb))


def nan_inf(sums: Sums) -> float:
    """Return the number of NaN and infinite values of both sides."""
    odd = sums.odd
    return float(odd.sample_nan + odd.sample_inf + odd.benchmark_nan + odd.benchmark_inf)


# Accumulators, each followed by its metrics.


class LargestError(Accumulator):
    """max |d|; 0 for an empty tensor, NaN if any difference is NaN."""

    value = 0.0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.value = float(np.maximum(self.value, max(float(d.max()), -float(d.min()))))


class RelativeErrors(Accumulator):
    """|d| / |b|: largest value, sum and count.

    If only the benchmark is 0, the relative error is undefined: such values are left out and counted (msaccucmp counts
    them as 0). If both sides are 0, the error is 0. NaN and Inf are never left out and appear in the results.
    """

    largest = math.nan
    total = 0.0
    count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        zero = b == 0
        if zero.any():
            defined = ~zero | (d == 0) | ~np.isfinite(d)
            self.left_out += int(np.count_nonzero(~defined))
            b, d = np.where(zero, 1.0, b)[defined], d[defined]
        if not d.size:
            return
        errors = np.abs(d) / np.abs(b)
        largest_here = float(errors.max())
        self.largest = float(np.maximum(self.largest, largest_here)) if self.count else largest_here
        self.total += float(errors.sum())
        self.count += errors.size


def accumulated_relative_error(errors: RelativeErrors) -> float:
    """Return Σ|a/b - 1|, which grows with the size of the tensor; NaN if no value has a relative error."""
    return errors.total if errors.count else math.nan


class Diff3(Accumulator):
    """Errors of the SDAA dump tools, relative where |b| > th1, else absolute: largest value and sum.

    These tools recommend th1 = 1e-6 for float32 and 1e-4 for float16. NaN and Inf are kept.
    """

    largest = 0.0
    total = 0.0
    count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        base = np.abs(b)
        small = ~(base > self.settings.th1)
        base += EPSILON
        base[small] = 1.0
        errors = np.abs(d)
        errors /= base
        self.largest = float(np.maximum(self.largest, errors.max()))
        self.total += float(errors.sum())
        self.count += errors.size


class Percentage(Accumulator):
    """|d| / (|b| + 1e-9), for the MAPE of the SDAA dump tools. Where b is 0, an error of 1 counts as 1e9."""

    total = 0.0
    count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.total += float((np.abs(d) / (np.abs(b) + EPSILON)).sum())
        self.count += d.size


def mean_error(errors: RelativeErrors | Diff3 | Percentage) -> float:
    """Return the mean error; NaN if no value was counted."""
    return ratio(errors.total, errors.count)


class Close(Accumulator):
    """Test whether all values are close, as in ``numpy.testing.assert_allclose``: |a-b| <= atol + rtol |b|.

    NaN is close only to NaN, and Inf only to Inf of the same sign.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.close = True
        self.rtol = settings.th1 if settings.rtol is None else settings.rtol
        self.atol = settings.th1 if settings.atol is None else settings.atol

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        within = np.abs(d) <= self.atol + self.rtol * np.abs(b)
        if within.all() and np.isfinite(b).all():
            return
        equal = (np.isinf(b) & (a == b)) | (np.isnan(a) & np.isnan(b))
        self.close = self.close and bool(((within & np.isfinite(b)) | equal).all())


def all_close(accumulator: Close) -> float:
    """Return 1.0 if all values are close or the tensor is empty, else 0.0."""
    return float(accumulator.close)


class Distributions(Accumulator):
    """Both sides scaled to distributions, for msaccucmp's KullbackLeiblerDivergence Σ p ln(p/q), p of a and q of b.

    Each side is scaled from its own minimum and maximum to 0 … 1, clamped below at float32's epsilon and divided by its
    sum; a constant side is epsilon throughout. The metric thus ignores scale and offset: twice the benchmark scores 0.
    The first pass finds the extremes. In the second pass, P and Q are the scaled values before the division: Σ p
    ln(p/q) = ΣP ln(P/Q) / ΣP + ln(ΣQ/ΣP).
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.low = np.full(2, np.inf)
        self.high = np.full(2, -np.inf)
        self.scaling = False
        self.p = self.q = self.logs = 0.0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        if not self.scaling:
            self.low = np.minimum(self.low, [a.min(), b.min()])
            self.high = np.maximum(self.high, [a.max(), b.max()])
            return
        p, q = self._scaled(a, 0), self._scaled(b, 1)
        self.p += float(p.sum())
        self.q += float(q.sum())
        self.logs += float((p * np.log(p / q)).sum())

    def wants_again(self) -> bool:
        first, self.scaling = not self.scaling, True
        return first

    def _scaled(self, values: np.ndarray, side: int) -> np.ndarray:
        width = self.high[side] - self.low[side]
        if width == 0:
            return np.full(values.shape, FLOOR)
        return np.maximum((values - self.low[side]) / width, FLOOR)


def kullback_leibler_divergence(sides: Distributions) -> float:
    """Return a number of 0 or more, except for rounding; NaN for an empty tensor, or if any value is NaN or Inf."""
    return sides.logs / sides.p + math.log(sides.q / sides.p) if sides.p and sides.q else math.nan


class Spread(Accumulator):
    """Standard deviations of both sides.

    msaccucmp prints means and deviations of each side, which cannot rank layers.

    Chunks are merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979), which stays accurate for values far from 0.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.count = 0
        self.mean = np.zeros(2)
        self.squares = np.zeros(2)  # sums of squared distances from the mean

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        mean = np.array([a.mean(), b.mean()])
        squares = np.array([np.square(a - mean[0]).sum(), np.square(b - mean[1]).sum()])
        total = self.count + a.size
        moved = mean - self.mean
        self.squares += squares + moved**2 * (self.count * a.size / total)
        self.mean += moved * (a.size / total)
        self.count = total


def standard_deviation(spread: Spread) -> float:
    """Return the absolute difference of both standard deviations; NaN for an empty tensor."""
    a, b = (math.sqrt(ratio(float(squares), spread.count)) for squares in spread.squares)
    return abs(a - b)


class SpanAndNoise(Accumulator):
    """Range of the benchmark's values and Σd², for the peak signal-to-noise ratio."""

    low, high = math.inf, -math.inf
    squares = 0.0
    count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.low = float(np.minimum(self.low, b.min()))
        self.high = float(np.maximum(self.high, b.max()))
        self.squares += float(d.dot(d))
        self.count += d.size


def psnr(noise: SpanAndNoise) -> float:
    """Return the peak signal-to-noise ratio in dB.

    Infinite without noise, -Inf if a constant benchmark has noise, NaN for an empty tensor.
    """
    if not noise.count:
        return math.nan
    span = noise.high - noise.low
    return decibels(ratio(noise.squares / noise.count, span * span))


class Errors(Accumulator):
    """All |d|, kept until the pair is done, for their quantiles.

    Quantiles show how far most values are off, however large the worst error is. Values that fit are kept as float32.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.parts: list[np.ndarray] = []

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        errors = np.abs(d)
        fit = errors.max() <= _FLOAT32_MAX or not np.isfinite(errors).all()
        self.parts.append(errors.astype(np.float32) if fit else errors)

    def quantile(self, share: float) -> float:
        """Return a quantile by linear interpolation; NaN for an empty tensor or if any error is NaN."""
        if not self.parts:
            return math.nan
        self.parts = [np.concatenate(self.parts)]
        # numpy warns about Inf among the errors, which the result shows anyway
        with np.errstate(invalid="ignore"):
            return float(np.quantile(self.parts[0], share))


class LargestValues(Accumulator):
    """Flat indices of the ``TOP`` largest values of each side; among equal values the first index counts."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.sides = [(np.empty(0), np.empty(0, np.int64)) for _ in range(2)]
        self.count = 0
        self.finite = True

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        indices = np.arange(self.count, self.count + a.size)
        self.count += a.size
        self.finite = self.finite and bool(np.isfinite(a).all() and np.isfinite(b).all())
        self.sides = [self._largest_of(*kept, chunk, indices) for kept, chunk in zip(self.sides, (a, b))]

    @staticmethod
    def _largest_of(
        kept: np.ndarray, kept_indices: np.ndarray, chunk: np.ndarray, chunk_indices: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        values, indices = np.concatenate([kept, chunk]), np.concatenate([kept_indices, chunk_indices])
        order = np.argsort(-values, kind="stable")[:TOP]
        return values[order], indices[order]

    def shared(self, k: int) -> float:
        """Return the share of the benchmark's k largest indices that the sample shares, as in top-k accuracy.

        NaN for an empty tensor, or if any value is NaN or Inf.
        """
        (_, in_sample), (_, in_benchmark) = self.sides
        if not self.count or not self.finite:
            return math.nan
        return float(np.isin(in_benchmark[:k], in_sample[:k]).sum() / len(in_benchmark[:k]))


class _Metrics(dict[str, Metric]):
    def __missing__(self, name: str) -> Metric:
        raise ConfigError(f"unknown metric {name!r}{hint(name, self)}")


_DIFF3 = "|b| > th1 ? |d| / (|b| + 1e-9) : |d|"
_RMSE = Metric("RMSE", "Σ|a-b| / Σ|b|", 0.0, False, rmse)
_COS = Metric("COS", "Σab / (√Σa² √Σb²)", 1.0, True, cos)
_MAE = Metric("MeanAbsoluteError", "(1/n) Σ|d|", 0.0, False, mean_absolute_error)
_RED = Metric("RelativeEuclideanDistance", "sqrt(Σd² / Σb²)", 0.0, False, relative_euclidean_distance)

# Metrics by the names that users give. An unknown name raises ConfigError with the nearest names.
METRICS = _Metrics(
    mse=Metric("MSE", "(1/n) Σ(a-b)²", 0.0, False, mse),
    cos=_COS,
    rmse=_RMSE,
    diff1=replace(_RMSE, name="diff1"),
    diff2=replace(_RED, name="diff2"),  # the SDAA tools list tensors above 1e-3
    diff3_max=Metric("diff3_max", f"max({_DIFF3})", 0.0, False, attrgetter("largest"), Diff3, largest),
    diff3_mean=Metric("diff3_mean", f"mean({_DIFF3})", 0.0, False, mean_error, Diff3),
    all_close=Metric("all_close", "all |d| <= atol + rtol |b|", 1.0, True, all_close, Close, min),
    nan_inf=Metric("nan_inf", "NaN and Inf of a and b", 0.0, False, nan_inf),
    mae=replace(_MAE, name="mae"),
    mape=Metric("mape", "mean(|d| / (|b| + 1e-9))", 0.0, False, mean_error, Percentage),
    CosineSimilarity=replace(_COS, name="CosineSimilarity"),  # msaccucmp: 1 if both sides are zeros
    MaxAbsoluteError=Metric("MaxAbsoluteError", "max |d|", 0.0, False, attrgetter("value"), LargestError, largest),
    AccumulatedRelativeError=Metric(
        "AccumulatedRelativeError", "Σ |d|/|b|", 0.0, False, accumulated_relative_error, RelativeErrors, sum
    ),
    RelativeEuclideanDistance=_RED,
    KullbackLeiblerDivergence=Metric(
        "KullbackLeiblerDivergence", "Σ p ln(p/q)", 0.0, False, kullback_leibler_divergence, Distributions
    ),
    StandardDeviation=Metric("StandardDeviation", "|σ(a) - σ(b)|", 0.0, False, standard_deviation, Spread),
    MeanAbsoluteError=_MAE,
    RootMeanSquareError=Metric("RootMeanSquareError", "sqrt((1/n) Σd²)", 0.0, False, root_mean_square_error),
    MaxRelativeError=Metric(
        "MaxRelativeError", "max |d|/|b|", 0.0, False, attrgetter("largest"), RelativeErrors, largest
    ),
    MeanRelativeError=Metric("MeanRelativeError", "mean |d|/|b|", 0.0, False, mean_error, RelativeErrors),
    sqnr=Metric("sqnr", "10 log10(Σb² / Σd²)", math.inf, True, sqnr),
    psnr=Metric("psnr", "10 log10((max b - min b)² / mean d²)", math.inf, True, psnr, SpanAndNoise),
    median_error=Metric("median_error", "median |d|", 0.0, False, methodcaller("quantile", 0.5), Errors),
    error_p99=Metric("error_p99", "0.99 quantile of |d|", 0.0, False, methodcaller("quantile", 0.99), Errors),
    top1=Metric("top1", "argmax a = argmax b", 1.0, True, methodcaller("shared", 1), LargestValues),
    top5=Metric("top5", "shared indices of the five largest", 1.0, True, methodcaller("shared", TOP), LargestValues),
)
