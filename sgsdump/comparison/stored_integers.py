"""Comparison of the integers in two runs of a fixed model, which reveals faults of a converter or simulator first.

It applies to pairs whose sides are quantised alike: same type, zero point and scale, both stored as integers or both
dequantised. If a side knows its scale only from a header, scales are compared with the header's six decimals. Scales of
stored integers may differ by one unit of the last decimal, because ranges of six decimals allow it. Integers are
compared even without a known true scale. The pair is then measured in steps, which does not change COS and RMSE,
because both are independent of the scale. With one scale, dequantised values are equal exactly if the integers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.metrics import Accumulator, Settings
from sgsdump.tensors.tensor import Quant, TensorInfo

if TYPE_CHECKING:
    from sgsdump.comparison.alignment import Pair

IN_STEPS = "measured in steps because the dumps do not state the true scale"
PRINTED_UNIT = 1e-6  # unit of the sixth decimal
FLOAT32_STEP = float(np.finfo(np.float32).eps)
PRINTED_ERROR = PRINTED_UNIT / 2  # error of a scale that was read from six decimals
HIDDEN = "by scales that differ beyond the six decimals of the headers"
KNOWN_TO = 0.25  # most uncertainty in steps for which a difference is given in steps


class Differences(Accumulator):
    """Number of differing values, and the largest difference."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.count = self.differing = 0
        self.largest = 0.0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.count += d.size
        if differing := int(np.count_nonzero(d)):
            self.differing += differing
            self.largest = float(np.maximum(self.largest, np.abs(d).max()))  # NaN stays


def are_indices(pair: Pair) -> bool:
    """Return whether the benchmark holds whole numbers that are no quantised values, as from TopK and ArgMax.

    Integers narrower than 32 bits are excluded, because they may be a fixed model's values.
    """
    sample, benchmark = pair.sample.tensor.info, pair.benchmark.tensor.info
    is_whole = benchmark.dtype.kind == "b" or (benchmark.dtype.kind in "iu" and benchmark.dtype.itemsize >= 4)
    return is_whole and sample.quant is None and benchmark.quant is None


def both_quantised(pair: Pair) -> bool:
    """Return whether both sides are integers of a fixed model, or both are the dequantised floats."""
    sample, benchmark = pair.sample.tensor.info, pair.benchmark.tensor.info
    if sample.quant is None or benchmark.quant is None or sample.quant.dtype is None or benchmark.quant.dtype is None:
        return False
    return (sample.dtype.kind in "iu") == (benchmark.dtype.kind in "iu")


def unlike(pair: Pair) -> str:
    """Return how the quantisation of the two sides differs, or ""."""
    sample, benchmark = _quant(pair.sample.tensor.info), _quant(pair.benchmark.tensor.info)
    alike = (sample.dtype, sample.zero_point, sample.axis) == (benchmark.dtype, benchmark.zero_point, benchmark.axis)
    stored = pair.sample.tensor.info.dtype.kind in "iu"
    if alike and _same_scale(sample, benchmark, PRINTED_UNIT if stored else 0.0):
        return ""
    return f"sample {_described(sample)}, benchmark {_described(benchmark)}"


def measured_in_steps(pair: Pair) -> tuple[Quant, Quant] | None:
    """Return a scale of one step for both sides if integers are compared and a true scale is unknown; else None."""
    if not both_quantised(pair) or unlike(pair) or pair.sample.tensor.info.dtype.kind == "f":
        return None
    quants = [_quant(record.tensor.info) for record in (pair.sample, pair.benchmark)]
    if all(quant.exact for quant in quants) or np.ndim(quants[0].scale):
        return None
    return Quant(quants[0].dtype, 1.0, quants[0].zero_point, exact=True), Quant(
        quants[1].dtype, 1.0, quants[1].zero_point, exact=True
    )


def integers_of(pair: Pair, differences: Differences, in_steps: bool) -> StoredIntegers:
    """Return the counted integers of a quantised pair; ``in_steps`` means that the values are steps."""
    apart = unlike(pair)
    if apart:
        return StoredIntegers(0, 0, 0, apart)
    largest: int | None = 0
    if differences.differing:
        quants = [_quant(record.tensor.info) for record in (pair.sample, pair.benchmark)]
        finest = next((quant for quant in quants if quant.exact), quants[0])
        largest = round(differences.largest) if in_steps else _steps(differences.largest, finest)
        if largest == 0:
            return StoredIntegers(0, 0, 0, HIDDEN)
    return StoredIntegers(differences.count, differences.differing, largest)


def merged_integers(runs: Sequence[StoredIntegers | None]) -> StoredIntegers | None:
    """Return the integers of several runs together; None if a run has none."""
    integers = [run for run in runs if run is not None]
    if len(integers) < len(runs) or not integers:
        return None
    largest = [run.largest for run in integers]
    return StoredIntegers(
        sum(run.count for run in integers),
        sum(run.differing for run in integers),
        None if None in largest else max(size for size in largest if size is not None),
        next((run.unlike for run in integers if run.unlike), ""),
    )


def _quant(info: TensorInfo) -> Quant:
    assert info.quant is not None, "both sides of the pair must be quantised"
    return info.quant


def _same_scale(one: Quant, other: Quant, apart: float) -> bool:
    """Return whether two scales are equal; printed scales may differ by ``apart``."""
    if one.exact and other.exact:
        return np.array_equal(np.asarray(one.scale, np.float32), np.asarray(other.scale, np.float32))
    if np.ndim(one.scale) or np.ndim(other.scale):
        return False
    scale, wanted = float(f"{one.scale:f}"), float(f"{other.scale:f}")
    # Above 16, the sixth decimal is finer than float32.
    return abs(scale - wanted) <= max(apart, FLOAT32_STEP * wanted if apart else 0) * (1 + KNOWN_TO)


def _steps(difference: float, quant: Quant) -> int | None:
    if np.ndim(quant.scale) or not float(quant.scale) > 0:
        return None
    scale = float(quant.scale)
    steps = difference / scale
    uncertain = 0.0 if quant.exact else steps * PRINTED_ERROR / scale
    return round(steps) if uncertain <= KNOWN_TO and np.isfinite(steps) else None


def _described(quant: Quant) -> str:
    scale = "several scales" if np.ndim(quant.scale) else f"scale {float(quant.scale):f}"
    return f"{quant.dtype} {scale} zero point {quant.zero_point}"


@dataclass(frozen=True)
class StoredIntegers:
    """Integers of a pair.

    count      number of integers.
    differing  number of differing integers.
    largest    largest difference in steps; None if the scale is too coarse to tell.
    unlike     how the quantisation of the two sides differs, or ""; if it differs, the other numbers are 0.
    """

    count: int
    differing: int
    largest: int | None = 0
    unlike: str = ""

    @property
    def share(self) -> float:
        """Share of differing integers."""
        return self.differing / self.count if self.count else 0.0

    @property
    def identical(self) -> bool:
        return not self.differing and not self.unlike

    @property
    def is_hidden(self) -> bool:
        """True if the scales differ only beyond the decimals of the headers."""
        return self.unlike == HIDDEN

    @property
    def size(self) -> str:
        """Suffix with the largest difference; "" if unknown."""
        return "" if self.largest is None else f", by at most {self.largest} step{'' if self.largest == 1 else 's'}"

    def __str__(self) -> str:
        if self.unlike:
            return f"quantised differently: {self.unlike}"
        return f"{self.differing} of {self.count} values differ{self.size}" if self.differing else "identical integers"
