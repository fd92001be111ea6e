"""Steps: the models that give a graph's tensors bit by bit, each cut out of it and fed with what earlier ones gave.

A step asks for some tensors and says how many nodes before them it wants whole. From there on back the graph is cut
wherever a value is already at hand. The graph is not cut at a tensor that failed or cannot be fed (sequences, text,
8-bit floats): the step then reaches further back and makes it itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.executors.base import Executor
from sgsdump.executors.runner import Layer
from sgsdump.models.graph import called, infer_types, is_known
from sgsdump.pipeline.running.attempt import ExecutorConfigs, Failed, attempt
from sgsdump.pipeline.running.lineage import Lineage
from sgsdump.pipeline.running.not_dumped import NotDumped, why_no_array, why_no_type
from sgsdump.progress import Advance

if TYPE_CHECKING:
    import onnx

# Integer vectors up to this length are shapes, axes, sizes; compilers want to see their values in the model.
SHAPE_LENGTH = 64


@dataclass(frozen=True)
class Step:
    """One model to run.

    asks   the tensors to put out, in an order in which they can be computed.
    whole  at least so many nodes that lead to them are in the model, the nearest first.
    alone  True: it is tried even where a tensor it depends on has failed, for that one may have been at fault only
           as an output. False: it is lost with what it depends on.
    """

    asks: tuple[str, ...]
    whole: int
    alone: bool


def give_steps(
    lineage: Lineage,
    steps: Sequence[Step],
    executor: Executor,
    feed: Mapping[str, np.ndarray],
    wanted: Collection[str],
    folder: Path | None,
    configs: ExecutorConfigs,
    advance: Advance,
) -> Iterator[Layer | NotDumped]:
    """The wanted tensors, step after step; a value is let go when no later step is planned to read it."""
    types = infer_types(lineage.proto, {name: array.shape for name, array in feed.items()})
    plans = _planned(lineage, steps, feed, types)
    last_use = {name: number for number, plan in enumerate(plans) for name in plan}
    runner = _StepRunner(lineage, executor, dict(feed), types, folder, configs)
    for number, step in enumerate(steps):
        for name, outcome in runner.run(step, plans[number]):
            node = lineage.nodes[lineage.maker[name]]
            if isinstance(outcome, NotDumped):
                if name in wanted:
                    yield outcome
                continue
            if last_use.get(name, -1) > number and is_feedable(outcome):
                runner.live[name] = outcome
            if name in wanted:
                yield Layer(name, node.name, node.op_type, outcome)
            del outcome
        runner.live = {n: a for n, a in runner.live.items() if n in feed or last_use.get(n, -1) > number}
        advance(number + 1, len(steps))


def is_feedable(array: np.ndarray) -> bool:
    """Whether a model can be fed with it: numpy's own types, and bfloat16."""
    return array.dtype.kind in "biufc" or array.dtype.name == "bfloat16"


def _planned(
    lineage: Lineage, steps: Sequence[Step], feed: Collection[str], types: Mapping[str, onnx.TypeProto]
) -> list[tuple[str, ...]]:
    """What each step reads when none before it fails."""
    known = set(feed)
    plans = []
    for step in steps:
        plans.append(lineage.reads(step.asks, known, step.whole))
        known |= {name for name in step.asks if not why_no_type(types.get(name))}
    return plans


class _StepRunner:
    """Runs steps; ``live`` are the values at hand, ``lost`` the tensors that failed and what depends on them."""

    def __init__(
        self,
        lineage: Lineage,
        executor: Executor,
        live: dict[str, np.ndarray],
        types: Mapping[str, onnx.TypeProto],
        folder: Path | None,
        configs: ExecutorConfigs,
    ):
        self.live = live
        self.lost: set[str] = set()
        self._lineage = lineage
        self._executor = executor
        self._types = types
        self._folder = folder
        self._configs = configs
        self._fed = frozenset(live)

    def run(self, step: Step, plan: tuple[str, ...]) -> Iterator[tuple[str, np.ndarray | NotDumped]]:
        """What became of each tensor the step asks for."""
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
        """Each node by itself, so that the one at fault has a name; those asked for are at hand for the next."""
        for name in asks:
            culprit = self._culprit(name)
            if culprit:
                yield name, self._not_dumped(name, f"needs {culprit!r}, which failed", True)
                continue
            for made, outcome in self.run(Step((name,), 1, False), ()):
                if not isinstance(outcome, NotDumped) and is_feedable(outcome):
                    self.live[made] = outcome
                yield made, outcome

    def _culprit(self, name: str) -> str:
        """The tensor that failed and that ``name`` depends on; ``name`` is then lost too. Empty when there is none."""
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
        types = {name: self._types[name] for name in asks if is_known(self._types.get(name))}
        types |= {name: self._type_of(name) for name in reads}
        try:
            proto = self._lineage.extractor.extract(reads, asks, types)
        except Exception as error:
            return Failed(str(error))
        fixed = [name for name in reads if name not in self._fed and _is_shape(self.live[name])]
        _fix(proto, {name: self.live[name] for name in fixed})
        feed = {name: self.live[name] for name in reads if name not in fixed}
        return attempt(self._executor, proto, asks, feed, self._configs, self._folder)

    def _type_of(self, name: str) -> onnx.TypeProto:
        """The type of a value at hand: its real shape, and the element type that the graph gives it."""
        from onnx import helper

        array, kind = self.live[name], self._types.get(name)
        elem_type = kind.tensor_type.elem_type if kind is not None else 0
        elem_type = elem_type or helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_type_proto(elem_type, array.shape)

    def _checked(self, asks: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, np.ndarray | NotDumped]]:
        for name, value in zip(asks, values):
            reason = why_no_array(value)
            yield name, self._not_dumped(name, reason, False) if reason else np.asarray(value)

    def _not_dumped(self, name: str, reason: str, failed: bool) -> NotDumped:
        node = self._node(name)
        return NotDumped(name, node.name, node.op_type, reason, failed)

    def _node(self, name: str) -> onnx.NodeProto:
        return self._lineage.nodes[self._lineage.maker[name]]


def _is_shape(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= SHAPE_LENGTH


def _fix(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> None:
    """Make inputs of a freshly cut model constants of it, in place."""
    from onnx import numpy_helper

    if not values:
        return
    kept = [info for info in proto.graph.input if info.name not in values]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
