"""Weights rounded and biases corrected so that what each layer puts out is kept. Apart: the walk of two cures.

Each layer answers for its own rounding: that of its input, to the grid that calibrating found, and that of its weights.
X are the float model's values, X̃ the same on that grid. What the layers before add is theirs to take off: where a layer
makes up for it too, by X̃ from the integers, it fits the calibration pictures, and on pictures of another kind that is
lost again. Slim-320 of ``benchmarks/cure.py``, of the error as it is: 0.35 where every layer does so, 0.26 where each
fifth does, 0.24 where none does.

A layer's rounding is taken where it lessens the layer's error on both halves of the pictures, each rounded by the other
half; its bias is corrected in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.curing.biases import correction
from sgsdump.curing.editing import Editing
from sgsdump.curing.patches import as_weight, columns_of, has_patches, matrices, positions, rows
from sgsdump.curing.rounding import Products, enough_rows, nearest, rounded
from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.models.graph import Graph
from sgsdump.models.passes.extract import extract
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.scales import INT8
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from sgsdump.models.model import Model
    from sgsdump.quantisation.quant_plan import QuantPlan

# Of each picture so many rows of a layer.
ROWS = 1024
# The inputs of so many layers are held at a time as these bytes hold.
HELD_BYTES = 256 << 20
# Of more columns the products take too long: such a layer's bias is corrected, which takes the means alone.
MOST_COLUMNS = 1200


@dataclass(frozen=True)
class Wanted:
    """Which of both is done."""

    rounding: bool
    biases: bool


@dataclass(frozen=True)
class Reconstructed:
    """``rounded``: the layers whose rounding was taken; ``corrected``: those whose bias was."""

    proto: ModelProto
    rounded: tuple[str, ...]
    corrected: tuple[str, ...]


def reconstructed(
    model: Model, proto: ModelProto, plan: QuantPlan, feeds: Sequence[Mapping[str, np.ndarray]], wanted: Wanted
) -> Reconstructed:
    """The float model ``proto`` with other weights and biases.

    model  the same, simplified, as quantisation works on it; ``plan`` what was decided for it.
    feeds  of the float model: an even number of them, or one more, is split into two halves.
    """
    editing = Editing(proto)
    plain = [node for node in editing.graph.nodes if editing.is_plain(node) and has_patches(editing.graph, node)]
    layers = [node for node in plain if (quant := plan.weights.get(node.output[0])) and quant.dtype == INT8]
    taken: list[str] = []
    corrected: list[str] = []
    for some in _held_together(editing.graph, layers):
        halves = _products(editing.graph, some, (model, plan), feeds, wanted.rounding)
        for node in some:
            new, added = _rewritten(editing, node, plan.weights[node.output[0]], halves[node.output[0]], wanted)
            if new is not None:
                editing.set_weight(node, new)
                taken.append(node.output[0])
            if added is not None and editing.add_to_bias(node, added):
                corrected.append(node.output[0])
    return Reconstructed(editing.proto, tuple(taken), tuple(corrected))


def _held_together(graph: Graph, nodes: Sequence[NodeProto]) -> list[list[NodeProto]]:
    """The layers in parts whose inputs are held at once."""
    parts: list[list[NodeProto]] = []
    room = 0
    for node in nodes:
        size = 4 * math.prod(length or 1 for length in graph.shapes.get(node.input[0], ()))
        if not parts or size > room:
            parts.append([])
            room = HELD_BYTES
        parts[-1].append(node)
        room -= size
    return parts


def _products(
    graph: Graph,
    nodes: Sequence[NodeProto],
    quantised: tuple[Model, QuantPlan],
    feeds: Sequence[Mapping[str, np.ndarray]],
    squares: bool,
) -> dict[str, tuple[Products, ...]]:
    """By layer, for each half of the pictures; without ``squares`` the means alone."""
    model, plan = quantised
    names = list(dict.fromkeys(node.input[0] for node in nodes))
    inner = [name for name in names if name not in graph.inputs and name in plan.tensors]
    needed = extract(deployed(model), None, inner) if inner else None
    inputs = {info.name for info in needed.graph.input} if needed else set()
    real = WholeGraph(needed, threads=1) if needed else None
    random = np.random.default_rng(0)
    found: dict[str, tuple[Products, ...]] = {}
    for node in nodes:
        groups, columns = columns_of(graph, node)
        few = squares and columns <= MOST_COLUMNS
        found[node.output[0]] = tuple(Products.zeros(groups, columns, few) for _ in range(2))
    for number, feed in enumerate(feeds):
        floats = {**feed, **(real.run({n: feed[n] for n in feed if n in inputs}, inner) if real else {})}
        for node in nodes:
            source = node.input[0]
            if source not in floats:
                continue
            places = positions(graph, node, floats[source].shape, ROWS, random)
            patches = rows(graph, node, floats[source], places)
            on_grid = patches if source in feed else on_grid_of(patches, plan.tensors[source])
            found[node.output[0]][number % 2].add(on_grid, patches)
    return found


def on_grid_of(values: np.ndarray, quant: Quant) -> np.ndarray:
    """float32 values as a tensor holds them."""
    if quant.dtype is None:
        return values
    limits, scale = np.iinfo(quant.dtype), np.float32(quant.scale)
    zero = np.float32(quant.zero_point)
    return (np.clip(np.rint(values / scale), limits.min - zero, limits.max - zero) * scale).astype(np.float32)


def _rewritten(
    editing: Editing, node: NodeProto, quant: Quant, halves: tuple[Products, ...], wanted: Wanted
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The layer's rounded weights, where that was taken, and what to add to its bias, where that is wanted."""
    weight = editing.weight(node)
    parts = matrices(editing.graph, node, weight)
    outputs, scale = parts.shape[0] * parts.shape[2], np.asarray(quant.scale, np.float64).reshape(-1)
    if scale.size not in (1, outputs):
        scale = np.tile(scale, parts.shape[0])  # a ConvTranspose's groups share their scales
    steps = np.broadcast_to(scale, (outputs,)).reshape(parts.shape[0], 1, -1)
    plain = nearest(parts, steps)
    whole = halves[0].merged(halves[1])
    new, did = plain, False
    if wanted.rounding and all(enough_rows(half) for half in halves):
        helps = True
        for half, other in zip(halves, halves[::-1]):
            candidate = rounded(other, parts, steps)
            helps = helps and half.error(parts, candidate).sum() < half.error(parts, plain).sum()
        if helps:
            new, did = rounded(whole, parts, steps), True
    added = correction(whole, parts, new) if wanted.biases and whole.rows else None
    return (as_weight(editing.graph, node, new) if did else None), added
