"""JSON that every reader takes: NaN and Inf, for which it has no number, are the texts "nan", "inf" and "-inf", which
float() reads."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(document: Any, indent: int | None = 2) -> str:
    """The JSON of a ``strict`` document, with a line end."""
    return json.dumps(strict(document), indent=indent, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """``value`` with texts for NaN and infinity, in dicts and lists too; tuples become lists."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
