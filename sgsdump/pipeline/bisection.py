"""Find the first tensor in which two runs of a model differ, dumping a few tensors instead of all.

Errors usually propagate: tensors computed from a wrong tensor are wrong too. A tensor that agrees thus clears all
tensors from which it is computed; if a tensor disagrees, the culprit is itself or one of these. Like ``git bisect``
with commits, each try takes the tensor that splits the suspects most evenly. If operators read at most d tensors, each
part has at least about 1/(d+1) of the suspects, so the number of tries grows with log N. A fork into many branches
costs up to one try per branch.

An error can also be hidden on its way (by a Relu, a maximum, a sum with much larger values). The result is therefore
verified: its input tensors are dumped too, and if one disagrees, the search continues there. In the end the result
disagrees while all tensors from which it is computed agree. If several nodes are at fault, the result is one of them.

If all tensors can be checked within seconds, they are: each operator of either executor is recomputed from its recorded
inputs (``pipeline/replay.py``). This finds errors that are hidden before they reach the tensors tried. Operators that
only move data, or pass on an error that grows relative to the values, are not blamed.
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
"""Longest estimated time, from the time of the tries, for a check of all tensors."""
_FAST_DUMP_IN_TRIES = 4
ROUNDING = 1e-5
"""Smaller thresholds include differences by rounding, of which no operator is cleared."""


@dataclass(frozen=True)
class Missing:
    """Tensor that one executor, or both, do not provide; ``failed`` means that running the model for it failed."""

    executors: tuple[str, ...]
    reason: str
    failed: bool = False

    @property
    def one_sided(self) -> bool:
        """True if the other executor provides the tensor."""
        return len(self.executors) == 1


Answer = float | Missing | None
"""Result of comparing a tensor: its difference, the executors that do not provide it, or None if unknown."""


@dataclass(frozen=True)
class Tried:
    """Tensor that both executors were asked for.

    ``difference`` is Inf if only one provides it, None if neither does.
    """

    name: str
    difference: float | None
    missing: Missing | None = None


@dataclass(frozen=True)
class FirstDifference:
    """Tensor that disagrees although the tensors from which it is computed agree.

    side    executor whose operator is at fault if it was recomputed from its recorded inputs; else "".
    missing executor that does not provide the tensor, and why; None if both provide it.
    node    name of the node that computes it, or "".
    inputs  agreeing tensors that the node reads, without weights and model inputs; a tensor that cannot be dumped is
            replaced by its own inputs.
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
    """Result of a bisection: first differing tensor (None if all agree), tensors tried in order, number of all tensors.

    looked_at  number of tensors checked: those tried, or all that both executors provide.
    others     further tensors whose own operator is at fault, in the order of the graph, if all were checked.
    fused      found with each tensor as the only output of its model; with other outputs there is no difference.
    """

    first: FirstDifference | None
    tried: tuple[Tried, ...]
    in_all: int
    looked_at: int = 0
    others: tuple[str, ...] = ()
    fused: bool = False

    @property
    def failed(self) -> tuple[Tried, ...]:
        """Tried tensors that neither executor could compute."""
        return tuple(t for t in self.tried if t.difference is None and t.missing and t.missing.failed)


def bisect_executors(
    model: Model,
    engine: Engine,
    reference: Engine,
    feed: Mapping[str, np.ndarray],
    threshold: float = THRESHOLD,
    progress: Progress = SILENT,
) -> Bisection:
    """Find where ``engine`` first differs from ``reference`` by more than ``threshold``, or lacks a tensor.

    Differences are measured by ``worst_relative``. If nothing differs although the outputs of the whole model do, an
    operator is wrong only when fused. Each tensor is then dumped as the only output of its model (``isolated``). Raises
    the errors of ``run``.
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
            progress.say(f"the whole model in one run differs in {shown(names[0])}; now dumping each tensor separately")
            ours, theirs = (replace(each, mode=ISOLATED) for each in (engine, reference))
            again = bisect_executors(model, ours, theirs, feed, threshold, progress)
            found = replace(again, fused=True)
    return found


def _differing_outputs(
    model: Model, engine: Engine, reference: Engine, feed: Mapping[str, np.ndarray], threshold: float
) -> list[str]:
    """Return the model outputs that differ if no other tensors are marked as outputs."""
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
    """Return the bisection after a check of every tensor: the first tensor whose own operator is at fault."""
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
    """Find the first tensor of the graph, on some path through it, whose difference exceeds the threshold.

    differs   returns the difference of a tensor (0 for none) or None if unknown. NaN exceeds any threshold, as does a
              tensor that only one side provides.
    progress  receives a line for each tensor tried.

    The ends of the graph are tried first, then about log2(N) tensors spread over it; if these agree, nothing is found.
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
    """Return ``tried relu_1: 1.2e-07``, or ``not given by tvm`` if only the other executor provides the tensor.

    The number is the worst difference relative to the largest value.
    """
    if len(missing) == 1:
        result = f"not given by {missing[0]}"
    else:
        result = "given by neither" if difference is None else f"{difference:.3g}"
    return f"tried {shown(name)}: {result}"


def worst_relative(sample: np.ndarray, benchmark: np.ndarray) -> float:
    """Return max|s-b| / max|b| of the worst channel (``worst_by_channel``).

    The result is relative to the channel's largest value, whatever its unit, so that coordinates do not hide the scores
    beside them. It is not a mean, which would hide a single wrong element of a large tensor. Inf if the shapes differ,
    if NaN or Inf differ between the sides, or if b is all 0 and s is not.
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
    """Return the requested tensor, or the reason why it is missing."""
    for outcome in outcomes:
        return outcome.array if isinstance(outcome, Layer) else outcome
    return NotDumped("", "", "", "the run returned nothing", True)


class Search:
    """Search in one graph; ``ask`` returns a tensor's difference, and each tensor is asked for once.

    reads  tensors from which each tensor is computed; producers come first.
    tried  differences in the order of the tries.
    """

    def __init__(self, reads: Mapping[str, Sequence[str]], threshold: float, ask: Callable[[str], float | None]):
        self.tried: dict[str, float | None] = {}
        self._reads = reads
        self._threshold = threshold
        self._ask = ask
        self._names = list(reads)
        self._index = {name: index for index, name in enumerate(self._names)}
        # Sets of tensors as bits of integers: a tensor with all tensors upstream of it.
        self._cone: dict[str, int] = {}
        for index, name in enumerate(self._names):
            cone = 1 << index
            for source in reads[name]:
                cone |= self._cone[source]
            self._cone[name] = cone

    def run(self) -> str | None:
        """Return the tensor that disagrees although its sources agree; None if all tried tensors agree."""
        target = next((name for name in self._first_looks() if self._try(name)), None)
        culprit = None
        cleared = self._cleared(self.tried)
        while target is not None:
            culprit = self._narrow(target, cleared)
            bad = [name for name in self.sources(culprit) if self._is_bad(name)]
            target = min(bad, key=self._index.__getitem__, default=None)
            if target is not None:
                # The error is hidden somewhere downstream, so agreeing tensors there clear nothing any more.
                cleared = self._cleared(self._members(self._cone[target]))
        return culprit

    def sources(self, name: str) -> list[str]:
        """Return the sources of a tensor, all tried; an unknown tensor is replaced by its own sources."""
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
        """Return the graph's ends, those with most tensors upstream first, then evenly spread tensors."""
        read = {source for sources in self._reads.values() for source in sources}
        ends = [name for name in self._names if name not in read]
        ends.sort(key=lambda name: -self._cone[name].bit_count())
        count = len(self._names)
        step = max(1, round(count / max(1.0, math.log2(max(count, 1)))))
        return [*ends, *reversed(self._names[::step])]

    def _narrow(self, target: str, cleared: int) -> str:
        """Return the tensor at which the suspects upstream of the target end."""
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
        """Return whether the tensor disagrees."""
        if name not in self.tried:
            self.tried[name] = self._ask(name)
        return self._is_bad(name)

    def _is_bad(self, name: str) -> bool:
        value = self.tried.get(name)
        return value is not None and not value <= self._threshold

    def _cleared(self, names: Iterable[str]) -> int:
        """Return the tensors upstream of those names that agree."""
        cleared = 0
        for name in names:
            if self.tried.get(name) is not None and not self._is_bad(name):
                cleared |= self._cone[name]
        return cleared

    def _members(self, tensors: int) -> list[str]:
        return [name for index, name in enumerate(self._names) if tensors >> index & 1]
