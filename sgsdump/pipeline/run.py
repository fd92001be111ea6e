"""Run a model with any executor and yield its tensors one after another, in one of two modes.

fast      every node runs once, in segments of about a dozen nodes that pass arrays to each other; with ``ort`` by the
          segment runner, which is the fastest. A segment outputs the selected tensors and those that later segments
          read. A segment that fails is run again node by node, so that the failing node is identified and only tensors
          that need it are lost.
isolated  every tensor comes from its own sub-model, in which it is the only output: for back-ends that fuse operators.

A tensor that cannot be dumped is reported with the reason; one failure never stops the others.

A back-end that fuses operators can output a tensor inside a fused group only by not fusing there. If each tensor is the
only output of a model that ends in it, the group that ends in it is fused as in the whole model. Every fused group is
thus complete in at least one sub-model. For this, a sub-model need not begin at the model's inputs. It contains the
nodes nearest to its tensor, at least ``WHOLE`` of them, and is fed with previously dumped tensors. Any group of up to
that many nodes is contained (epilogues of a convolution have about 6 nodes, a GELU or LayerNormalization 9, an
attention block about 20). The cost of a dump thus grows with the number of tensors, not with its square. If only some
tensors are selected, a sub-model reaches back to the last dumped tensors, or to the inputs. Measured on a
ResNet-50-like model (benchmarks/pipeline.py): a sub-model has 13 % of the nodes on average, and the dump takes at most
a tenth of the time of running the whole model once per tensor.

Within one model onnxruntime passes float32 values from one float16 node to the next
(``models.passes.segment.unrounded``). The last bits of a float16 tensor may therefore differ from those of the whole
model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ConfigError, hint
from sgsdump.executors.runner import Layer
from sgsdump.executors.table import open_runner
from sgsdump.models.graph import infer_types
from sgsdump.models.model import check_feed, graph_inputs
from sgsdump.models.passes.extract import extract
from sgsdump.models.passes.segment import cut, tensor_bytes, unrounded
from sgsdump.pipeline.not_dumped import NotDumped, inside_nodes, why_no_array
from sgsdump.pipeline.selection import node_outputs
from sgsdump.pipeline.steps import FAST, ISOLATED, Engine, ExecutorConfigs, Failed, Lineage, Step, give_steps
from sgsdump.progress import Advance, unwatched

if TYPE_CHECKING:
    import onnx

    from sgsdump.models.model import Model

WHOLE = 24


def run(
    model: Model,
    engine: Engine,
    feed: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    advance: Advance = unwatched,
) -> Iterator[Layer | NotDumped]:
    """Yield the selected tensors of one run, in an order in which they can be computed.

    feed      input name -> array of the declared dtype and shape.
    names     node outputs; None selects all with a topological index, and reports those that cannot be dumped.
    advance   called with (done, total) during the run: nodes, segments or tensors.

    Raises ConfigError for an unknown name or executor, InputError for a feed that does not fit, ModelError for a graph
    that no executor can run.
    """
    check_feed(feed, graph_inputs(model.proto))
    inside = {lost.name: lost for lost in inside_nodes(model.proto)}
    selected = _selected(model.proto.graph, names, inside)
    if model.native or (engine.executor == "ort" and engine.mode == FAST and engine.configs == ExecutorConfigs()):
        yield from _by_runner(model, feed, selected, advance)
    else:
        lineage = Lineage(model.proto)
        shapes = {name: array.shape for name, array in feed.items()}
        is_isolated = engine.mode == ISOLATED
        steps = isolated_steps(lineage, selected) if is_isolated else fast_steps(lineage, selected, shapes)
        with engine.opened(model.folder) as ready:
            ready.executor.check_model(model.proto)
            yield from give_steps(lineage, steps, ready, feed, selected, advance)
    yield from (lost for name, lost in inside.items() if names is None or name in names)


def run_once(
    model: Model, engine: Engine, feed: Mapping[str, np.ndarray], names: Sequence[str]
) -> list[Layer | NotDumped]:
    """Return the named tensors of the model from one run, in that order; repeated names are repeated.

    feed  input name -> array of the declared dtype and shape.

    Only the nodes that the outputs need are run. If this fails, they are run again in fast mode, so that the failing
    node is identified and the other outputs are dumped. Raises the errors of ``extract`` and ``run``.
    """
    if model.native:
        given = {made.name: made for made in run(model, engine, feed, names)}
        return [given[name] for name in names]
    part = extract(model.proto, None, names)
    reads = {info.name for info in part.graph.input}
    outputs = list(dict.fromkeys(names))
    with engine.opened(model.folder) as ready:
        values = ready.attempt(part, outputs, {name: array for name, array in feed.items() if name in reads})
    makers = {name: node for node in model.proto.graph.node for name in node.output if name}
    if isinstance(values, Failed):
        singly = run(model, Engine(engine.executor, FAST, engine.configs), feed, [n for n in names if n in makers])
        return [*singly, *(NotDumped(name, "", "", values.reason, True) for name in names if name not in makers)]

    def outcome(name: str, value: Any) -> Layer | NotDumped:
        node, op_type = (makers[name].name, makers[name].op_type) if name in makers else ("", "")
        reason = why_no_array(value)
        return (
            NotDumped(name, node, op_type, reason, False) if reason else Layer(name, node, op_type, np.asarray(value))
        )

    by_name = dict(zip(outputs, values))
    return [outcome(name, by_name[name]) for name in names]


def run_whole(model: Model, engine: Engine, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | Failed:
    """Return the model's own outputs from a run of the whole model with no other outputs marked.

    This is how the model is used, with all operators fused that the executor fuses. Outputs that are no arrays are left
    out.
    """
    outputs = list(dict.fromkeys(info.name for info in model.proto.graph.output))
    with engine.opened(model.folder) as ready:
        values = ready.attempt(model.proto, outputs, feed)
    if isinstance(values, Failed):
        return values
    return {name: np.asarray(value) for name, value in zip(outputs, values) if not why_no_array(value)}


def isolated_steps(lineage: Lineage, selected: Collection[str], whole: int = WHOLE) -> list[Step]:
    """Return one step per selected tensor, in an order in which they can be computed."""
    return [Step((name,), whole, alone=True) for name in lineage.maker if name in selected]


def fast_steps(lineage: Lineage, selected: Collection[str], shapes: Mapping[str, Sequence[int]]) -> list[Step]:
    """Return the segments that the selected tensors need; ``shapes`` are those of the inputs."""
    cone = lineage.cone(selected)
    types = infer_types(lineage.proto, shapes)
    segments = cut(lineage.nodes, lineage.weights, tensor_bytes(types), uncut=unrounded(lineage.nodes, types))
    last_reader: dict[str, int] = {}
    start = 0
    for number, segment in enumerate(segments):
        end = start + len(segment.nodes)
        for index in cone.intersection(range(start, end)):
            last_reader.update(dict.fromkeys(lineage.needs[index], number))
        start = end
    steps = []
    for number, segment in enumerate(segments):
        read_later = {name for name in segment.makes if last_reader.get(name, -1) > number}
        asks = tuple(
            name
            for name in segment.makes
            if name in selected or (name in read_later and not lineage.is_constant[lineage.maker[name]])
        )
        if asks:
            steps.append(Step(asks, 1, alone=False))
    return steps


def _selected(graph: onnx.GraphProto, names: Sequence[str] | None, inside: Mapping[str, NotDumped]) -> frozenset[str]:
    """Return the names of the node outputs to yield. Raises ConfigError for an unknown name."""
    makers = {name: node.op_type for node in graph.node for name in node.output if name}
    if names is None:
        return frozenset(output.name for output in node_outputs(graph))
    for name in names:
        if name not in makers and name not in inside:
            raise ConfigError(f"the model has no tensor {name!r}{hint(name, makers)}")
    return frozenset(makers.keys() & set(names))


def _by_runner(
    model: Model, feed: Mapping[str, np.ndarray], selected: Collection[str], advance: Advance
) -> Iterator[Layer | NotDumped]:
    """Yield tensors from onnxruntime's own segments, up to the last selected tensor.

    The segments do not depend on the selection, so that a tensor has the same values in every dump.
    """
    runner = open_runner(model, keep_going=True)
    nodes = {name: node.name for node in model.proto.graph.node for name in node.output}
    if not selected:
        return
    missing = set(selected)
    reported: set[str] = set()

    def lost() -> Iterator[NotDumped]:
        for skip in [skip for name, skip in runner.skipped.items() if name in missing and name not in reported]:
            reported.add(skip.name)
            missing.discard(skip.name)
            yield NotDumped(skip.name, nodes.get(skip.name, ""), skip.op_type, skip.reason, skip.failed)

    for layer in runner.run(feed, selected, advance):
        yield from lost()
        missing.discard(layer.name)
        yield layer
        if not missing:
            break
    yield from lost()
    advance(len(model.proto.graph.node), len(model.proto.graph.node))
