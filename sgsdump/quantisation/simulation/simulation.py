"""Simulate: run one input through a float or fixed model and give its tensors as the SDK's simulators dump them.

Per operator, in execution order, first all inputs (constants included), then all outputs; 4-D tensors as NHWC. A
tensor stands once as an output and again as the input of each consumer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.runner import Layer
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.progress import Advance, unwatched
from sgsdump.quantisation.fixed_metadata import read_facts
from sgsdump.quantisation.simulation.buffers import buffer_orders, net_tensor
from sgsdump.quantisation.simulation.views import FixedView, FloatView
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.parse_net import NetTensor


@dataclass
class Simulation:
    """``records`` streams while the model runs; ``outputs``, ``skipped`` and, of padded buffers, ``net`` (what
    parse_net prints of them) are filled by the time it ends."""

    records: Iterator[Record]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    net: dict[str, NetTensor] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def fixed_config(model: Model) -> InputConfig | None:
    """What the fixed model remembers of the input_config.ini it was made with; None when it has no such inputs."""
    facts = read_facts(model)
    return InputConfig(facts.origin.inputs) if facts and facts.origin and facts.origin.inputs else None


def simulate(
    model: Model,
    feed: Mapping[str, np.ndarray],
    dequantise: bool = True,
    strip: bool = True,
    advance: Advance = unwatched,
    provider: str = "CPU",
) -> Simulation:
    """Run a simplified float model or a fixed model on one feed (NCHW; raw bytes for a fixed model's picture).

    dequantise  fixed model: variables as float32 (dequantFixed); False: the stored integers.
    strip       fixed model: no padding (eliminateGarbage); False pads stored integers as the hardware's buffers.
    advance     called with (nodes done, nodes in all) while the records are read.
    provider    onnxruntime's execution provider.
    """
    return Simulator(model, dequantise, strip, provider).run(feed, advance)


class Simulator:
    """``simulate`` for one feed after another.

    keep_sessions  see ``SegmentRunner``: fast for several feeds.
    """

    def __init__(
        self,
        model: Model,
        dequantise: bool = True,
        strip: bool = True,
        provider: str = "CPU",
        keep_sessions: bool = False,
    ):
        facts = read_facts(model)
        self._view = FixedView(model, facts, dequantise, strip) if facts else FloatView(model)
        self._runner = SegmentRunner(model, keep_sessions, provider=provider)
        self._orders = buffer_orders(facts) if facts and not dequantise and not strip else None

    def run(self, feed: Mapping[str, np.ndarray], advance: Advance = unwatched) -> Simulation:
        simulation = Simulation(iter(()))
        simulation.records = _records(self._runner, self._view, feed, simulation, advance)
        if self._orders is not None:
            simulation.records = _described(simulation.records, self._orders, simulation)
        return simulation


def _described(records: Iterator[Record], orders: Mapping[str, str], simulation: Simulation) -> Iterator[Record]:
    """The records as they are; ``simulation.net`` is filled beside."""
    for record in records:
        tensor = net_tensor(record, orders.get(record.name, "NHWC"))
        if tensor is not None:
            simulation.net.setdefault(record.name, tensor)
        yield record


def _records(
    runner: SegmentRunner,
    view: FloatView | FixedView,
    feed: Mapping[str, np.ndarray],
    simulation: Simulation,
    advance: Advance,
) -> Iterator[Record]:
    variables = {name for op in view.operators for name in (*op.inputs, *op.outputs)}
    sources = {view.source(name): name for name in variables}
    readers = Counter(name for op in view.operators for name in dict.fromkeys(op.inputs))
    live = {name: feed[name] for name in variables if name in feed and view.source(name) == name}
    wanted = {*sources, *view.graph.outputs}
    layers = runner.run(feed, only=wanted, advance=advance)
    for index, op in enumerate(view.operators):
        _advance(layers, sources, live, {*op.inputs, *op.outputs}, view.graph.outputs, simulation)
        tensors = [(n, view.variable(n, op.in_type, live[n])) for n in op.inputs if n in live]
        tensors += [(n, view.constant(n, op.in_type)) for n in op.constants if not _is_text(view.graph, n)]
        constants = set(op.constants)
        for slot, (name, tensor) in enumerate(tensors):
            yield Record("in", slot, index, op.in_type, tensor, name in constants)
        for slot, name in enumerate(op.outputs):
            if name in live:
                yield Record("out", slot, index, op.out_type, view.variable(name, op.out_type, live[name]))
            else:
                simulation.skipped[name] = runner.skipped[name].reason if name in runner.skipped else "not computed"
        for name in dict.fromkeys([*op.inputs, *op.outputs]):
            readers[name] -= name in op.inputs
            if readers[name] <= 0:
                live.pop(name, None)
    _advance(layers, sources, live, None, view.graph.outputs, simulation)


def _advance(
    layers: Iterator[Layer],
    sources: Mapping[str, str],
    live: dict[str, np.ndarray],
    needed: set[str] | None,
    outputs: list[str],
    simulation: Simulation,
) -> None:
    """Run on until every needed tensor is live; to the end for None, or when a needed tensor cannot be computed."""
    missing = None if needed is None else needed - set(live)
    while missing is None or missing:
        layer = next(layers, None)
        if layer is None:
            return
        if layer.name in outputs:
            simulation.outputs[layer.name] = layer.array
        name = sources.get(layer.name)
        if name is not None:
            live[name] = layer.array
            if missing is not None:
                missing.discard(name)


def _is_text(graph: Graph, constant: str) -> bool:
    from onnx import TensorProto

    return constant in graph.constants and graph.constants[constant].data_type == TensorProto.STRING
