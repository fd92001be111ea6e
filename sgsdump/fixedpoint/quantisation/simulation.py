"""Simulation: run one input through a float or fixed model and yield tensors as the SDK's simulators dump them.

Per operator, in execution order, first come all inputs (constants included), then all outputs. A tensor occurs once as
an output and again as the input of each consumer. 4-D tensors are NHWC. The output of a Transpose or Reshape keeps the
model's order of axes up to the next convolution (``in_model_order``). A view defines the operators of a model and the
form in which each tensor is dumped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.observed_branches import BranchGuard
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.runner import Layer
from sgsdump.fixedpoint.quantisation.analysis import operators, sdk_name
from sgsdump.models import sim_facts
from sgsdump.models.external_data import left_outside
from sgsdump.models.fixed_facts import DumpedOperator, FixedFacts, read_facts
from sgsdump.models.graph import Graph, in_model_order
from sgsdump.models.model import Model
from sgsdump.models.sim_facts import ShownConstant
from sgsdump.progress import Advance, unwatched
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.parse_net import NetTensor
from sgsdump.tensors.sdk_buffers import (
    pad_bias,
    pad_blocks,
    pad_channels,
    pad_depthwise,
    pad_parameter,
    pad_picture,
    pad_weights,
)
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
from sgsdump.tensors.types import NHWC, to_nhwc

# Between these operators the hardware stores a tensor in blocks of channels (NHWX); at other operators and at the ends
# of the network pixel by pixel (NHWC). Seen in every parse_net text of the SDK at hand.
BLOCKED = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV MAX_POOL_2D AVERAGE_POOL_2D ADD SUB MUL RELU RELU6 LEAKY_RELU PRELU "
    "LOGISTIC TANH BATCH_NORM".split()
)
DEPTHWISE = "DEPTHWISE_CONV_2D"
_PADDED_CONSTANTS = {"bias": pad_bias, "parameter": pad_parameter, DEPTHWISE: pad_depthwise}
_PADDED = {"RGB": pad_picture, "NHWC": pad_channels, "NHWX": pad_blocks}


@dataclass
class Simulation:
    """The records of one run, and what is known after the run.

    records  streams while the model runs; reading to the end fills the other fields.
    outputs  output arrays by name.
    net      of padded buffers, the lines that parse_net prints.
    skipped  tensors that were not computed, and the reason.
    """

    records: Iterator[Record]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    net: dict[str, NetTensor] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def simulate(
    model: Model,
    feed: Mapping[str, np.ndarray],
    dequantise: bool = True,
    strip: bool = True,
    advance: Advance = unwatched,
    provider: str = "CPU",
) -> Simulation:
    """Run a simplified float model or a fixed model on one feed (NCHW; raw bytes for the image of a fixed model).

    dequantise  fixed model: variables as float32 (dequantFixed); False: the stored integers.
    strip       fixed model: no padding (eliminateGarbage); False pads stored integers like the hardware's buffers.
    advance     called with (nodes done, nodes in all) while the records are read.
    provider    onnxruntime execution provider.
    """
    return Simulator(model, dequantise, strip, provider).run(feed, advance)


class Simulator:
    """A simulator for several feeds in turn.

    keep_sessions  see ``SegmentRunner``: faster for several feeds.
    """

    def __init__(
        self,
        model: Model,
        dequantise: bool = True,
        strip: bool = True,
        provider: str = "CPU",
        keep_sessions: bool = False,
    ):
        model = in_parts(model)
        facts = read_facts(model)
        self._view = FixedView(model, facts, dequantise, strip) if facts else FloatView(model)
        self._runner = SegmentRunner(model, keep_sessions, provider=provider)
        self._guard = BranchGuard(model)
        self._orders = buffer_orders(facts) if facts and not dequantise and not strip else None

    def run(self, feed: Mapping[str, np.ndarray], advance: Advance = unwatched) -> Simulation:
        """Return the simulation of one feed.

        Raises InputError if the feed takes other branches than the model was made for.
        """
        self._guard.check(feed)
        simulation = Simulation(iter(()))
        simulation.records = _records(self._runner, self._view, feed, simulation, advance)
        if self._orders is not None:
            simulation.records = _described(simulation.records, self._orders, simulation)
        return simulation


def in_parts(model: Model) -> Model:
    """Return the model with all external data reachable; large weights stay outside, and one is read at a time.

    Raises ModelError if the data cannot be found.
    """
    if model.folder is None:
        return model
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    try:
        left_outside(proto, model.folder)
    except ModelError as error:
        raise ModelError(f"{model.path}: {error}") from None
    return replace(model, proto=proto, folder=None)


def fixed_config(model: Model) -> InputConfig | None:
    """Return the inputs of the input_config.ini that the fixed model was made with, or None."""
    facts = read_facts(model)
    return InputConfig(facts.origin.inputs) if facts and facts.origin and facts.origin.inputs else None


def buffer_orders(facts: FixedFacts) -> dict[str, str]:
    """Return the memory order of every stored tensor: RGB for an image, otherwise NHWC or NHWX."""
    makers = {name: op.out_type for op in facts.operators for name in op.outputs}
    readers: dict[str, set[str]] = {}
    for op in facts.operators:
        for name in op.inputs:
            readers.setdefault(name, set()).add(op.in_type)
    orders = {}
    for name, tensor in facts.tensors.items():
        blocked = makers.get(name) in BLOCKED and name in readers and readers[name] <= BLOCKED
        orders[name] = "RGB" if tensor.picture else "NHWX" if blocked else "NHWC"
    return orders


def net_tensor(record: Record, order: str) -> NetTensor | None:
    """Return the line that parse_net prints for a stored tensor; None for constants and float tensors."""
    info = record.tensor.info
    if record.constant or info.quant is None or info.quant.dtype is None or info.shape is None:
        return None
    dtype, scale, zero = info.quant.dtype, float(info.quant.scale), info.quant.zero_point
    limits = np.iinfo(dtype)
    low, high = (max(limits.min, -limits.max) - zero) * scale, (limits.max - zero) * scale
    word = f"{'U' if dtype.kind == 'u' else ''}INT{8 * dtype.itemsize}"
    order = order if len(info.shape) == 4 else "NHWC"
    ddr_type = order if order == "RGB" else f"IPU_{'U' if dtype.kind == 'u' else 'S'}{8 * dtype.itemsize}_{order}"
    return NetTensor(record.name, word, dtype, info.shape, ddr_type, low, high, scale, zero)


class FloatView:
    """The records of a float model: every node is its own operator, every tensor float32."""

    def __init__(self, model: Model):
        self.graph = Graph(model.proto)
        self.turned = in_model_order(self.graph)
        self.sim = sim_facts.read_facts(model.proto)
        self.operators = self.sim.operators if self.sim else tuple(self._nodes())

    def _nodes(self) -> Iterator[DumpedOperator]:
        for op in operators(self.graph, fuse=None):
            kind = sdk_name(self.graph, op.head)
            constants = tuple(name for name in op.head.input if name in self.graph.constants)
            yield DumpedOperator(kind, kind, op.inputs, constants, op.outputs)

    def source(self, name: str) -> str:
        return name

    def variable(self, name: str, op_type: str, array: np.ndarray) -> Tensor:
        turned = name in self.turned
        values = array if turned else to_nhwc(array)
        return _tensor(name, op_type, values.astype(np.float32, copy=False), turned=turned)

    def constant(self, name: str, op_type: str) -> Tensor:
        if self.sim is not None:
            return _shown(self.graph, name, self.sim.constants[name], op_type)
        quant = None if self.graph.value(name).dtype.kind == "f" else Quant(np.dtype(np.int32))
        return _lazy(self.graph, name, name, op_type, np.dtype(np.float32), quant)


class FixedView:
    """The records of a fixed model: fused operators, and stored integers or the float32 values that they represent."""

    def __init__(self, model: Model, facts: FixedFacts, dequantise: bool, strip: bool):
        self.graph = Graph(model.proto)
        self.operators = facts.operators
        self.tensors = facts.tensors
        self.weights = facts.weights
        self.biases = facts.biases
        self.dequantise = dequantise
        self.strip = strip
        self.orders = buffer_orders(facts)
        self.sim = sim_facts.read_facts(model.proto)

    def source(self, name: str) -> str:
        tensor = self.tensors.get(name)
        if tensor is None or (tensor.picture and not self.dequantise):
            return name
        return tensor.real if self.dequantise and tensor.real is not None else tensor.stored

    def variable(self, name: str, op_type: str, array: np.ndarray) -> Tensor:
        stored = self.tensors.get(name)
        turned = stored is not None and stored.model_order
        array = array if turned else to_nhwc(array)
        if stored is None:
            return _tensor(name, op_type, array.astype(np.float32, copy=False))
        if self.dequantise:
            info = replace(_info(name, op_type, array, stored.quant, turned), dtype=_real_type(array))
            return Tensor(info, lambda: _real(array, stored.quant))
        if stored.picture:
            # The SDK dumps the bytes of the image, even if level L5 rescales the values that the model computes with.
            array = np.clip(np.floor(array + 0.5), 0, 255).astype(stored.dtype)
        if self.strip:
            return _tensor(name, op_type, array, stored.quant, turned)
        padded = _PADDED[self.orders[name] if array.ndim == 4 else "NHWC"](array)
        return Tensor(_info(name, op_type, array, stored.quant, turned), lambda: padded)

    def constant(self, name: str, op_type: str) -> Tensor:
        constant = self._plain_constant(name, op_type)
        if self.dequantise or self.strip or constant.dtype.kind != "i":
            return constant
        kind = "bias" if name in self.biases else "parameter" if name not in self.weights else op_type
        pad = _PADDED_CONSTANTS.get(kind, pad_weights)
        return Tensor(constant.info, lambda: pad(constant.stored()))

    def _plain_constant(self, name: str, op_type: str) -> Tensor:
        if name in self.biases:
            return _lazy(self.graph, name, self.biases[name], op_type, np.dtype(np.int16), Quant(np.dtype(np.int16)))
        if self.sim is not None and name in self.sim.constants:
            return _shown(self.graph, name, self.sim.constants[name], op_type, self.dequantise)
        weights = self.weights.get(name)
        if weights is None:
            return _lazy(self.graph, name, name, op_type, np.dtype(np.float32), None)
        return _lazy(self.graph, name, weights.name, op_type, weights.dtype, weights.quant)


def _shown(graph: Graph, name: str, constant: ShownConstant, op_type: str, as_float: bool = True) -> Tensor:
    kind = np.dtype(constant.dtype)
    quant = Quant(kind, 0.0 if as_float else 1.0) if constant.is_parameter else None
    layout = NHWC if len(constant.shape) == 4 else None
    dtype = np.dtype(np.float32) if as_float or not constant.is_parameter else kind
    info = TensorInfo(name, constant.shape, dtype, layout, quant, op_type)
    return Tensor(info, lambda: constant.array(graph).astype(dtype, copy=False))


def _real(array: np.ndarray, quant: Quant) -> np.ndarray:
    """Return the float32 values of stored integers; float arrays are returned as they are."""
    if array.dtype.kind == "f":
        return array
    return (array.astype(np.float32) - np.float32(quant.zero_point)) * np.float32(quant.scale)


def _real_type(array: np.ndarray) -> np.dtype:
    return array.dtype if array.dtype.kind == "f" else np.dtype(np.float32)


def _info(name: str, op_type: str, array: np.ndarray, quant: Quant | None, turned: bool = False) -> TensorInfo:
    """Return the tensor's description; ``turned``: in the model's own order of axes."""
    return TensorInfo(name, array.shape, array.dtype, NHWC if array.ndim == 4 and not turned else None, quant, op_type)


def _tensor(name: str, op_type: str, array: np.ndarray, quant: Quant | None = None, turned: bool = False) -> Tensor:
    return Tensor(_info(name, op_type, array, quant, turned), lambda: array)


def _lazy(graph: Graph, initializer: str, name: str, op_type: str, dtype: np.dtype, quant: Quant | None) -> Tensor:
    """Return a constant of the model; 4-D weights as O, H, W, I, depthwise weights as 1, H, W, O."""
    dims = tuple(graph.constants[initializer].dims)
    depthwise = op_type == DEPTHWISE and len(dims) == 4 and dims[1] == 1
    order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1) if len(dims) == 4 else tuple(range(len(dims)))
    shape = tuple(dims[axis] for axis in order)
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=order.index(quant.axis))
    info = TensorInfo(name, shape, dtype, NHWC if len(dims) == 4 else None, quant, op_type)
    return Tensor(info, lambda: graph.value(initializer).transpose(order).astype(dtype, copy=False))


def _described(records: Iterator[Record], orders: Mapping[str, str], simulation: Simulation) -> Iterator[Record]:
    """Yield the records unchanged and fill ``simulation.net``."""
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
    selected = {*sources, *view.graph.outputs}
    layers = runner.run(feed, only=selected, advance=advance)
    for index, op in enumerate(view.operators):
        _advance(layers, sources, live, {*op.inputs, *op.outputs}, view.graph.outputs, simulation)
        constants = {name for name in op.constants if not _is_text(view.graph, name)}
        tensors = [
            (n, view.constant(n, op.in_type) if n in constants else view.variable(n, op.in_type, live[n]))
            for n in op.reads or (*op.inputs, *op.constants)
            if n in constants or n in live
        ]
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
    """Run until every needed tensor is available, or to the end if ``needed`` is None or one cannot be computed."""
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
