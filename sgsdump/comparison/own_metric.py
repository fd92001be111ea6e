"""A user's own metric of a pair, f(sample, benchmark) -> number, from Python or from a file.

The function gets the real values of both sides as read-only arrays of equal shape in their own type (possibly integers
or float16). It is called once per pair and never concurrently, although several pairs are compared in parallel. NaN and
infinity are shown unchanged. For limits, higher is better, as for the metric of ``tune``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.comparison.metrics import METRICS, Metric
from sgsdump.errors import ConfigError, InputError
from sgsdump.files.mapped import in_memory
from sgsdump.files.user_module import blaming, import_function
from sgsdump.tensors.tensor import Values

OwnMetric = Callable[[np.ndarray, np.ndarray], float]
Asked = Sequence[str] | Mapping[str, OwnMetric | None]
_ONE_AT_A_TIME = threading.Lock()


def load_own_metrics(texts: Sequence[str]) -> dict[str, OwnMetric]:
    """Return the functions of several ``FILE.py:function`` by name.

    Raises InputError if a file or function is missing or fails to import, ConfigError if two functions have the same
    name.
    When called later, a function raises InputError with file and line if it fails or does not return a number.
    """
    metrics: dict[str, OwnMetric] = {}
    for text in texts:
        file, name, function = import_function(text, "--metric", "metric", "sample, benchmark")
        if name in metrics:
            raise ConfigError(
                f"--metric {text}: another metric function is already named {name}; rename one of the two functions"
            )
        metrics[name] = _checked(file, name, function)
    return metrics


def _checked(file: Path, name: str, function: Callable[..., Any]) -> OwnMetric:
    def metric(sample: np.ndarray, benchmark: np.ndarray) -> float:
        with blaming(file, "metric"):
            result = function(sample, benchmark)
        try:
            return float(result)
        except (TypeError, ValueError):
            raise InputError(f"{file}: {name} returned {str(result)[:60]!r}, which is not a number") from None

    return metric


def sorted_out(asked: Asked) -> tuple[dict[str, Metric], dict[str, OwnMetric]]:
    """Split the requested metrics into metrics of ``METRICS`` and the user's own, by display name.

    ``asked`` holds names, or {name: function} with None for a metric of ``METRICS``. Raises ConfigError for an unknown
    name, or for a function with the name of an existing metric.
    """
    if isinstance(asked, str):
        names = [name.strip() for name in asked.split(",")]
        raise ConfigError(f"metrics must be a list of names, not a string; write metrics={names}")
    items = asked.items() if isinstance(asked, Mapping) else dict.fromkeys(asked).items()
    further, own = {}, {}
    for name, metric in items:
        if metric is None:
            further[name] = METRICS[name]
        elif name in METRICS:
            raise ConfigError(f"{name} is a metric of sgsdump; give your function another name")
        else:
            own[name] = metric
    return further, own


def measured_by(own: Mapping[str, OwnMetric], sample: Values, benchmark: Values) -> dict[str, float]:
    """Return the user's metrics of a pair of equal shape."""
    if not own:
        return {}
    sides = [_shown(sample), _shown(benchmark)]
    with _ONE_AT_A_TIME:
        return {name: float(function(*sides)) for name, function in own.items()}


def _shown(values: Values) -> np.ndarray:
    array = in_memory(values.array)
    array = array if values.to_real is None else values.to_real(array)
    array = array.view()
    array.flags.writeable = False
    return array
