"""The plans that ``tune`` found, as a table, CSV, JSON and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sgsdump.errors import listed
from sgsdump.files.escaping import csv_lines
from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.reports.unseen import OF_CALIBRATION, unseen_text
from sgsdump.fixedpoint.tuning.pareto import Limits, Pareto, Row, as_document, plan_lines, worsened
from sgsdump.fixedpoint.tuning.plan_costs import BYTES
from sgsdump.reports.text import aligned, counted

# Smaller relative differences of an error are not reported.
WITHIN = 0.01


def pareto_table(result: Pareto) -> str:
    """Return one line per plan, from all-INT8 to all-INT16; the recommended plan is marked."""
    head, *rows = pareto_cells(result)
    return "\n".join(aligned([head, *rows], range(len(head)))) + "\n"


def pareto_cells(result: Pareto) -> list[list[str]]:
    """Return the head and the rows of the table."""
    outputs = result.outputs
    metric = any(row.outputs.metric is not None for row in result.rows)
    head = ["", "plan", "rate", "INT16 convs", "bytes", "MACs at 16", "predicted", "searched", "error", "of the way"]
    head += [f"error {name}" for name in _judged(result)]
    head += [f"COS {name}" for name in outputs] + [f"RMSE {name}" for name in outputs] + ["metric"] * metric
    if result.held_out is not None:
        head += ["held-out error", "of the way"] + ["held-out metric"] * metric
    if result.tells_unseen:
        head += ["expected"]
    return [head, *(_cells(row, result) for row in result.rows)]


def pareto_csv(result: Pareto) -> str:
    """Return the plans as CSV in full precision; names in ``tensor_arrays`` are separated by commas and blanks."""
    columns, lines = plan_lines(result)
    return csv_lines([columns, *lines])


def pareto_json(result: Pareto) -> str:
    """Return the plans as JSON: ``rows`` from INT8 to INT16, the ``cloud`` of all tried plans, and the effort."""
    return json_text(as_document(result))


def _judged(result: Pareto) -> list[str]:
    """Return the outputs whose own error is shown; empty for a single output."""
    return list(result.taken.outputs.errors) if len(result.taken.outputs.errors) > 1 else []


def _cells(row: Row, result: Pareto) -> list[str]:
    out = row.outputs
    cells = [
        "*" if row is result.taken else "",
        row.label,
        f"{row.rate:.4f}",
        str(len(row.raised)),
        str(row.bytes),
        "?" if row.macs16 is None else f"{row.macs16:.1%}",
        f"{row.predicted:.3g}",
        "-" if math.isnan(row.searched) else f"{row.searched:.3g}",
        f"{row.error:.3g}",
        "-" if math.isnan(row.way) else f"{row.way:.1%}",
        *(f"{row.outputs.errors[name]:.3g}" for name in _judged(result)),
        *(f"{row.outputs.cos[name]:.6f}" for name in result.outputs),
        *(f"{row.outputs.rmse[name]:.4f}" for name in result.outputs),
    ]
    cells += [] if row.outputs.metric is None else [f"{row.outputs.metric:.4g}"]
    unseen = [] if not result.tells_unseen else ["-" if out.unseen is None else f"{out.unseen.expected:.3g}"]
    if result.held_out is None:
        return [*cells, *unseen]
    held = [(row.outputs.held_error, ".3g"), (row.outputs.held_way, ".1%")]
    held += [] if row.outputs.metric is None else [(row.outputs.held_metric, ".4g")]
    shown = ("-" if value is None or math.isnan(value) else f"{value:{form}}" for value, form in held)
    return [*cells, *shown, *unseen]


def limits_line(limits: Limits) -> str:
    """Return a sentence on whether INT8 is within the limits."""
    held = ", held out too" if limits.held_out else ""
    if not limits.past:
        return (
            f"With all convolutions at INT8, the outputs are within the limits ({_allowed(limits)}) on "
            f"all {limits.pictures} images{held}: no INT16 needed"
        )
    return (
        f"With all convolutions at INT8, outputs exceed the limits ({_allowed(limits)}) on "
        f"{limits.pictures} images{held}: {listed(limits.past)}"
    )


def _allowed(limits: Limits) -> str:
    ends = (("COS >=", limits.allowed.min_cos), ("RMSE <=", limits.allowed.max_rmse))
    return ", ".join(f"{name} {limit:g}" for name, limit in ends if limit is not None)


def ending_lines(result: Pareto) -> Iterator[str]:
    """Yield the effort of the search, the warnings, and the recommended plan."""
    how = "every possible plan tried" if result.effort.exhaustive else f"{result.effort.plans_tried} plans tried"
    rest = "" if result.effort.complete else "; the time ran out before the search ended; rerun the command to resume"
    yield f"{how}, {result.effort.runs} runs of the model{rest}"
    if result.effort.unsearched:
        yield f"not tried: {'; '.join(result.effort.unsearched)}"
    for name in result.left_out:
        yield (
            f"output {name} is not counted, because its error at INT16 is infinite; check that this "
            "output is not zero in the float model"
        )
    if result.limits is not None and not result.limits.taken:
        yield (
            f"warning: no tried plan is within the limits ({_allowed(result.limits)}); plan * was "
            "therefore chosen by its error"
        )
    for name, (error, low) in worsened(result).items():
        yield (
            f"warning: with the plan marked *, the error of output {name} ({error:.3g}) is larger "
            f"than with all convolutions at INT8 ({low:.3g}); to minimise the error of this output, "
            f"use --objective worst or --objective {name}"
        )
    taken = result.taken
    names = ", ".join(taken.raised[:6]) + (" …" if len(taken.raised) > 6 else "")
    yield f"plan *: {len(taken.raised)} convolutions run at INT16{': ' + names if names else ''}"
    macs = "" if taken.macs16 is None else f"; {taken.macs16:.0%} of the multiplications at INT16"
    yield f"plan *: the weights take {taken.bytes} bytes, {taken.rate:.3f} of their INT16 size{macs}"
    if result.enough is not None and result.enough is not taken:
        small, large, of_what = _costs_of(result.cost, result.enough, taken)
        yield (
            f"plan *: a smaller plan already removes 95 % of the error that INT16 can remove. The smaller "
            f"plan's share of {of_what} is {small:.3f}. Plan * increases this share by {large - small:.3f}, "
            f"and changes the error {result.enough.error:.3g} → {taken.error:.3g}"
        )
    yield from _expected_lines(result)
    yield from _metric_lines(result)
    if result.effort.off:
        searched = "" if math.isnan(taken.searched) else f" (approximation: {taken.searched:.3g})"
        yield (
            "plan *: chosen by its error with the chip's integer arithmetic. "
            f"This error is {taken.error:.3g}{searched}; {how_far(result)}"
        )
    yield from _held_lines(result)


def _expected_lines(result: Pareto) -> Iterator[str]:
    """Yield the expected error on new images, or that no images were held out."""
    int8, taken = result.rows[0].outputs.unseen, result.taken.outputs.unseen
    if int8 is None or taken is None:
        yield OF_CALIBRATION
        return
    before = "" if result.taken is result.rows[0] else f"INT8 {int8.expected:.3g} → "
    yield (f"expected error on new images: {before}plan * {taken.expected:.3g} ({unseen_text(taken, result.folds)})")


def _metric_lines(result: Pareto) -> Iterator[str]:
    """Yield that a smaller plan is as good by the user's metric, which does not notice every error."""
    known = [(row.outputs.metric, row) for row in result.rows if row.outputs.metric is not None]
    if not known:
        return
    best = max(metric for metric, _ in known)
    smallest = next(row for metric, row in known if metric == best)
    taken = result.taken.outputs.metric
    if smallest.rate < result.taken.rate or (taken is not None and taken < best):
        count, reached = counted(len(smallest.raised), "convolution"), math.floor(best * 1e4) / 1e4
        than = "is as good as any plan" if smallest.rate < result.taken.rate else f"is better than plan * ({taken:.4g})"
        yield (
            f"plan {smallest.label} ({count} at INT16) {than} by the metric ({best:.4g}); --target "
            f'"metric>={reached:g}" selects the smallest plan that reaches this value'
        )


def _held_lines(result: Pareto) -> Iterator[str]:
    """Yield the results of the recommended plan on held-out images."""
    held, taken = result.held_out, result.taken
    if held is None or taken.outputs.held_error is None:
        return
    which = "images held out of the calibration" if held.folds else "images that the search did not use"
    yield (
        f"held out: on {held.pictures} {which}, the error of plan * is {taken.outputs.held_error:.3g} "
        f"({taken.error:.3g} on the {result.effort.pictures} images of the search)"
    )
    if held.float_metric is not None and taken.outputs.held_metric is not None:
        yield (
            f"held out: the metric is {taken.outputs.held_metric:.4g} for plan * and {held.float_metric[1]:.4g} for "
            f"the float model. On the images of the search, the metric is {taken.outputs.metric:.4g} for plan * and "
            f"{held.float_metric[0]:.4g} for the float model"
        )
    if not held.confirmed:
        yield (
            "warning: * is not recommended: on held-out images its error is much larger, and so is the error of every "
            "larger plan that was run; judge on more images (--evaluate), or give calibration images (-i) that "
            "are more like the held-out images"
        )
    elif held.beyond:
        rates = ", ".join(f"{rate:.3f}" for rate in held.beyond)
        yield (
            "plan * was chosen because smaller plans have a much larger error on held-out images. Size of the weights "
            f"with the smaller plans: {rates} of the size with all convolutions at INT16"
        )


def how_far(result: Pareto) -> str:
    """Return the error of the search's approximation on the plans that were also run in integers."""
    low, high = min(result.effort.off), max(result.effort.off)
    plans = f"on the {len(result.effort.off)} plans run in both the approximation and the chip's integer arithmetic"
    if max(-low, high) < WITHIN:
        return f"{plans}, these two errors of a plan differ by less than {100 * WITHIN:.0f} %"
    below = f"{100 * -low:.0f} % below to " if low < 0 else ""
    above = f"{below}{100 * max(high, 0):.0f} % above"
    return f"{plans}, the error with the chip's integer arithmetic is {above} the error in the approximation"


def _costs_of(cost: str, smaller: Row, larger: Row) -> tuple[float, float, str]:
    if cost == BYTES:
        return smaller.rate, larger.rate, "the INT16 weight size"
    return smaller.macs16 or 0.0, larger.macs16 or 0.0, "multiplications at INT16"
