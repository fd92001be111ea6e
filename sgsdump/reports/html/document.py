"""One HTML file of a ``Report``, which fetches nothing: a page (jinja2, which escapes every text), a style, a script
that draws plain SVG, and the data as JSON.

Every text may come from a dump or a model of unknown origin: names are shown as text whatever they hold. The page's own
policy (a meta element) lets a browser run this script only, by its hash, and load nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from sgsdump.reports.bars import share
from sgsdump.reports.html import page_data
from sgsdump.reports.html.report import Details, Layer, LeftOut, Plan, Report, Step, Tradeoff
from sgsdump.reports.shown import copied, left_out_title, number, shown

if TYPE_CHECKING:
    import jinja2

__all__ = ["Details", "Layer", "LeftOut", "Plan", "Report", "Step", "Tradeoff", "render"]

BAR = 56  # width of a table's bar
ROOM = 9  # characters of a number that fit into a column of the usual width
STYLES = ("page/page.css", "page/print.css")
# In this order: what is used stands before who uses it.
SCRIPTS = (
    "data", "text", "elements", "axes", "selection", "depth", "zoom", "table",
    "neighbours", "histogram", "places", "layer", "tradeoff", "begin",
)  # fmt: skip


def render(report: Report) -> str:
    """The HTML file's text, in pure Unicode (no lone surrogates)."""
    style, script = "".join(map(_part, ("palette.css", *STYLES))), _script()
    top = max((layer.rmse for layer in report.layers if math.isfinite(layer.rmse)), default=0.0)
    expected = sum(one.expected for one in report.left_out)
    return _template().render(
        report=report,
        bars=[_bar(layer.rmse, top) for layer in report.layers],
        counts=Counter(layer.verdict for layer in report.layers),
        long_numbers=any(len(number(v)) > ROOM for each in report.layers for v in (each.rmse, each.mse, each.rise)),
        op_types=sorted({layer.op_type for layer in report.layers if layer.op_type}),
        reasons=_by_reason(report.left_out),
        left_out_title=left_out_title(len(report.left_out) - expected, expected),
        data=page_data.as_json(report),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"shown": shown, "number": number, "copied": copied}
    return environment.from_string(_part("page/page.html"))


def _part(name: str) -> str:
    return (files("sgsdump.reports.html") / name).read_text(encoding="utf-8")


def _script() -> str:
    """All scripts as one, whose names stay inside it."""
    return "".join(('(() => {\n"use strict";\n', *(_part(f"page/{name}.js") for name in SCRIPTS), "})();\n"))


def _hash(text: str) -> str:
    """As a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _bar(value: float, top: float) -> float:
    """The length of a bar for an error."""
    return round(share(value, top) * BAR, 1)


def _by_reason(left_out: Sequence[LeftOut]) -> dict[tuple[str, str], list[LeftOut]]:
    """A reason that many share is given once."""
    groups: dict[tuple[str, str], list[LeftOut]] = {}
    for one in left_out:
        groups.setdefault((one.reason, one.side), []).append(one)
    return groups
