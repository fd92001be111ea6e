"""Rules that derive findings from evidence: an ordered list of pure functions, each over one record of evidence.

``RULES`` defines the order in which findings are reported:

- The environment comes first. Next comes an argument, type or weight that differs while no earlier layer differs,
  because no figure can prove as much.
- Causes found by value come before tensors that share a name, because after a fault a layer may look like another one.
- If the two runs had different inputs, a difference is not an error, and only the rules of ``OF_ANY_INPUTS`` apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sgsdump.comparison.account import Account
from sgsdump.comparison.evidence import Evidence, JudgedLayer
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.rounding_floor import Departure, departures, is_fed_by
from sgsdump.comparison.row import Failed, Row, differs
from sgsdump.comparison.thresholds import Thresholds

Rule = Callable[[Evidence], Iterable[Finding]]

MOST = 3  # largest number of causes by figures, and of tensors that share a name
_NOT_FINITE = ("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf", "odd_apart")
_SHOWN = ("by value", "measured")  # evidence stronger than figures
_LIKE = 1e-3  # 1 - |COS| below which two tensors have the same direction
_LEFT = 0.5  # largest share of the error that a scale factor may leave unexplained
_TIMES = 3  # ratio of a layer's error to the error of its sources from which the error arises suddenly
_ABOUT = 0.5  # share of the largest rise from which another rise counts too
_MADE_HERE = 30  # ratio of a layer's error to the error of its sources; rounding grows less from layer to layer


def environment(evidence: Evidence) -> Iterable[Finding]:
    """Return the differences between the two runs other than tensors."""
    return evidence.environment


def between_rounds(evidence: Evidence) -> Iterable[Finding]:
    """Return what differs between two rounds of the programs, outside their modules."""
    return evidence.of_kind("between rounds")


def leading_argument(evidence: Evidence) -> Iterator[Finding]:
    """Yield an argument, type or weight that differs, if no layer before it differs."""
    yield from (finding for finding in evidence.recorded[:1] if finding.kind == "argument")


def outputs(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each compared network output. Without known outputs, yield none."""
    yield from evidence.measured_of("output")
    names = set(evidence.outputs)
    for row in evidence.alike:
        if row.name in names and row.io == "out":
            facts = {"verdict": "good" if row.passes(evidence.limits) else "bad"}
            figures = figures_of(row)
            if row.runs is not None and row.runs.count > 1 and row.error:
                facts["worst_run"] = row.runs.worst
                figures |= {"worst_cos": row.runs.worst_cos, "worst_rmse": row.runs.worst_rmse}
            yield Finding("output", row.name, row.op_type, figures, facts=facts)


def figures_of(row: Row) -> dict[str, float]:
    """Return the figures of a row by name. Which figures there are depends on the kind of values."""
    if row.indices is not None:
        return {"differing": float(row.indices.differing), "count": float(row.indices.count)}
    if row.statistics or row.checksums:
        return {"statistics_error": row.error}
    figures = {"cos": row.cos, "rmse": row.rmse} | _odd(row)
    if row.step and row.sums is not None and row.count:
        figures |= {"root_mean_square_error": math.sqrt(row.sums.dd / row.count), "step": row.step}
    return figures


def _odd(row: Row) -> dict[str, float]:
    return {name: float(getattr(row, name)) for name in _NOT_FINITE if getattr(row, name)}


def missing(evidence: Evidence) -> Iterator[Finding]:
    """Yield missing outputs, runs and layers, and pairs that could not be measured."""
    account = evidence.account

    def of(what: str, names: tuple[str, ...], **facts: str) -> Iterator[Finding]:
        if names:
            yield Finding("missing", names[0], names=names, facts={"what": what, **facts})

    yield from of("outputs", account.named("missing", "output"))
    yield from of("runs", account.named("missing", "run"))
    if account.is_less_than_half:
        figures = {"compared": float(account.compared), "of": float(account.of)}
        yield Finding("missing", figures=figures, facts={"what": "more than half"})
    failed = account.not_comparable
    yield from of("not comparable", tuple(one.name for one in failed), **({"why": failed[0].reason} if failed else {}))
    yield from of("layers", account.named("missing", "layer"))


def arguments(evidence: Evidence) -> Iterator[Finding]:
    """Yield the arguments, types and weights that differ, except the leading one."""
    first = tuple(leading_argument(evidence))
    yield from (finding for finding in evidence.of_kind("argument") if finding not in first)


def causes_by_value(evidence: Evidence) -> Iterator[Finding]:
    """Yield the operator where the error arises, shown by replaying it or by the values of its inputs."""
    yield from (finding for finding in _causes(evidence) if finding.evidence in _SHOWN)


def other_tensors(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs that share a name but hold different tensors."""
    suspects = [row for row in evidence.rows if row.misnamed] if not evidence.is_rounding else []
    for row in suspects[:MOST]:
        assert row.misnamed is not None, "suspects are"
        yield Finding("another tensor", row.name, row.op_type, figures_of(row), facts={"found": row.misnamed.found})


def not_finite(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first layer with NaN or Inf on one side only, else the first with NaN or Inf on both sides."""
    rows = [row for row in evidence.alike if not row.finite and not row.equal]
    if rows:
        first = next((row for row in rows if row.odd_apart), rows[0])
        facts = {} if first.odd_apart else {"alike": "yes"}  # the same places on both sides
        names = tuple(row.name for row in rows)
        yield Finding("not finite", first.name, first.op_type, _odd(first), names=names, facts=facts)


def causes_by_figures(evidence: Evidence) -> Iterator[Finding]:
    """Yield the layers where the error arises, judged by figures alone."""
    yield from (finding for finding in _causes(evidence) if finding.evidence not in _SHOWN)


def causes_by_intervention(evidence: Evidence) -> Iterable[Finding]:
    """Return the layers that cause the error, measured by changing them in the model."""
    return evidence.measured_of("cause", "spread", "part")


def past_limits(evidence: Evidence) -> Iterable[Finding]:
    """Return how many layers exceed the limits, and their common cause."""
    return evidence.measured_of("layers")


def worth(evidence: Evidence) -> Iterable[Finding]:
    """Return the user's metric and the error on held-out images."""
    return evidence.measured_of("worth", "unseen")


def advice(evidence: Evidence) -> Iterable[Finding]:
    """Return the advised changes, with the error before and after."""
    return evidence.measured_of("advice")


def recomputed(evidence: Evidence) -> Iterable[Finding]:
    """Return the operators whose recorded output differs from a recomputation with the recorded inputs."""
    return evidence.recomputed or ()


def first_failing(evidence: Evidence) -> Iterator[Finding]:
    """Yield the layers that fail against a golden run while their sources pass, in network order."""
    if evidence.recomputed is not None:
        return
    failing = [layer for layer in evidence.judged if not layer.passes]
    names = {layer.name for layer in failing}
    for layer in sorted(failing, key=lambda layer: layer.order):
        if evidence.by_flow and names & set(layer.sources):
            continue
        origin = _origin(layer, evidence.judged) if evidence.by_flow else layer
        facts = {} if origin is layer else {"reaches": layer.name}
        how = "by value" if evidence.by_flow else "by figures"
        kind = "cause" if layer.is_finite else "not finite"
        yield Finding(kind, origin.name, origin.op_type, origin.figures, how, facts=facts)
        if not evidence.by_flow:
            return


def _origin(failing: JudgedLayer, judged: Sequence[JudgedLayer]) -> JudgedLayer:
    """Return the layer upstream where the error arises: its error is many times the error of its sources.

    That layer may pass, because the error of the accepted run is large there too.
    """
    layers = {layer.name: layer for layer in judged}
    layer = failing
    while True:
        layers.pop(layer.name, None)  # a graph read from a file may contain a cycle
        sources = [layers[name] for name in layer.sources if name in layers]
        fed_by = max(sources, key=lambda source: source.error, default=None)
        if fed_by is None or not 0 < layer.error / _MADE_HERE <= fed_by.error:
            return layer
        layer = fed_by


def quantisation(evidence: Evidence) -> Iterable[Finding]:
    """Return the operators that only one of two quantised models computes in integers."""
    return evidence.of_kind("quantisation")


def _causes(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the causes from the recordings; without any, the layers where the error arises."""
    if of_operators := evidence.of_kind("cause"):
        return of_operators
    if "causes" not in evidence.concluded:
        evidence.concluded["causes"] = () if evidence.is_rounding else tuple(_of_figures(evidence))
    return evidence.concluded["causes"]


def _of_figures(evidence: Evidence) -> Iterator[Finding]:
    rows = [row for row in evidence.alike if row.io == "out" and row.finite and row.error]
    whole = replace(evidence.limits, max_channel_rmse=None)
    bad = [row for row in rows if not row.is_within(whole)]
    past = set(map(id, bad))
    if bad:  # an error hidden within a layer's quantisation step may be the cause of the error of a later layer
        bad = [row for row in rows if id(row) in past or (row.is_resolution and _is_past(row, evidence.limits))]
    departure = _first_departure(evidence, bad)
    by_value = departure.row if departure is not None else None
    unlike = _first_unlike(evidence, [by_value] if by_value is not None else bad)
    if unlike is not None:
        record = unlike.pair.benchmark
        facts = {"how": "unlike", "inputs": "differ", "unlike": unlike.unlike}
        yield Finding("cause", record.name, record.op_type, {}, "by value", facts=facts)
        return
    told = {finding.layer for finding in evidence.of_kind("argument")}
    is_told = by_value is not None and by_value.name in told
    if departure is not None and not is_told:
        yield _cause(departure.row, "by value", _inputs_of(departure, evidence), departure.before)
    explained = by_value is not None or any(leading_argument(evidence))
    yield from (_cause(row, "by figures") for row in ([] if explained else _arising(evidence, bad)[:MOST]))


def _first_departure(evidence: Evidence, bad: Sequence[Row]) -> Departure | None:
    """Return the first layer above the rounding floor; if layers are bad, only one that feeds a bad layer counts."""
    leaving = departures(evidence.alike, evidence.by_flow)
    if not bad or not evidence.by_flow:
        return next(iter(leaving), None)
    sources = {row.name: row.sources for row in evidence.alike}
    names = {row.name for row in bad}
    return next(
        (
            departure
            for departure in leaving
            if departure.row.integers is not None
            or departure.row.name in names
            or any(is_fed_by(row, {departure.row.name}, sources) for row in bad)
        ),
        None,
    )


def _is_past(row: Row, thresholds: Thresholds) -> bool:
    return not thresholds.of_layer(*row.names).hold(row.cos, row.rmse, row.mse, row.extra)


def _cause(row: Row, evidence: str, inputs: str = "", before: float | None = None) -> Finding:
    how = _how(row)
    figures = {**figures_of(row), "rise": row.rise, **({} if before is None else {"before": before})}
    if how == "times" and row.sums is not None:
        figures["factor"] = row.sums.ab / row.sums.bb
    facts = {name: value for name, value in (("how", how), ("inputs", inputs)) if value}
    return Finding("cause", row.name, row.op_type, figures, evidence, facts=facts)


def _inputs_of(departure: Departure, evidence: Evidence) -> str:
    """Return ``differ`` if any source differs, even by rounding; ``unknown`` without a dataflow; else ""."""
    if not evidence.by_flow:
        return "unknown"
    sources = departure.row.sources
    return "differ" if any(other.name in sources and differs(other) for other in evidence.alike) else ""


def _first_unlike(evidence: Evidence, before: Sequence[Row]) -> Failed | None:
    """Return the first layer that cannot be compared because the two sides quantise it differently.

    None if that layer does not run before all of the rows ``before``.
    """
    if not before:
        return None
    place = min(row.op_index for row in before)
    unlike = [failed for failed in evidence.failed if failed.unlike and failed.pair.benchmark.io == "out"]
    first = min(unlike, key=lambda failed: failed.pair.benchmark.op_index, default=None)
    return first if first is not None and first.pair.benchmark.op_index < place else None


def _how(row: Row) -> str:
    """Return the kind of fault that the figures show: ``rearranged``, ``zero``, ``times`` (a factor) or ""."""
    sums = row.sums
    if row.rearranged:
        return "rearranged"
    if sums is None or row.statistics or row.checksums or not row.finite or not row.count:
        return ""
    if sums.d1 == sums.b1 and not sums.aa and not sums.ab and sums.d1:
        return "zero"
    if not sums.bb or not sums.aa:
        return ""
    if abs(row.cos) > 1 - _LIKE and row.rmse > _LIKE and math.sqrt(1 - min(row.cos**2, 1)) < row.rmse * _LEFT:
        return "times"
    return ""


def _arising(evidence: Evidence, bad: Sequence[Row]) -> list[Row]:
    """Return the bad rows that no other bad row feeds, the largest rise first.

    Without a dataflow, return the first row in file order whose rise is about the largest.
    """
    if not bad:
        return []
    if evidence.by_flow and any(row.step for row in bad):
        sudden = _sudden(evidence, bad)
        if sudden:
            return sudden
    most = max((row.rise for row in bad if math.isfinite(row.rise)), default=0.0)
    steep = [row for row in bad if row.rise >= _ABOUT * most and row.rise > 0] or list(bad[:1])
    if not evidence.by_flow:
        return steep[:1]
    names = {row.name for row in steep}
    sources = {row.name: row.sources for row in evidence.alike}
    first = [row for row in steep if not is_fed_by(row, names, sources)]
    return sorted(first, key=lambda row: -row.rise) or steep[:1]


def _sudden(evidence: Evidence, bad: Sequence[Row]) -> list[Row]:
    """Return the bad rows that no bad row feeds and whose error is several times that of their sources.

    This is for a quantised side, where every layer differs. Later layers, such as a Softmax, may amplify more.
    """
    names = {row.name for row in bad}
    sources = {row.name: row.sources for row in evidence.alike}
    first = [row for row in bad if row.error - row.rise <= row.error / _TIMES and not is_fed_by(row, names, sources)]
    return sorted(first, key=lambda row: -row.rise)


def channels(evidence: Evidence) -> Iterator[Finding]:
    """Yield the layers that are within the limits as a whole, but lost channels or have a channel beyond its limit."""
    whole = replace(evidence.limits, max_channel_rmse=None)
    for row in evidence.alike if not evidence.is_rounding else ():
        of_row = row.channels
        if of_row is None or not row.is_within(whole) or not (of_row.lost or not row.is_within(evidence.limits)):
            continue
        figures = {"lost": float(of_row.lost), "count": float(of_row.count), "worst_rmse": of_row.worst_rmse}
        yield Finding("channel", row.name, row.op_type, figures, facts={"worst": str(of_row.worst)})


def magnified(evidence: Evidence) -> Iterable[Finding]:
    """Return the operator that amplifies rounding."""
    return evidence.of_kind("magnified")


def rounding(evidence: Evidence) -> Iterable[Finding]:
    """Return the finding that all differences are rounding to a narrow type."""
    return evidence.of_kind("rounding")


def not_comparable(evidence: Evidence) -> Iterable[Finding]:
    """Return modules that are not comparable as dumped, with the reason and the fix."""
    return evidence.of_kind("not comparable")


def not_judged(evidence: Evidence) -> Iterator[Finding]:
    """Yield the layers that the comparison cannot judge, grouped by reason."""
    yield from evidence.measured_of("not judged")
    account = evidence.account
    fused = tuple(one.name for one in account.left_out if one.fused)
    for why, names in (
        ("statistics only", tuple(row.name for row in evidence.rows if row.statistics and not row.checksums)),
        ("fused", tuple(dict.fromkeys(fused))),
        ("excluded", account.named("excluded")),
        ("unwritten", account.named("unwritten")),
    ):
        if names:
            yield Finding("not judged", names=names, facts={"why": why})
    if evidence.rows and not evidence.by_flow:
        yield Finding("not judged", facts={"why": "no dataflow"})


# In reporting order.
RULES: tuple[Rule, ...] = (
    environment,
    between_rounds,
    leading_argument,
    outputs,
    missing,
    arguments,
    causes_by_value,
    recomputed,
    causes_by_intervention,
    other_tensors,
    not_finite,
    causes_by_figures,
    first_failing,
    quantisation,
    channels,
    magnified,
    rounding,
    past_limits,
    worth,
    advice,
    not_comparable,
    not_judged,
)
# Rules that also apply to two runs with different inputs.
OF_ANY_INPUTS = frozenset((environment, missing, not_finite, not_comparable, not_judged))


def findings_of(evidence: Evidence) -> tuple[Finding, ...]:
    """Return all findings, in the order of the rules."""
    rules = [rule for rule in RULES if rule in OF_ANY_INPUTS or not evidence.is_of_other_inputs]
    return tuple(finding for rule in rules for finding in rule(evidence))


def of_changed_models(measured: Iterable[Finding]) -> tuple[Finding, ...]:
    """Order findings from runs of changed models by the rules."""
    return findings_of(Evidence(Account(0, 0), measured=tuple(measured)))
