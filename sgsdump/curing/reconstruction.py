"""Weights rounded and biases corrected, layer after layer in the order of the network, by what the integers make.
Apart: the walk of two cures.

The network goes in WAVES: before each the fixed model is made anew of what was changed so far, and the inputs that the
convolutions of the wave get in it are read beside those of the float model. So the time grows with the layers, not with
their square. What the layers before a wave have added is taken off by the first layers of it, those that no other layer
of the wave leads to; the others answer for their own weights alone, or all would take off the same.

A layer's rounding is taken where it lessens the layer's error on both halves of the pictures, each rounded by the other
half; its bias is corrected in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.curing.biases import correction
from sgsdump.curing.editing import Editing
from sgsdump.curing.patches import as_weight, columns_of, has_patches, matrices, positions, rows
from sgsdump.curing.rounding import Products, enough_rows, nearest, rounded
from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.models.graph import Graph, needs
from sgsdump.models.passes.extract import extract
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.scales import INT8
from sgsdump.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from sgsdump.models.model import Model
    from sgsdump.quantisation.fixed_model import FixedModel

WAVES = 8
# Of each picture so many rows of a layer.
ROWS = 1024
# Of more columns the products take too long: such a layer's bias is corrected, which takes the means alone.
MOST_COLUMNS = 1200

Picture = tuple[str, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


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
    proto: ModelProto,
    opened: Callable[[ModelProto], Model],
    fixed_of: Callable[[Model], FixedModel],
    pictures: Sequence[Picture],
    wanted: Wanted,
) -> Reconstructed:
    """The float model ``proto`` with other weights and biases.

    opened    makes of such a model the simplified one that quantisation works on; ``fixed_of`` its fixed model.
    pictures  (label, feed, raw feed): an even number of them, or one more, is split into two halves.
    """
    editing = Editing(proto)
    reference = opened(proto)
    weights = fixed_of(reference).plan.weights
    plain = [node for node in editing.graph.nodes if editing.is_plain(node) and has_patches(editing.graph, node)]
    layers = [node.output[0] for node in plain if (quant := weights.get(node.output[0])) and quant.dtype == INT8]
    taken: list[str] = []
    corrected: list[str] = []
    for wave in np.array_split(np.arange(len(layers)), min(WAVES, len(layers))) if layers else ():
        model = opened(editing.proto)
        fixed = fixed_of(model)
        nodes = {node.output[0]: node for node in editing.graph.nodes if node.output}
        some = [nodes[layers[i]] for i in wave]
        halves = _products(editing.graph, some, reference, (model, fixed), pictures, wanted.rounding)
        after = _led_to(editing.graph, [node.output[0] for node in some])
        for node in some:
            quant, both = fixed.plan.weights[node.output[0]], halves[node.output[0]]
            if node.output[0] in after:
                both = tuple(half.local() for half in both)
            new, added = _rewritten(editing, node, quant, both, wanted)
            if new is not None:
                editing.set_weight(node, new)
                taken.append(node.output[0])
            if added is not None and editing.add_to_bias(node, added):
                corrected.append(node.output[0])
    return Reconstructed(editing.proto, tuple(taken), tuple(corrected))


def _led_to(graph: Graph, outputs: Sequence[str]) -> set[str]:
    """Those of these tensors that others of them lead to."""
    reached: set[str] = set()
    marked: set[str] = set()
    for node in graph.nodes:
        begins = marked.intersection(needs(node))
        if begins:
            reached.update(name for name in node.output if name in outputs)
        if begins or any(name in outputs for name in node.output):
            marked.update(node.output)
    return reached


def _products(
    graph: Graph,
    nodes: Sequence[NodeProto],
    reference: Model,
    quantised: tuple[Model, FixedModel],
    pictures: Sequence[Picture],
    squares: bool,
) -> dict[str, tuple[Products, ...]]:
    """By layer, for each half of the pictures; without ``squares`` the means alone."""
    model, fixed = quantised
    names = list(dict.fromkeys(node.input[0] for node in nodes))
    inner = [name for name in names if name not in graph.inputs]
    needed = extract(deployed(reference), None, inner) if inner else None
    inputs = {info.name for info in needed.graph.input} if needed else set()
    real = WholeGraph(needed, threads=1) if needed else None
    integer = FixedOutputs(model, fixed.proto, inner)
    random = np.random.default_rng(0)
    found: dict[str, tuple[Products, ...]] = {}
    for node in nodes:
        groups, columns = columns_of(graph, node)
        found[node.output[0]] = tuple(Products.zeros(groups, columns, squares and columns <= MOST_COLUMNS) for _ in range(2))
    for number, (_, feed, raw) in enumerate(pictures):
        floats = {**feed, **(real.run({n: feed[n] for n in feed if n in inputs}, inner) if real else {})}
        integers = {**feed, **integer.run(feed, raw)}
        for node in nodes:
            source = node.input[0]
            if source not in integers or integers[source].shape != floats[source].shape:
                continue
            places = positions(graph, node, floats[source].shape, ROWS, random)
            found[node.output[0]][number % 2].add(
                rows(graph, node, integers[source], places), rows(graph, node, floats[source], places)
            )
    return found


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
