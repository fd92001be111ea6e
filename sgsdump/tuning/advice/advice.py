"""Advice: for every convolution whether its input should be INT16, and why, in words that suggest what to do.

What was measured (``sensitivity_analysis``) outranks the manual's rules of thumb (``rules_of_thumb``); where the two
disagree the reason says so. Convolutions whose inputs share one domain are raised together, so they get one verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sgsdump.comparison.distribution import LEVELS, WIDE
from sgsdump.comparison.metrics import Sums, cos, mse, rmse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.tables import data_frame
from sgsdump.tuning.advice.rules_of_thumb import RMSE_OVER, Convolution, Signs
from sgsdump.tuning.advice.sensitivity_analysis import LayerSensitivity, Measurement, output_error

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
        seen = signs[conv.name]
        if conv.reads_picture:
            advice.append(Advice(conv, NO, "reads the picture, which is always 8 bits", seen))
        elif seen.limits is None:
            advice.append(Advice(conv, NO, f"not judged: {conv.shown_input} has no range", seen))
        elif conv.name in by_name:
            advice.append(_by_measure(conv, seen, measured(by_name[conv.name], conv.name, total), good))
        else:
            advice.append(_by_rule(conv, seen))
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
    wanted = {entry.convolution.domain for entry in advice if entry.verdict == YES}
    first: dict[str, str] = {}
    for conv in order:
        if conv.domain in wanted:
            first.setdefault(conv.domain, conv.input)
    return tuple(first.values())


def _by_measure(conv: Convolution, seen: Signs, measured: Measured, good: bool) -> Advice:
    share = f"alone at 8 bits it brings {_percent(measured.brings_share)} of the output error"
    rules = rules_text(seen)
    if measured.brings_share >= MUCH and not good:
        reason = [f"{share}; raised alone, {_percent(measured.removes_share)} of it goes away"]
        reason.append(rules or "no rule of thumb sees it")
        return Advice(conv, YES, "; ".join(reason), seen, measured)
    if measured.brings_share >= MUCH:
        reason = [f"{share}, but with all at 8 bits the outputs are within limits", rules]
        return Advice(conv, MAYBE, "; ".join(filter(None, reason)), seen, measured)
    if measured.brings_share >= SOME and not good:
        return Advice(conv, MAYBE, "; ".join(filter(None, [share, rules])), seen, measured)
    if rules:
        return Advice(conv, NO, f"{rules}, but measured: {share}", seen, measured)
    if measured.inherited > DOCUMENTED.max_rmse and measured.inherited > 2 * measured.own:  # type: ignore[operator]
        return Advice(conv, NO, f"its error comes from the layers before it; {share}", seen, measured)
    return Advice(conv, NO, share, seen, measured)


def _by_rule(conv: Convolution, seen: Signs) -> Advice:
    rules = rules_text(seen)
    if seen.raised:
        known = "INT16 already in the fixed model; measure (-i) to know whether 8 bits would do"
        return Advice(conv, YES if seen.wide else MAYBE, "; ".join(filter(None, [rules, known])), seen)
    if seen.spoilt and (seen.wide or seen.arises_here):
        return Advice(conv, YES, rules, seen)
    if seen.spoilt:
        return Advice(conv, MAYBE, f"{rules}, most of which comes from the layers before it", seen)
    if not seen.wide:
        return Advice(conv, NO, f"range {seen.width:.4g} is within {WIDE:g}{_compared(seen)}", seen)
    if seen.row is not None and seen.row.finite and seen.row.rmse <= DOCUMENTED.max_rmse:  # type: ignore[operator]
        return Advice(conv, MAYBE, f"{rules}, but what it puts out is good: RMSE {seen.row.rmse:.3f}", seen)
    if seen.narrow is False:
        rules += f" (but not wasted: {_levels_text(seen)})"
    return Advice(conv, YES, rules, seen)


def rules_text(seen: Signs) -> str:
    """The rules that fire, in words; "" when none does."""
    fired = []
    if seen.spoilt and seen.after is not None:
        at = "its layer" if seen.after is seen.row else seen.after.name
        fired.append(f"RMSE {seen.after.error:.3f} at {at} is over {RMSE_OVER:g}")
    if seen.wide:
        fired.append(f"range {seen.width:.4g} is over {WIDE:g}")
    if seen.narrow:
        fired.append(_levels_text(seen))
    return ", ".join(fired)


def _levels_text(signs: Signs) -> str:
    """``99 % of the values in 12 of 256 levels``; "" without a dump."""
    return "" if signs.levels is None else f"99 % of its values in {signs.levels} of {LEVELS} levels"


def _compared(seen: Signs) -> str:
    return f", RMSE {seen.row.rmse:.3f}" if seen.row is not None and seen.row.finite else ""


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
