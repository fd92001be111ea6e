"""The metrics of a comparison: formulas in a (sample), b (benchmark) and d = a-b, each a line of the table at the end.

A metric is a number made of the ``Sums`` of a pair of tensors, or of an ``Accumulator`` that saw every value; either
way any number of metrics costs one pass over the values. To add one, write its function and add it to ``METRICS``;
where it needs more than the sums, give it an accumulator, which several metrics may share.

mse, cos and rmse are always printed. Then come those of the SDAA dump tools, those of msaccucmp, and those that users
know from Polygraphy and onnxruntime. Four formulas have two names, one per tool. Where a
vendor's own figure hides something (a benchmark of zeros, say), the metric here does not: values without a relative
error are left out and counted. What the vendors print, digit by digit, is in ``vendor_metrics``.
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
FLOOR = float(np.finfo(np.float32).eps)  # of the distributions of a Kullback-Leibler divergence
TOP = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """Values that are not finite, of a sample and a benchmark.

    *_nan, *_inf  NaN and infinite values; *_minus_inf those of the infinite ones that are negative.
    odd_apart     how often one side is NaN, +Inf or -Inf where the other is not the same.
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
        """True when neither side holds NaN or infinite values."""
        return not (self.sample_nan or self.sample_inf or self.benchmark_nan or self.benchmark_inf)


NO_COUNTS = Counts()
_counts = attrgetter(*(field.name for field in fields(Counts)))  # ten times as fast as astuple


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one pass over a pair, a the sample and b the benchmark, accumulated in float64.

    aa, bb, ab   Σa², Σb², Σab
    dd, d1, b1   Σ(a-b)², Σ|a-b|, Σ|b|; the differences of 64-bit integers are exact
    odd          counts of NaN and Inf; nothing is filtered, so they show in the sums too.
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
        """The count, the six sums and the seven counts; ``of_numbers`` turns them back."""
        return self.count, self.aa, self.bb, self.ab, self.dd, self.d1, self.b1, *_counts(self.odd)

    @classmethod
    def of_numbers(cls, numbers: Sequence[Any]) -> Sums:
        count, aa, bb, ab, dd, d1, b1, *odd = numbers
        return cls(count, aa, bb, ab, dd, d1, b1, Counts(*odd))


def merged_sums(sums: Iterable[Sums]) -> Sums:
    """The sums of all the values, laid end to end."""
    total: Sequence[float] = Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0).numbers
    for addend in sums:
        total = list(map(add, total, addend.numbers))
    return Sums.of_numbers(total)


@dataclass(frozen=True)
class Settings:
    """Parameters of some metrics.

    th1         diff3: a benchmark value above it (in magnitude) is compared relatively, the others absolutely.
    rtol, atol  all_close: the relative and absolute tolerance; None is th1.

    Raises ConfigError for one that is negative or NaN.
    """

    th1: float = 1e-6
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name in ("th1", "rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} is 0 or more, so {value:g} cannot be one")


class Accumulator:
    """Sees every value of a pair, chunk by chunk, for the metrics that name its class.

    left_out  how many values its metrics leave out because they are undefined there.
    """

    left_out = 0

    def __init__(self, settings: Settings):
        self.settings = settings

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        """Take a chunk: flat float64 values of sample and benchmark and d = a - b (exact for integers of 64 bits).

        The arrays are the caller's and may hold NaN and Inf: they are neither written to nor kept.
        """
        raise NotImplementedError

    def wants_again(self) -> bool:
        """Asked after each pass: True to be fed all chunks once more."""
        return False


def mean(values: Sequence[float]) -> float:
    """NaN where one is."""
    return float(np.mean(values))


def largest(values: Sequence[float]) -> float:
    """NaN where one is."""
    return float(np.max(values))


@dataclass(frozen=True)
class Metric:
    """One number about a pair: its formula, and its best value.

    of     the number, of the ``Sums``; of the accumulator where the metric has one.
    accumulator  the class of the Accumulator it needs; metrics that name the same class share one.
    merged  the number of several runs from the numbers of each, where there is an accumulator: their mean, unless said
            otherwise. A metric made of ``Sums`` is made again of all runs' sums.
    """

    name: str
    formula: str
    ideal: float
    higher_is_better: bool
    of: Callable[[Any], float]
    accumulator: type[Accumulator] | None = None
    merged: Callable[[Sequence[float]], float] = mean


def ratio(numerator: float, denominator: float) -> float:
    """A quotient as IEEE 754 has it: x/0 is infinite and 0/0 is NaN, honestly shown, never an exception.

    NaN where the denominator is infinite: a sum that overflowed would make any error 0.
    """
    if denominator:
        return math.nan if math.isinf(denominator) else numerator / denominator
    return float("nan") if not numerator or numerator != numerator else float("inf") * numerator


def decibels(noise: float) -> float:
    """-10 log10 of the power of noise relative to the signal's; infinite for 0."""
    return 0.0 - 10 * math.log10(noise) if noise else math.inf


# Metrics of the sums.


def mse(sums: Sums) -> float:
    """Mean squared error, (1/n) Σ(a-b)², in squared units of the tensor; NaN for an empty tensor."""
    return ratio(sums.dd, sums.count)


def cos(sums: Sums) -> float:
    """Cosine similarity, Σab / (√Σa² √Σb²), from -1 to 1; NaN when either side is all zeros.

    Blind to scale: half the values of the benchmark still score 1.
    """
    value = ratio(sums.ab, math.sqrt(sums.aa) * math.sqrt(sums.bb))
    # by Cauchy and Schwarz what is beyond is rounding alone
    return math.copysign(1.0, value) if 1 < abs(value) < math.inf else value


def rmse(sums: Sums) -> float:
    """The SDK's RMSE: Σ|a-b| / Σ|b|; infinite when only the benchmark is all zeros, NaN when both are.

    The name misleads: it is not the root of a mean square but the relative L1 error, unitless, asymmetric. It is kept
    because the SDK's reports, manuals and thresholds use it.
    """
    return ratio(sums.d1, sums.b1)


def relative_euclidean_distance(sums: Sums) -> float:
    """sqrt(Σd² / Σb²); infinite when only the benchmark is all zeros, NaN when both are (msaccucmp: 0)."""
    return math.sqrt(ratio(sums.dd, sums.bb))


def mean_absolute_error(sums: Sums) -> float:
    """(1/n) Σ|a-b|, in units of the tensor; NaN for an empty tensor."""
    return ratio(sums.d1, sums.count)


def root_mean_square_error(sums: Sums) -> float:
    """sqrt((1/n) Σ(a-b)²), which is not what the SDK calls RMSE; NaN for an empty tensor."""
    return math.sqrt(ratio(sums.dd, sums.count))


def sqnr(sums: Sums) -> float:
    """Signal-to-quantisation-noise ratio in dB, 10 log10(Σb² / Σd²); about 6 dB are one bit.

    Infinite without noise, -Inf when only the benchmark is all zeros, NaN when both are.
    """
    return decibels(ratio(sums.dd, sums.bb))


def nan_inf(sums: Sums) -> float:
    """How many values of either side are NaN or infinite."""
    odd = sums.odd
    return float(odd.sample_nan + odd.sample_inf + odd.benchmark_nan + odd.benchmark_inf)


# Accumulators, each with the metrics made of it.


class LargestError(Accumulator):
    """max |d|; 0 for an empty tensor, NaN where one is."""

    value = 0.0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.value = float(np.maximum(self.value, max(float(d.max()), -float(d.min()))))


class RelativeErrors(Accumulator):
    """|d| / |b|: the largest, the sum and how many.

    Where only the benchmark is 0 there is no relative error: those values are left out and counted (msaccucmp: they
    count as 0). Where both are 0 the error is 0. NaN and Inf are never left out and show in the results.
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
    """Σ|a/b - 1|, which grows with the size of the tensor; NaN when nothing is left."""
    return errors.total if errors.count else math.nan


class Diff3(Accumulator):
    """The errors of the SDAA dump tools, relative where |b| > th1, else absolute: the largest and the sum.

    Those tools advise th1 = 1e-6 for float32 and 1e-4 for float16. NaN and Inf are kept.
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
    """|d| / (|b| + 1e-9), for the MAPE of the SDAA dump tools. Where b is 0 an error of 1 counts as 1e9."""

    total = 0.0
    count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.total += float((np.abs(d) / (np.abs(b) + EPSILON)).sum())
        self.count += d.size


def mean_error(errors: RelativeErrors | Diff3 | Percentage) -> float:
    """NaN for an empty tensor, and when nothing is left."""
    return ratio(errors.total, errors.count)


class Close(Accumulator):
    """Whether all values are close, as ``numpy.testing.assert_allclose`` has it: |a-b| <= atol + rtol |b|.

    NaN is close to NaN and Inf to Inf of the same sign, to nothing else.
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
    """1.0 or 0.0; 1.0 for an empty tensor."""
    return float(accumulator.close)


class Distributions(Accumulator):
    """Both sides scaled to distributions, for msaccucmp's KullbackLeiblerDivergence Σ p ln(p/q), p of a and q of b.

    Each side is scaled from its own minimum and maximum to 0 … 1, floored at float32's epsilon (a constant side is the
    floor throughout), and divided by its sum. So it sees neither scale nor offset: twice the benchmark scores 0.
    Two passes: the extremes first; then, with P and Q the scaled values before the division,
    Σ p ln(p/q) = ΣP ln(P/Q) / ΣP + ln(ΣQ/ΣP).
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
    """0 or more but for rounding; NaN for an empty tensor and where NaN or Inf is among the values."""
    return sides.logs / sides.p + math.log(sides.q / sides.p) if sides.p and sides.q else math.nan


class Spread(Accumulator):
    """The standard deviations of both sides. (msaccucmp prints means and deviations, which rank nothing.)

    Chunks are merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979): exact where values lie far from 0.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.count = 0
        self.mean = np.zeros(2)
        self.squares = np.zeros(2)  # of the distances from the mean

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        mean = np.array([a.mean(), b.mean()])
        squares = np.array([np.square(a - mean[0]).sum(), np.square(b - mean[1]).sum()])
        total = self.count + a.size
        moved = mean - self.mean
        self.squares += squares + moved**2 * (self.count * a.size / total)
        self.mean += moved * (a.size / total)
        self.count = total


def standard_deviation(spread: Spread) -> float:
    """How far the standard deviations of both sides differ; NaN for an empty tensor."""
    a, b = (math.sqrt(ratio(float(squares), spread.count)) for squares in spread.squares)
    return abs(a - b)


class SpanAndNoise(Accumulator):
    """The benchmark's span and Σd², for the peak signal-to-noise ratio."""

    low, high = math.inf, -math.inf
    squares = 0.0
    count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.low = float(np.minimum(self.low, b.min()))
        self.high = float(np.maximum(self.high, b.max()))
        self.squares += float(d.dot(d))
        self.count += d.size


def psnr(noise: SpanAndNoise) -> float:
    """In dB: infinite without noise; -Inf where a constant benchmark has some; NaN for an empty tensor."""
    if not noise.count:
        return math.nan
    span = noise.high - noise.low
    return decibels(ratio(noise.squares / noise.count, span * span))


class Errors(Accumulator):
    """All |d|, kept as float32 where they fit until the pair is done (four bytes a value), for their quantiles: how far
    most values are off, however large the worst error is."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.parts: list[np.ndarray] = []

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        errors = np.abs(d)
        fit = errors.max() <= _FLOAT32_MAX or not np.isfinite(errors).all()
        self.parts.append(errors.astype(np.float32) if fit else errors)

    def quantile(self, share: float) -> float:
        """Linear between the two nearest errors. NaN for an empty tensor and where an error is NaN."""
        if not self.parts:
            return math.nan
        self.parts = [np.concatenate(self.parts)]
        # numpy warns of Inf among the errors, which the result shows
        with np.errstate(invalid="ignore"):
            return float(np.quantile(self.parts[0], share))


class LargestValues(Accumulator):
    """The indices of the ``TOP`` largest values of either side, the whole tensor taken flat; of equal values the first
    counts."""

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
        """The share of the benchmark's k largest that are the sample's too, as for a classifier's scores.

        NaN for an empty tensor and where NaN or Inf is among the values.
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

# By the names users give. Raises ConfigError for an unknown name, with the nearest ones.
METRICS = _Metrics(
    mse=Metric("MSE", "(1/n) Σ(a-b)²", 0.0, False, mse),
    cos=_COS,
    rmse=_RMSE,
    diff1=replace(_RMSE, name="diff1"),
    diff2=replace(_RED, name="diff2"),  # those tools list a tensor past 1e-3
    diff3_max=Metric("diff3_max", f"max({_DIFF3})", 0.0, False, attrgetter("largest"), Diff3, largest),
    diff3_mean=Metric("diff3_mean", f"mean({_DIFF3})", 0.0, False, mean_error, Diff3),
    all_close=Metric("all_close", "all |d| <= atol + rtol |b|", 1.0, True, all_close, Close, min),
    nan_inf=Metric("nan_inf", "NaN and Inf of a and b", 0.0, False, nan_inf),
    mae=replace(_MAE, name="mae"),
    mape=Metric("mape", "mean(|d| / (|b| + 1e-9))", 0.0, False, mean_error, Percentage),
    CosineSimilarity=replace(_COS, name="CosineSimilarity"),  # msaccucmp gives two sides of zeros a 1
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
