"""Find the first tensor in which two runs of a model differ, dumping a few tensors instead of all.

An error, once made, mostly stays: what is computed from a wrong tensor is wrong too. So a tensor that agrees clears all
that it is computed from, and where one disagrees the culprit is among those it is computed from. As ``git bisect`` does
with commits, each try takes the tensor that splits the suspects most evenly. Where operators read at most d
tensors one of the two parts is never smaller than about 1/(d+1), so that the tries grow with log N; a fork of many
branches costs up to one try for each branch.

An error can also be swallowed on its way (a Relu, a maximum, a sum of much larger values). So the tensor found is
verified: the tensors it reads are dumped too, and while one of them disagrees the search goes on from there. The result
disagrees while everything it is made from agrees. When several nodes are at fault it is one of them.

Where all tensors can be looked at in seconds they are: each operator of either executor is computed again from the
inputs recorded for it (``pipeline/replay.py``). So an error that is swallowed before it reaches the tensors tried is
found, and what only moves data, or passes on an error that grows relative to its values, is not blamed.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.executors.runner import Layer
from sgsdump.files.escaping import shown
from sgsdump.models.graph import needs, sorted_nodes
from sgsdump.pipeline.not_dumped import NotDumped
from sgsdump.pipeline.replay import judge, recorded_run, worst_by_channel
from sgsdump.pipeline.run import run, run_whole
from sgsdump.pipeline.steps import FAST, ISOLATED, Engine, Failed
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.dtypes import is_complex

if TYPE_CHECKING:
    import onnx

    from sgsdump.models.model import Model

THRESHOLD = 1e-3
SECONDS = 60.0
"""All tensors are looked at where that takes no longer, by the time that the tries took."""
_FAST_DUMP_IN_TRIES = 4
ROUNDING = 1e-5
"""A smaller threshold asks for differences by rounding too, and no operator is cleared of them."""


@dataclass(frozen=True)
class Missing:
    """A tensor that one executor does not give, or neither; ``failed``: running the model for it went wrong."""

    executors: tuple[str, ...]
    reason: str
    failed: bool = False

    @property
    def one_sided(self) -> bool:
        """Whether the other executor gives the tensor."""
        return len(self.executors) == 1


Answer = float | Missing | None
"""The result of comparing a tensor: its difference, which executor does not give it, or None when unknown."""


@dataclass(frozen=True)
class Tried:
    """A tensor that was asked of both; ``difference`` is Inf where only one gives it, None where neither does."""

    name: str
    difference: float | None
    missing: Missing | None = None


@dataclass(frozen=True)
class FirstDifference:
    """A tensor that disagrees while the tensors it is made from agree.

    side    the executor whose operator is at fault, where it was computed again from its recorded inputs; else "".
    missing the executor that does not give it, and why; None where both give it.
    node    name of the node that makes it, or "".
    inputs  the tensors that agree: what the node reads, weights and inputs of the model left out; in the
            place of a tensor that cannot be dumped, what that one is made from.
    """

    name: str
    node: str
    op_type: str
    difference: float
    inputs: tuple[Tried, ...]
    missing: Missing | None = None
    side: str = ""


@dataclass(frozen=True)
class Bisection:
    """The first tensor that differs (None when all tried agree), those tried in order, and how many there are.

    looked_at  how many tensors were looked at: those tried, or all that both executors give.
    others     further tensors whose own operator is at fault, where all were looked at, in the order of the graph.
    fused      found with each tensor the only output of its model: with others marked beside it there is no difference.
    """

    first: FirstDifference | None
    tried: tuple[Tried, ...]
    in_all: int
    looked_at: int = 0
    others: tuple[str, ...] = ()
    fused: bool = False

    @property
    def failed(self) -> tuple[Tried, ...]:
        """Those tried that neither executor could compute."""
        return tuple(t for t in self.tried if t.difference is None and t.missing and t.missing.failed)


def bisect_executors(
    model: Model,
    engine: Engine,
    reference: Engine,
    feed: Mapping[str, np.ndarray],
    threshold: float = THRESHOLD,
    progress: Progress = SILENT,
) -> Bisection:
    """Where ``engine`` first differs from ``reference`` by more than ``threshold``, measured by ``worst_relative``, or
    which of them does not give it. Raises what ``run`` raises.

    Where nothing differs though the outputs of the whole model do, an operator is wrong only while it is fused: each
    tensor is then dumped as the only output of its model (``isolated``).
    """

    def differs(name: str) -> Answer:
        outcomes = [(each.name, _outcome(run(model, each, feed, [name]))) for each in (engine, reference)]
        missing = [(executor, lost) for executor, lost in outcomes if isinstance(lost, NotDumped)]
        if not missing:
            return worst_relative(*(array for _, array in outcomes))  # type: ignore[arg-type]
        reason = next((lost.reason for _, lost in missing if lost.failed), missing[0][1].reason)
        return Missing(tuple(name for name, _ in missing), reason, any(lost.failed for _, lost in missing))

    start = time.monotonic()
    found = bisect(model.proto, differs, threshold, progress)
    tries = _FAST_DUMP_IN_TRIES if engine.mode == reference.mode == FAST else found.in_all
    needed = (time.monotonic() - start) / max(1, len(found.tried)) * tries
    if needed <= SECONDS and not (found.first and found.first.missing):
        found = _looked_at_all(found, model, (engine, reference), feed, threshold, progress)
    if found.first is None and not found.failed and FAST in (engine.mode, reference.mode):
        names = _differing_outputs(model, engine, reference, feed, threshold)
        if names:
            progress.say(f"the whole model in one run differs in {shown(names[0])}; now each tensor by itself")
            ours, theirs = (replace(each, mode=ISOLATED) for each in (engine, reference))
            again = bisect_executors(model, ours, theirs, feed, threshold, progress)
            found = replace(again, fused=True)
    return found


def _differing_outputs(
    model: Model, engine: Engine, reference: Engine, feed: Mapping[str, np.ndarray], threshold: float
) -> list[str]:
    """The model's outputs that differ where nothing but them is marked as an output."""
    ours, theirs = (run_whole(model, each, feed) for each in (engine, reference))
    if isinstance(ours, Failed) or isinstance(theirs, Failed):
        return []
    return [name for name in ours if name in theirs and not worst_relative(ours[name], theirs[name]) <= threshold]


def _looked_at_all(
    found: Bisection,
    model: Model,
    engines: tuple[Engine, Engine],
    feed: Mapping[str, np.ndarray],
    threshold: float,
    progress: Progress,
) -> Bisection:
    """The bisection after a look at every tensor: what is found is the first whose own operator is at fault."""
    with tempfile.TemporaryDirectory(prefix="sgsdump-") as folder:
        sample, benchmark = (
            recorded_run(model, engine, feed, Path(folder) / str(number), progress)
            for number, engine in enumerate(engines)
        )
        names = [name for name in sample if name in benchmark and name not in feed]
        with progress.bar("look at all", "tensor") as advance:
            judgement = judge(model, sample, benchmark, names, advance)

        def tried(name: str) -> Tried:
            return Tried(name, worst_relative(sample[name], benchmark[name]))

        at_fault = [each for each in judgement.errors if not (each.finite and each.error <= threshold)]
        if not at_fault:
            kept = found.first is not None and (found.first.name in judgement.unknown or threshold < ROUNDING)
            return replace(found, first=found.first if kept else None, looked_at=len(names))
        first = at_fault[0]
        sources = tuple(tried(name) for name in first.inputs if name not in feed)
        side = engines[first.side != "sample"].name
        difference = max(first.error, tried(first.name).difference or 0.0)
        difference = difference if first.finite else math.inf
        result = FirstDifference(first.name, first.node, first.op_type, difference, sources, None, side)
    others = tuple(each.name for each in at_fault[1:])
    return replace(found, first=result, looked_at=len(names), others=others)


def bisect(
    proto: onnx.ModelProto,
    differs: Callable[[str], Answer],
    threshold: float = THRESHOLD,
    progress: Progress = SILENT,
) -> Bisection:
    """The first tensor of the graph, on some way through it, whose difference is over the threshold.

    differs   the difference of a tensor, 0 for none; NaN is beyond any threshold, and so is one that only one side
              gives; None when it is not known.
    progress  says a line for each tensor tried.

    First the ends of the graph are tried, then about log2(N) tensors spread over it; when these agree nothing is found.
    Raises ModelError for a graph with a cycle.
    """
    nodes = [node for node in sorted_nodes(proto.graph) if node.op_type != "Constant"]
    makers = {name: node for node in nodes for name in node.output if name}

    missing: dict[str, Missing] = {}

    def ask(name: str) -> float | None:
        answer = differs(name)
        if isinstance(answer, Missing):
            missing[name] = answer
            answer = math.inf if answer.one_sided else None
        progress.say(tried_line(name, answer, missing[name].executors if name in missing else ()))
        return answer

    search = Search({name: [n for n in needs(node) if n in makers] for name, node in makers.items()}, threshold, ask)
    name = search.run()
    inputs = search.sources(name) if name is not None else []
    tried = {name: Tried(name, value, missing.get(name)) for name, value in search.tried.items()}
    first = None
    if name is not None:
        node = makers[name]
        difference = float(search.tried[name] or 0)
        sources = tuple(tried[source] for source in inputs)
        first = FirstDifference(name, node.name, node.op_type, difference, sources, missing.get(name))
    return Bisection(first, tuple(tried.values()), len(makers), len(tried))


def tried_line(name: str, difference: float | None, missing: Sequence[str] = ()) -> str:
    """``tried relu_1: 1.2e-07``, the worst difference against the tensor's largest value; ``not given by tvm`` where
    only the other executor gives it."""
    if len(missing) == 1:
        result = f"not given by {missing[0]}"
    else:
        result = "given by neither" if difference is None else f"{difference:.3g}"
    return f"tried {shown(name)}: {result}"


def worst_relative(sample: np.ndarray, benchmark: np.ndarray) -> float:
    """max|s-b| / max|b| of the worst channel (``worst_by_channel``): relative to the channel's largest value, whatever
    its unit; coordinates do not hide the scores beside them.

    Not a mean, in which one wrong element of a large tensor would drown. Inf where the shapes differ, where one has
    NaN or Inf and the other has not or another, and where b is all 0 and s is not.
    """
    if sample.shape != benchmark.shape:
        return math.inf
    wide = np.complex128 if is_complex(sample.dtype) or is_complex(benchmark.dtype) else np.float64
    s, b = sample.astype(wide), benchmark.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(s[~finite], b[~finite], equal_nan=True) or not np.isfinite(s[finite]).all():
        return math.inf
    s, b = np.where(finite, s, 0), np.where(finite, b, 0)
    return worst_by_channel(np.abs(s - b), b)


def _outcome(outcomes: Iterable[Layer | NotDumped]) -> np.ndarray | NotDumped:
    """The one tensor asked for, or why it was not given."""
    for outcome in outcomes:
        return outcome.array if isinstance(outcome, Layer) else outcome
    return NotDumped("", "", "", "the run gave nothing", True)


class Search:
    """One search in one graph; ``ask`` gives a tensor's difference, each tensor is asked for once.

    reads  the tensors each tensor is made from; each after those it is made from.
    tried  the differences asked for, in that order.
    """

    def __init__(self, reads: Mapping[str, Sequence[str]], threshold: float, ask: Callable[[str], float | None]):
        self.tried: dict[str, float | None] = {}
        self._reads = reads
        self._threshold = threshold
        self._ask = ask
        self._names = list(reads)
        self._index = {name: index for index, name in enumerate(self._names)}
        # Sets of tensors as the bits of integers: a tensor with all that it is made from.
        self._cone: dict[str, int] = {}
        for index, name in enumerate(self._names):
            cone = 1 << index
            for source in reads[name]:
                cone |= self._cone[source]
            self._cone[name] = cone

    def run(self) -> str | None:
        """The tensor that disagrees while its sources agree; None when what was tried agrees."""
        target = next((name for name in self._first_looks() if self._try(name)), None)
        culprit = None
        cleared = self._cleared(self.tried)
        while target is not None:
            culprit = self._narrow(target, cleared)
            bad = [name for name in self.sources(culprit) if self._is_bad(name)]
            target = min(bad, key=self._index.__getitem__, default=None)
            if target is not None:
                # The error was swallowed somewhere below: what agrees there clears nothing any more.
                cleared = self._cleared(self._members(self._cone[target]))
        return culprit

    def sources(self, name: str) -> list[str]:
        """The sources of a tensor, all of them tried; an unknown tensor is replaced by its own sources."""
        made_from: list[str] = []
        visited: set[str] = set()
        pending = list(reversed(self._reads[name]))
        while pending:
            source = pending.pop()
            if source in visited:
                continue
            visited.add(source)
            self._try(source)
            if self.tried[source] is None:
                pending += reversed(self._reads[source])
            else:
                made_from.append(source)
        return made_from

    def _first_looks(self) -> list[str]:
        """The graph's ends, the one made from most first; then tensors spread evenly."""
        read = {source for sources in self._reads.values() for source in sources}
        ends = [name for name in self._names if name not in read]
        ends.sort(key=lambda name: -self._cone[name].bit_count())
        count = len(self._names)
        step = max(1, round(count / max(1.0, math.log2(max(count, 1)))))
        return [*ends, *reversed(self._names[::step])]

    def _narrow(self, target: str, cleared: int) -> str:
        """The tensor at which the suspects, those the target is made from, end."""
        suspects = self._cone[target] & ~cleared
        target = next((name for name in self._members(suspects) if self._is_bad(name)), target)
        suspects &= self._cone[target]
        while waiting := [name for name in self._members(suspects) if name not in self.tried]:
            name = max(waiting, key=lambda name: self._evenness(name, suspects))
            if self._try(name):
                target = name
                suspects &= self._cone[name]
            elif self.tried[name] is not None:
                suspects &= ~self._cone[name]
        return target

    def _evenness(self, name: str, suspects: int) -> int:
        part = (self._cone[name] & suspects).bit_count()
        return min(part, suspects.bit_count() - part)

    def _try(self, name: str) -> bool:
        """Whether the tensor disagrees."""
        if name not in self.tried:
            self.tried[name] = self._ask(name)
        return self._is_bad(name)

    def _is_bad(self, name: str) -> bool:
        value = self.tried.get(name)
        return value is not None and not value <= self._threshold

    def _cleared(self, names: Iterable[str]) -> int:
        """The tensors that these are made from, where these agree."""
        cleared = 0
        for name in names:
            if self.tried.get(name) is not None and not self._is_bad(name):
                cleared |= self._cone[name]
        return cleared

    def _members(self, tensors: int) -> list[str]:
        return [name for index, name in enumerate(self._names) if tensors >> index & 1]
