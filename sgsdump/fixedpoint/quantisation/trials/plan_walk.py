"""Many plans of one ``PlanTrial`` on one image.

Plans run in an order in which neighbours agree as long as possible. Each plan runs only from the first stage that
differs from the previous plan. The values equal those of separate runs, to the last bit.

walk = PlanWalk(trial, ["boxes", "logits"])
for plan, outputs in walk.run(walk.ordered(plans), feed):
    ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, zip_longest
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph
from sgsdump.fixedpoint.quantisation.analysis import is_convolution
from sgsdump.fixedpoint.quantisation.trials.qdq_graph import LOW, SCALE, WEIGHT, ZERO_POINT, parameter
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan, PlanTrial

# Each stage costs some 0.1 ms; further stages save less and less.
MAX_STAGES = 16
# The best cuts are searched among at most this many places.
MAX_PLACES = 1000
# Products that a convolution computes in the time that another operator needs for one value.
PRODUCTS = 8


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan, its feeds, and for each stage the identities of the feeds that the stage reads."""

    plan: Plan
    fed: Mapping[str, Any]
    marks: tuple[tuple[int, ...], ...]


class PlanWalk:
    """Plans of one ``PlanTrial``; ``outputs`` are names of real tensors of the fixed model.

    Several threads may run feeds in parallel; ``ordered`` is for one thread.
    """

    def __init__(self, trial: PlanTrial, outputs: Sequence[str]):
        self._trial = trial
        self._known: dict[tuple[str, bytes], Any] = {}
        self._before: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        self._last: Prepared | None = None
        fed = {*trial.parameters(frozenset()), *trial.analysis.graph.inputs}
        self._graph = StagedGraph(trial.every_plan, _cuts(trial), fed, outputs)

    def ordered(self, plans: Iterable[Plan]) -> list[Prepared]:
        """Return the plans without duplicates, ordered by common beginnings and continuing from the previous walk."""
        prepared = [self.prepared(plan) for plan in dict.fromkeys(plans)]
        last = self._last.marks if self._last else ()
        walk = sorted(prepared, key=lambda p: [(m != before, m) for m, before in zip_longest(p.marks, last)])
        self._last = walk[-1] if walk else self._last
        return walk

    def run(
        self, prepared: Sequence[Prepared], feed: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[Plan, dict[str, np.ndarray]]]:
        """Yield each plan with its outputs on one feed (raw bytes of an image)."""
        yield from self.visit(feed).run(prepared)

    def visit(self, feed: Mapping[str, np.ndarray]) -> Visit:
        """Return a visit of one feed (raw bytes of an image) for plans that arrive one by one."""
        return Visit(self._graph, feed)

    def prepared(
        self, plan: Plan, ranges: Mapping[str, Range] | None = None, weights: Mapping[str, np.dtype] = {}
    ) -> Prepared:
        """Return a plan with the trial's ranges or with these; ``weights``: see ``PlanTrial.parameters``."""
        parameters = self._trial.parameters(plan, ranges, weights)
        fed = self._held_as_before(parameters)
        return Prepared(plan, fed, self._marks(fed))

    def _marks(self, fed: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(map(id, map(fed.get, reads))) for reads in self._graph.reads)

    def _held_as_before(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the feeds of a plan as held objects, reusing those of the previous plan."""
        before, held = self._before
        if list(before) == list(parameters):
            changed = compress(parameters, map(is_not, parameters.values(), before.values()))
            held = held | {name: self._held(name, parameters[name]) for name in changed}
        else:
            held = {name: self._held(name, value) for name, value in parameters.items()}
        self._before = parameters, held
        return held

    def _held(self, name: str, value: Any) -> Any:
        """Return one object per value of a parameter, so that equal values are identical."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        key = (name, value.tobytes())
        if key not in self._known:
            self._known[key] = self._graph.hold(value)
        return self._known[key]


class Visit:
    """One image's run of successive plans; the state at the start of each stage is kept for the next plan."""

    def __init__(self, graph: StagedGraph, feed: Mapping[str, np.ndarray]):
        self._graph = graph
        self._picture = {name: graph.hold(array) for name, array in feed.items()}
        self._entered: list[dict[str, Any]] = []
        self._entries = graph.entries()
        self._before: Prepared | None = None
        self._kept: tuple[Prepared, list[dict[str, Any]]] | None = None
        self._held_bytes: int | None = 0

    @property
    def held_bytes(self) -> int:
        """The size of the values kept for the next plan, counted once per plan."""
        if self._held_bytes is None:
            stages = [*self._entered, *(self._kept[1] if self._kept else ())]
            self._held_bytes = self._graph.bytes_of(value for stage in stages for value in stage.values())
        return self._held_bytes

    def keep(self) -> None:
        """Keep the last plan's stages for all later plans, until the next call.

        Many plans differ from it late, but from each other early. The next plan may also continue from the previous
        kept state.
        """
        if self._before is not None:
            kept, self._kept = self._kept, (self._before, list(self._entered))
            self._before, self._entered[:] = kept or self._kept
            self._entries, self._held_bytes = self._graph.entries(), None  # new ones, which overwrite neither

    def run(
        self, prepared: Iterable[Prepared], names: Callable[[Plan], Collection[str]] | None = None
    ) -> Iterator[tuple[Plan, dict[str, np.ndarray]]]:
        """Yield each plan with its outputs: those that ``names`` returns for the plan, or all."""
        for now in prepared:
            yield now.plan, self.outputs(now, names(now.plan) if names else None)

    def outputs(self, now: Prepared, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """Return the wanted tensors under a plan (``names``: only these).

        The plan runs from the first stage that differs from the previous plan or from the kept one.
        """
        graph, entered, last = self._graph, self._entered, len(now.marks) - 1
        start = 0 if self._before is None else min(_agreeing(self._before.marks, now.marks), last)
        if self._kept is not None and (kept := min(_agreeing(self._kept[0].marks, now.marks), last)) > start:
            start, entered[:] = kept, self._kept[1]
        self._before = self._held_bytes = None  # after an error there is nothing to continue from
        del entered[start + 1 :]
        carried = entered[start] if entered else {}
        for stage in range(start, last + 1):
            if stage == len(entered):
                entered.append(carried)
            reads = {name: now.fed[name] for name in graph.reads[stage] if name in now.fed}
            computed = graph.run(stage, {**carried, **reads, **self._picture}, self._entries[stage])
            onwards = graph.carries[stage + 1] if stage < last else None
            carried = {n: v for n, v in {**carried, **computed}.items() if onwards is None or n in onwards}
        self._before = now
        return graph.arrays(carried, names)


def _agreeing(a: Sequence[tuple[int, ...]], b: Sequence[tuple[int, ...]]) -> int:
    """Return the first stage at which two plans differ."""
    return next((stage for stage, (first, second) in enumerate(zip(a, b)) if first != second), len(b))


def _cuts(trial: PlanTrial) -> list[int]:
    """Return the nodes at which a domain's parameters are first read, at most MAX_STAGES - 1 of them."""
    together = trial.analysis.together
    owner: dict[str, str] = {}
    for chosen in trial.domains:
        root = together[chosen.name]
        members = [name for name in trial.analysis.stored if together[name] == root]
        owner |= {parameter(n, part, trial.mark): chosen.name for n in members for part in (LOW, SCALE, ZERO_POINT)}
        owner |= {parameter(name, WEIGHT, trial.mark): chosen.name for name in chosen.convolutions}
    first: dict[str, int] = {}
    for index, node in enumerate(trial.every_plan.graph.node):
        for name in node.input:
            if name in owner:
                first.setdefault(owner[name], index)
    places = sorted(set(first.values()) - {0})
    places = places[:: -(-len(places) // MAX_PLACES) or 1]
    if len(places) < MAX_STAGES:
        return places
    before = np.cumsum([0.0, *_costs(trial)])
    return [places[index] for index in _starts(before[places], MAX_STAGES - 1)]


def _costs(trial: PlanTrial) -> list[float]:
    """Return the approximate cost of each node, in passes over a value; a convolution does PRODUCTS in that time."""
    graph = trial.analysis.graph
    costs = []
    for node in trial.every_plan.graph.node:
        name = node.output[0].split(trial.mark)[0]
        values = math.prod(length or 1 for length in graph.shapes.get(name, ()))
        made, products = graph.producer.get(name), 0.0
        if (
            made is not None
            and node.op_type == made.op_type
            and len(made.input) > 1
            and made.input[1] in graph.constants
        ):
            weights = math.prod(graph.constants[made.input[1]].dims) if is_convolution(graph, made) else 0
            channels = (graph.shapes.get(name) or (1,))[1 if node.op_type in ("Conv", "ConvTranspose") else -1] or 1
            products = weights / channels
        costs.append(values * (1 + products / PRODUCTS))
    return costs


def _starts(offsets: np.ndarray, most: int) -> list[int]:
    """Return the places, of ascending ones, that begin the best ``most`` parts.

    The best parts have the least sum of distances from each place back to the beginning of its part. Uses dynamic
    programming.
    """
    count = len(offsets)
    sums, index = np.cumsum([0.0, *offsets]), np.arange(count + 1)
    begins = np.append(offsets, 0.0)
    parts = sums[None, :] - sums[:, None] - (index[None, :] - index[:, None]) * begins[:, None]
    parts[index[:, None] >= index[None, :]] = np.inf
    least, chosen = parts[0], []
    for _ in range(most - 1):
        table = least[:, None] + parts
        chosen.append(table.argmin(axis=0))
        least = table.min(axis=0)
    starts = [count]
    for before in reversed(chosen):
        starts.append(int(before[starts[-1]]))
    return [0, *starts[:0:-1]]
