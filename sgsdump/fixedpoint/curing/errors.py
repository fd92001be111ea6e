"""Errors that judge cures: per output and held-out image, in the hardware's integer arithmetic.

The error of an output on an image is sum((y - r)^2) divided by the mean of sum(r^2) over all images. The mean over the
images is therefore the relative squared error of the output. r is the original float model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np

Errors = Mapping[str, np.ndarray]  # [images] by output


def totals(errors: Errors, names: Collection[str] | None = None) -> dict[str, float]:
    """Return the relative squared error of each output over all images."""
    return {name: float(np.mean(each)) for name, each in errors.items() if names is None or name in names}


def ratio(errors: Errors, before: Errors, names: Collection[str]) -> float:
    """Return the error relative to the error before, as geometric mean over the outputs."""
    return mean_ratio(totals(errors, names), totals(before, names))


def ratios_by_image(errors: Errors, before: Errors, names: Iterable[str]) -> np.ndarray:
    """Return the error relative to the error before, as geometric mean over the outputs, [images]."""
    logs = []
    for name in names:
        if name in errors and name in before:
            least = max(float(np.mean(before[name])) * 1e-9, np.finfo(np.float64).tiny)
            logs.append(np.log(np.maximum(errors[name], least)) - np.log(np.maximum(before[name], least)))
    return np.exp(np.mean(logs, axis=0)) if logs else np.ones(1)


def mean_ratio(errors: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Return the geometric mean of the error ratios.

    An output with no error before counts as 1 if it has no error now, and makes the result infinite otherwise.
    """
    logs = []
    for name, error in errors.items():
        first = before.get(name, 0.0)
        if not math.isfinite(error) or (first == 0 and error > 0):
            return math.inf
        if first > 0:
            logs.append(math.log(max(error, first * 1e-9) / first))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def shared(held: Errors, seen: Errors, shares: np.ndarray) -> dict[str, np.ndarray]:
    """Return the errors, [images]: ``seen`` plus the part ``shares`` (``folds.share``) of what holding out adds."""
    return {name: seen[name] + shares * (each - seen[name]) for name, each in held.items()}


def expected_errors(errors: Errors, names: Collection[str]) -> dict[str, float]:
    """Return the expected error of each output on other images: one standard error above the mean."""
    found = {}
    for name, each in errors.items():
        if name in names:
            spread = float(np.std(each, ddof=1)) / math.sqrt(each.size) if each.size > 1 else 0.0
            found[name] = float(np.mean(each)) + spread
    return found
