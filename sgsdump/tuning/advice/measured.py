"""Advice on a fixed model that was compared on pictures: what its outputs lose, and which convolutions to raise for it,
measured one by one.

The advice starts from the fixed model as it is: what it has at INT16 already stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.diagnosis.picture_pairs import PicturePairs
from sgsdump.quantisation.diagnosis.subject import Subject
from sgsdump.quantisation.domains import Analysis, analyse
from sgsdump.quantisation.fixed_metadata import read_facts
from sgsdump.quantisation.fixed_model import pictures_of
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.scales import INT16
from sgsdump.tuning.advice.advice import Advice, advise, holds, tensor_arrays
from sgsdump.tuning.advice.rules_of_thumb import Convolution, config_names, convolutions, read_signs
from sgsdump.tuning.advice.sensitivity_analysis import LabelledPictureFeed, Measurement, SensitivityAnalysis, Totals


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured before anything is compared.

    raised       first inputs, one of each domain, that the fixed model has at INT16.
    names        those and what is advised to raise; ``tried`` is with them raised, None where there are none.
    layers       convolution -> the tensor that its operator stores; ``judged`` are those the outputs are judged by.
    """

    subject: Subject
    limits: Thresholds
    analysis: Analysis
    convolutions: tuple[Convolution, ...]
    measurement: Measurement
    raised: tuple[str, ...]
    names: tuple[str, ...]
    tried: Totals | None
    layers: Mapping[str, str]
    judged: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class MeasuredAdvice:
    """advice    on every convolution, worst first.
    outputs   the judged tensors' sums on all pictures, of the fixed model as it is; only those that were compared.
    good      whether ``outputs`` are within the limits.
    """

    measured: Measured
    advice: tuple[Advice, ...]
    outputs: Totals
    good: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs to have at INT16: what the fixed model has where its outputs are good."""
        return self.measured.raised if self.good else self.measured.names

    @property
    def config_names(self) -> tuple[str, ...]:
        """``names`` as ``tensor_arrays`` takes them."""
        return config_names(self.names, self.measured.convolutions)


def measure(
    subject: Subject, pairs: PicturePairs, limits: Thresholds = DOCUMENTED, progress: Progress = SILENT
) -> Measured | None:
    """None where there is nothing to measure: no ranges, or no convolution that could be raised.

    pairs  the pictures to measure on; a few will do. Raises ValuesError where the outputs cannot be measured.
    """
    analysis = analyse(deployed(subject.float_model), pictures_of(subject.float_model, subject.config, subject.ranges))
    convs = convolutions(analysis)
    if not subject.ranges or all(conv.reads_picture for conv in convs):
        return None
    trial = SensitivityAnalysis(subject.float_model, subject.ranges, subject.config, subject.per_channel)
    with progress.bar("advise", "run", trial.runs * len(pairs)) as advance:
        measurement = trial.measure(_labelled(pairs), advance)
    raised = _raised(subject.fixed_model, [conv for conv in convs if conv.domain not in analysis.forced_domains])
    advice = advise(convs, read_signs(analysis, convs, subject.ranges), measurement, limits)
    names = _ordered({*raised, *tensor_arrays(advice, convs)}, convs)
    tried = trial.try_plan(names, _labelled(pairs)) if names else None
    judged = tuple(trial.judged)
    return Measured(subject, limits, analysis, tuple(convs), measurement, raised, names, tried, trial.layers, judged)


def advise_by_measure(measured: Measured, comparison: Comparison) -> MeasuredAdvice:
    """``comparison``: of the fixed with the float model over all pictures."""
    convs, judged = list(measured.convolutions), measured.judged
    signs = read_signs(measured.analysis, convs, measured.subject.ranges, comparison=comparison)
    advice = advise(convs, signs, measured.measurement, measured.limits)
    outputs = {row.name: row.sums for row in comparison.alike if row.name in judged and row.sums is not None}
    return MeasuredAdvice(measured, advice, outputs, bool(outputs) and holds(outputs, measured.limits))


def _labelled(pairs: PicturePairs) -> Iterator[LabelledPictureFeed]:
    for index in range(len(pairs)):
        picture = pairs.make(index)
        yield picture.label, picture.feed, picture.raw


def _raised(fixed: Model, convs: Iterable[Convolution]) -> tuple[str, ...]:
    facts = read_facts(fixed)
    wide = {name for name, tensor in facts.tensors.items() if tensor.dtype == INT16} if facts else set()
    return _ordered({conv.input for conv in convs if conv.input in wide}, convs)


def _ordered(names: Iterable[str], convs: Iterable[Convolution]) -> tuple[str, ...]:
    """One of each domain, in execution order."""
    first: dict[str, str] = {}
    for conv in convs:
        if conv.input in names:
            first.setdefault(conv.domain, conv.input)
    return tuple(first.values())
