"""A repair as JSON: every round with its numbers in full precision.

JSON has no NaN and no infinity: they are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which float() reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.comparison.metrics import cos
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.tuning.repair import Repair, Round
from sgsdump.tuning.sensitivity_analysis import error_of


def render(facts: Mapping[str, Any], rounds: Sequence[Round], repair: Repair, limits: Thresholds) -> str:
    """``facts`` come first: what was done on what."""
    document = {
        **facts,
        "min_cos": limits.min_cos,
        "max_rmse": limits.max_rmse,
        "rounds": [_round(made, limits) for made in rounds],
        "final_round": repair.best.number,
        "thresholds_hold": repair.best.holds,
        "tensor_arrays": list(repair.config_names(repair.best.tensor_arrays)),
        "ended": repair.ended,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _round(made: Round, limits: Thresholds) -> dict[str, Any]:
    layers = made.run.layers
    return {
        "round": made.number,
        "raised": [asdict(change) for change in made.raised],
        "lowered": [asdict(change) for change in made.lowered],
        "tensor_arrays": list(made.tensor_arrays),
        "int16_convolutions": list(made.wide),
        "weight_bytes": made.run.weight_bytes,
        "rate": made.run.rate,
        "outputs": {
            name: {"cos": _plain(cos(sums)), "rmse": _plain(error_of(sums))} for name, sums in made.run.outputs.items()
        },
        "output_error": _plain(made.error),
        "layers": len(layers.rows),
        "layers_past": len(layers.past(limits)),
        "worst_layer": _row(layers.worst) if layers.worst else None,
        "rmse_rises_at": [_row(row) for row in layers.jumps],
        "thresholds_hold": made.holds,
        "kept": made.kept,
        "verdict": made.verdict,
    }


def _row(row: Row) -> dict[str, Any]:
    numbers = {"cos": row.cos, "rmse": row.rmse, "rise": row.rise}
    return {"name": row.name, "op_type": row.op_type, **{key: _plain(value) for key, value in numbers.items()}}


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
