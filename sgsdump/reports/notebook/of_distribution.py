"""A layer's values against its range."""

from __future__ import annotations

from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.reports.notebook.base import card, facts, paragraph
from sgsdump.reports.notebook.histogram import histogram
from sgsdump.reports.shown import number


def render(layer: Distribution) -> str:
    """The histogram, the range as dashed lines, and what is wrong with it."""
    stats = layer.stats
    pairs = [("operator", layer.op_type), ("shape", "unknown" if layer.shape is None else list(layer.shape))]
    pairs.append(("values", f"{stats.count:,}, of which {stats.nan or 0:,} NaN and {stats.inf:,} Inf"))
    pairs.append(("99 % of them in", _span(layer.central)))
    if layer.limits:
        pairs.append(("range", f"{_span(layer.limits)}, {layer.outside:,} values outside"))
    if layer.levels is not None:
        pairs.append(("levels used", f"{layer.levels} of {LEVELS}"))
    trouble = [name for name in ("broken", "clipped", "wasteful") if getattr(layer, name)]
    chart = histogram(layer.counts, *stats.span, layer.limits) if stats.finite else ""
    verdict = [paragraph(f"This layer is {' and '.join(trouble)}.")] if trouble else []
    return card(paragraph(f"Distribution of {layer.name}"), *verdict, facts(pairs), chart)


def _span(span: tuple[float, float]) -> str:
    return f"{number(span[0])} to {number(span[1])}"
