"""Calibration levels L1 to L5: what calibration does beyond the minimum and maximum of each tensor.

level  weights per channel   activation ranges fitted   raised to INT16
L1
L2     x
L3     x                     x
L4     x                                                x
L5     x                     x                          x

calibration = calibrate(model, feeds, config, "L5")
fixed = make_fixed(model, calibration.ranges, calibration.config)

Trials on a few images decide which ranges to use and which tensors need INT16, by the error of the model's outputs.
Two images find candidates; all TRIALS images verify every decision. At most MOST_FITTED domains get range trials.
Convolutions are tried in groups at 8 bits, and groups that barely affect the outputs are not split further
(``group_effects``). The number of trials therefore grows with the sensitive layers, not with the size of the model.

Errors are relative squared errors, sum((y - r)^2) / sum(r^2) of an output y against its reference r, averaged over
outputs and images. 0.002 is noise 27 dB below the signal. The outputs are ``objective.watched_tensors``, which take the
input of a Softmax in place of the Softmax.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from onnx import ModelProto

from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.executors.workers.task_pool import ALONE, Workers
from sgsdump.fixedpoint.quantisation.analysis import Analysis, analyse, is_convolution, output_axis
from sgsdump.fixedpoint.quantisation.float_model import deployed, pictures_of, raw_bytes
from sgsdump.fixedpoint.quantisation.levels import LEVELS, Level, level_named
from sgsdump.fixedpoint.quantisation.objective import watched_tensors
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, decide
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import Feed, gather, of_masks, plain_ranges
from sgsdump.fixedpoint.quantisation.ranges.statistics import (
    MIN_MAX,
    FloatRun,
    Proposal,
    Selection,
    Statistics,
    ValueHistogram,
    as_printed,
    proposals,
)
from sgsdump.fixedpoint.quantisation.tensor_scales import UINT8
from sgsdump.fixedpoint.quantisation.trials.group_effects import SURE, GroupEffects
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain, PlanTrial
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk, Prepared, Visit
from sgsdump.models.feeds.by_content import runs_by_content
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.models.passes.rewrites import mark_outputs
from sgsdump.progress import SILENT, Advance, Progress, unwatched
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# The SDK's -sth: a domain is raised to INT16 if its 8 bits alone change the outputs by more than this.
THRESHOLD = 0.002
# Limit for the trial results that are kept for the next plan, over all images together.
HELD_BYTES = 256 << 20
# A fitted range is tried if its error on the tensor is at most this part of the min_max error. Smaller gains on the
# tensor gave none at the outputs (on a face detector, the least tensor error everywhere cost 8 %).
WORTH_TRYING = 0.6
# A fitted range is taken if it lowers the error of the outputs by at least this part.
WORTH_TAKING = 0.05
# A calibration without trial plans runs this many images in about half the time of its rehearsal (on each of the six
# models timed), and it ends with the same check.
REHEARSED_ABOVE = 8
# Images that verify fits and sensitivities; more images changed no decision on the models tried.
TRIALS = 4
# Domains that ranges are tried for: the domains whose own tensor gains most.
MOST_FITTED = 24
# From this many domains on, one image finds the promising ones, because the trials grow with the square.
MANY = 100
# Range ends this close together, as a part of the range, count as one proposal.
ALIKE = 0.01


@dataclass(frozen=True)
class Sensitivity:
    """The effect of one domain at 8 bits.

    effect    output error with this domain at 8 bits and all others at 16, against all at 16.
    together  the number of domains that were at 8 bits together. Above 1, ``effect`` is that of a group that barely
              affects the outputs. If the domain stays far below the threshold, ``effect`` was measured on few images.
    """

    domain: Domain
    effect: float
    raised: bool
    together: int = 1


@dataclass(frozen=True)
class RangeFit:
    """Range trials of one UINT8 domain.

    tensors    the tensors of the domain.
    proposals  the ranges tried, min_max first.
    taken      the range that was chosen.
    before, after  error of the outputs without and with it.
    """

    tensors: tuple[str, ...]
    proposals: tuple[Proposal, ...]
    taken: Proposal
    before: float
    after: float


class Work:
    """A progress bar that counts runs done and runs expected."""

    def __init__(self, advance: Advance = unwatched):
        self.done = self.total = 0
        self._advance = advance

    def expect(self, runs: int) -> None:
        self.total += runs

    def step(self) -> None:
        self.done += 1
        self.total = max(self.total, self.done)
        self._advance(self.done, self.total)

    def finish(self) -> None:
        """Complete the bar: the remaining expected runs were not needed."""
        if self.done < self.total:
            self.done = self.total
            self._advance(self.done, self.total)


class Trials:
    """Plans and ranges of one model, tried on the same few images.

    runs   the images, and the float model's values of the ``watched_tensors``.
    proto  the ``deployed`` model, if the caller has it already.

    Weights without one range per output channel get the minimum and maximum of each channel.
    """

    def __init__(
        self,
        model: Model,
        ranges: Mapping[str, Range],
        config: InputConfig,
        runs: Sequence[FloatRun],
        advance: Advance = unwatched,
        proto: ModelProto | None = None,
    ):
        proto = proto or deployed(model)
        self.outputs = watched_tensors(proto)
        self.ranges = ranges
        self.work = Work(advance)
        trial = replace(model, proto=mark_outputs(proto, self.outputs))
        self.trial = PlanTrial(trial, ranges, config, per_channel=True)
        self._walk = PlanWalk(self.trial, self.outputs)
        pictures = pictures_of(model, config, ranges)
        self._fed = [
            {n: raw_bytes(array, pictures[n]) if n in pictures else array for n, array in run.feed.items()}
            for run in runs
        ]
        self._visits: list[Visit | None] = [None] * len(self._fed)
        self._threads = ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, len(self._fed))))
        self._pictures: Sequence[int] = range(len(self._fed))
        self._floats = {index: run.outputs for index, run in enumerate(runs)}
        self._errors: dict[tuple[frozenset[str], int, int], _Errors] = {}

    @property
    def pictures(self) -> int:
        return len(self._pictures)

    @property
    def few(self) -> Trials:
        """The same trials on the first and the last image."""
        return self._on({self._pictures[0], self._pictures[-1]})

    @property
    def first(self) -> Trials:
        """The same trials on the first image."""
        return self._on({self._pictures[0]})

    def _on(self, pictures: set[int]) -> Trials:
        other = copy(self)
        other._pictures = sorted(pictures)
        return other

    def with_ranges(self, ranges: Mapping[str, Range]) -> Trials:
        """Return trials with other ranges of variable tensors; weights keep theirs, and costly state is shared."""
        other = copy(self)
        other.ranges = ranges
        return other

    def run(self, raised: Iterable[str]) -> list[dict[str, np.ndarray]]:
        """Return the outputs of each image; fastest if one plan differs from the next late in the model."""
        return list(self._run(raised, self._pictures).values())

    def keep(self) -> None:
        """Keep the results of the last plan as the base that later plans differ from."""
        for index in self._pictures:
            if (visit := self._visits[index]) is not None:
                visit.keep()

    def add_outputs(self, raised: Iterable[str], outputs: dict[int, dict[str, np.ndarray]]) -> None:
        """Add the outputs of a plan for the images that ``outputs`` lacks."""
        outputs |= self._run(raised, [index for index in self._pictures if index not in outputs])

    def _run(self, raised: Iterable[str], pictures: Sequence[int]) -> dict[int, dict[str, np.ndarray]]:
        if not pictures:
            return {}
        self.trial.ranges = self.ranges
        plan = self._walk.prepared(frozenset(raised))
        outputs = {}
        for index, values in zip(pictures, self._threads.map(lambda index: self._outputs(index, plan), pictures)):
            outputs[index] = values
            self.work.step()
        return outputs

    def _outputs(self, index: int, plan: Prepared) -> dict[str, np.ndarray]:
        """Return the outputs of one image; intermediate results are kept while those of all images fit HELD_BYTES."""
        visit = self._visits[index] or self._walk.visit(self._fed[index])
        values = visit.outputs(plan)
        held = visit.held_bytes + sum(v.held_bytes for i, v in enumerate(self._visits) if v is not None and i != index)
        self._visits[index] = visit if held <= HELD_BYTES else None
        return values

    def error(self, raised: Iterable[str], against: Mapping[int, Mapping[str, np.ndarray]] | None = None) -> float:
        """Return the mean error of the outputs with the ``raised`` domains at INT16.

        against  reference outputs by image; default: the float model's. Images already measured for this plan, these
                 ranges and this reference are not run again.
        """
        plan, reference = frozenset(raised), self._floats if against is None else against
        known = self._errors.setdefault((plan, id(self.ranges), id(reference)), _Errors(self.ranges, reference, {}))
        for index, values in self._run(plan, [i for i in self._pictures if i not in known.of]).items():
            known.of[index] = [_error(values[name], reference[index][name]) for name in self.outputs]
        return float(np.mean([error for index in self._pictures for error in known.of[index]]))


class _Errors(NamedTuple):
    """The errors of the outputs by image, and the ranges and reference that they belong to."""

    ranges: Mapping[str, Range]
    reference: Mapping[int, Mapping[str, np.ndarray]]
    of: dict[int, list[float]]


def sensitivities(trials: Trials, threshold: float = THRESHOLD) -> tuple[Sensitivity, ...]:
    """Measure every domain that can be INT16; most sensitive first.

    Candidates for INT16 are measured alone on all images.
    """
    domains = trials.trial.domains
    few = trials.few if len(domains) < MANY else trials.first
    every = [domain.name for domain in domains]
    if not domains:
        return ()
    trials.work.expect(few.pictures * (1 + len(domains)))
    wide: dict[int, dict[str, np.ndarray]] = {}
    few.add_outputs(every, wide)
    few.keep()
    effects = GroupEffects(
        len(every), lambda group: few.error([name for i, name in enumerate(every) if i not in group], wide)
    )
    near = effects.at_least(SURE * threshold)
    alone = {index: effects.bounds[index] for index in near}
    if near and few.pictures < trials.pictures:
        trials.add_outputs(every, wide)
        for index in near:  # last first, so that each run starts at its own domain, not at that of the previous run
            alone[index] = trials.error([name for name in every if name != domains[index].name], wide)
    measured = []
    for index, domain in enumerate(domains):
        effect = alone.get(index, effects.bounds[index])
        together = 1 if index in alone else effects.together[index]
        measured.append(Sensitivity(domain, effect, index in alone and effect > threshold, together))
    return tuple(sorted(measured, key=lambda s: -s.effect))


def fit_ranges(trials: Trials, statistics: Statistics) -> tuple[dict[str, Range], tuple[RangeFit, ...]]:
    """Return the ranges, fitted where the outputs improve, domain by domain in execution order, and the trials.

    A range that gains half of WORTH_TAKING on few images is verified on all of them.
    """
    ranges, few = dict(trials.ranges), trials.few
    worthy = _worth_trying(trials, statistics)
    if not worthy:
        return ranges, ()
    trials.work.expect(trials.pictures + few.pictures * sum(len(tried) for _, _, tried in worthy))
    before, before_few = trials.error(()), few.error(())
    few.keep()
    fits = []
    for tensors, plain, tried in worthy:
        best, least, changed = plain, (1 - WORTH_TAKING / 2) * before_few, ranges
        for proposal in tried:
            fitted = _fitted(ranges, tensors, proposal)
            error = few.with_ranges(fitted).error(())
            if error < before_few and error <= least:
                best, least, changed = proposal, error, fitted
        taken, after = plain, before
        if best is not plain:
            error = trials.with_ranges(changed).error(())
            if error < before and error <= (1 - WORTH_TAKING) * before:
                taken, after, before_few, ranges = best, error, least, changed
                few.keep()  # this, or the last proposal tried, which differs no earlier in the model
        fits.append(RangeFit(tensors, (plain, *tried), taken, before, after))
        before = after
    return ranges, tuple(fits)


def _worth_trying(trials: Trials, statistics: Statistics) -> list[tuple[tuple[str, ...], Proposal, list[Proposal]]]:
    """Return at most MOST_FITTED domains in execution order, each with its plain range and better proposals."""
    worthy = []
    for tensors in _narrow_domains(trials):
        plain, *others = _proposals(tensors, statistics, trials.ranges)
        tried: list[Proposal] = []
        for proposal in others:
            near = ALIKE * (plain.high - plain.low)
            known = any(abs(p.low - proposal.low) + abs(p.high - proposal.high) <= near for p in tried)
            if proposal.error <= WORTH_TRYING * plain.error and not known:
                tried.append(proposal)
        if tried:
            worthy.append((tensors, plain, tried))
    gains = sorted(min(p.error for p in tried) / plain.error if plain.error else 0.0 for _, plain, tried in worthy)
    most = gains[:MOST_FITTED][-1] if gains else 0.0
    return [entry for entry in worthy if not entry[1].error or min(p.error for p in entry[2]) <= most * entry[1].error][
        :MOST_FITTED
    ]


def _fitted(ranges: Mapping[str, Range], tensors: Iterable[str], proposal: Proposal) -> dict[str, Range]:
    return {**ranges, **{name: _clipped(ranges[name], proposal) for name in tensors}}


def _error(values: np.ndarray, reference: np.ndarray) -> float:
    """Return the relative squared error; infinite if the values hold NaN or infinity."""
    difference, selection = values.astype(np.float64) - reference, reference.astype(np.float64)
    energy, noise = float(np.sum(selection**2)), float(np.sum(difference**2))
    if not np.isfinite(noise):
        return float("inf")
    return noise / energy if energy else float(noise > 0)


def _narrow_domains(trials: Trials) -> list[tuple[str, ...]]:
    """Return the tensors of every domain that convolutions read.

    Image domains are left out. So are inputs of a Concat, which has one range for inputs and output.
    """
    analysis = trials.trial.analysis
    concatenated = {n for op in analysis.operators if op.head.op_type == "Concat" for n in op.inputs}
    members: dict[str, list[str]] = {}
    for name in analysis.stored:
        if name in trials.ranges and name not in concatenated:
            members.setdefault(analysis.domain[name], []).append(name)
    roots = list(dict.fromkeys(analysis.domain[domain.name] for domain in trials.trial.domains))
    return [tuple(members[root]) for root in roots if root in members]


def _proposals(tensors: tuple[str, ...], statistics: Statistics, ranges: Mapping[str, Range]) -> list[Proposal]:
    low, high = min(ranges[n].low for n in tensors), max(ranges[n].high for n in tensors)
    counted = [statistics.histograms[name] for name in tensors if name in statistics.histograms]
    if not counted:
        return [Proposal(low, high, MIN_MAX, 0.0)]
    whole: ValueHistogram = counted[0]
    for histogram in counted[1:]:
        whole = whole.merged(histogram)
    return proposals(whole, low, high, WORTH_TRYING)


def _clipped(measured: Range, proposal: Proposal) -> Range:
    """Return a tensor's own range clipped to the proposal; INT16 keeps the whole range."""
    fitted = Range.of(max(measured.low, proposal.low), min(measured.high, proposal.high))
    return replace(fitted, wide=measured)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The results of calibration.

    ranges         range of every float tensor in graph order, for ``make_fixed`` and ``PlanTrial``.
    config         the input_config; ``tensor_arrays`` includes the convolutions that the level raised to INT16.
    statistics     statistics of all images.
    fits           UINT8 domains for which other ranges than minimum and maximum were tried.
    sensitivities  one entry per domain that can be INT16, most sensitive first; empty below L4.
    """

    ranges: dict[str, Range]
    config: InputConfig
    statistics: Statistics
    fits: tuple[RangeFit, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()

    @property
    def seen(self) -> dict[str, Range]:
        """The range of each tensor's values on the images, before any range was narrowed.

        The values of a mask count up to the cut only.
        """
        masks = {name: each for name, each in self.ranges.items() if each.uncut is not None}
        return {name: masks.get(name) or Range.of(*ends) for name, ends in self.statistics.whole.items()}


@dataclass(frozen=True)
class CalibrationOptions:
    """Options of calibration.

    level      L1 to L5.
    fuse       False with disableDomainFuseOps: every layer stays visible.
    threshold  L4 and L5 raise convolutions with a greater ``Sensitivity.effect`` to INT16.
    """

    level: str = "L5"
    fuse: bool = True
    threshold: float = THRESHOLD


def calibrate(
    model: Model,
    feeds: Sequence[Feed],
    config: InputConfig,
    options: CalibrationOptions | str = "L5",
    workers: Workers = ALONE,
    progress: Progress = SILENT,
) -> Calibration:
    """Calibrate a simplified float model on normalised images; with ALL_INT16, levels above L1 act like L2.

    feeds     with several processes, an object that can be pickled: ``Feeds``.
    options   calibration options, or only the name of the level.
    workers   processes that run the images; they do not affect the result.
    progress  counts the images of the one pass over all, then the trial runs for ranges and bits (L3 to L5), and
              reports a lost worker.
    Raises what ``gather`` raises. If ``is_long``, call ``fixed_model.rehearse`` first: it rejects a model that cannot
    be quantised within seconds.
    """
    options = CalibrationOptions(options) if isinstance(options, str) else options
    does, fuse = level_named(options.level), options.fuse
    if config.conv_format == "ALL_INT16" and does.weights:
        does = LEVELS["L2"]
    proto = deployed(model)
    names = {entry.name for entry in config.inputs if entry.is_picture and entry.quantised}
    analysis = analyse(proto, names & set(Graph(proto).inputs) if config.inputs else None, fuse)
    selected, tried = selection(analysis, does), 0
    if does.activations or does.bits:
        selected, tried = replace(selected, outputs=frozenset(watched_tensors(proto))), min(TRIALS, len(feeds))
        feeds = runs_by_content(feeds)
    kept = {*np.linspace(0, len(feeds) - 1, tried).astype(int)}
    statistics = gather(model, feeds, selected, workers, progress, kept)
    runs, statistics = statistics.runs, replace(statistics, runs=())
    ranges = plain_ranges(model, statistics, analysis.graph)
    fits: tuple[RangeFit, ...] = ()
    measured: tuple[Sensitivity, ...] = ()
    if does.weights:
        ranges |= _channel_weights(analysis, ranges)
        ranges = _with_zero(analysis, ranges, config)
    if runs:
        usable = ranges
        with progress.bar("measure", "run") as advance:
            trials = Trials(model, usable, config, runs, advance, proto)
            if does.activations:
                usable, fits = fit_ranges(trials, statistics)
                ranges |= usable
            if does.bits:
                measured = sensitivities(trials.with_ranges(usable), options.threshold)
                raised = tuple(s.domain.name for s in measured if s.raised)
                named = config.tensor_arrays
                config = replace(
                    config,
                    tensor_arrays=tuple(dict.fromkeys([*named, *raised])),
                    by_level=tuple(name for name in raised if name not in named),
                )
            trials.work.finish()
        del trials  # together with the results kept for each image
        release_unused()
    return Calibration({n: as_printed(each) for n, each in ranges.items()}, config, statistics, fits, measured)


def is_long(level: str, pictures: int) -> bool:
    """Return whether a calibration takes longer than its rehearsal. Raises ConfigError for an unknown level."""
    return pictures > REHEARSED_ABOVE or level_named(level) != Level()


def selection(analysis: Analysis, level: Level) -> Selection:
    """Return the statistics that a level needs; those of the side files (tensor_chn, softmax_lut_range) always."""
    graph, domain, masks = analysis.graph, analysis.domain, of_masks(analysis.graph)
    narrow = {domain[name] for name in analysis.first_inputs} - analysis.picture_domains
    return Selection(
        histograms=frozenset(n for n in analysis.stored if level.activations and domain[n] in narrow),
        channels={n.output[0]: _channel_axis(n.op_type) for n in graph.nodes if is_convolution(graph, n)},
        softmax=masks.softmax,
        masks=masks.masks,
        guarded=masks.guarded,
        masked=masks.masked,
    )


def _channel_axis(op_type: str) -> int:
    return 1 if op_type in ("Conv", "ConvTranspose") else -1


def _channel_weights(analysis: Analysis, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the minimum and maximum of each output channel of convolution weights, as the SDK does from L2 on.

    Weights that several convolutions read get the range of the first one.
    """
    seen: dict[str, Range] = {}
    for nodes in analysis.first_inputs.values():
        for node in nodes:
            weights = node.input[1]
            if weights in ranges and weights not in seen:
                values, axis = analysis.graph.value(weights), output_axis(analysis.graph, node)
                others = tuple(i for i in range(values.ndim) if i != axis)
                low, high = values.min(axis=others), values.max(axis=others)
                seen[weights] = Range(low.astype(np.float64), high.astype(np.float64))
    return seen


def _with_zero(analysis: Analysis, ranges: Mapping[str, Range], config: InputConfig) -> dict[str, Range]:
    """Return the ranges, extended to include 0 for UINT8 tensors, as stored (and as the SDK writes them above L1)."""
    choice = Choice(config.conv_format or "ALL_UINT8", config.tensor_arrays)
    narrow = {name for name, quant in decide(analysis, ranges, choice).tensors.items() if quant.dtype == UINT8}
    return {
        name: Range.of(min(measured.low, 0.0), max(measured.high, 0.0)) if name in narrow else measured
        for name, measured in ranges.items()
    }
