"""The data of the page: what the script draws, as JSON inside a script element.

``layers`` in depth order, each with its figures in full precision (``mse`` … are numbers, or the strings ``nan``,
``inf``, ``-inf``), and ``details``, whose counts and curves are rounded to what can be seen: three or four digits.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from sgsdump.comparison.details import Details
from sgsdump.reports.envelope import lower_envelope
from sgsdump.reports.html.report import Layer, Plan, Report, Tradeoff
from sgsdump.reports.shown import copied, plain, rounded, shown, whole
from sgsdump.reports.value_bins import of_details, of_errors

FIGURES = ("mse", "cos", "rmse", "sqnr", "rise", "own_error", "inherited", "mean_rmse")
MANY_LAYERS = 200
CHANNELS = 32
MOST_TRIED = 3000
MOST_SCALES = 4
# What would end the script element, or a line of it in old readers of JSON.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def as_json(report: Report) -> str:
    """Safe inside ``<script type="application/json">``, whatever the names hold."""
    text = json.dumps(document(report), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def document(report: Report) -> dict[str, Any]:
    places: dict[str, int] = {}
    for place, layer in enumerate(report.layers):
        places.setdefault(layer.name, place)
    bins = 128 if len(report.layers) > MANY_LAYERS else 256
    return {
        "layers": [_layer(layer, places, bins) for layer in report.layers],
        "limits": {name: plain(limit) for name, limit in report.limits.items()},
        "tradeoff": _tradeoff(report.tradeoff) if report.tradeoff else None,
    }


def _layer(layer: Layer, places: dict[str, int], bins: int) -> dict[str, Any]:
    scales = (layer.scale if isinstance(layer.scale, tuple) else (layer.scale,)) if layer.scale is not None else ()
    fields = {
        "name": shown(layer.name),
        "op": shown(layer.op_type),
        "index": layer.index,
        **{name: plain(getattr(layer, name)) for name in FIGURES},
        "rises": layer.rises,
        "verdict": layer.verdict,
        "note": shown(layer.note),
        "sources": [places[name] for name in layer.sources if name in places],
        "shape": None if layer.shape is None else list(layer.shape),
        "dtype": layer.dtype,
        "scale": [plain(scale) for scale in scales[:MOST_SCALES]],
        "scales": len(scales),
        "zero": layer.zero_point,
        "attributes": [[shown(name), shown(value)] for name, value in layer.attributes.items()],
        "worst": shown(layer.worst_picture),
        "details": _details(layer.details, bins) if layer.details is not None else None,
    }
    return {name: value for name, value in fields.items() if not (value is None or value is False or value in ("", []))}


def _details(details: Details, most: int) -> dict[str, Any]:
    values, errors = of_details(details, most), of_errors(details, most // 2)
    sample, benchmark, error = values.rows
    with np.errstate(all="ignore"):
        mean_error = np.where(benchmark > 0, error / np.maximum(benchmark, 1), np.nan)
    fields: dict[str, Any] = {
        "edges": list(values.edges),
        "sample": [whole(count) for count in sample],
        "benchmark": [whole(count) for count in benchmark],
        "counts": [int(details.sample.sum()), int(details.benchmark.sum())],
        "range": None if details.low is None or details.high is None else [plain(details.low), plain(details.high)],
        "errorEdges": list(errors.edges),
        "errors": [whole(count) for count in errors.rows[0]],
        "byValue": [0 if np.isnan(value) else rounded(value, 3) for value in mean_error],
        "channels": _channels(details.channels),
        "channelCount": len(details.channels),
    }
    if details.heat.size:
        fields |= _heat(details)
    return {name: value for name, value in fields.items() if value is not None}


def _channels(sums: np.ndarray) -> list[list[Any]]:
    """Number, share of the layer's error and RMSE of the channels that have most of the error."""
    with np.errstate(all="ignore"):
        shares = sums[:, 0] / (sums[np.isfinite(sums[:, 0]), 0].sum() or 1.0)
        errors = np.where(sums[:, 0] == 0, 0.0, sums[:, 0] / sums[:, 1])
    order = np.argsort(-np.where(np.isfinite(sums[:, 0]), sums[:, 0], np.inf), kind="stable")[:CHANNELS]
    return [[int(at), rounded(shares[at], 3), rounded(errors[at])] for at in order]


def _heat(details: Details) -> dict[str, Any]:
    """A byte per part: 0 to 254 of the largest finite one, 255 for NaN and infinity."""
    finite = np.isfinite(details.heat)
    top = float(details.heat[finite].max(initial=0.0))
    scaled = np.where(finite, details.heat / top * 254 if top else 0.0, 255.0)
    return {
        "heat": base64.b64encode(np.rint(scaled).astype(np.uint8).tobytes()).decode(),
        "heatShape": list(details.heat.shape),
        "heatTop": rounded(top),
        "heatSize": list(details.size),
        "heatOf": shown(details.heat_of),
    }


def _tradeoff(tradeoff: Tradeoff) -> dict[str, Any]:
    tried = tradeoff.tried
    envelope = lower_envelope([*tried, *((plan.rate, plan.error) for plan in tradeoff.plans)])
    some = tried[:: max(1, -(-len(tried) // MOST_TRIED))]
    return {
        "tried": [[rounded(rate), rounded(error)] for rate, error in some],
        "triedCount": len(tried),
        "envelope": [[plain(rate), plain(error)] for rate, error in envelope],
        "plans": [_plan(plan) for plan in tradeoff.plans],
        "taken": tradeoff.plans.index(tradeoff.taken),
        "what": shown(tradeoff.what),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "label": shown(plan.label),
        "rate": plain(plan.rate),
        "error": plain(plan.error),
        "asked": plain(plan.asked),
        "copy": copied(plan.copy),
    }
