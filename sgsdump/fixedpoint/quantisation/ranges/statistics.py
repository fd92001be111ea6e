"""Statistics that calibration keeps of tensors, and fitted ranges of UINT8 tensors.

Statistics can be merged, so memory does not grow with the number of images.

Lowest and highest values of all tensors are in two arrays (``RowExtremes``), row after row. Two images are therefore
merged in two steps for any number of tensors. Some tensors have one row per channel, others one row.

The bins of a histogram merge exactly, so no range is needed beforehand: ``2 * SIDE`` bins of equal width cover
[-2^exponent, 2^exponent). A larger value doubles this span repeatedly, and neighbouring bins merge in pairs. The counts
are the same as those of counting all values at once. Exact zeros (Relu makes many, and every quantiser keeps them) are
counted separately.

The error of a range is the expected squared difference between a value and its UINT8 value in that range (clipped and
rounded like the fixed model), over the histogram of all calibration values. Proposals:

min_max     the observed range.
percentile  without the outermost 0.001 %, 0.01 % and 0.1 % at each end.
entropy     the clipping whose 255 steps keep the distribution best (Kullback-Leibler divergence, as in TensorRT's
            calibrator: clipped values count at the ends, each step's count is spread over its filled bins).
mse         the smallest error of a search over both ends.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sgsdump.errors import InputError
from sgsdump.tensors.one_pass import compiled
from sgsdump.tensors.types import Range

# 8 to 16 bins per UINT8 step of the range that values fill; the SDK's histograms have 8160 bins in total.
SIDE = 4096
# Values below 2^SMALLEST are counted as that small: float32 could not resolve their bins.
SMALLEST = -100
STEPS = 255
PERCENTILES = (1e-5, 1e-4, 1e-3)
# Clipping to less than this part of the range never pays off with 255 steps.
DEEPEST = 0.2
GRID = np.linspace(1.0, DEEPEST, 81)
# Ranges whose errors are computed together, to limit memory to some MB.
TOGETHER = 128
MIN_MAX, PERCENTILE, ENTROPY, MSE = "min_max", "percentile", "entropy", "mse"


@dataclass(frozen=True)
class Selection:
    """The statistics to keep of tensors, besides the minimum and maximum of every float tensor.

    histograms  tensors with a histogram of values.
    channels    by output of a convolution, the channel axis: minimum and maximum per channel.
    softmax     by input of a Softmax, its axis: distance of the values below their maximum, and these maxima.
    masks       by tensor on the way to a Softmax, the ends beyond which values do not matter; beyond a finite end,
                values may be infinite.
    guarded     tensors that may hold NaN, which is removed after them.
    masked      Softmaxes whose input may hold infinity: a row of only infinities gives NaN.
    outputs     tensors whose values are kept for the images that ``gather`` is told to keep.
    """

    histograms: frozenset[str] = frozenset()
    channels: Mapping[str, int] = field(default_factory=dict)
    softmax: Mapping[str, int] = field(default_factory=dict)
    masks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()
    masked: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()

    @property
    def closer(self) -> set[str]:
        """The tensors with statistics beyond minimum and maximum."""
        return {*self.histograms, *self.softmax, *self.outputs}


@dataclass(frozen=True, eq=False)
class ValueHistogram:
    """A histogram: ``counts`` (int64 [2 * SIDE]) without exact zeros, and the number of ``zeros``."""

    exponent: int
    counts: np.ndarray
    zeros: int

    @property
    def width(self) -> float:
        """The width of one bin."""
        return math.ldexp(1.0, self.exponent) / SIDE

    @property
    def total(self) -> int:
        """The number of values counted."""
        return int(self.counts.sum()) + self.zeros

    def filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the middles (float64) and counts of the non-empty bins."""
        (at,) = np.nonzero(self.counts)
        return (at - SIDE + 0.5) * self.width, self.counts[at]

    def merged(self, other: ValueHistogram) -> ValueHistogram:
        """Return the histogram of both tensors' values."""
        narrow, wide = sorted((self, other), key=lambda histogram: histogram.exponent)
        joined = _joined(narrow.counts, wide.exponent - narrow.exponent)
        if joined.size == wide.counts.size:
            counts = wide.counts + joined
        else:
            counts = wide.counts.copy()
            counts[SIDE - joined.size // 2 : SIDE + joined.size // 2] += joined
        return ValueHistogram(wide.exponent, counts, self.zeros + other.zeros)


def count_values(array: np.ndarray) -> ValueHistogram:
    """Return the histogram of finite values of a float array of any shape."""
    values = array.reshape(-1)
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    if compiled.takes(values):
        counts = np.zeros(2 * SIDE, np.int64)
        exponent, zeros = compiled.count_in_bins(values, SMALLEST, counts)
        return ValueHistogram(exponent, counts, zeros)
    top = float(np.abs(values).max()) if values.size else 0.0
    exponent = max(math.frexp(top)[1], SMALLEST) if top else SMALLEST  # frexp(0) is 0: a span of 1
    # A power of two times a float is exact, and so is its floor.
    scale = math.ldexp(SIDE, -exponent)
    at = np.floor(values * values.dtype.type(scale)).astype(np.int32)
    at += SIDE
    counts = np.bincount(at, minlength=2 * SIDE)
    zeros = int(values.size - np.count_nonzero(values))
    counts[SIDE] -= zeros
    return ValueHistogram(exponent, counts, zeros)


def _joined(counts: np.ndarray, doublings: int) -> np.ndarray:
    """Return the counts after merging pairs of bins ``doublings`` times; at least two bins stay."""
    for _ in range(min(doublings, SIDE.bit_length() - 1)):
        counts = counts[::2] + counts[1::2]
    return counts


PLAIN = Selection()


class Extremes(NamedTuple):
    """Lowest and highest value of a tensor."""

    low: float
    high: float

    def merged(self, other: Extremes) -> Extremes:
        return Extremes(min(self.low, other.low), max(self.high, other.high))


class ChannelExtremes(NamedTuple):
    """Lowest and highest value of each channel (float64 [C])."""

    low: np.ndarray
    high: np.ndarray

    def merged(self, other: ChannelExtremes) -> ChannelExtremes:
        return ChannelExtremes(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


class FloatRun(NamedTuple):
    """A normalised image as fed, and values that the float model computes from it."""

    feed: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics by tensor name; all but ``whole`` cover what ``Selection`` names.

    below  x - max(x) of a Softmax's input x, in rows that a mask does not cover completely.
    tops   max(x) of the same rows.
    runs   of the images to be kept, in order.
    """

    whole: dict[str, Extremes]
    histograms: dict[str, ValueHistogram]
    channels: dict[str, ChannelExtremes]
    below: dict[str, Extremes]
    tops: dict[str, Extremes] = field(default_factory=dict)
    runs: tuple[FloatRun, ...] = ()


class Rows(NamedTuple):
    """The rows of a tensor, and its number of channels, which repeat along the rows; 0 if channels do not matter."""

    name: str
    rows: int
    channels: int


@dataclass(frozen=True, eq=False)
class RowExtremes:
    """Lowest and highest values (float64) of the tensors' rows, one tensor after another."""

    tensors: tuple[Rows, ...]
    low: np.ndarray
    high: np.ndarray

    def merged(self, other: RowExtremes) -> RowExtremes:
        """Return the extremes of both images. Raises InputError if a tensor's number of channels changes."""
        if self.tensors is other.tensors or self.tensors == other.tensors:
            return RowExtremes(self.tensors, np.minimum(self.low, other.low), np.maximum(self.high, other.high))
        first, second = self._by_tensor(), other._by_tensor()
        both = {name: _together(name, first.get(name), second.get(name)) for name in {**first, **second}}
        tensors = tuple(Rows(name, ends.low.size, channels) for name, (channels, ends) in both.items())
        low, high = (np.concatenate([ends[end] for _, ends in both.values()]) for end in (0, 1))
        return RowExtremes(tensors, low, high)

    def followed_by(self, other: RowExtremes) -> RowExtremes:
        """Return the extremes with those of further tensors of the same image."""
        low, high = np.concatenate([self.low, other.low]), np.concatenate([self.high, other.high])
        return RowExtremes((*self.tensors, *other.tensors), low, high)

    def tensor_at(self, row: int) -> str:
        """Return the name of the tensor that a row belongs to."""
        stops = np.cumsum([tensor.rows for tensor in self.tensors])
        return self.tensors[int(np.searchsorted(stops, row, side="right"))].name

    @property
    def whole(self) -> dict[str, Extremes]:
        """The extremes of every tensor."""
        ends = ((name, ends) for name, (_, ends) in self._by_tensor().items())
        return {name: Extremes(float(low.min()), float(high.max())) for name, (low, high) in ends}

    @property
    def channels(self) -> dict[str, ChannelExtremes]:
        """The extremes of each channel, for tensors whose channels matter."""
        return {name: ends for name, (channels, ends) in self._by_tensor().items() if channels}

    def _by_tensor(self) -> Mapping[str, tuple[int, ChannelExtremes]]:
        """Return the number of channels (or 0) and the ends of each tensor, per channel if channels matter."""
        by_tensor, start = {}, 0
        for name, count, channels in self.tensors:
            rows = slice(start, start + count)
            start += count
            low, high = self.low[rows].reshape(-1, channels or count), self.high[rows].reshape(-1, channels or count)
            by_tensor[name] = channels, ChannelExtremes(low.min(axis=0), high.max(axis=0))
        return by_tensor


def _together(
    name: str, first: tuple[int, ChannelExtremes] | None, second: tuple[int, ChannelExtremes] | None
) -> tuple[int, ChannelExtremes]:
    if first is None or second is None:
        return first or second  # type: ignore[return-value]
    if first[0] != second[0]:
        raise InputError(
            f"the number of channels of tensor {name!r} differs between images: {first[0]} and {second[0]}"
        )
    return first[0], first[1].merged(second[1])


@dataclass(frozen=True, eq=False)
class SideRanges:
    """The ranges of the side files.

    channels  by output of a convolution before its activation, the range of each channel.
    softmax   by input of a Softmax, how far its values lie below their maximum (high is 0).
    """

    channels: Mapping[str, Range] = field(default_factory=dict)
    softmax: Mapping[str, Range] = field(default_factory=dict)


NOTHING_BESIDE = SideRanges()


def side_ranges(statistics: Statistics, known: Container[str] = ()) -> SideRanges:
    """Return the side ranges of the calibration images, without tensors whose range is ``known``."""
    return SideRanges(
        {n: as_printed(Range(ends.low, ends.high)) for n, ends in statistics.channels.items() if n not in known},
        {n: as_printed(Range.of(span.low, span.high)) for n, span in statistics.below.items() if n not in known},
    )


def as_printed(bounds: Range) -> Range:
    """Return the range in the six decimals of the SDK's files, from which the SDK computes its scales."""
    wide = None if bounds.wide is None else as_printed(bounds.wide)
    uncut = None if bounds.uncut is None else (_printed(bounds.uncut[0]), _printed(bounds.uncut[1]))
    low, high = (
        np.array([_printed(value) for value in ends.flat]).reshape(ends.shape) for ends in (bounds.min, bounds.max)
    )
    return replace(bounds, min=low, max=high, wide=wide, uncut=uncut)


def _printed(value: float) -> float:
    """Round to six decimals; keep values that would become 0."""
    return float(f"{value:.6f}") or float(value)


def updated(side: SideRanges, other: SideRanges) -> SideRanges:
    """Return the ranges of both; ``other`` takes precedence."""
    return SideRanges({**side.channels, **other.channels}, {**side.softmax, **other.softmax})


def with_softmax(ranges: Mapping[str, Range], softmax: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges, with those of Softmax inputs widened to cover the exponential's argument."""
    return {
        name: replace(
            Range.of(min(measured.low, softmax[name].low), max(measured.high, softmax[name].high)),
            uncut=measured.uncut,
        )
        if name in softmax
        else measured
        for name, measured in ranges.items()
    }


@dataclass(frozen=True)
class Proposal:
    """A range, its origin, and its expected squared error relative to the values' mean square."""

    low: float
    high: float
    kind: str
    error: float


def proposals(histogram: ValueHistogram, low: float, high: float, worth: float = math.inf) -> list[Proposal]:
    """Return the best proposal of each kind for values within [low, high], min_max first. Ranges include 0.

    worth  if the mse error is above this part of min_max's, only these two are returned: the others cannot be better.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    values, counts = histogram.filled()
    counts = counts.astype(np.float64)
    energy = float(counts @ values**2)
    if not energy or high - low <= 2 * histogram.width:
        return [Proposal(low, high, MIN_MAX, 0.0)]

    def proposal(kind: str, ends: tuple[float, float]) -> Proposal:
        low, high = map(float, ends)
        return Proposal(low, high, kind, squared_error(values, counts, low, high) / energy)

    plain, least = proposal(MIN_MAX, (low, high)), proposal(MSE, _least_error(values, counts, low, high))
    if least.error > worth * plain.error:
        return [plain, least]
    tails = [proposal(PERCENTILE, ends) for ends in _percentiles(values, counts, histogram.zeros, low, high)]
    return [
        plain,
        min(tails, key=lambda candidate: candidate.error),
        proposal(ENTROPY, _least_divergent(histogram, low, high)),
        least,
    ]


def squared_error(values: np.ndarray, counts: np.ndarray, low: float, high: float) -> float:
    """Return the sum of the squared differences that UINT8 makes; zeros cost nothing."""
    return squared_errors(values, counts, [(low, high)])[0]


def squared_errors(values: np.ndarray, counts: np.ndarray, ends: Sequence[tuple[float, float]]) -> list[float]:
    """Return the squared error of each (low, high); a tensor has some hundred, computed a few at a time."""
    errors: list[float] = []
    for start in range(0, len(ends), TOGETHER):
        lows, highs = (np.array(side, np.float64)[:, None] for side in zip(*ends[start : start + TOGETHER]))
        scales = (highs - lows) / STEPS
        some = scales[:, 0] > 0
        with np.errstate(divide="ignore", invalid="ignore"):  # an empty range rounds nothing
            zeros, stored = np.rint(-lows / scales), values / scales
        np.rint(stored, out=stored)
        np.maximum(stored, -zeros, out=stored)
        np.minimum(stored, STEPS - zeros, out=stored)
        stored *= scales
        stored -= values
        stored[~some] = values
        errors += [float(counts @ row) for row in np.square(stored, out=stored)]
    return errors


def _percentiles(
    values: np.ndarray, counts: np.ndarray, zeros: int, low: float, high: float
) -> Iterator[tuple[float, float]]:
    at = int(np.searchsorted(values, 0.0))
    whole, all_counts = np.insert(values, at, 0.0), np.insert(counts, at, zeros)
    below = np.cumsum(all_counts)
    for share in PERCENTILES:
        outside = share * below[-1]
        first = int(np.searchsorted(below, outside, side="right"))
        last = int(np.searchsorted(below, below[-1] - outside, side="left"))
        yield max(low, min(whole[first], 0.0)), min(high, max(whole[last], 0.0))


def _least_error(values: np.ndarray, counts: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Narrow both ends together, then each separately, as long as the error falls.

    Ends that recur, half of those for values of one sign, are not tried again.
    """
    errors: dict[tuple[float, float], float] = {}

    def best(ends: list[tuple[float, float]]) -> tuple[float, float]:
        untried = [each for each in ends if each not in errors]
        errors.update(zip(untried, squared_errors(values, counts, untried)))
        return min(ends, key=errors.__getitem__)

    least = best([(low * part, high * part) for part in GRID])
    for _ in range(2):
        before = least
        least = best([least, *((low * part, least[1]) for part in GRID)]) if low else least
        least = best([least, *((least[0], high * part) for part in GRID)]) if high else least
        if least == before:
            break
    return least


def _least_divergent(histogram: ValueHistogram, low: float, high: float) -> tuple[float, float]:
    at = np.arange(histogram.counts.size)
    middles = (at - histogram.counts.size // 2 + 0.5) * histogram.width
    filled = np.flatnonzero(histogram.counts)
    divergences = []
    for part in GRID[::2]:
        inside = filled[(middles[filled] >= low * part) & (middles[filled] <= high * part)]
        if inside.size < 2:
            break
        divergences.append((_divergence(histogram.counts, middles, inside, low * part, high * part), part))
    part = min(divergences)[1] if divergences else 1.0
    return low * part, high * part


def _divergence(counts: np.ndarray, middles: np.ndarray, inside: np.ndarray, low: float, high: float) -> float:
    """Return the Kullback-Leibler divergence between the clipped distribution and its steps.

    Zeros are exact in both.
    """
    kept = counts[inside].astype(np.float64)
    clipped = kept.copy()
    clipped[0] += counts[: inside[0]].sum()
    clipped[-1] += counts[inside[-1] + 1 :].sum()
    scale = (high - low) / STEPS
    step = np.round((middles[inside] - low) / scale).astype(np.int64)
    spread = (np.bincount(step, kept) / np.maximum(np.bincount(step), 1))[step]
    p, q = clipped / clipped.sum(), spread / spread.sum()
    return float(p @ np.log(p / q))
