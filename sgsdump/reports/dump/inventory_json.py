"""What is in a dump as JSON: ``tensors``, an object each with its statistics (``figures``), and the dump's ``notes``.

JSON has no NaN and no infinity: they are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which float() reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.dumps.inventory import Item
from sgsdump.reports.strict_json import text_of


def render(items: Sequence[Item], notes: Sequence[str] = ()) -> str:
    document = {"tensors": [_tensor(item) for item in items], "notes": list(notes)}
    return text_of(document)


def _tensor(item: Item) -> dict[str, Any]:
    return {"figures" if key == "statistics" else key: value for key, value in asdict(item).items()}
