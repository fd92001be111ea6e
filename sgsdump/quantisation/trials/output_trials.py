"""Measure on a few pictures what a choice does to the model's outputs: which ranges to take, what needs INT16.

Errors are shares of energy: sum((y - r)^2) / sum(r^2) of an output y against its reference r, averaged over the
outputs and pictures; 0.002 is a noise 27 dB below the signal. The outputs are ``objective.watched_tensors``: in place
of a Softmax's its input.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.model import Model
from sgsdump.models.passes.rewrites import mark_outputs
from sgsdump.progress import Advance, unwatched
from sgsdump.quantisation.fixed_model import pictures_of
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.input_agreement import raw_bytes
from sgsdump.quantisation.objective import watched_tensors
from sgsdump.quantisation.ranges.measured_ranges import Feed
from sgsdump.quantisation.ranges.range_fit import MIN_MAX, Proposal, proposals
from sgsdump.quantisation.ranges.statistics import Statistics
from sgsdump.quantisation.ranges.value_histogram import ValueHistogram
from sgsdump.quantisation.trials.plan_trial import Domain, PlanTrial
from sgsdump.quantisation.trials.plan_walk import PlanWalk
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# The SDK's -sth: a domain whose 8 bits alone change the outputs by more than this is raised to INT16.
THRESHOLD = 0.002
# A fitted range is tried when its error on the tensor is at most this part of min_max's: what gains less on its own
# tensor did not gain at the outputs (on a face detector, taking the least tensor error everywhere cost 8 %).
WORTH_TRYING = 0.6
# And it is taken when it takes at least this part off the error of the outputs.
WORTH_TAKING = 0.05


@dataclass(frozen=True)
class Sensitivity:
    """``effect``: the error of the outputs with this domain at 8 bits and all others at 16, against all at 16."""

    domain: Domain
    effect: float
    raised: bool


@dataclass(frozen=True)
class RangeFit:
    """A UINT8 domain (``tensors``), what was tried for it (min_max first), what was taken, and the outputs' error
    before and after."""

    tensors: tuple[str, ...]
    proposals: tuple[Proposal, ...]
    taken: Proposal
    before: float
    after: float


class Work:
    """Runs done and to be done, on a bar."""

    def __init__(self, advance: Advance = unwatched):
        self.done = self.total = 0
        self._advance = advance

    def expect(self, runs: int) -> None:
        self.total += runs

    def step(self) -> None:
        self.done += 1
        self._advance(self.done, self.total)


class Trials:
    """Plans and ranges of one model, tried on the same few pictures (normalised, as ``calibrate`` takes them).

    Weights without a range for each output channel get that of the weights themselves.
    """

    def __init__(
        self,
        model: Model,
        ranges: Mapping[str, Range],
        config: InputConfig,
        feeds: Sequence[Feed],
        advance: Advance = unwatched,
    ):
        self.outputs = watched_tensors(deployed(model))
        self.ranges = ranges
        self.work = Work(advance)
        marked = replace(model, proto=mark_outputs(model.proto, self.outputs))
        self.trial = PlanTrial(marked, ranges, config, per_channel=True)
        self._walk = PlanWalk(self.trial, self.outputs)
        pictures = pictures_of(model, config, ranges)
        self._visits = [
            self._walk.visit(
                {n: raw_bytes(array, pictures[n]) if n in pictures else array for n, array in feed.items()}
            )
            for _, feed in feeds
        ]
        runner = SegmentRunner(marked, keep_sessions=True)
        only = set(self.outputs)
        self.float_outputs = [{layer.name: layer.array for layer in runner.run(feed, only=only)} for _, feed in feeds]

    @property
    def pictures(self) -> int:
        return len(self._visits)

    def with_ranges(self, ranges: Mapping[str, Range]) -> Trials:
        """The same with other ranges of variable tensors (the weights' stay); shares everything that is costly."""
        other = copy(self)
        other.ranges = ranges
        return other

    def run(self, raised: Iterable[str]) -> list[dict[str, np.ndarray]]:
        """The outputs of each picture; fastest when one plan differs from the next late in the network."""
        self.trial.ranges = self.ranges
        plan = self._walk.prepared(frozenset(raised))
        outputs = []
        with ThreadPoolExecutor(min(os.cpu_count() or 1, self.pictures)) as pool:
            for values in pool.map(lambda visit: visit.outputs(plan), self._visits):
                outputs.append(values)
                self.work.step()
        return outputs

    def error(self, raised: Iterable[str], against: Sequence[Mapping[str, np.ndarray]] | None = None) -> float:
        """Mean error of the outputs with the ``raised`` domains at INT16; against the float model's by default."""
        wanted = self.float_outputs if against is None else against
        errors = [_error(y[n], r[n]) for y, r in zip(self.run(raised), wanted) for n in self.outputs]
        return float(np.mean(errors))


def sensitivities(trials: Trials, threshold: float = THRESHOLD) -> tuple[Sensitivity, ...]:
    """Of every domain that can be INT16, most sensitive first: one run a picture and domain, and one more."""
    domains = trials.trial.domains
    every = [domain.name for domain in domains]
    trials.work.expect(trials.pictures * (1 + len(domains)))
    wide = trials.run(every)
    measured: list[Sensitivity] = []
    for domain in reversed(domains):  # so that each run begins at its own domain, not at that of the one before
        effect = trials.error([name for name in every if name != domain.name], wide)
        measured.insert(0, Sensitivity(domain, effect, effect > threshold))
    return tuple(sorted(measured, key=lambda s: -s.effect))


def fit_ranges(trials: Trials, statistics: Statistics) -> tuple[dict[str, Range], tuple[RangeFit, ...]]:
    """The ranges with fitted ones where the outputs gain, domain by domain in execution order; and what was tried."""
    ranges = dict(trials.ranges)
    worthy = []
    for tensors in _narrow_domains(trials):
        plain, *others = _proposals(tensors, statistics, ranges)
        tried = [proposal for proposal in others if proposal.error <= WORTH_TRYING * plain.error]
        if tried:
            worthy.append((tensors, plain, tried))
    if not worthy:
        return ranges, ()
    trials.work.expect(trials.pictures * (1 + sum(len(tried) for *_, tried in worthy)))
    before = trials.error(())
    fits = []
    for tensors, plain, tried in worthy:
        best, after = plain, before
        changed: dict[str, Range] = {}
        for proposal in tried:
            clipped = {name: _clipped(ranges[name], proposal) for name in tensors}
            error = trials.with_ranges({**ranges, **clipped}).error(())
            if error < after and error <= (1 - WORTH_TAKING) * before:
                best, after, changed = proposal, error, clipped
        ranges |= changed
        fits.append(RangeFit(tensors, (plain, *tried), best, before, after))
        before = after
    return ranges, tuple(fits)


def _error(values: np.ndarray, reference: np.ndarray) -> float:
    """Infinite where the values hold NaN or infinity: nothing is worse."""
    difference, wanted = values.astype(np.float64) - reference, reference.astype(np.float64)
    energy, noise = float(np.sum(wanted**2)), float(np.sum(difference**2))
    if not np.isfinite(noise):
        return float("inf")
    return noise / energy if energy else float(noise > 0)


def _narrow_domains(trials: Trials) -> list[tuple[str, ...]]:
    """Tensors of every domain that convolutions read, the picture's left out, and the inputs of a Concat, whose
    range is its output's."""
    analysis = trials.trial.analysis
    given = {n for op in analysis.operators if op.head.op_type == "Concat" for n in op.inputs}
    members: dict[str, list[str]] = {}
    for name in analysis.stored:
        if name in trials.ranges and name not in given:
            members.setdefault(analysis.domain[name], []).append(name)
    roots = [analysis.domain[domain.name] for domain in trials.trial.domains]
    return [tuple(members[root]) for root in roots if root in members]


def _proposals(tensors: tuple[str, ...], statistics: Statistics, ranges: Mapping[str, Range]) -> list[Proposal]:
    low, high = min(ranges[n].low for n in tensors), max(ranges[n].high for n in tensors)
    counted = [statistics.histograms[name] for name in tensors if name in statistics.histograms]
    if not counted:
        return [Proposal(low, high, MIN_MAX, 0.0)]
    whole: ValueHistogram = counted[0]
    for histogram in counted[1:]:
        whole = whole.merged(histogram)
    return proposals(whole, low, high)


def _clipped(measured: Range, proposal: Proposal) -> Range:
    """A tensor's own range within the proposal; INT16 keeps all of it."""
    fitted = Range.of(max(measured.low, proposal.low), min(measured.high, proposal.high))
    return replace(fitted, wide=measured)
