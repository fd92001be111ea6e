"""The first line of a comparison: PASS or FAIL with the deciding number, or how two dumps compare without limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.row import Row, differs, is_rounding
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import listed
from sgsdump.reports.text import counted, shortened, shown

FEW = 3  # names in the line


def result_line(comparison: Comparison, limits: Thresholds | None, allow_missing: bool = False) -> str:
    """Return ``PASS: …`` or ``FAIL: …`` with limits, else ``EQUAL: …``, ``WITHIN ROUNDING: …`` or ``DIFFERS: …``.

    Parameters
    ----------
    comparison
        Two dumps, or several runs of both.
    limits
        Those that the user gave; None without.
    allow_missing
        Whether layers that the sample lacks fail, as with ``--allow-missing``.
    """
    if not limits:
        return _without_limits(comparison)
    lacking = list(_lacking(comparison, allow_missing))
    past = comparison.past(limits)
    if past or lacking or not comparison.rows:
        return f"FAIL: {'; '.join([*_past(comparison, past, limits), *lacking]) or 'no layer could be compared'}"
    within = f"all {len(comparison)} layers are" if len(comparison) > 1 else "the only layer is"
    worst = comparison.worst
    assert worst is not None, "there are rows"
    return f"PASS: {_figure(worst, limits.of_layer(*worst.names))}; {within} within the limits"


def _without_limits(comparison: Comparison) -> str:
    differing = [row for row in comparison.rows if differs(row) or row.misnamed or not row.finite]
    beyond = [row for row in differing if not is_rounding(row) or row.misnamed]
    more = "".join(f"; {text}" for text in _lacking(comparison))
    worst = _worst(comparison, beyond or differing)
    layers = counted(len(comparison), "layer")
    if not comparison.rows:
        return f"DIFFERS: no layer could be compared{more}"
    if worst is None:
        return f"EQUAL: {layers}{more}"
    word = "DIFFERS" if beyond else "WITHIN ROUNDING"
    return f"{word}: {len(beyond or differing)} of {layers}, most at {_figure(worst, Thresholds())}{more}"


def _past(comparison: Comparison, past: tuple[Row, ...], limits: Thresholds) -> Iterator[str]:
    """The output that is past its limits, else the worst layer, and how many there are."""
    if not past:
        return
    outputs = [row for row in past if row.name in comparison.completeness.outputs]
    worst = _worst(comparison, outputs or past)
    assert worst is not None, "some are past"
    yield _figure(worst, limits.of_layer(*worst.names))
    yield f"{len(past)} of {counted(len(comparison), 'layer')} past the limits"


def _worst(comparison: Comparison, rows: Sequence[Row]) -> Row | None:
    """Return the first of these in the order in which every report ranks layers."""
    ids = set(map(id, rows))
    return next((row for row in comparison.worst_first() if id(row) in ids), None)


def _lacking(comparison: Comparison, allow_missing: bool = False) -> Iterator[str]:
    whole = comparison.completeness
    missing = [] if allow_missing else [*whole.missing_outputs, *whole.missing]
    if missing:
        yield f"{counted(len(missing), 'layer')} missing, {listed([shortened(shown(n)) for n in missing], FEW)}"
    if whole.runs and not allow_missing:
        yield f"{counted(len(whole.runs), 'run')} missing"
    if comparison.failed:
        names = [shortened(shown(failed.pair.benchmark.name)) for failed in comparison.failed]
        yield f"{counted(len(names), 'layer')} not comparable, {listed(names, FEW)}"
    elif comparison.damaged:
        yield f"{counted(len(comparison.damaged), 'file')} damaged"
    elif not missing and not allow_missing and whole.is_half(len(comparison)):
        yield f"only {len(comparison)} of {comparison.of} layers compared"


def _figure(row: Row, limits: Thresholds) -> str:
    """``conv1, RMSE 0.512 (limit 0.1)``: the figure that is past its limit, else the first that has one, else RMSE."""
    name = shortened(shown(row.name))
    if row.misnamed:
        return f"{name} is another tensor of the same name"
    if not row.finite and not row.equal:
        return f"{name}, NaN or Inf"
    if row.is_resolution and limits.max_channel_rmse is None:
        return f"{name}, RMSE {row.error:.3g}, within half a step of its scale"
    limited = [(label, value, limit) for label, value, limit, _ in _limited(row, limits)]
    past = [(label, value, limit) for label, value, limit, is_past in _limited(row, limits) if is_past]
    for label, value, limit in (*past, *limited):
        return f"{name}, {label} {value:.3g} (limit {limit:g})"
    return f"{name}, {'relative error' if row.statistics or row.indices else 'RMSE'} {row.error:.3g}"


def _limited(row: Row, limits: Thresholds) -> Iterator[tuple[str, float, float, bool]]:
    """Each figure of a row that has a limit: its name, value, limit, and whether it is past."""
    if row.statistics or row.checksums or row.indices is not None:
        limit = limits.max_rmse or 0.0
        yield "relative error", row.error, limit, row.error > limit
        return
    if limits.max_rmse is not None:
        yield "RMSE", row.error, limits.max_rmse, not row.error <= limits.max_rmse
    if limits.min_cos is not None:
        yield "COS", row.cos, limits.min_cos, not row.cos >= limits.min_cos
    if limits.max_mse is not None:
        yield "MSE", row.mse, limits.max_mse, not row.mse <= limits.max_mse
    for name, limit in limits.further:
        higher = name in limits.own or METRICS[name].higher_is_better
        value = row.extra.get(name, float("nan"))
        yield name, value, limit, not (value >= limit if higher else value <= limit)
    if limits.max_channel_rmse is not None and row.channels is not None:
        value = row.channels.worst_rmse
        yield f"RMSE of channel {row.channels.worst}", value, limits.max_channel_rmse, value > limits.max_channel_rmse
