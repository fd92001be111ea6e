"""The user's own accuracy: ``FILE.py:function``, f(outputs, float_outputs) -> number, higher is better.

It is called once for each picture with the fixed and the float model's outputs, {name: array}; its mean over the
pictures counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from sgsdump.errors import InputError
from sgsdump.files.user_module import blaming, import_function

UserMetric = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], float]


def load_metric(text: str) -> UserMetric:
    """Raises InputError for a file or function that is not there or fails; what it returns later does too when that
    is not a finite number."""
    file, name, function = import_function(text, "--metric", "metric", "outputs, float_outputs")

    def metric(outputs: Mapping[str, np.ndarray], floats: Mapping[str, np.ndarray]) -> float:
        with blaming(file, "metric"):
            result = function(dict(outputs), dict(floats))
        try:
            value = float(result)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{file}: {name} gave {str(result)[:60]!r}, which is no finite number")
        return value

    return metric
