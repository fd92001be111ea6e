"""Sensitivity: how strongly noise in a convolution's output affects the outputs of the model.

The weights of a convolution get noise of EPSILON times their own size (root mean square of each output channel). The
sensitivity of an output is its relative squared error divided by EPSILON². In models with many layers, neighbouring
layers form groups to limit the number of runs.

Noise of weights is the same at every position of an image. Rounding noise of a tensor differs from position to
position, and later layers that look at many positions average it. It therefore counts less, a tenth in an early layer,
and is measured separately (``of_rounding``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.executors.workers.task_pool import in_threads
from sgsdump.fixedpoint.curing.parallel import threads_for
from sgsdump.fixedpoint.quantisation.analysis import is_convolution, output_axis
from sgsdump.models.graph import Graph
from sgsdump.models.passes.rewrites import mark_outputs

EPSILON = 0.03
MOST_GROUPS = 48
# Threads of a run. More take twice the processor time, because they wait for one another; runs go in parallel.
THREADS = 1
SWITCH = " rounded"
Arrays = Mapping[str, np.ndarray]


class Sensitivity:
    """Sensitivities of ``outputs`` on a few feeds of a deployed float model (``float_model.deployed``)."""

    def __init__(self, proto: ModelProto, feeds: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[str]):
        graph = Graph(proto)
        self._nodes = {node.output[0]: node for node in graph.nodes if is_convolution(graph, node)}
        self._axes = {name: output_axis(graph, node) for name, node in self._nodes.items()}
        self._values = {node.input[1]: graph.value(node.input[1]) for node in self._nodes.values()}
        self._feeds, self._outputs = feeds, list(outputs)
        self._session = WholeGraph(mark_outputs(_weights_fed(proto, self._values), outputs), THREADS)
        self._held = {name: self._session.hold(array) for name, array in self._values.items()}
        self._random = np.random.default_rng(0)
        self._threads = threads_for(proto, feeds[0]) if feeds else 1
        self._exact = [self._run(feed, {}) for feed in feeds]

    def of_layers(self) -> dict[str, np.ndarray]:
        """Return one value per output, keyed by convolution output."""
        found: dict[str, np.ndarray] = {}
        groups = _groups(list(self._nodes))
        # Noise is drawn in the order of this loop, whichever run ends first.
        noisy = (
            (place, {self._nodes[name].input[1]: self._noisy(name) for name in members})
            for members in groups
            for place in range(len(self._feeds))
        )
        moved = in_threads(self._moved, noisy, self._threads)
        for members in groups:
            whole = np.sum([next(moved) for _ in self._feeds], axis=0)
            found |= dict.fromkeys(members, whole / EPSILON**2 / len(self._feeds) / len(members))
        return found

    def _moved(self, noisy: tuple[int, Mapping[str, np.ndarray]]) -> np.ndarray:
        """Return the effect of noisy weights on one feed."""
        place, weights = noisy
        run = self._run(self._feeds[place], weights)
        return np.array([_share(values, exact) for values, exact in zip(run, self._exact[place])])

    def _run(self, feed: Mapping[str, np.ndarray], noisy: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        run = self._session.run({**feed, **self._held, **noisy}, self._outputs)
        return [run[name] for name in self._outputs]

    def _noisy(self, layer: str) -> np.ndarray:
        weight, axis = self._values[self._nodes[layer].input[1]], self._axes[layer]
        rest = tuple(i for i in range(weight.ndim) if i != axis)
        size = np.sqrt(np.mean(weight.astype(np.float64) ** 2, axis=rest, keepdims=True))
        return (weight + EPSILON * size * self._random.standard_normal(weight.shape)).astype(weight.dtype)


def of_rounding(
    proto: ModelProto,
    feeds: Sequence[Mapping[str, np.ndarray]],
    outputs: Sequence[str],
    steps: Mapping[str, np.ndarray],
    axes: Mapping[str, int] = {},
) -> dict[str, np.ndarray]:
    """Return, by tensor of ``steps``, the relative squared error of each output after rounding its channels.

    proto  a deployed float model.
    steps  [C] step of each channel, above 0.
    axes   by tensor, the channel axis if it is not the second.
    """
    session = WholeGraph(mark_outputs(_with_switches(proto, steps, axes), outputs), THREADS)
    off = {f"{name}{SWITCH}": session.hold(np.zeros(1, bool)) for name in steps}
    on = session.hold(np.ones(1, bool))
    found = {name: np.zeros(len(outputs)) for name in steps}
    groups = _groups(list(steps))
    for feed in feeds:
        exact = session.run({**feed, **off}, outputs)

        def moved(members: list[str], feed: Mapping[str, np.ndarray] = feed, exact: Arrays = exact) -> np.ndarray:
            run = session.run({**feed, **off, **{f"{name}{SWITCH}": on for name in members}}, outputs)
            return np.array([_share(run[name], exact[name]) for name in outputs]) / len(members) / len(feeds)

        for members, effect in zip(groups, in_threads(moved, groups, threads_for(proto, feed))):
            for name in members:
                found[name] = found[name] + effect
    return found


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Return the names in at most MOST_GROUPS groups of neighbours."""
    parts = np.array_split(np.arange(len(names)), min(len(names), MOST_GROUPS)) if names else []
    return [[names[i] for i in part] for part in parts]


def _with_switches(proto: ModelProto, steps: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> ModelProto:
    """Return the model with one boolean input per tensor that switches the rounding of its values on.

    With the switch on, the readers get x + (step · round(x / step) - x); with the switch off, x.
    """
    from onnx import TensorProto, helper, numpy_helper

    result = type(proto)()
    result.CopyFrom(proto)
    graph = Graph(result)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        nodes.append(node)
        for name in node.output:
            if name not in steps:
                continue
            a, b, c, d, e, f, step = (f"{name}{SWITCH}{part}" for part in "abcdefs")
            shape = (-1, *[1] * (len(graph.shapes[name]) - 1 - axes.get(name, 1)))
            result.graph.initializer.append(
                numpy_helper.from_array(steps[name].astype(np.float32).reshape(shape), step)
            )
            result.graph.input.append(helper.make_tensor_value_info(f"{name}{SWITCH}", TensorProto.BOOL, [1]))
            rounds = [
                helper.make_node("Div", [name, step], [a]),
                helper.make_node("Round", [a], [b]),
                helper.make_node("Mul", [b, step], [c]),
                helper.make_node("Sub", [c, name], [d]),
                helper.make_node("Add", [name, d], [e]),
            ]
            leaves = [helper.make_node("Identity", [name], [f])]
            branches = {
                f"{way}_branch": helper.make_graph(inner, way, [], [helper.make_tensor_value_info(out, 1, None)])
                for way, inner, out in (("then", rounds, e), ("else", leaves, f))
            }
            nodes.append(helper.make_node("If", [f"{name}{SWITCH}"], [f"{name}{SWITCH}r"], **branches))
    made = {id(node) for node in nodes} - {id(node) for node in graph.nodes}
    copies = []
    for node in nodes:
        copy = type(node)()
        copy.CopyFrom(node)
        if id(node) not in made and is_convolution(graph, node) and node.input[0] in steps:
            copy.input[0] = f"{node.input[0]}{SWITCH}r"
        copies.append(copy)
    del result.graph.node[:]
    result.graph.node.extend(copies)
    return result


def _weights_fed(proto: ModelProto, values: Mapping[str, np.ndarray]) -> ModelProto:
    """Return the model with these constants as inputs."""
    from onnx import helper

    result = type(proto)()
    result.CopyFrom(proto)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in values]
    del result.graph.initializer[:]
    result.graph.initializer.extend(kept)
    for name, array in values.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        result.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    return result


def _share(values: np.ndarray, exact: np.ndarray) -> float:
    difference, reference = values.astype(np.float64) - exact, exact.astype(np.float64)
    energy = float((reference**2).sum())
    return float((difference**2).sum()) / energy if energy else 0.0
