"""Steps: run a model piece by piece, decide how far back each piece is cut, and record failures.

Each step computes some tensors of the graph. Its model is cut out of the graph and fed with the results of earlier
steps.

A step requests some tensors and states how many nodes before them must stay complete. Further back, the graph is cut
wherever a value is available. It is not cut at a tensor that failed or cannot be fed (sequences, text, 8-bit floats);
the step then reaches further back and computes this tensor itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ConfigError, MissingExtra, SgsdumpError, hint
from sgsdump.executors.base import Configs, Executor, reason_of
from sgsdump.executors.runner import Layer
from sgsdump.executors.table import label_of, maker_of, open_executor
from sgsdump.models.graph import called, infer_types, is_known, needs, sorted_nodes, weight_names
from sgsdump.models.passes.extract import Extractor
from sgsdump.pipeline.not_dumped import NotDumped, why_no_array, why_no_type
from sgsdump.progress import Advance

if TYPE_CHECKING:
    import onnx

FAST, ISOLATED = "fast", "isolated"
MODES = (FAST, ISOLATED)
# Integer vectors up to this length are shapes, axes or sizes; compilers need their values in the model.
SHAPE_LENGTH = 64


@dataclass(frozen=True)
class ExecutorConfigs:
    """Options for the three calls of an executor."""

    init: Configs = field(default_factory=dict)
    load: Configs = field(default_factory=dict)
    execute: Configs = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Engine:
    """Executor with its options and its mode.

    executor  name in ``executors()``, ``FILE.py:Class``, or an Executor, which is initialised anew and released at the
              end.
    mode      ``fast`` or ``isolated``, see ``run``.
    configs   options for the executor's calls.

    Raises ConfigError for an unknown mode.
    """

    executor: str | Executor = "ort"
    mode: str = FAST
    configs: ExecutorConfigs = ExecutorConfigs()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"unknown mode {self.mode!r}{hint(self.mode, list(MODES))}")

    @property
    def name(self) -> str:
        """Name of the executor in the table, or its own name."""
        return label_of(self.executor) if isinstance(self.executor, str) else self.executor.name

    @property
    def class_name(self) -> str:
        """Name of the executor's class, as in dump_info.json. Raises ConfigError for an unknown executor."""
        if isinstance(self.executor, Executor):
            return type(self.executor).__name__
        return getattr(maker_of(self.executor), "__name__", self.name)

    @contextmanager
    def opened(self, folder: Path | None) -> Iterator[ReadyExecutor]:
        """Yield the initialised executor and release it at the end, even after a failure.

        folder  folder of the models' external data.
        """
        if isinstance(self.executor, str):
            executor = open_executor(self.executor, self.configs.init)
        else:
            executor = self.executor
            executor.release()
            executor.init(self.configs.init)
        with executor:
            yield ReadyExecutor(executor, self.configs, None if folder is None else str(folder))


@dataclass(frozen=True)
class Failed:
    """One-line reason why a model did not load or run."""

    reason: str


@dataclass(frozen=True, eq=False)
class ReadyExecutor:
    """Initialised executor, its options, and the folder of the models' external data."""

    executor: Executor
    configs: ExecutorConfigs
    folder: str | None

    def execute(self, proto: onnx.ModelProto, names: Sequence[str], feed: Mapping[str, np.ndarray]) -> list[Any]:
        """Return the named outputs of a model; raises whatever the executor raises."""
        self.executor.load_model(proto, self.configs.load, self.folder)
        return list(self.executor.execute(names, feed, self.configs.execute))

    def attempt(
        self, proto: onnx.ModelProto, names: Sequence[str], feed: Mapping[str, np.ndarray]
    ) -> list[Any] | Failed:
        """Return the named outputs of a model, or the reason why there are none.

        Raises ConfigError and MissingExtra, because they would affect any other model too.
        """
        try:
            return self.execute(proto, names, feed)
        except (ConfigError, MissingExtra):
            raise
        except SgsdumpError as error:
            return Failed(str(error))
        except Exception as error:
            # A plug-in may raise anything; only this model is lost, not the run.
            return Failed(f"executor {self.executor.name}: {reason_of(error)}")


class Lineage:
    """Backward view of a graph from its tensors. Raises ModelError if its nodes cannot be sorted."""

    def __init__(self, proto: onnx.ModelProto):
        self.proto = proto
        self.nodes = sorted_nodes(proto.graph)
        self.maker = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.weights = weight_names(proto.graph)
        self.needs = [needs(node) for node in self.nodes]
        self.is_constant = [node.op_type == "Constant" for node in self.nodes]

    @cached_property
    def extractor(self) -> Extractor:
        return Extractor(self.proto)

    @cached_property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights by name, including those of Constant nodes."""
        shapes = {tensor.name: tuple(tensor.dims) for tensor in self.proto.graph.initializer}
        constants = (node for node in self.nodes if node.op_type == "Constant")
        return shapes | {
            node.output[0]: tuple(each.t.dims) for node in constants for each in node.attribute if each.name == "value"
        }

    def cut(
        self,
        reads: Sequence[str],
        asks: Sequence[str],
        values: Mapping[str, np.ndarray],
        types: Mapping[str, onnx.TypeProto],
    ) -> onnx.ModelProto:
        """Return the model that computes ``asks`` from ``reads``.

        Input shapes come from ``values`` and element types from the graph; shapes from inference or the model may be
        wrong.
        Raises the errors of ``Extractor.extract``.
        """
        known = {name: _without_shape(types[name]) for name in asks if is_known(types.get(name))}
        proto = self.extractor.extract(reads, asks, known | {n: _type_of(values[n], types.get(n)) for n in reads})
        del proto.graph.value_info[:]
        return proto

    def cone(self, names: Collection[str]) -> set[int]:
        """Return the indices of all nodes that lead to these tensors."""
        return self.back(names, frozenset(), len(self.nodes))[0]

    def reads(self, asks: Collection[str], at_hand: Collection[str], whole: int) -> tuple[str, ...]:
        """Return the tensors at which to cut the model that computes ``asks``, sorted.

        at_hand  tensors with known values, including graph inputs.
        whole    number of nodes that must stay in the model, counted backwards from ``asks``.
        """
        nodes, met = self.back(asks, at_hand, whole)
        return tuple(sorted(n for n in met if self.maker.get(n, -1) not in nodes and n not in self.weights))

    def back(self, names: Collection[str], at_hand: Collection[str], whole: int) -> tuple[set[int], set[str]]:
        """Return the nodes found going backwards ring by ring, and every tensor they need."""
        nodes: set[int] = set()
        met: set[str] = set()
        ring = {self.maker[name] for name in names}
        counted = 0
        while ring:
            nodes |= ring
            counted += sum(not self.is_constant[index] for index in ring)
            fresh = set().union(*(self.needs[index] for index in ring))
            met |= fresh
            if counted >= whole:
                fresh = {name for name in met if name not in at_hand}
            ring = {self.maker[name] for name in fresh if name in self.maker} - nodes
        return nodes, met


@dataclass(frozen=True)
class Step:
    """Model to run.

    asks   tensors to output, in an order in which they can be computed.
    whole  least number of nodes before them in the model, nearest first.
    alone  True: run even if a required tensor failed, because it may have failed only as an output. False: lost
           together with a required tensor.
    """

    asks: tuple[str, ...]
    whole: int
    alone: bool


def give_steps(
    lineage: Lineage,
    steps: Sequence[Step],
    ready: ReadyExecutor,
    feed: Mapping[str, np.ndarray],
    selected: Collection[str],
    advance: Advance,
) -> Iterator[Layer | NotDumped]:
    """Yield the selected tensors step by step; a value is freed when no later step is planned to read it."""
    types = infer_types(lineage.proto, {name: array.shape for name, array in feed.items()})
    plans = _planned(lineage, steps, feed, types)
    last_use = {name: number for number, plan in enumerate(plans) for name in plan}
    runner = _StepRunner(lineage, ready, dict(feed), types)
    for number, step in enumerate(steps):
        for name, outcome in runner.run(step, plans[number]):
            node = lineage.nodes[lineage.maker[name]]
            if isinstance(outcome, NotDumped):
                if name in selected:
                    yield outcome
                continue
            if last_use.get(name, -1) > number and is_feedable(outcome):
                runner.live[name] = outcome
            if name in selected:
                yield Layer(name, node.name, node.op_type, outcome)
            del outcome
        runner.live = {n: a for n, a in runner.live.items() if n in feed or last_use.get(n, -1) > number}
        advance(number + 1, len(steps))


def is_feedable(array: np.ndarray) -> bool:
    """Return whether a model can be fed with the array: numpy's own types, and bfloat16."""
    return array.dtype.kind in "biufc" or array.dtype.name == "bfloat16"


def _planned(
    lineage: Lineage, steps: Sequence[Step], feed: Collection[str], types: Mapping[str, onnx.TypeProto]
) -> list[tuple[str, ...]]:
    """Return the tensors that each step reads if no earlier step fails."""
    at_hand = set(feed)
    plans = []
    for step in steps:
        plans.append(lineage.reads(step.asks, at_hand, step.whole))
        at_hand |= {name for name in step.asks if not why_no_type(types.get(name))}
    return plans


class _StepRunner:
    """Runner of steps; ``live`` are available values, ``lost`` are failed tensors and those that depend on them."""

    def __init__(
        self,
        lineage: Lineage,
        ready: ReadyExecutor,
        live: dict[str, np.ndarray],
        types: Mapping[str, onnx.TypeProto],
    ):
        self.live = live
        self.lost: set[str] = set()
        self._lineage = lineage
        self._ready = ready
        self._types = types
        self._fed = frozenset(live)

    def run(self, step: Step, plan: tuple[str, ...]) -> Iterator[tuple[str, np.ndarray | NotDumped]]:
        """Yield the outcome of each tensor that the step requests."""
        asks = []
        for name in step.asks:
            kind = why_no_type(self._types.get(name))
            culprit = "" if step.alone else self._culprit(name)
            if culprit:
                yield name, self._not_dumped(name, f"needs {culprit!r}, which failed", True)
            elif kind:
                yield name, self._not_dumped(name, kind, False)
            else:
                asks.append(name)
        if not asks:
            return
        whole = plan if len(asks) == len(step.asks) and all(name in self.live for name in plan) else None
        outcome = self._values(asks, step.whole, whole)
        if isinstance(outcome, Failed) and len(asks) > 1:
            yield from self._one_by_one(asks)
            return
        if isinstance(outcome, Failed):
            name = asks[0]
            culprit = self._culprit(name)
            self.lost.add(name)
            why = f"needs {culprit!r}, which failed" if culprit else f"{called(self._node(name))} cannot run"
            yield name, self._not_dumped(name, f"{why}: {outcome.reason}", True)
            return
        yield from self._checked(asks, outcome)

    def _one_by_one(self, asks: Sequence[str]) -> Iterator[tuple[str, np.ndarray | NotDumped]]:
        """Run each node separately to identify the failing one; results are available to the next nodes."""
        for name in asks:
            culprit = self._culprit(name)
            if culprit:
                yield name, self._not_dumped(name, f"needs {culprit!r}, which failed", True)
                continue
            for output, outcome in self.run(Step((name,), 1, False), ()):
                if not isinstance(outcome, NotDumped) and is_feedable(outcome):
                    self.live[output] = outcome
                yield output, outcome

    def _culprit(self, name: str) -> str:
        """Return a failed tensor on which ``name`` depends, or ""; ``name`` is then lost too."""
        if not self.lost:
            return ""
        lost = sorted(self._lineage.needs[self._lineage.maker[name]] & self.lost)
        if lost:
            self.lost.add(name)
            return lost[0]
        return ""

    def _values(self, asks: Sequence[str], whole: int, reads: tuple[str, ...] | None) -> list[Any] | Failed:
        if not reads:
            reads = self._lineage.reads(asks, self.live, whole)
        try:
            proto = self._lineage.cut(reads, asks, self.live, self._types)
        except Exception as error:
            return Failed(str(error))
        fixed = [name for name in reads if name not in self._fed and _is_shape(self.live[name])]
        _fix(proto, {name: self.live[name] for name in fixed})
        feed = {name: self.live[name] for name in reads if name not in fixed}
        return self._ready.attempt(proto, asks, feed)

    def _checked(self, asks: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, np.ndarray | NotDumped]]:
        for name, value in zip(asks, values):
            reason = why_no_array(value)
            yield name, self._not_dumped(name, reason, False) if reason else np.asarray(value)

    def _not_dumped(self, name: str, reason: str, failed: bool) -> NotDumped:
        node = self._node(name)
        return NotDumped(name, node.name, node.op_type, reason, failed)

    def _node(self, name: str) -> onnx.NodeProto:
        return self._lineage.nodes[self._lineage.maker[name]]


def _type_of(array: np.ndarray, kind: onnx.TypeProto | None) -> onnx.TypeProto:
    """Return the type of an available value: its real shape, and the element type from the graph."""
    from onnx import helper

    elem_type = kind.tensor_type.elem_type if kind is not None else 0
    elem_type = elem_type or helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(elem_type, array.shape)


def _without_shape(kind: onnx.TypeProto) -> onnx.TypeProto:
    """Return the type without the shape of its tensor."""
    result = type(kind)()
    result.CopyFrom(kind)
    if result.HasField("tensor_type"):
        result.tensor_type.ClearField("shape")
    return result


def _is_shape(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= SHAPE_LENGTH


def _fix(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> None:
    """Turn inputs of a freshly cut model into constants, in place."""
    from onnx import numpy_helper

    if not values:
        return
    kept = [info for info in proto.graph.input if info.name not in values]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
