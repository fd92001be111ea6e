"""The ten metrics of msaccucmp (Ascend's model accuracy analyser) as it prints them.

With m the sample, g the golden values, both flattened and cast to float32 (only bool stays bool), ε = 2⁻⁵²::

    CosineSimilarity            Σ (m/‖m‖)(g/‖g‖), at most 1; "1.0" when both norms are ~0, "NaN" when one is
    MaxAbsoluteError            max |m-g|
    AccumulatedRelativeError    Σ |m/g - 1|  over |g| > ε
    RelativeEuclideanDistance   sqrt(Σ(m-g)² / Σg²);  0 when the golden values are all ~0
    KullbackLeiblerDivergence   Σ p ln(p/q): m and g scaled to 0 … 1, floored at float32's epsilon, divided by their sum
    StandardDeviation           "(mean m;std m),(mean g;std g)", in float64, three decimals
    MeanAbsoluteError           mean |m-g|
    RootMeanSquareError         sqrt(mean (m-g)²)
    MaxRelativeError            max |m-g|/|g|  over |g| > ε; 0 when there is none
    MeanRelativeError           the mean of the same over all values, 0 where |g| <= ε

Numbers have six decimals; a number that is not one prints ``nan``, a metric that cannot be had ``NaN``. All but the
cosine refuse bool. What this hides: golden zeros and NaN count as no relative error, squares past float32 are infinite
or 0, integers past 2**24 lose their last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sgsdump.comparison.vendor_metrics.base import Printed

EPSILON = float(np.finfo(np.float64).eps)
FLOOR = np.finfo(np.float32).eps
NAN = "NaN"
SMALLEST_SHOWN = 1e-3


def printed(sample: np.ndarray, benchmark: np.ndarray) -> Printed:
    """The ten strings of two arrays of one size."""
    m, g = (a.reshape(-1) if a.dtype == bool else a.reshape(-1).astype(np.float32) for a in (sample, benchmark))
    messages = ["This tensor is scalar."] if sample.ndim == benchmark.ndim == 0 else []
    values = {}
    with np.errstate(all="ignore"):
        values["CosineSimilarity"], message = _cosine(m.astype(np.float32), g.astype(np.float32))
        messages += [message] * bool(message)
        for name, of in _OF_NUMBERS.items():
            if bool in (m.dtype, g.dtype) or not m.size:
                what = "Boolean types" if m.size else "empty data"
                messages.append(f"Algorithm {name} does not support {what}.")
                values[name] = NAN
            else:
                values[name] = of(m, g)
    return Printed(values, " ".join(messages))


def _cosine(m: np.ndarray, g: np.ndarray) -> tuple[str, str]:
    norms = np.linalg.norm(m), np.linalg.norm(g)
    zero = [bool(norm <= EPSILON) for norm in norms]
    if all(zero):
        return "1.0", ""
    if any(zero):
        side = "my" if zero[0] else "golden"
        return NAN, f"Cannot compare by Cosine Similarity. All the data is zero in {side}."
    return f"{min(float(np.sum(m / norms[0] * (g / norms[1]))), 1.0):f}", ""


def _max_absolute(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.max(np.abs(m - g)):f}"


def _accumulated_relative(m: np.ndarray, g: np.ndarray) -> str:
    counted = np.abs(g) > EPSILON
    return f"{np.sum(np.abs(m[counted] / g[counted] - 1)):f}"


def _relative_euclidean(m: np.ndarray, g: np.ndarray) -> str:
    squares = np.sum(np.square(g))
    if squares <= EPSILON:
        return f"{0.0:f}"
    return f"{math.sqrt(np.sum(np.square(m - g)) / squares):f}"


def _kullback_leibler(m: np.ndarray, g: np.ndarray) -> str:
    p, q = _distribution(m), _distribution(g)
    return f"{np.sum(p * np.log(p / q)):f}"


def _distribution(values: np.ndarray) -> np.ndarray:
    low, high = np.min(values), np.max(values)
    scaled = np.maximum((values - low) / (high - low), FLOOR) if high != low else np.full_like(values, FLOOR)
    return scaled / np.sum(scaled)


def _standard_deviation(m: np.ndarray, g: np.ndarray) -> str:
    return ",".join(
        f"({_three(np.mean(side))};{_three(np.std(side))})" for side in (m.astype(np.float64), g.astype(np.float64))
    )


def _three(value: np.floating) -> str:
    return f"{0.0 if abs(value) < SMALLEST_SHOWN else value:.3f}"


def _mean_absolute(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.mean(np.abs(m - g)):f}"


def _root_mean_square(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.sqrt(np.mean(np.square(m - g))):f}"


def _max_relative(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.max(_relative(m, g)):f}"


def _mean_relative(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.mean(_relative(m, g)):f}"


def _relative(m: np.ndarray, g: np.ndarray) -> np.ndarray:
    return np.where(np.abs(g) > EPSILON, np.abs(m - g) / np.abs(g), np.float32(0))


_OF_NUMBERS: dict[str, Callable[[np.ndarray, np.ndarray], str]] = {
    "MaxAbsoluteError": _max_absolute,
    "AccumulatedRelativeError": _accumulated_relative,
    "RelativeEuclideanDistance": _relative_euclidean,
    "KullbackLeiblerDivergence": _kullback_leibler,
    "StandardDeviation": _standard_deviation,
    "MeanAbsoluteError": _mean_absolute,
    "RootMeanSquareError": _root_mean_square,
    "MaxRelativeError": _max_relative,
    "MeanRelativeError": _mean_relative,
}
