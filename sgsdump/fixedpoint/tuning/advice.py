"""Advice for every convolution: whether to raise its input to INT16, and why.

Measurements (``sensitivity_analysis``) outrank the manual's rules of thumb (``rules_of_thumb``); the reason says if
they disagree. Convolutions whose inputs share one domain are raised together, so they get one verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from sgsdump.comparison.distribution import LEVELS, WIDE
from sgsdump.comparison.metrics import cos, mse, rmse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.tables import data_frame
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.tuning.rules_of_thumb import RMSE_OVER, Convolution, Signs

if TYPE_CHECKING:
    from sgsdump.comparison.metrics import Sums
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import LayerSensitivity, Measurement

YES, MAYBE, NO = "yes", "maybe", "no"
VERDICTS = (YES, MAYBE, NO)
# Shares of the output error that one convolution causes. Errors add like their squares: raising a convolution that
# causes less than a twentieth has no visible effect on the output.
MUCH, SOME = 0.2, 0.05
# Raising one of many similar convolutions removes less than this; then the error that each causes ranks them.
NOTABLE = 0.1


@dataclass(frozen=True)
class Measured:
    """The sensitivity of one convolution.

    own, inherited, brings, left  see ``LayerSensitivity``.
    brings_share, removes_share   shares of the output error with every convolution at 8 bits.
    held_share                    share removed if its range also contains its values; None if its range does already.
    """

    own: float
    inherited: float
    brings: float
    left: float
    brings_share: float
    removes_share: float
    held_share: float | None = None

    @property
    def clipped(self) -> bool:
        """Whether the range of its input causes an error that INT16 does not remove."""
        return self.held_share is not None and self.held_share - self.removes_share >= SOME

    @property
    def gives_back(self) -> float:
        """The share of the output error that correcting only this convolution removes."""
        return max(self.removes_share, self.held_share or 0.0)

    @property
    def weight(self) -> tuple[float, float]:
        """The rank of a cause: the share that it removes if that is more than noise, then the share that it causes."""
        return (self.gives_back if self.gives_back >= NOTABLE else 0.0, self.brings_share)


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
    good: bool | None = None,
) -> tuple[Advice, ...]:
    """Return an Advice for each convolution, worst first.

    signs   by name of the convolution.
    limits  limits of the outputs; if the outputs are within them, no verdict is above maybe.
    good    whether the outputs are within the limits, if known from the integer model.
    """
    measured_layers = measurement.sensitivities if measurement else ()
    by_name = {name: sensitivity for sensitivity in measured_layers for name in sensitivity.own}
    total = output_error(measurement.all_8) if measurement else 0.0
    if good is None:
        good = measurement is not None and holds(measurement.all_8, limits)
    advice = []
    for conv in convolutions:
        evidence = signs[conv.name]
        if conv.reads_picture:
            advice.append(Advice(conv, NO, "reads the image, which always has 8 bits", evidence))
        elif evidence.limits is None:
            advice.append(Advice(conv, NO, f"not judged: no range for {conv.shown_input}", evidence))
        elif conv.name in by_name:
            advice.append(_by_measure(conv, evidence, measured(by_name[conv.name], conv.name, total), good))
        else:
            advice.append(_by_rule(conv, evidence))
    return tuple(sorted(_raised_together(advice), key=_rank))


def measured(sensitivity: LayerSensitivity, name: str, total: float) -> Measured:
    """Return a sensitivity with shares of ``total``, the output error with every convolution at 8 bits."""
    brings, removes = (sensitivity.brings / total, 1 - sensitivity.left / total) if total else (0.0, 0.0)
    held = 1 - sensitivity.held / total if sensitivity.held is not None and total else None
    own, inherited = sensitivity.own[name], sensitivity.inherited[name]
    return Measured(own, inherited, sensitivity.brings, sensitivity.left, brings, removes, held)


def holds(outputs: Mapping[str, Sums], limits: Thresholds) -> bool:
    """Return whether every judged output is within the limits."""
    return all(limits.hold(cos(sums), rmse(sums), mse(sums)) for sums in outputs.values())


def tensor_arrays(advice: Iterable[Advice], order: Iterable[Convolution]) -> tuple[str, ...]:
    """Return the first inputs to raise, one name per domain, in execution order."""
    domains = {entry.convolution.domain for entry in advice if entry.verdict == YES}
    first: dict[str, str] = {}
    for conv in order:
        if conv.domain in domains:
            first.setdefault(conv.domain, conv.input)
    return tuple(first.values())


def _by_measure(conv: Convolution, evidence: Signs, measured: Measured, good: bool) -> Advice:
    share = f"quantising only this input causes {_percent(measured.brings_share)} of the output error"
    rules = rules_text(evidence)
    if measured.clipped and not good:
        gain = f"INT16 with a wider range removes {_percent(measured.gives_back)} of the output error"
        return Advice(conv, NO, f"its range clips its values: {gain}; INT16 alone does not help", evidence, measured)
    if max(measured.brings_share, measured.removes_share) >= MUCH and not good:
        reason = [f"{share}; raising only this input removes {_percent(measured.removes_share)}"]
        reason.append(rules or "no rule of thumb applies")
        return Advice(conv, YES, "; ".join(reason), evidence, measured)
    if measured.brings_share >= MUCH:
        reason = [f"{share}, but with all convolutions at INT8 the outputs are within the limits", rules]
        return Advice(conv, MAYBE, "; ".join(filter(None, reason)), evidence, measured)
    if measured.brings_share >= SOME and not good:
        return Advice(conv, MAYBE, "; ".join(filter(None, [share, rules])), evidence, measured)
    if rules:
        return Advice(conv, NO, f"{rules}, but measured: {share}", evidence, measured)
    if measured.inherited > DOCUMENTED.max_rmse and measured.inherited > 2 * measured.own:  # type: ignore[operator]
        return Advice(conv, NO, f"its error comes from earlier layers; {share}", evidence, measured)
    return Advice(conv, NO, share, evidence, measured)


def _by_rule(conv: Convolution, evidence: Signs) -> Advice:
    rules = rules_text(evidence)
    if evidence.raised:
        known = "already INT16 in the fixed model; measure (-i) to know whether INT8 is enough"
        return Advice(conv, YES if evidence.wide else MAYBE, "; ".join(filter(None, [rules, known])), evidence)
    if evidence.spoilt and (evidence.wide or evidence.arises_here):
        return Advice(conv, YES, rules, evidence)
    if evidence.spoilt:
        return Advice(conv, MAYBE, f"{rules}, mostly from earlier layers", evidence)
    if not evidence.wide:
        return Advice(conv, NO, f"range {evidence.width:.4g} is within {WIDE:g}{_compared(evidence)}", evidence)
    if evidence.row is not None and evidence.row.finite and evidence.row.rmse <= DOCUMENTED.max_rmse:  # type: ignore[operator]
        return Advice(conv, MAYBE, f"{rules}, but its output is good: RMSE {evidence.row.rmse:.3f}", evidence)
    if evidence.narrow is False:
        rules += f" (but not wasted: {_levels_text(evidence)})"
    return Advice(conv, YES, rules, evidence)


def rules_text(evidence: Signs) -> str:
    """Return the rules that apply, in words; "" if none does."""
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
    """Return ``99 % of its values in 12 of 256 levels``; "" without a dump."""
    return "" if signs.levels is None else f"99 % of its values in {signs.levels} of {LEVELS} levels"


def _compared(evidence: Signs) -> str:
    return f", RMSE {evidence.row.rmse:.3f}" if evidence.row is not None and evidence.row.finite else ""


def _raised_together(advice: list[Advice]) -> list[Advice]:
    """Give all convolutions of a domain the strongest of their verdicts."""
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
    """Return the sort key: worst first, convolutions that read an image last."""
    gives, brings = entry.measured.weight if entry.measured else (0.0, 0.0)
    clipped = entry.measured is not None and entry.measured.clipped
    error = entry.signs.after.error if entry.signs.after else 0.0
    conv = entry.convolution
    verdict = -1 if clipped else VERDICTS.index(entry.verdict)
    return verdict, conv.reads_picture, -gives, -brings, -entry.signs.fired, -error, -entry.signs.width


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %" if share >= 0 else "0 %"


def to_pandas(advice: Iterable[Advice]) -> Any:
    """Return a pandas DataFrame with one row per convolution: verdict, reason, range, and measured sensitivity.

    Raises MissingExtra without pandas.
    """
    columns, *lines = advice_lines(advice)
    return data_frame(lines, columns)


def advice_lines(advice: Iterable[Advice]) -> list[list[Any]]:
    """Return the columns of the table, then a row for each convolution."""
    measured = [field.name for field in fields(Measured)]
    columns = [*(field.name for field in fields(Convolution)), "verdict", "reason", "range_low", "range_high", "levels"]
    columns += measured
    lines = (_line_of(entry, measured) for entry in advice)
    return [columns, *([line[name] for name in columns] for line in lines)]


def _line_of(entry: Advice, measured: Iterable[str]) -> dict[str, Any]:
    low, high = entry.signs.limits or (None, None)
    facts = {"verdict": entry.verdict, "reason": entry.reason, "levels": entry.signs.levels}
    numbers = {name: getattr(entry.measured, name, None) for name in measured}
    return asdict(entry.convolution) | facts | {"range_low": low, "range_high": high} | numbers
