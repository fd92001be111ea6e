"""Measured advice on an existing fixed model: its output error, the causes, and the convolutions to raise.

A float approximation ranks the candidates, each tried alone on a few images. The outputs, unchanged and with candidates
raised, are measured with the chip's integer arithmetic on all images. Inputs that the fixed model already has at
INT16 stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import ModelProto

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.fixedpoint.curing.ranges import with_int16_room
from sgsdump.fixedpoint.quantisation.analysis import Analysis, analyse
from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed, uint8_inputs
from sgsdump.fixedpoint.quantisation.objective import output_error, watched_tensors
from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FloatOutputs, PlanOutputs, outputs_of
from sgsdump.fixedpoint.tuning.advice import MAYBE, YES, Advice, advise, holds, tensor_arrays
from sgsdump.fixedpoint.tuning.causes import named_causes, with_contributions
from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution, config_names, convolutions, read_signs
from sgsdump.fixedpoint.tuning.sensitivity_analysis import LabelledPictureFeed, Measurement, SensitivityAnalysis
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.types import Range

# A larger plan must remove at least this share of the remaining error.
WORTH_MORE = 0.1
# Number of cached fixed models: a plan is run, compared layer by layer and written.
KEPT = 3
# Largest fixed model that is cached.
KEPT_BYTES = 4 << 20


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """A fixed model and its measurements in float approximation.

    raised    first inputs, one per domain, that the fixed model has at INT16.
    layers    convolution -> tensor that its operator stores.
    judged    tensors that the outputs are judged by.
    fixed     cache of small fixed models with some convolutions raised.
    """

    subject: Subject
    analysis: Analysis
    convolutions: tuple[Convolution, ...]
    measurement: Measurement
    raised: tuple[str, ...]
    layers: Mapping[str, str]
    judged: tuple[str, ...]
    trial: SensitivityAnalysis
    pairs: PicturePairs
    fixed: dict[tuple[tuple[str, ...], bool, bool], ModelProto] = field(default_factory=dict)

    def advise(self, limits: Thresholds, good: bool, comparison: Comparison | None = None) -> tuple[Advice, ...]:
        convs = list(self.convolutions)
        signs = read_signs(self.analysis, convs, self.subject.ranges, comparison=comparison)
        return advise(convs, signs, self.measurement, limits, good)

    def at_8_bits(self, advice: Iterable[Advice]) -> list[Advice]:
        """Return the advice on inputs that have 8 bits, or a range that clips their values."""
        domains = {self.analysis.switch(name) for name in self.raised}
        return [
            entry
            for entry in advice
            if entry.convolution.domain not in domains or (entry.measured is not None and entry.measured.clipped)
        ]

    def with_raised(self, advice: Iterable[Advice]) -> tuple[str, ...]:
        """Return the inputs that are raised already or recommended, and those that the same words raise too."""
        return self._with_words({*self.raised, *tensor_arrays(advice, self.convolutions)})

    def with_maybes(self, advice: Iterable[Advice]) -> tuple[str, ...]:
        maybes = {entry.convolution.input for entry in advice if entry.verdict == MAYBE}
        return self._with_words({*self.with_raised(advice), *maybes})

    def _with_words(self, names: Iterable[str]) -> tuple[str, ...]:
        words = config_names(_ordered(names, self.convolutions), self.convolutions)
        raised = RaisedInputs(self.analysis).inputs_of(words) if words else ()
        return _ordered({*names, *raised}, self.convolutions)

    def rate(self, names: Iterable[str]) -> float:
        """Return the bytes of the weights as a share of their bytes at INT16, with these inputs raised."""
        raised, trial = set(names), self.trial.trial
        return trial.rate(domain.name for domain in trial.domains if raised.intersection(domain.inputs))

    @property
    def every(self) -> tuple[str, ...]:
        domains = {domain.name for domain in self.trial.trial.domains}
        return _ordered({*self.raised, *domains}, self.convolutions)


@dataclass(frozen=True, eq=False)
class Promise:
    """A plan that was run in integers.

    names     all its first inputs at INT16.
    foreseen  output error in the float approximation, on the images that ranked the candidates.
    found     output error in integers, on the same images.
    rate      bytes of the weights as a share of their bytes at INT16.
    """

    names: tuple[str, ...]
    outputs: PlanOutputs
    foreseen: float
    found: float
    rate: float

    @property
    def error(self) -> float:
        return output_error(self.outputs.sums)


@dataclass(frozen=True, eq=False)
class MeasuredAdvice:
    """The measured advice on a fixed model.

    advice       on every convolution, worst first.
    outputs      of the unchanged fixed model, on all images.
    good         whether the outputs are within the limits.
    promise      recommended plan; None without one.
    smaller      plan of the most certain inputs alone, if a larger plan was chosen.
    all_16       every convolution at INT16, if that was run.
    sources      findings on the causes of the output error (``with_causes``).
    per_channel  outputs of the recommended plan, or of the unchanged model, with one weight scale per output channel.
                 None if the model has such scales, if its outputs are good, or if less than a tenth is gained.
    """

    measured: MeasuredModel
    limits: Thresholds
    advice: tuple[Advice, ...]
    outputs: PlanOutputs
    good: bool
    promise: Promise | None = None
    all_16: Promise | None = None
    sources: tuple[Finding, ...] = ()
    per_channel: PlanOutputs | None = None
    smaller: Promise | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs at INT16 of the recommended plan, or of the fixed model without a recommendation."""
        return self.promise.names if self.promise is not None else self.measured.raised

    @property
    def new(self) -> tuple[str, ...]:
        """The recommended inputs that are not at INT16 yet."""
        return tuple(name for name in self.names if name not in self.measured.raised)

    @property
    def config_names(self) -> tuple[str, ...]:
        """``names`` as ``tensor_arrays`` takes them."""
        return config_names(self.names, self.measured.convolutions)

    @property
    def has_room(self) -> bool:
        """Whether INT16 ranges can get room: an input has INT16, and the model was calibrated here."""
        return bool(self.config_names) and self.measured.subject.made is not None

    @property
    def beside(self) -> dict[str, tuple[str, ...]]:
        """Word of ``tensor_arrays`` -> further inputs that the SDK raises with it, although that is not recommended."""
        have, convs = set(self.names), self.measured.convolutions
        wanted = {entry.convolution.input for entry in self.advice if entry.verdict in (YES, MAYBE)} & have
        words = config_names(_ordered({*self.measured.raised, *wanted}, convs), convs)
        return RaisedInputs(self.measured.analysis).beside(words)

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The causes of an error beyond the limits, the largest first."""
        return tuple(finding for finding in self.sources if finding.kind == "cause")


def measure(subject: Subject, pairs: PicturePairs, progress: Progress = SILENT) -> MeasuredModel | None:
    """Measure the contribution of every convolution.

    None without ranges or without a convolution that can be raised. ``pairs``: images to measure on; a few are enough.
    Raises ValuesError if the outputs cannot be measured.
    """
    analysis = analyse(deployed(subject.float_model), uint8_inputs(subject.float_model, subject.config, subject.ranges))
    convs = convolutions(analysis)
    if not subject.ranges or all(conv.reads_picture for conv in convs):
        return None
    raised = _raised_of(subject.fixed_model, [conv for conv in convs if conv.domain not in analysis.forced_domains])
    trial = SensitivityAnalysis(
        subject.float_model, subject.ranges, subject.config, subject.per_channel, raised, subject.side
    )
    if not trial.judged:
        return None
    with progress.bar("advise", "run", trial.most_runs(len(pairs))) as advance:
        measurement = trial.measure(labelled(pairs), advance)
    judged = tuple(trial.judged)
    return MeasuredModel(subject, analysis, tuple(convs), measurement, raised, trial.layers, judged, trial, pairs)


def judge(
    subject: Subject,
    measured: MeasuredModel | None,
    pairs: PicturePairs,
    limits: Thresholds = DOCUMENTED,
    progress: Progress = SILENT,
) -> tuple[PlanOutputs, MeasuredAdvice | None]:
    """Return the outputs of the unchanged fixed model on all images, and the advice.

    If the first plan is not enough, a larger plan is tried; if no plan is, every convolution at INT16.

    pairs  all images.
    """
    run = _runner(subject, pairs, progress)

    def promised(names: tuple[str, ...], outputs: PlanOutputs) -> Promise:
        assert measured is not None
        few = measured.pairs.labels_in(pairs)
        foreseen = measured.measurement.all_16
        if names != measured.every:
            foreseen = measured.trial.try_plan(names, labelled(measured.pairs))
        return Promise(names, outputs, output_error(foreseen), output_error(outputs.sums_on(few)), measured.rate(names))

    if measured is None:
        return run([subject.fixed_model.proto], "outputs")[0], None

    def plan(names: tuple[str, ...]) -> ModelProto:
        return fixed_with(measured, names, room=True)

    advice = measured.advise(limits, good=False)
    names = measured.with_raised(advice)
    tried = names != measured.raised and not holds(measured.measurement.all_8, limits)
    models = [subject.fixed_model.proto, *([plan(names)] if tried else [])]
    outputs, *others = run(models, "outputs")
    good = outputs.good(limits)
    advice = measured.advise(limits, good)
    if good:
        return outputs, MeasuredAdvice(measured, limits, advice, outputs, good)
    if not others and names != measured.raised:
        others = run([plan(names)], "plan")
    promise = promised(names, others[0]) if others and not others[0].worse_than(outputs) else None
    more, smaller = measured.with_maybes(advice), None
    if (promise is None or not promise.outputs.good(limits)) and more not in (names, measured.raised):
        larger = promised(more, run([plan(more)], "larger plan")[0])
        before = promise.error if promise is not None else output_error(outputs.sums)
        helps = larger.outputs.good(limits) or larger.error <= (1 - WORTH_MORE) * before
        if helps and not larger.outputs.worse_than(outputs):
            promise, smaller = larger, promise
    all_16 = None
    if promise is None or not promise.outputs.good(limits):
        every = measured.every
        if every not in (measured.raised, promise.names if promise else ()):
            all_16 = promised(every, run([plan(every)], "all at INT16")[0])
    if promise is not None and not promise.error < (1 - WORTH_MORE) * output_error(outputs.sums):
        # A plan that does not help is not recommended; if it raises every convolution, it also shows that INT16 fails.
        all_16 = promise if promise.names == measured.every else all_16
        promise = None if not promise.outputs.good(limits) else promise
    per_channel = None
    if not subject.per_channel and not (promise is not None and promise.outputs.good(limits)):
        best = promise.names if promise is not None else measured.raised
        room = best != measured.raised
        per_channel = run([fixed_with(measured, best, True, room=room)], "one scale per channel")[0]
        before = promise.error if promise is not None else output_error(outputs.sums)
        if not output_error(per_channel.sums) <= (1 - WORTH_MORE) * before or per_channel.worse_than(outputs):
            per_channel = None
    found = MeasuredAdvice(measured, limits, advice, outputs, good, promise, all_16, (), per_channel, smaller)
    return outputs, found if promise is not None else replace(found, smaller=None)


def with_causes(advice: MeasuredAdvice, pairs: PicturePairs, progress: Progress = SILENT) -> MeasuredAdvice:
    """Return the advice with the causes of the output error, measured in integers on all images."""
    measured = advice.measured
    run = _runner(measured.subject, pairs, progress)

    inputs = {conv.name: conv.input for conv in measured.convolutions}

    def left(convolutions: Sequence[str], held: Mapping[str, Range]) -> float:
        if not convolutions and advice.all_16 is not None:
            return advice.all_16.error
        names = (*measured.raised, *(inputs[name] for name in convolutions)) if convolutions else measured.every
        return output_error(run([fixed_with(measured, names, held=held)], "candidates")[0].sums)

    at_8_bits = measured.at_8_bits(advice.advice)
    sources = named_causes(at_8_bits, measured.measurement, advice.outputs, advice.limits, left)
    return replace(
        advice, sources=with_contributions(sources, measured.trial, measured.measurement, labelled(measured.pairs))
    )


def _runner(
    subject: Subject, pairs: PicturePairs, progress: Progress
) -> Callable[[list[ModelProto], str], list[PlanOutputs]]:
    """Return a function that runs fixed models on all images; its second argument names the progress bar."""
    judged = watched_tensors(deployed(subject.float_model))
    spans = {name: r.at(INT16).high - r.at(INT16).low for name, r in subject.ranges.items()}
    floats = FloatOutputs(subject.float_model, judged)

    def run(models: list[ModelProto], what: str) -> list[PlanOutputs]:
        release_unused()
        pictures = each(progress, labelled(pairs), what, "image", len(pairs))
        return outputs_of(subject.float_model, models, pictures, judged, spans, floats)

    return run


def fixed_with(
    measured: MeasuredModel,
    names: Iterable[str],
    per_channel: bool = False,
    held: Mapping[str, Range] = {},
    room: bool = False,
) -> ModelProto:
    """Return the fixed model with these inputs at INT16.

    per_channel  one weight scale per output channel instead of one per tensor.
    held         ranges that replace calibration ranges.
    room         INT16 ranges have room if the model was calibrated here, as in the quant file (``roomy_ranges``).
    """
    subject = measured.subject
    words = tuple(config_names(names, measured.convolutions))
    per_channel = per_channel or subject.weights_per_channel
    room = room and subject.made is not None
    key = words, per_channel, room
    if key in measured.fixed and not held:
        return measured.fixed[key]
    config = replace(subject.config, tensor_arrays=words)
    ranges = {**(roomy_ranges(subject, per_channel) if room else subject.ranges), **held}
    proto = make_fixed(subject.float_model, ranges, config, True, per_channel, subject.side).proto
    if proto.ByteSize() <= KEPT_BYTES and not held:
        measured.fixed[key] = proto
        if len(measured.fixed) > KEPT:
            del measured.fixed[next(iter(measured.fixed))]
    return proto


def roomy_ranges(subject: Subject, per_channel: bool = False) -> dict[str, Range]:
    """Return the ranges with room for tensors stored in INT16, as in the quant file of a plan."""
    channels = subject.side.channels
    return with_int16_room(subject.float_model, subject.ranges, channels, subject.per_channel or per_channel)


def labelled(pairs: PicturePairs) -> Iterator[LabelledPictureFeed]:
    for index in range(len(pairs)):
        picture = pairs.make(index)
        yield picture.label, picture.feed, picture.raw


def _raised_of(fixed: Model, convs: Iterable[Convolution]) -> tuple[str, ...]:
    facts = read_facts(fixed)
    wide = {name for name, tensor in facts.tensors.items() if tensor.dtype == INT16} if facts else set()
    return _ordered({conv.input for conv in convs if conv.input in wide}, convs)


def _ordered(names: Iterable[str], convs: Iterable[Convolution]) -> tuple[str, ...]:
    """Return one name per domain, in execution order."""
    first: dict[str, str] = {}
    for conv in convs:
        if conv.input in names:
            first.setdefault(conv.domain, conv.input)
    return tuple(first.values())
