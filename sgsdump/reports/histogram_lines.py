"""Histograms of a model as terminal lines with suggestions, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sgsdump.comparison.distribution import LEVELS, WIDE, Distribution, Undrawn, facts_of
from sgsdump.errors import listed
from sgsdump.files.escaping import shown
from sgsdump.files.json_yaml import json_text

MOST_NAMES = 8
MOST_LINES = 20
NONE: Mapping[int, int] = MappingProxyType({})


def histograms_json(
    layers: Sequence[Distribution], undrawn: Sequence[Undrawn], unused: Sequence[str], notes: Sequence[str]
) -> str:
    """Return the layers, layers without values, unused ranges and notes as JSON.

    ``counts`` of a layer are in bins of equal width over its [min, max].
    """
    document = {
        "format": "sgsdump histograms",
        "version": 1,
        "layers": [_without_reason(layer) | {"counts": layer.counts.tolist()} for layer in layers],
        "undrawn": [{"name": layer.name, "reason": layer.reason} for layer in undrawn],
        "unused_ranges": list(unused),
        "notes": list(notes),
    }
    return json_text(document)


def _without_reason(layer: Distribution) -> dict[str, Any]:
    return {name: value for name, value in facts_of(layer).items() if name != "reason"}


def histogram_lines(
    layers: Sequence[Distribution],
    undrawn: Sequence[Undrawn],
    constants: Sequence[str],
    unused_ranges: int,
    copies: Mapping[int, int] = NONE,
) -> Iterator[str]:
    """Yield one line per suspicious layer, worst first, then the names of the other groups of layers.

    unused_ranges  number of ranges that match no layer.
    copies         index of a layer that is not drawn -> index of the layer with the same values.
    """
    of = [f"{layers[copy].name} of {layers[original].name}" for copy, original in copies.items()]
    layers = [layer for index, layer in enumerate(layers) if index not in copies]
    wasteful = sorted((layer for layer in layers if layer.wasteful), key=lambda layer: layer.levels or 0)
    clipped = sorted(
        (layer for layer in layers if layer.clipped), key=lambda layer: -layer.outside / layer.stats.finite
    )
    broken = [layer for layer in layers if layer.broken]
    yield from _section(
        f"Range wider than {WIDE:g}, but 99 % of the values are in less than a quarter of it "
        "(consider an INT16 input for the convolution that reads the layer)",
        wasteful,
        lambda layer: f"{layer.levels} of {LEVELS} levels, 99 % in {_span(layer.central)}, range {_limits(layer)}",
    )
    yield from _section(
        "Clipped: more than 1 % of the values outside the range, or one value far outside (consider calibrating on "
        "such "
        "images)",
        clipped,
        lambda layer: (
            f"{layer.outside:,} of {layer.stats.finite:,} outside, "
            f"values {_span(layer.stats.span)}, range {_limits(layer)}"
        ),
    )
    yield from _section(
        "NaN, Inf or empty",
        broken,
        lambda layer: f"{layer.stats.nan:,} NaN and {layer.stats.inf:,} Inf of {layer.stats.count:,} values",
    )
    if not (wasteful or clipped or broken):
        yield "No layer is clipped, wastes its range, or contains NaN or Inf."
    slightly = [layer.name for layer in layers if layer.outside and not layer.clipped]
    yield from _names("A few values outside the range, as expected for images not used in calibration", slightly)
    yield from _names("Without a range, drawn without red lines", [la.name for la in layers if la.limits is None])
    yield from _names("Same values as another layer in another order or shape, drawn once", of)
    for layer in undrawn:
        yield f"Not drawn: {layer.reason}"
    yield from _names("Constants, skipped", constants)
    if unused_ranges:
        yield f"Ranges that match no layer of this dump: {unused_ranges}"


def _section(title: str, layers: Sequence[Distribution], describe: Callable[[Distribution], str]) -> Iterator[str]:
    if not layers:
        return
    yield f"{title} ({len(layers)}):"
    names = [f"{layer.index}. {shown(layer.name)}" for layer in layers]
    width = min(max(map(len, names)), 48)
    for name, layer in zip(names[:MOST_LINES], layers):
        yield f"  {name:<{width}}  {describe(layer)}"
    if len(layers) > MOST_LINES:
        yield f"  and {len(layers) - MOST_LINES} more (see overview.png)"


def _names(title: str, names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    yield f"{title} ({len(names)}): {listed(names, MOST_NAMES, shown)}"


def _limits(layer: Distribution) -> str:
    return _span(layer.limits) if layer.limits else "unknown"


def _span(span: tuple[float, float]) -> str:
    return f"{span[0]:.4g} to {span[1]:.4g}"
