"""Advice: for every convolution whether its input should be INT16, and why, in words that suggest what to do.

What was measured (``sensitivity_analysis``) outranks the manual's rules of thumb (``rules_of_thumb``); where the two
disagree the reason says so. Convolutions whose inputs share one domain are raised together, so they get one verdict.

``measure`` and ``advise_by_measure`` advise on a fixed model that was compared on pictures: what its outputs lose, and
which convolutions to raise for it, measured one by one. They start from the fixed model as it is: what it has at INT16
already stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from sgsdump.comparison.distribution import LEVELS, WIDE
from sgsdump.comparison.metrics import cos, mse, rmse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.tables import data_frame
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.analysis import Analysis, analyse
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.pictures import pictures_of
from sgsdump.quantisation.scales import INT16
from sgsdump.tuning.rules_of_thumb import RMSE_OVER, Convolution, Signs, config_names, convolutions, read_signs
from sgsdump.tuning.sensitivity_analysis import (
    LabelledPictureFeed,
    LayerSensitivity,
    Measurement,
    SensitivityAnalysis,
    Totals,
    output_error,
)

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.metrics import Sums
    from sgsdump.models.model import Model
    from sgsdump.quantisation.diagnosis.compared_pictures import PicturePairs
    from sgsdump.quantisation.diagnosis.subject import Subject

YES, MAYBE, NO = "yes", "maybe", "no"
VERDICTS = (YES, MAYBE, NO)
# Alone at 8 bits a convolution brings this part of the output error of all at 8 bits. Errors add like their squares:
# below a twentieth, the output gains nothing that can be seen from raising it.
MUCH, SOME = 0.2, 0.05


@dataclass(frozen=True)
class Measured:
    """One convolution's sensitivity.

    own, inherited, brings, left  see ``LayerSensitivity``.
    brings_share, removes_share   parts of the output error with every convolution at 8 bits.
    """

    own: float
    inherited: float
    brings: float
    left: float
    brings_share: float
    removes_share: float


@dataclass(frozen=True)
class Advice:
    """The verdict on one convolution: ``yes``, ``maybe`` or ``no``."""

    convolution: Convolution
    verdict: str
    reason: str
    signs: Signs
    measured: Measured | None = None


def advise(
    convolutions: Iterable[Convolution],
    signs: Mapping[str, Signs],
    measurement: Measurement | None = None,
    limits: Thresholds = DOCUMENTED,
) -> tuple[Advice, ...]:
    """One Advice for each convolution, worst first.

    signs   by convolution's name.
    limits  what the outputs must hold; where they do with every convolution at 8 bits, no verdict is above maybe.
    """
    measured_layers = measurement.sensitivities if measurement else ()
    by_name = {name: sensitivity for sensitivity in measured_layers for name in sensitivity.own}
    total = output_error(measurement.all_8) if measurement else 0.0
    good = measurement is not None and holds(measurement.all_8, limits)
    advice = []
    for conv in convolutions:
        evidence = signs[conv.name]
        if conv.reads_picture:
            advice.append(Advice(conv, NO, "reads the picture, which is always 8 bits", evidence))
        elif evidence.limits is None:
            advice.append(Advice(conv, NO, f"not judged: {conv.shown_input} has no range", evidence))
        elif conv.name in by_name:
            advice.append(_by_measure(conv, evidence, measured(by_name[conv.name], conv.name, total), good))
        else:
            advice.append(_by_rule(conv, evidence))
    return tuple(sorted(_raised_together(advice), key=_rank))


def measured(sensitivity: LayerSensitivity, name: str, total: float) -> Measured:
    """A convolution's sensitivity as parts of ``total``, the output error with every convolution at 8 bits."""
    brings, removes = (sensitivity.brings / total, 1 - sensitivity.left / total) if total else (0.0, 0.0)
    return Measured(
        sensitivity.own[name], sensitivity.inherited[name], sensitivity.brings, sensitivity.left, brings, removes
    )


def holds(outputs: Mapping[str, Sums], limits: Thresholds) -> bool:
    """Whether every judged output is within the limits."""
    return all(limits.hold(cos(sums), rmse(sums), mse(sums)) for sums in outputs.values())


def tensor_arrays(advice: Iterable[Advice], order: Iterable[Convolution]) -> tuple[str, ...]:
    """First inputs of what is to be raised, one name for each domain, in execution order."""
    domains = {entry.convolution.domain for entry in advice if entry.verdict == YES}
    first: dict[str, str] = {}
    for conv in order:
        if conv.domain in domains:
            first.setdefault(conv.domain, conv.input)
    return tuple(first.values())


def _by_measure(conv: Convolution, evidence: Signs, measured: Measured, good: bool) -> Advice:
    share = f"alone at 8 bits it brings {_percent(measured.brings_share)} of the output error"
    rules = rules_text(evidence)
    if measured.brings_share >= MUCH and not good:
        reason = [f"{share}; raised alone, {_percent(measured.removes_share)} of it goes away"]
        reason.append(rules or "no rule of thumb sees it")
        return Advice(conv, YES, "; ".join(reason), evidence, measured)
    if measured.brings_share >= MUCH:
        reason = [f"{share}, but with all at 8 bits the outputs are within limits", rules]
        return Advice(conv, MAYBE, "; ".join(filter(None, reason)), evidence, measured)
    if measured.brings_share >= SOME and not good:
        return Advice(conv, MAYBE, "; ".join(filter(None, [share, rules])), evidence, measured)
    if rules:
        return Advice(conv, NO, f"{rules}, but measured: {share}", evidence, measured)
    if measured.inherited > DOCUMENTED.max_rmse and measured.inherited > 2 * measured.own:  # type: ignore[operator]
        return Advice(conv, NO, f"its error comes from the layers before it; {share}", evidence, measured)
    return Advice(conv, NO, share, evidence, measured)


def _by_rule(conv: Convolution, evidence: Signs) -> Advice:
    rules = rules_text(evidence)
    if evidence.raised:
        known = "INT16 already in the fixed model; measure (-i) to know whether 8 bits would do"
        return Advice(conv, YES if evidence.wide else MAYBE, "; ".join(filter(None, [rules, known])), evidence)
    if evidence.spoilt and (evidence.wide or evidence.arises_here):
        return Advice(conv, YES, rules, evidence)
    if evidence.spoilt:
        return Advice(conv, MAYBE, f"{rules}, most of which comes from the layers before it", evidence)
    if not evidence.wide:
        return Advice(conv, NO, f"range {evidence.width:.4g} is within {WIDE:g}{_compared(evidence)}", evidence)
    if evidence.row is not None and evidence.row.finite and evidence.row.rmse <= DOCUMENTED.max_rmse:  # type: ignore[operator]
        return Advice(conv, MAYBE, f"{rules}, but what it puts out is good: RMSE {evidence.row.rmse:.3f}", evidence)
    if evidence.narrow is False:
        rules += f" (but not wasted: {_levels_text(evidence)})"
    return Advice(conv, YES, rules, evidence)


def rules_text(evidence: Signs) -> str:
    """The rules that fire, in words; "" when none does."""
    fired = []
    if evidence.spoilt and evidence.after is not None:
        at = "its layer" if evidence.after is evidence.row else evidence.after.name
        fired.append(f"RMSE {evidence.after.error:.3f} at {at} is over {RMSE_OVER:g}")
    if evidence.wide:
        fired.append(f"range {evidence.width:.4g} is over {WIDE:g}")
    if evidence.narrow:
        fired.append(_levels_text(evidence))
    return ", ".join(fired)


def _levels_text(signs: Signs) -> str:
    """``99 % of the values in 12 of 256 levels``; "" without a dump."""
    return "" if signs.levels is None else f"99 % of its values in {signs.levels} of {LEVELS} levels"


def _compared(evidence: Signs) -> str:
    return f", RMSE {evidence.row.rmse:.3f}" if evidence.row is not None and evidence.row.finite else ""


def _raised_together(advice: list[Advice]) -> list[Advice]:
    """One verdict for each domain: the strongest of its convolutions."""
    strongest: dict[str, Advice] = {}
    for entry in advice:
        best = strongest.setdefault(entry.convolution.domain, entry)
        if VERDICTS.index(entry.verdict) < VERDICTS.index(best.verdict):
            strongest[entry.convolution.domain] = entry
    return [_with_domain(entry, strongest[entry.convolution.domain]) for entry in advice]


def _with_domain(entry: Advice, best: Advice) -> Advice:
    if entry.verdict == best.verdict:
        return entry
    reason = f"raised together with {best.convolution.name}: their inputs share one domain; {entry.reason}"
    return replace(entry, verdict=best.verdict, reason=reason)


def _rank(entry: Advice) -> tuple:
    """Worst first; the picture's convolution last."""
    brings = entry.measured.brings if entry.measured else 0.0
    error = entry.signs.after.error if entry.signs.after else 0.0
    conv = entry.convolution
    return VERDICTS.index(entry.verdict), conv.reads_picture, -brings, -entry.signs.fired, -error, -entry.signs.width


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %" if share >= 0 else "nothing"


def to_pandas(advice: Iterable[Advice]) -> Any:
    """A pandas DataFrame with one line per convolution: the verdict, the reason, its range and, where it was measured,
    its sensitivity.

    Raises MissingExtra when pandas is not installed.
    """
    measured = [field.name for field in fields(Measured)]
    columns = [*(field.name for field in fields(Convolution)), "verdict", "reason", "range_low", "range_high", "levels"]
    return data_frame([_line_of(entry, measured) for entry in advice], [*columns, *measured])


def _line_of(entry: Advice, measured: Iterable[str]) -> dict[str, Any]:
    low, high = entry.signs.limits or (None, None)
    facts = {"verdict": entry.verdict, "reason": entry.reason, "levels": entry.signs.levels}
    numbers = {name: getattr(entry.measured, name, None) for name in measured}
    return asdict(entry.convolution) | facts | {"range_low": low, "range_high": high} | numbers


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """The measurements made before anything is compared.

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

    measured: MeasuredModel
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
) -> MeasuredModel | None:
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
    raised = _raised_of(subject.fixed_model, [conv for conv in convs if conv.domain not in analysis.forced_domains])
    advice = advise(convs, read_signs(analysis, convs, subject.ranges), measurement, limits)
    names = _ordered({*raised, *tensor_arrays(advice, convs)}, convs)
    tried = trial.try_plan(names, _labelled(pairs)) if names else None
    judged = tuple(trial.judged)
    return MeasuredModel(
        subject, limits, analysis, tuple(convs), measurement, raised, names, tried, trial.layers, judged
    )


def advise_by_measure(measured: MeasuredModel, comparison: Comparison) -> MeasuredAdvice:
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


def _raised_of(fixed: Model, convs: Iterable[Convolution]) -> tuple[str, ...]:
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
