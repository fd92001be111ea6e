"""HTML page of a ``Report``, a single file without external resources.

It has a page (jinja2 escapes every text), a style, a script that draws plain SVG, and the data as JSON in a script
element. Texts may come from dumps or models of unknown origin, so names are always shown as text. The content security
policy of the page (a meta element) allows only this script, by its hash, and no loading.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.comparison.details import Details, Heat
from sgsdump.files.json_yaml import strict
from sgsdump.reports.charts.bins import of_details, of_errors
from sgsdump.reports.graph.drawing import drawing_of
from sgsdump.reports.layers.table import Entry, bar_shares
from sgsdump.reports.remarks import left_out_title
from sgsdump.reports.text import copied, number, shown

if TYPE_CHECKING:
    import jinja2

    from sgsdump.reports.code import Code
    from sgsdump.reports.report import Bits, Layer, Plan, Report, Tradeoff

BAR = 56  # width of a bar in the table
ROOM = 9  # characters of a number that fit into a column of normal width
STYLES = ("palette.css", "page/page.css", "page/print.css")
# Each chart has its own script; a script comes after the scripts that it uses.
SCRIPTS = (
    "data", "terms", "text", "elements", "axes", "selection", "depth", "zoom", "rows", "table",
    "network", "network_colour", "network_view", "network_moves",
    "neighbours", "histogram", "places", "planes", "tensors", "code", "layer", "tradeoff", "begin",
)  # fmt: skip
FIGURES = (
    "mse", "cos", "rmse", "sqnr", "rise", "own_error", "inherited", "in_all", "brings", "gives_back", "mean_rmse",
)  # fmt: skip
HOW_TO_SEE = (
    "The page has the values of the outputs and of the layers where the error rises most. To see this layer, "
    "run sgsdump report SAMPLE BENCHMARK --serve with both dumps."
)
MANY_LAYERS = 200
MOST_ROWS = 300  # a table with more rows has only the visible rows in the page
CHANNELS = 32
MOST_TRIED = 3000
MOST_SCALES = 4
# Short names of what raised a convolution, for a cell.
BY = {
    "the quant file": "file",
    "the calibration level": "level",
    "the fixed model": "model",
    "rules of the SDK": "rule",
    "the plan of tune": "plan",
}
_TENS = np.array([float(f"1e{exponent}") for exponent in range(23)])  # powers of ten that are exact in float64
_RISES = {True: "the error rises here", False: "the error rises here, in file order"}
# Characters that could end the script element, or a line in old JSON readers.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(report: Report, served: bool = False, drawn: bool = True) -> str:
    """Return the text of the HTML file, without lone surrogates.

    served  whether the local server sends the page; then the page may ask the server for values.
    drawn   whether the page has the drawing of the network.
    """
    style, script = "".join(map(_part, STYLES)), _script()
    figures = [layer.figures for layer in report.layers]
    expected = sum(entry.expected for entry in report.left_out)
    measured = any(f.gives_back is not None for f in figures)
    return _template().render(
        report=report,
        bars=[round(share * BAR, 1) for share in bar_shares([f.rmse for f in figures])],
        measured=measured,
        here="the outputs' error arises here" if measured else _RISES[report.view.by_flow],
        counts=Counter(layer.verdict for layer in report.layers),
        windowed=len(report.layers) > MOST_ROWS,
        long_numbers=any(len(number(v)) > ROOM for f in figures for v in (f.rmse, f.mse, f.rise)),
        bits=_bit_kinds(report),
        sqnr=not figures or any(f.sqnr is not None for f in figures),
        op_types=sorted({layer.op_type for layer in report.layers if layer.op_type}),
        reasons=_by_reason(report.left_out),
        left_out_title=left_out_title(len(report.left_out) - expected, expected),
        data=_json(report, served, drawn),
        served=served,
        tensors=_tensors(report),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def document(report: Report, served: bool = False, drawn: bool = True) -> dict[str, Any]:
    """Return the data of the script.

    ``layers`` are in depth order, with figures in full precision (NaN and infinity as text). Counts and curves in
    ``details`` are rounded to the visible three or four digits. ``flow`` says whether the dataflow is known, and
    ``first`` is the index of the layer to select first.
    """
    indices: dict[str, int] = {}
    for index, layer in enumerate(report.layers):
        indices.setdefault(layer.name, index)
    bins = 128 if len(report.layers) > MANY_LAYERS else 256
    as_text = len(report.layers) > MOST_ROWS  # parsed when the layer is selected
    return {
        "layers": [_layer(layer, indices, bins, as_text) for layer in report.layers],
        "limits": {name: _figure(limit) for name, limit in report.limits.items()},
        "tradeoff": _tradeoff(report.tradeoff) if report.tradeoff else None,
        "flow": report.view.by_flow,
        "other": _other(report),
        "graph": _graph(report) if drawn else None,
        "measured": report.view.measured,
        "served": served,
        "howToSee": HOW_TO_SEE,
        "picture": shown(report.picture),
        "first": indices.get(report.view.first),
    }


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"shown": shown, "number": number, "copied": copied}
    environment.filters |= {"bits_told": _bits_told, "by": _short, "bits_now": _now}
    return environment.from_string(_part("page/page.html"))


def _part(name: str) -> str:
    return (files("sgsdump.reports.html") / name).read_text(encoding="utf-8")


def _script() -> str:
    """Return all scripts as one function, so that their names stay local."""
    return "".join(('(() => {\n"use strict";\n', *(_part(f"page/{name}.js") for name in SCRIPTS), "})();\n"))


def _hash(text: str) -> str:
    """Return the hash by which a content security policy identifies an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _bit_kinds(report: Report) -> list[tuple[str, str]]:
    """Return the options of the bits filter, as (text, value for the script); [] if no bits are known."""
    known = [layer.facts.bits for layer in report.layers if layer.facts.bits is not None]
    each = {bits.now: bits for bits in known}
    kinds = [(_now(each[now], "{} bits"), str(now)) for now in sorted(each)]
    if any(bits.advised for bits in known):
        kinds.append(("16 bits advised", "advised"))
    who = dict.fromkeys(bits.raised_by for bits in known if bits.raised_by)
    return [*kinds, *((f"raised by {by}", f"by {by}") for by in who)]


def _short(who: str) -> str:
    """Return what raised a convolution, in a word that fits a cell."""
    return BY.get(who, who)


def _now(bits: Bits, words: str = "{}") -> str:
    return "float" if bits.in_float else words.format(bits.now)


def _bits_told(bits: Bits) -> str:
    if bits.in_float:
        return "float: stays in float in the fixed model; the chip may differ"
    rule = f" ({bits.rule})" if bits.rule else ""
    if bits.raised_by:
        return f"{bits.now}, raised by {bits.raised_by}{rule}"
    return f"{bits.now}; 16 recommended" if bits.advised else str(bits.now)


def _by_reason(left_out: Sequence[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Return the entries grouped by reason and by the side that has them ("" for both)."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in left_out:
        one_sided = entry.status not in ("failed", "excluded")
        side = ("sample" if entry.sample_name else "benchmark") if one_sided else ""
        groups.setdefault((entry.remark, side), []).append(entry)
    return groups


def _json(report: Report, served: bool, drawn: bool) -> str:
    """Return JSON that is safe inside ``<script type="application/json">``."""
    text = json.dumps(document(report, served, drawn), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _layer(layer: Layer, indices: dict[str, int], bins: int, as_text: bool) -> dict[str, Any]:
    facts = layer.facts
    details = _details(layer.details, bins) if layer.details is not None else None
    scales = (facts.scale if isinstance(facts.scale, tuple) else (facts.scale,)) if facts.scale is not None else ()
    fields = {
        "name": shown(layer.name),
        "op": shown(layer.op_type),
        "index": layer.index,
        **{name: _figure(getattr(layer.figures, name)) for name in FIGURES},
        "rises": layer.rises,
        "verdict": layer.verdict,
        "note": shown(layer.note),
        "sources": [indices[name] for name in layer.sources if name in indices],
        "shape": None if facts.shape is None else list(facts.shape),
        "dtype": facts.dtype,
        "scale": [_figure(scale) for scale in scales[:MOST_SCALES]],
        "scales": len(scales),
        "zero": facts.zero_point,
        "bits": facts.bits and _bits(facts.bits),
        "attributes": [[shown(name), shown(value)] for name, value in facts.attributes.items()],
        "code": [_code(code) for code in facts.code],
        "worst": shown(layer.worst_picture),
        "module": shown(layer.module),
        "details": json.dumps(details, allow_nan=False, separators=(",", ":")) if details and as_text else details,
    }
    return {name: value for name, value in fields.items() if not (value is None or value is False or value in ("", []))}


def _bits(bits: Bits) -> dict[str, Any]:
    return {"now": bits.now, "by": shown(bits.raised_by), "advised": bits.advised, "told": shown(_bits_told(bits))}


def _code(code: Code) -> dict[str, Any]:
    lines = [shown(line.expandtabs()) for line in code.lines]
    fields = {"place": shown(code.place), "first": code.first, "called": code.called, "lines": lines}
    return {**fields, "side": code.side} if code.side else fields


def _details(details: Details, most: int) -> dict[str, Any]:
    values, errors = of_details(details, most), of_errors(details, most // 2)
    sample, benchmark, error = values.rows
    with np.errstate(all="ignore"):
        mean_error = np.where(benchmark > 0, error / np.maximum(benchmark, 1), np.nan)
    fields: dict[str, Any] = {
        "edges": list(values.edges),
        "sample": _counts(sample),
        "benchmark": _counts(benchmark),
        "counts": [int(details.sample.sum()), int(details.benchmark.sum())],
        "range": None if details.low is None or details.high is None else [_figure(details.low), _figure(details.high)],
        "shift": _rounded(details.mean_shift, 3),
        "outside": None if (outside := details.outside) is None else _rounded(outside, 3),
        "errorEdges": list(errors.edges),
        "errors": _counts(errors.rows[0]),
        "byValue": _each_rounded(np.where(np.isnan(mean_error), 0.0, mean_error), 3),
        "channels": _channels(details.channels),
        "channelCount": len(details.channels),
    }
    if details.heat.mean.size:
        fields |= _heat(details.heat)
    return {name: value for name, value in fields.items() if value is not None}


def _channels(sums: np.ndarray) -> list[list[Any]]:
    """Return number, share of the layer's error, and RMSE of the channels with the largest errors."""
    with np.errstate(all="ignore"):
        shares = sums[:, 0] / (sums[np.isfinite(sums[:, 0]), 0].sum() or 1.0)
        errors = np.where(sums[:, 0] == 0, 0.0, sums[:, 0] / sums[:, 1])
    order = np.argsort(-np.where(np.isfinite(sums[:, 0]), sums[:, 0], np.inf), kind="stable")[:CHANNELS]
    figures = zip(order.tolist(), _each_rounded(shares[order], 3), _each_rounded(errors[order]))
    return [list(of_channel) for of_channel in figures]


def _heat(heat: Heat) -> dict[str, Any]:
    """Return the heat map, one byte per part: 0 to 254 relative to the largest finite error, 255 for NaN and Inf."""
    finite = np.isfinite(heat.mean)
    top = float(heat.mean[finite].max(initial=0.0))
    scaled = np.where(finite, heat.mean / top * 254 if top else 0.0, 255.0)
    return {
        "heat": base64.b64encode(np.rint(scaled).astype(np.uint8).tobytes()).decode(),
        "heatShape": list(heat.mean.shape),
        "heatTop": _rounded(top),
        "heatSize": list(heat.size),
        "heatOf": shown(heat.picture),
    }


def _tradeoff(tradeoff: Tradeoff) -> dict[str, Any]:
    tried = tradeoff.tried
    some = tried[:: max(1, -(-len(tried) // MOST_TRIED))]
    return {
        "tried": [[_rounded(rate), _rounded(error)] for rate, error in some],
        "triedCount": len(tried),
        "envelope": [[_figure(rate), _figure(error)] for rate, error in tradeoff.envelope],
        "plans": [_plan(plan) for plan in tradeoff.plans],
        "taken": tradeoff.plans.index(tradeoff.taken),
        "what": shown(tradeoff.what),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "label": shown(plan.label),
        "rate": _figure(plan.rate),
        "error": _figure(plan.error),
        "asked": _figure(plan.asked),
        "copy": copied(plan.copy),
    }


def _other(report: Report) -> dict[str, Any] | None:
    """Return the label of the other run, and each layer's MSE, COS, RMSE and SQNR there; None if it lacks the layer."""
    if report.view.other is None:
        return None
    then = [report.view.other.figures.get(layer.name) for layer in report.layers]
    figures = [f and [_figure(value) for value in (f.mse, f.cos, f.rmse, f.sqnr)] for f in then]
    return {"label": shown(report.view.other.label), "isEarlier": report.view.other.is_earlier, "figures": figures}


def _graph(report: Report) -> dict[str, Any] | None:
    """Return the data of the drawing of the network; None without a drawing."""
    layers = report.layers
    return drawing_of(
        [layer.name for layer in layers],
        [layer.module for layer in layers],
        [layer.sources for layer in layers],
        {layer.name: layer.parts for layer in layers if layer.parts},
        {layer.name: layer.reads for layer in layers if layer.parts},
        report.view.by_flow,
    )


def _tensors(report: Report) -> dict[int, str]:
    """Return JSON of the values of each layer that has some, by place."""
    places = {layer.name: place for place, layer in reversed(list(enumerate(report.layers)))}
    views = {places[name]: view for name, view in report.tensors.items() if name in places}
    return {place: json.dumps(view.data(), separators=(",", ":")) for place, view in views.items()}


def _figure(value: float | None) -> float | str | None:
    """Return a figure in full precision; NaN and infinity as text."""
    return None if value is None else strict(float(value))


def _rounded(value: float, digits: int = 4) -> float | str:
    """Return a value rounded to significant digits, for values that are only drawn."""
    return strict(float(f"{value:.{digits - 1}e}"))


def _each_rounded(values: np.ndarray, digits: int = 4) -> list[float | str]:
    """Return ``_rounded`` of each value; one call per value took most of the time of a page (five values per bin)."""
    with np.errstate(all="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(values)))
    some = np.abs(places) < len(_TENS)  # other values, such as 0 and NaN, are rounded one by one
    tens = _TENS[np.where(some, np.abs(places), 0).astype(np.int64)]
    rounded: list[Any] = np.where(places > 0, np.rint(values * tens) / tens, np.rint(values / tens) * tens).tolist()
    for index in np.flatnonzero(~some):
        rounded[index] = _rounded(float(values[index]), digits) or 0
    return rounded


def _counts(values: np.ndarray) -> list[int]:
    """Return counts rounded to three significant digits, for counts that are only drawn."""
    tens = _TENS[np.clip(np.searchsorted(_TENS, values, side="right") - 3, 0, None)]
    counts: list[int] = (np.rint(values / tens) * tens).astype(np.int64).tolist()
    return counts
