"""The first line of a comparison: PASS or FAIL with the deciding number, or how two dumps compare without limits."""

from __future__ import annotations

from collections.abc import Iterator

from sgsdump.comparison.account import Account
from sgsdump.comparison.verdict import NOT_FINITE, OTHER_TENSOR, RESOLUTION, Deciding, Verdict
from sgsdump.errors import listed
from sgsdump.reports.text import counted, shortened, shown

FEW = 3  # names in the line


def result_line(verdict: Verdict) -> str:
    """Return ``PASS: …`` or ``FAIL: …`` of a verdict with limits, else ``EQUAL: …``, ``WITHIN ROUNDING: …``,
    ``DIFFERS: …`` or ``NOT COMPARABLE: …``.

    Parameters
    ----------
    verdict
        On two dumps, or on several runs of both.
    """
    account, deciding = verdict.account, verdict.deciding
    if verdict.passes is None:
        return f"{verdict.state.upper()}: {'; '.join([_compared(verdict), *_not_finite(verdict), *_lacking(account)])}"
    lacking = list(_lacking(account, verdict.allows_missing))
    if not verdict.passes:
        past = [_figure(deciding), f"{verdict.past} of {_layers(account)} past the limits"] if verdict.past else []
        return f"FAIL: {'; '.join([*past, *lacking]) or 'no layer could be compared'}"
    within = f"all {account.compared} layers are" if account.compared > 1 else "the only layer is"
    return f"PASS: {_figure(deciding)}; {within} within the limits"


def _compared(verdict: Verdict) -> str:
    if verdict.state == "not comparable":
        return "no layer could be compared"
    if verdict.deciding is None:
        is_elsewhere = verdict.state == "differs"  # an operator outside the modules, say
        layers = _layers(verdict.account)
        return f"0 of {layers}, but a cause was found" if is_elsewhere else layers
    return f"{verdict.past} of {_layers(verdict.account)}, most at {_figure(verdict.deciding)}"


def _not_finite(verdict: Verdict) -> Iterator[str]:
    """NaN and Inf where the number that decided does not tell of them: equal ones do not differ, and are not hidden."""
    if verdict.not_finite and (verdict.deciding is None or verdict.deciding.metric != NOT_FINITE):
        yield f"NaN or Inf in {counted(verdict.not_finite, 'layer')}"


def _layers(account: Account) -> str:
    return counted(account.compared, "layer")


def _lacking(account: Account, allows_missing: bool = False) -> Iterator[str]:
    missing = [] if allows_missing else [*account.named("missing", "output"), *account.named("missing", "layer")]
    runs = () if allows_missing else account.named("missing", "run")
    if missing:
        yield f"{counted(len(missing), 'layer')} missing, {_named(missing)}"
    if runs:
        yield f"{counted(len(runs), 'run')} missing"
    if failed := account.not_comparable:
        yield f"{counted(len(failed), 'layer')} not comparable, {_named([one.name for one in failed])}"
    elif account.damaged:
        yield f"{counted(len(account.damaged), 'file')} damaged"
    elif not missing and not allows_missing and account.is_less_than_half:
        yield f"only {account.compared} of {account.of} layers compared"


def _named(names: list[str]) -> str:
    return listed([shortened(shown(name)) for name in names], FEW)


def _figure(deciding: Deciding | None) -> str:
    """``conv1, RMSE 0.512 (limit 0.1)``."""
    assert deciding is not None, "something decided"
    name, value = shortened(shown(deciding.layer)), deciding.value
    if deciding.metric == OTHER_TENSOR:
        return f"{name} is another tensor of the same name"
    if deciding.metric == NOT_FINITE:
        return f"{name}, NaN or Inf"
    if deciding.metric == RESOLUTION:
        return f"{name}, RMSE {value:.3g}, within half a step of its scale"
    limit = "" if deciding.limit is None else f" (limit {deciding.limit:g})"
    return f"{name}, {deciding.metric} {value:.3g}{limit}"
