"""Reconstruction: round weights and correct biases so that the outputs of each layer are kept.

X are the float model's values. The 8-bit inputs X̃ of a layer have two variants.

own        X rounded to the calibrated grid. Each layer corrects the rounding of its own input and weights; errors of
           earlier layers are corrected there.
inherited  the hardware's integer values after all earlier layers, including their errors, which the layer corrects
           too. The model is processed in WAVES; the fixed model is rebuilt before each wave. Within a wave, layers
           that depend on others use their own errors; otherwise all of them would correct the same error.

The inherited variant fits the images more closely, but may lose this gain on images of another kind. Slim-320 of
``benchmarks/cure.py`` was calibrated on everyday photographs and judged on faces. An earlier state reached 0.35 of the
original error if every layer corrected earlier layers, and 0.24 if none did. With waves of five layers, neither is
better: 0.19 to 0.29 for both, depending on the random rows. Biases of RFB-640: 0.28 inherited, 0.29 own.

The rounding of a layer is accepted if it lowers the layer's error on both halves of the images, each rounded with the
other half. The bias is always corrected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto
from threadpoolctl import threadpool_limits

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.executors.workers.task_pool import in_threads
from sgsdump.files.process import cores
from sgsdump.fixedpoint.curing.biases import correction
from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.fixedpoint.curing.patches import as_weight, columns_of, has_patches, matrices, positions, rows
from sgsdump.fixedpoint.curing.rounding import Products, enough_rows, nearest, rounded
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.tensor_scales import INT8
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.fixedpoint.quantisation.type_rules import is_average
from sgsdump.models.feeds.by_content import PicturePair
from sgsdump.models.graph import REARRANGING, Graph, needs
from sgsdump.models.model import Model
from sgsdump.models.passes.extract import extract
from sgsdump.tensors.tensor import Quant

# Each wave runs the model up to its layers once more.
WAVES = 8
# Rows of a layer per image.
ROWS = 1024
# Memory limit for the inputs of layers that are processed together.
HELD_BYTES = 256 << 20
# Images per core that run ahead of the one being added.
AHEAD = 2
# With more columns, the products take too long: only the bias is corrected, which needs the means alone.
MOST_COLUMNS = 1200

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Wanted:
    """What to reconstruct: roundings, biases, and whether to correct the error of earlier layers (``inherited``)."""

    rounding: bool
    biases: bool
    inherited: bool = False


@dataclass(frozen=True)
class Reconstructed:
    """The rebuilt model, the layers with accepted rounding, and the layers with corrected bias."""

    proto: ModelProto
    rounded: tuple[str, ...]
    corrected: tuple[str, ...]


def reconstructed(
    proto: ModelProto,
    opened: Callable[[ModelProto], Model],
    fixed_of: Callable[[Model], FixedModel],
    pictures: Sequence[PicturePair],
    wanted: Wanted,
) -> Reconstructed:
    """Return the float model ``proto`` with new weights and biases.

    opened    converts such a model to the simplified model that quantisation uses.
    fixed_of  makes the fixed model of a simplified model.
    pictures  the images; they are split into two halves.
    """
    editing, real = Editing(proto), opened(proto)
    graph, model, fixed = editing.graph, real, fixed_of(real)
    weights = fixed.plan.weights
    plain = [node for node in graph.nodes if editing.is_plain(node) and has_patches(graph, node)]
    layers = [node for node in plain if (quant := weights.get(node.output[0])) and quant.dtype == INT8]
    taken: list[str] = []
    corrected: list[str] = []
    # One thread for each product: the bits of a result would depend on their number.
    with threadpool_limits(limits=1, user_api="blas"):
        for some in _waves(layers) if wanted.inherited else _held_together(graph, layers):
            if wanted.inherited and (taken or corrected):
                model = opened(editing.proto)
                fixed = fixed_of(model)
            received = _Received(graph, some, real, (model, fixed), wanted.inherited)
            halves = _products(graph, some, received, pictures, wanted.rounding)
            after = _led_to(graph, some) if wanted.inherited else ()
            for node in some:
                both = halves[node.output[0]]
                if node.output[0] in after:
                    both = tuple(half.local() for half in both)
                new, added = _rewritten(editing, node, fixed.plan.weights[node.output[0]], both, wanted)
                if new is not None:
                    editing.set_weight(node, new)
                    taken.append(node.output[0])
                if added is not None and editing.add_to_bias(node, added):
                    corrected.append(node.output[0])
    return Reconstructed(editing.proto, tuple(taken), tuple(corrected))


def _waves(nodes: Sequence[NodeProto]) -> list[list[NodeProto]]:
    parts = np.array_split(np.arange(len(nodes)), WAVES)
    return [[nodes[i] for i in part] for part in parts if part.size]


def _held_together(graph: Graph, nodes: Sequence[NodeProto]) -> list[list[NodeProto]]:
    """Return the layers in groups whose inputs fit into HELD_BYTES."""
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


class _Received:
    """The inputs of some layers: ``of`` returns them for an image, in the float model and in 8 bits."""

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[NodeProto],
        real: Model,
        quantised: tuple[Model, FixedModel],
        inherited: bool,
    ):
        model, fixed = quantised
        self._quants = fixed.plan.tensors
        names = dict.fromkeys(node.input[0] for node in nodes)
        self._names = [name for name in names if name not in graph.inputs and name in self._quants]
        self._truncated = {
            name for name in self._names if self._quants[name].dtype == np.uint8 and _is_truncated(graph, name)
        }
        needed = extract(deployed(real), None, self._names) if self._names else None
        self._inputs = {info.name for info in needed.graph.input} if needed else set()
        self._real = WholeGraph(needed, threads=1) if needed else None
        self._integers = FixedOutputs(model, fixed.proto, self._names) if inherited and self._names else None

    def of(self, picture: PicturePair) -> tuple[Arrays, Arrays]:
        if self._real is None:
            return picture.feed, picture.feed
        floats = self._real.run({n: a for n, a in picture.feed.items() if n in self._inputs}, self._names)
        if self._integers is not None:
            made = self._integers.run(picture.feed, picture.raw)
        else:
            made = {
                name: on_grid_of(array, self._quants[name], np.floor if name in self._truncated else np.rint)
                for name, array in floats.items()
            }
        return {**picture.feed, **floats}, {**picture.feed, **made}


def _products(
    graph: Graph, nodes: Sequence[NodeProto], received: _Received, pictures: Sequence[PicturePair], squares: bool
) -> dict[str, tuple[Products, ...]]:
    """Return the products of each layer for each half of the images; without ``squares`` only the means."""
    random = np.random.default_rng(0)
    found: dict[str, tuple[Products, ...]] = {}
    for node in nodes:
        groups, columns = columns_of(graph, node)
        few = squares and columns <= MOST_COLUMNS
        found[node.output[0]] = tuple(Products.zeros(groups, columns, few) for _ in range(2))
    # Images run in parallel only if their tensors fit into HELD_BYTES together.
    size = sum(math.prod(length or 1 for length in graph.shapes.get(node.input[0], ())) for node in nodes)
    side_by_side = cores() if 2 * AHEAD * cores() * 4 * size <= HELD_BYTES else 1
    widest = max(math.prod(columns_of(graph, node)) for node in nodes)
    with ThreadPoolExecutor(max(1, min(cores(), HELD_BYTES // (2 * 4 * ROWS * widest)))) as pool:
        for number, (floats, made) in enumerate(in_threads(received.of, pictures, side_by_side)):
            drawn: list[tuple[NodeProto, np.ndarray]] = []
            for node in nodes:
                source = node.input[0]
                if source in floats and source in made and made[source].shape == floats[source].shape:
                    drawn.append((node, positions(graph, node, floats[source].shape, ROWS, random)))

            def add(node: NodeProto, places: np.ndarray, each: tuple[Arrays, Arrays], half: int) -> None:
                both = (rows(graph, node, arrays[node.input[0]], places) for arrays in each)
                found[node.output[0]][half].add(*both)

            for done in [pool.submit(add, *one, (made, floats), number % 2) for one in drawn]:
                done.result()
    return found


def _led_to(graph: Graph, nodes: Sequence[NodeProto]) -> set[str]:
    """Return the tensors that depend on these layers."""
    own, found = {node.output[0] for node in nodes}, set[str]()
    for node in graph.nodes:
        read = needs(node)
        if not (found.isdisjoint(read) and own.isdisjoint(read)):
            found.update(node.output)
    return found


def _is_truncated(graph: Graph, name: str) -> bool:
    """Return whether a tensor is an average, possibly moved: the hardware truncates averages of bytes."""
    node = graph.producer.get(name)
    while node is not None and node.op_type in REARRANGING:
        node = graph.producer.get(node.input[0])
    return node is not None and is_average(graph, node)


def on_grid_of(values: np.ndarray, quant: Quant, rounded: Callable[[np.ndarray], np.ndarray] = np.rint) -> np.ndarray:
    """Return float32 values as a tensor stores them, ``rounded`` to whole steps."""
    if quant.dtype is None:
        return values
    limits, scale = np.iinfo(quant.dtype), np.float32(quant.scale)
    zero = np.float32(quant.zero_point)
    return (np.clip(rounded(values / scale), limits.min - zero, limits.max - zero) * scale).astype(np.float32)


def _rewritten(
    editing: Editing, node: NodeProto, quant: Quant, halves: tuple[Products, ...], wanted: Wanted
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the rounded weights if accepted, and the correction of the bias if wanted."""
    weight = editing.weight(node)
    parts = matrices(editing.graph, node, weight)
    outputs, scale = parts.shape[0] * parts.shape[2], np.asarray(quant.scale, np.float64).reshape(-1)
    if scale.size not in (1, outputs):
        scale = np.tile(scale, parts.shape[0])  # the groups of a ConvTranspose share their scales
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
