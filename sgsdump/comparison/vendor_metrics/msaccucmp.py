"""The ten metrics of msaccucmp (Ascend's model accuracy analyser) as it prints them.

With m the sample and g the golden values, both flattened and cast to float32 (the imaginary part of complex values is
dropped; bool stays bool if both are), ε = 2⁻⁵²::

    CosineSimilarity            Σ (m/‖m‖)(g/‖g‖), at most 1; "1.0" if both norms are ~0, "NaN" if the root of one is;
                                1 if all dimensions are 1, which msaccucmp calls a scalar
    MaxAbsoluteError            max |m-g|
    AccumulatedRelativeError    Σ |m/g - 1|, 0 where |g| <= ε
    RelativeEuclideanDistance   sqrt(Σ(m-g)² / Σg²);  0 if the golden values are all ~0
    KullbackLeiblerDivergence   Σ p ln(p/q): m and g scaled to 0 … 1, floored at float32's epsilon, divided by their sum
    StandardDeviation           "(mean m;std m),(mean g;std g)", in float64, three decimals
    MeanAbsoluteError           mean |m-g|
    RootMeanSquareError         sqrt(mean (m-g)²)
    MaxRelativeError            max of the terms of AccumulatedRelativeError
    MeanRelativeError           mean of the terms of AccumulatedRelativeError

Numbers have six decimals. A result that is not a number prints ``nan``, an unavailable metric ``NaN``. All metrics
except the cosine refuse bool. The last digits depend on the order of a float32 sum. For this reason zeros stay in
place, norms are taken along the last axis, and relative errors are |m/g - 1|, not |m-g|/|g|. These figures hide
problems: golden zeros and NaN count as no relative error, squares beyond float32 become infinite or 0, and integers
above 2**24 lose their last digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sgsdump.comparison.vendor_metrics import Printed

EPSILON = float(np.finfo(np.float64).eps)
FLOOR = np.finfo(np.float32).eps
NAN = "NaN"
SMALLEST_SHOWN = 1e-3


def printed(sample: np.ndarray, benchmark: np.ndarray) -> Printed:
    """Return the ten strings for two arrays of equal size."""
    are_bool = sample.dtype == benchmark.dtype == np.bool_
    m, g = (_cast(side, are_bool) for side in (sample, benchmark))
    is_scalar = all(size == 1 for size in sample.shape)
    values, messages = {}, []
    with np.errstate(all="ignore"):
        values["CosineSimilarity"], message = (f"{1.0:f}", "This tensor is scalar.") if is_scalar else _cosine(m, g)
        messages += [message] * bool(message)
        for name, of in _OF_NUMBERS.items():
            if are_bool or not m.size:
                what = "Boolean types" if m.size else "empty data"
                messages.append(f"Algorithm {name} does not support {what}.")
                values[name] = NAN
            else:
                values[name] = of(m, g)
    return Printed(values, " ".join(messages))


def _cast(values: np.ndarray, keep_bool: bool) -> np.ndarray:
    flat = (values.real if values.dtype.kind == "c" else values).reshape(-1)
    return flat if keep_bool else flat.astype(np.float32)


def _cosine(m: np.ndarray, g: np.ndarray) -> tuple[str, str]:
    # along an axis numpy adds the squares pairwise; without an axis it calls BLAS, with other last digits
    of_m, of_g = (np.linalg.norm(side, axis=-1, keepdims=True) for side in (m, g))
    if of_m <= EPSILON and of_g < EPSILON:
        return "1.0", ""
    for norm, side in ((of_m, "my"), (of_g, "golden")):
        if norm**0.5 <= EPSILON:
            return NAN, f"Cannot compare by Cosine Similarity. All the data is zero in {side}."
    return f"{min(float(np.sum(m / of_m * (g / of_g))), 1.0):f}", ""


def _max_absolute(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.max(np.abs(m - g)):f}"


def _accumulated_relative(m: np.ndarray, g: np.ndarray) -> str:
    return f"{np.sum(_relative(m, g)):f}"


def _relative_euclidean(m: np.ndarray, g: np.ndarray) -> str:
    squares = np.sum(np.square(g))
    if squares**0.5 <= EPSILON:
        return f"{0.0:f}"
    return f"{(np.sum(np.square(m - g)) / squares) ** 0.5:f}"


def _kullback_leibler(m: np.ndarray, g: np.ndarray) -> str:
    p, q = _distribution(m), _distribution(g)
    divergence = np.sum(p * np.log(p / q))
    return f"{0.0 if abs(divergence) < EPSILON else divergence:f}"


def _distribution(values: np.ndarray) -> np.ndarray:
    low, high = np.min(values), np.max(values)
    scaled = np.maximum((values - low) / (high - low) if high != low else values, FLOOR)
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
    return np.where(np.abs(g) > EPSILON, np.abs(m / g - 1), np.float32(0))


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
