"""What is in a dump as JSON: ``tensors``, an object each with its statistics (``figures``), and the dump's ``notes``.

JSON has no NaN and no infinity: they are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which float() reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.dumps.inventory import Item


def render(items: Sequence[Item], notes: Sequence[str] = ()) -> str:
    document = {"tensors": [_tensor(item) for item in items], "notes": list(notes)}
    return json.dumps(_plain(document), indent=2, allow_nan=False) + "\n"


def _tensor(item: Item) -> dict[str, Any]:
    return {"figures" if key == "statistics" else key: value for key, value in asdict(item).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
