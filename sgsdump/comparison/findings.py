"""Findings: what a user should know of a comparison, made once from facts; every report says them in its own form.

Two float runs of one model agree to rounding: each type has a bound, and the error of a layer is about that of the
layers that feed it. A layer *leaves the floor* if its error exceeds ten times both, and ``SURE``. For two fixed models
the floor is one integer step. The floor is known if some layers stay on it: with a known dataflow one is enough, in
file order ``SETTLED`` are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.row import SURE, Failed, Row, differs, is_rounding, rounding_bound
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison

MOST = 3  # causes, and tensors of another name
_NOT_FINITE = ("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf", "odd_apart")
_LIKE = 1e-3  # of COS: two sides of one direction
_LEFT = 0.5  # of an error, what a scale leaves of it
_TIMES = 3  # what feeds a layer, its error where it arises suddenly
_ABOUT = 0.5  # of the steepest rise, what counts as about as steep
FACTOR = 10  # times the floor, where a layer leaves it
SETTLED = 3  # layers that stay on the floor before one that leaves it, where only the file's order is known


@dataclass(frozen=True)
class Departure:
    """A layer that leaves the floor; ``before`` is the largest relative error of what feeds it."""

    row: Row
    before: float


def findings_of(comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> tuple[Finding, ...]:
    """What there is to say of a comparison, in the order of ``KINDS``; after the environment an argument, type or
    weight that differs where nothing differs before it comes ahead of them all, since no figure can say as much."""
    of_operators = tuple(finding for finding in comparison.causes if finding.kind == "cause")
    rounding = tuple(finding for finding in comparison.causes if finding.kind == "rounding")
    if comparison.other_input is not None:  # nothing that differs is an error of its own
        return (*comparison.environment, *_missing(comparison), *_not_finite(comparison), *_not_judged(comparison))
    causes = of_operators or (() if rounding else tuple(_causes(comparison, thresholds)))
    # after a fault a layer may look like another one: what was found by value is before it
    by_value = tuple(finding for finding in causes if finding.evidence in ("by value", "measured"))
    first = tuple(finding for finding in comparison.causes[:1] if finding.kind == "argument")
    return (
        *comparison.environment,
        *first,
        *_outputs(comparison, thresholds),
        *_missing(comparison),
        *(finding for finding in comparison.causes if finding.kind == "argument" and finding not in first),
        *by_value,
        *(() if rounding else _other_tensors(comparison)),
        *_not_finite(comparison),
        *(finding for finding in causes if finding not in by_value),
        *(finding for finding in comparison.causes if finding.kind == "quantisation"),
        *(() if rounding else _channels(comparison, thresholds)),
        *(finding for finding in comparison.causes if finding.kind == "magnified"),
        *rounding,
        *_not_judged(comparison),
    )


def _outputs(comparison: Comparison, thresholds: Thresholds) -> Iterator[Finding]:
    """Each output of the network, as far as it is known which these are and they were compared."""
    names = set(comparison.completeness.outputs)
    for row in comparison.alike:
        if row.name in names and row.io == "out":
            facts = {"verdict": "good" if row.passes(thresholds) else "bad"}
            figures = figures_of(row)
            if row.runs is not None and row.runs.count > 1 and row.error:
                facts["worst_run"] = row.runs.worst
                figures |= {"worst_cos": row.runs.worst_cos, "worst_rmse": row.runs.worst_rmse}
            yield Finding("output", row.name, row.op_type, figures, facts=facts)


def figures_of(row: Row) -> dict[str, float]:
    """A row's figures by name: those that its kind of values has."""
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


def _missing(comparison: Comparison) -> Iterator[Finding]:
    whole = comparison.completeness
    for what, names in (("outputs", whole.missing_outputs), ("runs", whole.runs)):
        if names:
            yield Finding("missing", names[0], names=names, facts={"what": what})
    if whole.is_half(len(comparison.rows)):
        figures = {"compared": float(len(comparison.rows)), "of": float(whole.of)}
        yield Finding("missing", figures=figures, facts={"what": "more than half"})
    if comparison.failed:
        names = tuple(failed.pair.benchmark.name for failed in comparison.failed)
        facts = {"what": "not comparable", "why": comparison.failed[0].reason}
        yield Finding("missing", names[0], names=names, facts=facts)
    if whole.missing:
        yield Finding("missing", whole.missing[0], names=whole.missing, facts={"what": "layers"})


def _other_tensors(comparison: Comparison) -> Iterator[Finding]:
    for row in comparison.suspects[:MOST]:
        assert row.misnamed is not None, "suspects are"
        yield Finding("another tensor", row.name, row.op_type, figures_of(row), facts={"found": row.misnamed.found})


def _not_finite(comparison: Comparison) -> Iterator[Finding]:
    rows = [row for row in comparison.alike if not row.finite and not row.equal]
    if rows:
        first = next((row for row in rows if row.odd_apart), rows[0])
        yield Finding("not finite", first.name, first.op_type, _odd(first), names=tuple(row.name for row in rows))


def _causes(comparison: Comparison, thresholds: Thresholds) -> Iterator[Finding]:
    """The layers where an error arises, the one first that the others may have inherited from."""
    rows = [row for row in comparison.alike if row.io == "out" and row.finite and row.error]
    whole = replace(thresholds, max_channel_rmse=None)
    bad = [row for row in rows if not row.is_within(whole)]
    past = set(map(id, bad))
    if bad:  # what a step hid in one layer is the cause where it shows in another
        bad = [row for row in rows if id(row) in past or (row.is_resolution and _is_past_by_figures(row, thresholds))]
    departure = _first_departure(comparison, bad)
    by_value = departure.row if departure is not None else None
    unlike = _first_unlike(comparison, [by_value] if by_value is not None else bad)
    if unlike is not None:
        record = unlike.pair.benchmark
        facts = {"how": "unlike", "inputs": "differ", "unlike": unlike.unlike}
        yield Finding("cause", record.name, record.op_type, {}, "by value", facts=facts)
        return
    told = {finding.layer for finding in comparison.causes if finding.kind == "argument"}
    is_told = by_value is not None and by_value.name in told
    if departure is not None and not is_told:
        yield _cause(departure.row, "by value", _inputs_of(departure, comparison), departure.before)
    explained = by_value is not None or any(finding.kind == "argument" for finding in comparison.causes[:1])
    yield from (_cause(row, "by figures") for row in ([] if explained else _arising(comparison, bad)[:MOST]))


def _first_departure(comparison: Comparison, bad: Sequence[Row]) -> Departure | None:
    """The first layer that leaves the rounding floor; where layers are bad, one that these inherit from."""
    leaving = departures(comparison.alike, comparison.completeness.by_flow)
    if not bad or not comparison.completeness.by_flow:
        return next(iter(leaving), None)
    sources = {row.name: row.sources for row in comparison.alike}
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


def _is_past_by_figures(row: Row, thresholds: Thresholds) -> bool:
    return not thresholds.of_layer(*row.names).hold(row.cos, row.rmse, row.mse, row.extra)


def _cause(row: Row, evidence: str, inputs: str = "", before: float | None = None) -> Finding:
    how = _how(row)
    figures = {**figures_of(row), "rise": row.rise, **({} if before is None else {"before": before})}
    if how == "times" and row.sums is not None:
        figures["factor"] = row.sums.ab / row.sums.bb
    facts = {name: value for name, value in (("how", how), ("inputs", inputs)) if value}
    return Finding("cause", row.name, row.op_type, figures, evidence, facts=facts)


def _inputs_of(departure: Departure, comparison: Comparison) -> str:
    """``differ`` if a row that feeds it does, be it by rounding; ``unknown`` without a dataflow; else ""."""
    if not comparison.completeness.by_flow:
        return "unknown"
    sources = departure.row.sources
    return "differ" if any(other.name in sources and differs(other) for other in comparison.alike) else ""


def _first_unlike(comparison: Comparison, before: Sequence[Row]) -> Failed | None:
    """The first layer that both sides have quantised in another way and so could not be compared, where it runs before
    the first of these rows."""
    if not before:
        return None
    place = min(row.op_index for row in before)
    unlike = [failed for failed in comparison.failed if failed.unlike and failed.pair.benchmark.io == "out"]
    first = min(unlike, key=lambda failed: failed.pair.benchmark.op_index, default=None)
    return first if first is not None and first.pair.benchmark.op_index < place else None


def _how(row: Row) -> str:
    """What the figures alone show of the fault: ``rearranged``, ``zero`` or ``times``, a factor; "" for nothing."""
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


def _arising(comparison: Comparison, bad: Sequence[Row]) -> list[Row]:
    """Of the bad rows those that none of them feeds, by how much the error rises; where it is not known what feeds
    what, the first in file order whose error rises about as much as any."""
    if not bad:
        return []
    if comparison.completeness.by_flow and any(row.step for row in bad):
        sudden = _sudden(comparison, bad)
        if sudden:
            return sudden
    most = max((row.rise for row in bad if math.isfinite(row.rise)), default=0.0)
    steep = [row for row in bad if row.rise >= _ABOUT * most and row.rise > 0] or list(bad[:1])
    if not comparison.completeness.by_flow:
        return steep[:1]
    names = {row.name for row in steep}
    sources = {row.name: row.sources for row in comparison.alike}
    first = [row for row in steep if not is_fed_by(row, names, sources)]
    return sorted(first, key=lambda row: -row.rise) or steep[:1]


def _sudden(comparison: Comparison, bad: Sequence[Row]) -> list[Row]:
    """Of a quantised side, whose every layer differs somewhat: the bad rows that no bad one feeds, whose error is
    several times what feeds them. What follows may enlarge an error by far more, as a Softmax does."""
    names = {row.name for row in bad}
    sources = {row.name: row.sources for row in comparison.alike}
    first = [row for row in bad if row.error - row.rise <= row.error / _TIMES and not is_fed_by(row, names, sources)]
    return sorted(first, key=lambda row: -row.rise)


def departures(rows: Sequence[Row], by_flow: bool) -> list[Departure]:
    """Return the layers that leave the floor and inherit from no other such layer, in file order.

    Parameters
    ----------
    rows
        Compared rows of one and the same tensor on both sides, in file order.
    by_flow
        Whether ``Row.sources`` says what feeds a row. Otherwise only the first such row is returned, and every row
        before it counts as what feeds it.
    """
    outputs = [row for row in rows if row.io == "out" and row.op_type != "Data"]
    if any(row.step for row in outputs):
        return []  # of a quantised side every layer differs
    if not any(_holds(row) for row in outputs):
        return []  # no layer shows how far the two runs agree
    # an input that no compared operator made, such as a weight, inherits nothing: it is told by itself
    errors = {row.name: row.error for row in rows if row.io == "out" or row.sources}
    leaving: dict[str, Departure] = {}
    level, settled = 0.0, 0
    for row in outputs:
        before = max((errors[name] for name in row.sources if name in errors), default=0.0) if by_flow else level
        if _is_beyond(row, FACTOR * max(before, rounding_bound(row), SURE / FACTOR)):
            leaving.setdefault(row.name, Departure(row, before))
            if not by_flow:
                return list(leaving.values()) if settled >= SETTLED else []
        level = max(level, row.error)
        settled += _holds(row)
    upstream = {row.name: row.sources for row in rows}
    return [departure for departure in leaving.values() if not is_fed_by(departure.row, leaving, upstream)]


def is_fed_by(row: Row, names: Mapping[str, object] | set[str], sources: Mapping[str, Sequence[str]]) -> bool:
    """Return whether one of these names is anywhere upstream of the row."""
    seen, waiting = {row.name}, list(row.sources)
    while waiting:
        name = waiting.pop()
        if name in names and name != row.name:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(sources.get(name, ()))
    return False


def _holds(row: Row) -> bool:
    """Return whether a computed layer agrees as two runtimes do; what only moves values shows nothing."""
    return not only_moves(row.op_type) and row.indices is None and not _is_beyond(row, SURE)


def _is_beyond(row: Row, least: float) -> bool:
    """Return whether a row differs by more than rounding and ``least``; of two fixed models by more than a step."""
    if row.integers is not None and not row.integers.is_hidden:
        integers = row.integers
        return bool(integers.unlike) or (integers.differing > 0 and (integers.largest is None or integers.largest > 1))
    return differs(row) and not is_rounding(row) and row.error > least


def _channels(comparison: Comparison, thresholds: Thresholds) -> Iterator[Finding]:
    """Layers within the limits of which channels are not, and those that only a channel's error is past."""
    whole = replace(thresholds, max_channel_rmse=None)
    for row in comparison.alike:
        channels = row.channels
        if channels is None or not row.is_within(whole) or not (channels.lost or not row.is_within(thresholds)):
            continue
        figures = {"lost": float(channels.lost), "count": float(channels.count), "worst_rmse": channels.worst_rmse}
        yield Finding("channel", row.name, row.op_type, figures, facts={"worst": str(channels.worst)})


def _not_judged(comparison: Comparison) -> Iterator[Finding]:
    whole = comparison.completeness
    by_statistics = tuple(row.name for row in comparison.rows if row.statistics and not row.checksums)
    if by_statistics:
        yield Finding("not judged", names=by_statistics, facts={"why": "statistics only"})
    if whole.fused:
        yield Finding("not judged", names=whole.fused, facts={"why": "fused"})
    if comparison.excluded:
        yield Finding("not judged", names=comparison.excluded, facts={"why": "excluded"})
    if comparison.unwritten:
        yield Finding("not judged", names=comparison.unwritten, facts={"why": "unwritten"})
    if comparison.rows and not whole.by_flow:
        yield Finding("not judged", facts={"why": "no dataflow"})
