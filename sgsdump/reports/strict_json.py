"""JSON that every reader takes: NaN and Inf, for which it has no number, are strings."""

from __future__ import annotations

import json
import math
from typing import Any


def text_of(document: Any) -> str:
    return json.dumps(_strict(document), indent=2, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
