"""Run a float model like the SDK's float simulator: sums in the simulator's order, everything else in onnxruntime.

Elementwise float32 arithmetic (Add, Mul, Relu, ...) and moving operators have only one possible result. An operator
without a rule in ``simulator_rules`` keeps onnxruntime's last bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

import numpy as np
from onnx import NodeProto, TensorProto

from sgsdump.executors.onnx_runtime.segment_runner import Live, SegmentOutputs, SegmentSessions
from sgsdump.executors.onnx_runtime.session import CPU, PLAIN_TYPES, from_array, providers
from sgsdump.executors.runner import Layer, Skip
from sgsdump.fixedpoint.quantisation.ranges.simulator_rules import UNFIT, Rule
from sgsdump.models.model import Model, fitted, graph_inputs
from sgsdump.models.passes.segment import Segment, segment
from sgsdump.progress import Advance, unwatched

_FLOAT = "tensor(float)"


class SimulatorRunner:
    """Runs a float model on one feed after another, each on one thread; see ``runner.Runner``.

    Several threads may run feeds in parallel.

    rules  of the model, by output.
    """

    def __init__(self, model: Model, rules: Mapping[str, Rule]):
        self.skipped: dict[str, Skip] = {}
        self._inputs = graph_inputs(model.proto)
        self._types = {info.name: info.type.tensor_type.elem_type for info in model.proto.graph.input}
        sessions = SegmentSessions(model, providers(CPU), threads=1, keep=True)
        self._outputs = SegmentOutputs(model, sessions, keep_going=False)
        self._rules = rules
        self._parts = self._cut()
        self._done = self._done_after()

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, advance: Advance = unwatched
    ) -> Iterator[Layer]:
        """Yield every node output in topological order; see ``runner.Runner``."""
        fed = {name: _live(array, self._types[name]) for name, array in fitted(feed, self._inputs).items()}
        live, computed = dict(fed), dict[str, np.ndarray]()
        for index, part in enumerate(self._parts):
            array = self._by_rule(part.nodes[0], live)
            if array is None:
                outcomes = self._outputs.of(part, live, fed)
            else:
                # onnxruntime reads the array in place without keeping it alive.
                computed[part.makes[0]] = array
                outcomes = {part.makes[0]: _live(array, TensorProto.FLOAT)}
            for node in part.nodes:
                for name in filter(None, node.output):
                    value = outcomes[name]
                    if not isinstance(value, Live):
                        self.skipped[name] = value
                        continue
                    live[name] = value
                    if value.type in PLAIN_TYPES and (only is None or name in only):
                        yield Layer(name, node.name, node.op_type, value.value.numpy() if array is None else array)
            for name in self._done[index]:
                live.pop(name, None)
                computed.pop(name, None)
            advance(index + 1, len(self._parts))

    def _cut(self) -> list[Segment]:
        """Return one part for each node with a rule, and one for the nodes between two of them."""
        parts: list[list[NodeProto]] = []
        joins = False
        for node in self._outputs.nodes:
            has_rule = node.output[0] in self._rules
            if has_rule or not joins:
                parts.append([])
            parts[-1].append(node)
            joins = not has_rule
        return [segment(nodes, self._outputs.weights) for nodes in parts]

    def _done_after(self) -> list[list[str]]:
        """Return, for each part, the tensors that no later part reads."""
        made = ((index, name) for index, part in enumerate(self._parts) for node in part.nodes for name in node.output)
        last = {name: index for index, name in made}
        last |= {name: index for index, part in enumerate(self._parts) for name in part.reads}
        done: list[list[str]] = [[] for _ in self._parts]
        for name, index in last.items():
            done[index].append(name)
        return done

    def _by_rule(self, node: NodeProto, live: Mapping[str, Live]) -> np.ndarray | None:
        """Return the output of a node; None if no rule applies."""
        source = live.get(node.input[0]) if node.output[0] in self._rules else None
        if source is None or source.type != _FLOAT:
            return None
        with np.errstate(all="ignore"), suppress(*UNFIT):
            return np.ascontiguousarray(self._rules[node.output[0]](source.value.numpy()))
        return None


def _live(array: np.ndarray, elem_type: int) -> Live:
    value = from_array(array, elem_type)
    return Live(value, value.data_type())
