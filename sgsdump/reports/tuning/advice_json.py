"""Advice as JSON: every convolution with its verdict, its reason and the numbers behind them, in full precision.

JSON has no NaN and no infinity: they are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which float() reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.comparison.metrics import cos, rmse
from sgsdump.comparison.row import Row
from sgsdump.tuning.advice import Advice
from sgsdump.tuning.sensitivity_analysis import Measurement, Totals


def render(
    advice: Sequence[Advice], tensor_arrays: Sequence[str], measurement: Measurement | None, tried: Totals | None
) -> str:
    """``tried``: the outputs' sums with ``tensor_arrays`` raised."""
    document = {
        "tensor_arrays": list(tensor_arrays),
        "pictures": measurement.pictures if measurement else 0,
        "outputs": {
            plan: {name: {"cos": _plain(cos(sums)), "rmse": _plain(rmse(sums))} for name, sums in totals.items()}
            for plan, totals in _plans(measurement, tried).items()
        },
        "convolutions": [_entry(entry) for entry in advice],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _plans(measurement: Measurement | None, tried: Totals | None) -> dict[str, Totals]:
    plans = {"all_8": measurement.all_8, "all_16": measurement.all_16} if measurement else {}
    return {**plans, "tensor_arrays": tried} if tried else plans


def _entry(entry: Advice) -> dict[str, Any]:
    signs = entry.signs
    return {
        "verdict": entry.verdict,
        "reason": entry.reason,
        **asdict(entry.convolution),
        "range": list(signs.limits) if signs.limits else None,
        "levels": signs.levels,
        "rules": {"range": signs.wide, "narrow": signs.narrow, "rmse": signs.spoilt if signs.after else None},
        "row": _row(signs.row),
        "worst_row_after": _row(signs.after),
        "measured": {key: _plain(value) for key, value in asdict(entry.measured).items()} if entry.measured else None,
    }


def _row(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"name": row.name, "cos": _plain(row.cos), "rmse": _plain(row.rmse), "rise": _plain(row.rise)}


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
