"""Metrics of msprobe's tensor comparison as it writes them into its table.

With n the sample and b the benchmark as float64 (the imaginary part of complex values is dropped; relative errors of
single and half precision are computed in float32, because msprobe reads half precision as single)::

    Cosine                      Σnb / (‖n‖‖b‖), twelve decimals, six if above 0.9999
    EucDist                     sqrt(Σ(n-b)²), not rounded
    MaxAbsErr                   max |n-b|
    MaxRelativeErr              max |n-b| / |b|; where b is 0 both sides are raised by the epsilon of b's type
    One Thousandth Err Ratio    share of values whose relative error is below 0.001
    Five Thousandths Err Ratio  share of values whose relative error is below 0.005

NaN and Inf must be at the same positions, whatever the sign of Inf, and are then replaced by 0; otherwise all figures
are ``N/A``. Empty data, 0-d data and single values are ``unsupported`` where a metric is meaningless. Pitfalls of
msprobe are kept on purpose: +Inf against -Inf scores as perfect, as do complex values that differ only in the imaginary
part.

If only statistics were dumped, there are eight columns for Max, Min, Mean and L2norm: the difference n-b, and |n-b| /
|b| in percent. Both are ``0`` for equal statistics (also two NaN, or two that are missing). Both are ``Diff`` for
booleans, or if one side has no such statistic. With a NaN they are ``Nan``, with an Inf the infinity of n-b. The
percentage is ``inf`` for a benchmark of 0. This is the behaviour of msprobe 26.2.0; earlier versions wrote ``N/A`` for
a benchmark of 0 and for a statistic that one side lacked.
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.vendor_metrics import Printed
from sgsdump.tensors.dtypes import is_float
from sgsdump.tensors.statistics import Statistics

COLUMNS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
STATISTICS = {"Max": "max", "Min": "min", "Mean": "mean", "L2norm": "l2norm"}
UNSUPPORTED, NOT_APPLICABLE, NAN, MISMATCH = "unsupported", "N/A", "Nan", "shape unmatched"
DIFFERENT = "Diff"  # for statistics that are not numbers
ZERO_NORM = float(np.finfo(np.float64).eps)


def printed(sample: np.ndarray, benchmark: np.ndarray) -> Printed:
    """Return the six strings for two arrays, and msprobe's message."""
    if not sample.size or not benchmark.size:
        return _all(UNSUPPORTED, "This is empty data, can not compare.")
    if sample.shape != benchmark.shape:
        return _all(MISMATCH, "Shape of NPU and bench tensor do not match. Skipped.")
    typed = "" if sample.dtype == benchmark.dtype else "Dtype of NPU and bench tensor do not match."
    widths = {_float_type(sample), _float_type(benchmark)}
    own = np.float32 if widths == {np.float32} else np.float64
    epsilon = own(np.finfo(_float_type(benchmark)).eps)
    if sample.ndim == 0:
        return _scalar(sample, benchmark, own, epsilon)
    n, b = (side.real.astype(np.float64) for side in (sample, benchmark))
    odd = [np.stack([np.isnan(side), np.isinf(side)]) for side in (n, b)]
    if not np.array_equal(odd[0], odd[1]):
        return _all(NOT_APPLICABLE, "The position of inf or nan in NPU and bench Tensor do not match.")
    n, b = (np.where(np.isfinite(side), side, 0.0).reshape(-1) for side in (n, b))
    relative = _relative(n.astype(own), b.astype(own), epsilon)
    cosine, message = _cosine(n, b)
    values = (
        cosine,
        str(float(np.linalg.norm(n - b))),
        _twelve(np.max(np.abs(n - b))),
        _twelve(np.max(relative)),
        _twelve(float(np.mean(relative < 0.001))),
        _twelve(float(np.mean(relative < 0.005))),
    )
    return Printed(dict(zip(COLUMNS, values)), " ".join(filter(None, [typed, message])))


def _float_type(values: np.ndarray) -> type[np.floating]:
    """Return float32 for float types up to 32 bits (including bfloat16), float64 for all others."""
    return np.float32 if is_float(values.dtype) and values.dtype.itemsize <= 4 else np.float64


def _scalar(sample: np.ndarray, benchmark: np.ndarray, own: type, epsilon: np.floating) -> Printed:
    n: np.ndarray = sample.real.astype(own)
    b: np.ndarray = benchmark.real.astype(own)
    with np.errstate(all="ignore"):
        errors = float(np.abs(n - b)), float(_relative(n, b, epsilon))
    shown = [NAN if np.isnan(value) else _twelve(value) for value in errors]
    values = (UNSUPPORTED, UNSUPPORTED, *shown, UNSUPPORTED, UNSUPPORTED)
    lost = "'Cosine', 'EucDist', 'One Thousandth Err Ratio' and 'Five Thousandths Err Ratio'"
    return Printed(dict(zip(COLUMNS, values)), f"This is type of 0-d tensor, can not calculate {lost}.")


def _cosine(n: np.ndarray, b: np.ndarray) -> tuple[str, str]:
    if n.size == 1:
        return UNSUPPORTED, "This is a 1-d tensor of length 1."
    norms = np.linalg.norm(n), np.linalg.norm(b)
    zero = [norm <= ZERO_NORM for norm in norms]
    if all(zero):
        return "1.0", ""
    if any(zero):
        side = "npu" if zero[0] else "Bench"
        return NAN, f"Cannot compare by Cosine Similarity, All the data is Zero in {side} dump data."
    value = float(np.dot(n, b) / (norms[0] * norms[1]))
    return str(round(value, 6 if value > 0.9999 else 12)), ""


def _relative(n: np.ndarray, b: np.ndarray, epsilon: np.floating) -> np.ndarray:
    """Return relative errors.

    A benchmark of 0 is raised by epsilon together with the sample, which rounds the sample.
    """
    zero = b == 0
    raised, base = np.where(zero, n + epsilon, n), np.where(zero, b + epsilon, b)
    return np.abs((raised - base) / base)


def _twelve(value: float) -> str:
    return str(round(float(value), 12))


def _all(word: str, message: str) -> Printed:
    return Printed(dict.fromkeys(COLUMNS, word), message)


def printed_statistics(sample: Statistics, benchmark: Statistics, is_bool: bool = False) -> Printed:
    """Return the eight strings for two tensors with only statistics; ``is_bool`` for booleans."""
    differences, errors = {}, {}
    for column, name in STATISTICS.items():
        difference, error = _of_statistic(getattr(sample, name), getattr(benchmark, name), is_bool)
        differences[f"{column} diff"] = difference
        errors[f"{'Norm' if name == 'l2norm' else column}RelativeErr"] = error
    return Printed({**differences, **errors})


def _of_statistic(n: float | None, b: float | None, is_bool: bool) -> tuple[str, str]:
    """Return difference and relative error of two statistics.

    They are equal if they print equally, so -0.0 is not 0.0.
    """
    if str(n) == str(b):
        return "0", "0"
    if n is None or b is None or is_bool:
        return DIFFERENT, DIFFERENT
    if math.isnan(n) or math.isnan(b):
        return NAN, NAN
    if math.isinf(n) or math.isinf(b):
        infinity = str(n if math.isinf(n) else -b)
        return infinity, infinity
    return str(n - b), f"{abs((n - b) / b * 100)}%" if b else "inf"
