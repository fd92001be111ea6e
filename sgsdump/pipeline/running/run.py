"""Run a model and give its tensors one after another, by any executor, in one of two ways.

fast      every node runs once, segment by segment; with ``ort`` by the segment runner, which is the fastest.
isolated  every tensor comes from a sub-model of its own, in which it is the only output: for back-ends that fuse
          operators.

A tensor that cannot be dumped is reported with the reason, and one tensor's failure never stops the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError
from sgsdump.executors.base import Executor
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.runner import Layer
from sgsdump.models.input_spec import check_feed
from sgsdump.models.model import graph_inputs
from sgsdump.pipeline.running.attempt import NO_CONFIGS, ExecutorConfigs, opened
from sgsdump.pipeline.running.fast import fast_steps
from sgsdump.pipeline.running.isolated import isolated_steps
from sgsdump.pipeline.running.lineage import Lineage
from sgsdump.pipeline.running.not_dumped import NotDumped, inside_nodes
from sgsdump.pipeline.running.steps import give_steps
from sgsdump.progress import Advance, unwatched
from sgsdump.registry import hint

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from sgsdump.models.model import Model

__all__ = ["FAST", "ISOLATED", "MODES", "ExecutorConfigs", "NotDumped", "run"]

FAST, ISOLATED = "fast", "isolated"
MODES = (FAST, ISOLATED)


def run(
    model: Model,
    executor: str | Executor,
    feed: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    mode: str = FAST,
    configs: ExecutorConfigs = NO_CONFIGS,
    advance: Advance = unwatched,
) -> Iterator[Layer | NotDumped]:
    """The wanted tensors of one run, in an order in which they can be computed.

    executor  a name in ``executors()``, or an Executor, which is initialised anew and released at the end.
    feed      array by input name, of the declared dtype and shape.
    names     node outputs; None gives every one that has a topological index, and reports those that cannot be dumped.
    advance   called with (done, in all) as the run goes on: nodes, segments or tensors.

    Raises ConfigError for an unknown name, mode or executor, InputError for a feed that does not fit, ModelError for
    a graph that no executor can run.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown mode {mode!r}{hint(mode, list(MODES))}")
    check_feed(feed, graph_inputs(model.proto))
    inside = {lost.name: lost for lost in inside_nodes(model.proto)}
    wanted = _wanted(model.proto.graph, names, inside)
    if executor == "ort" and mode == FAST and configs == NO_CONFIGS:
        yield from _by_runner(model, feed, wanted, advance)
    else:
        lineage = Lineage(model.proto)
        shapes = {name: array.shape for name, array in feed.items()}
        steps = isolated_steps(lineage, wanted) if mode == ISOLATED else fast_steps(lineage, wanted, shapes)
        with opened(executor, configs.init) as ready:
            ready.check_model(model.proto)
            yield from give_steps(lineage, steps, ready, feed, wanted, model.folder, configs, advance)
    yield from (lost for name, lost in inside.items() if names is None or name in names)


def _wanted(graph: onnx.GraphProto, names: Sequence[str] | None, inside: Mapping[str, NotDumped]) -> frozenset[str]:
    """Names of the node outputs to give. Raises ConfigError for one the model has not."""
    made = {name: node.op_type for node in graph.node for name in node.output if name}
    if names is None:
        return frozenset(name for name, op_type in made.items() if op_type != "Constant")
    for name in names:
        if name not in made and name not in inside:
            raise ConfigError(f"the model has no tensor {name!r}{hint(name, made)}")
    return frozenset(made.keys() & set(names))


def _by_runner(
    model: Model, feed: Mapping[str, np.ndarray], wanted: Collection[str], advance: Advance
) -> Iterator[Layer | NotDumped]:
    """By onnxruntime's own segments, up to the last tensor wanted.

    They are the same segments whatever is wanted, so that a tensor has the same values in every dump.
    """
    runner = SegmentRunner(model, keep_going=True)
    nodes = {name: node.name for node in model.proto.graph.node for name in node.output}
    if not wanted:
        return
    missing = set(wanted)
    reported: set[str] = set()

    def lost() -> Iterator[NotDumped]:
        for skip in [skip for name, skip in runner.skipped.items() if name in missing and name not in reported]:
            reported.add(skip.name)
            missing.discard(skip.name)
            yield NotDumped(skip.name, nodes[skip.name], skip.op_type, skip.reason, skip.failed)

    for layer in runner.run(feed, wanted, advance):
        yield from lost()
        missing.discard(layer.name)
        yield layer
        if not missing:
            break
    yield from lost()
    advance(len(model.proto.graph.node), len(model.proto.graph.node))
