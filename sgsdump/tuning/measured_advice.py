"""Advice on a fixed model that was compared on pictures: what its outputs lose, and which convolutions to raise for it,
measured one by one.

The advice starts from the fixed model as it is: what it has at INT16 already stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.diagnosis.picture_pairs import PicturePairs
from sgsdump.quantisation.diagnosis.subject import Subject
from sgsdump.quantisation.domains import analyse
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.fixed_model import pictures_of
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.scales import INT16
from sgsdump.tuning.advice import Advice, advise, holds, tensor_arrays
from sgsdump.tuning.rules_of_thumb import Convolution, convolutions, read_signs
from sgsdump.tuning.sensitivity_analysis import LabelledPictureFeed, Measurement, SensitivityAnalysis, Totals


@dataclass(frozen=True, eq=False)
class MeasuredAdvice:
    """advice    on every convolution, worst first.
    raised    first inputs, one of each domain, that the fixed model has at INT16.
    names     those to raise, ``raised`` among them; () where the outputs are good as they are.
    outputs   the judged tensors' sums on all pictures, of the fixed model as it is; only those that were compared.
    good      whether ``outputs`` are within the limits.
    measurement  on some of the pictures; ``tried`` is with ``names`` raised, None where there are none.
    layers    convolution -> the tensor that its operator stores.
    """

    advice: tuple[Advice, ...]
    limits: Thresholds
    raised: tuple[str, ...]
    names: tuple[str, ...]
    outputs: Totals
    good: bool
    measurement: Measurement
    tried: Totals | None
    layers: Mapping[str, str]


def advise_by_measure(
    subject: Subject,
    pairs: PicturePairs,
    comparison: Comparison,
    limits: Thresholds = DOCUMENTED,
    progress: Progress = SILENT,
) -> MeasuredAdvice | None:
    """None where there is nothing to measure: no ranges, or no convolution that could be raised.

    pairs       the pictures to measure on; a few will do.
    comparison  of the fixed with the float model over all pictures.
    Raises ValuesError where the outputs cannot be compared.
    """
    analysis = analyse(deployed(subject.float_model), pictures_of(subject.float_model, subject.config, subject.ranges))
    convs = convolutions(analysis)
    if not subject.ranges or all(conv.reads_picture for conv in convs):
        return None
    trial = SensitivityAnalysis(subject.float_model, subject.ranges, subject.config, subject.per_channel)
    pictures = [_labelled(pairs, index) for index in range(len(pairs))]
    with progress.bar("advise", "run", trial.runs * len(pictures)) as advance:
        measurement = trial.measure(pictures, advance)
    raised = _raised(subject.fixed_model, convs)
    advice = advise(convs, read_signs(analysis, convs, subject.ranges, comparison=comparison), measurement, limits)
    outputs = {row.name: row.sums for row in comparison.alike if row.name in trial.judged and row.sums is not None}
    good = bool(outputs) and holds(outputs, limits)
    names = () if good else _ordered({*raised, *tensor_arrays(advice, convs)}, convs)
    tried = trial.try_plan(names, pictures) if names else None
    return MeasuredAdvice(advice, limits, raised, names, outputs, good, measurement, tried, trial.layers)


def _labelled(pairs: PicturePairs, index: int) -> LabelledPictureFeed:
    picture = pairs.make(index)
    return picture.label, picture.feed, picture.raw


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
