"""The end of an advice: what the outputs lose, what to raise and what that gives, or that nothing is to be raised."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.registry import listed
from sgsdump.tuning.advice import MAYBE, Advice, holds
from sgsdump.tuning.sensitivity_analysis import Measurement, Totals, error_of, output_error

MOST_NAMES = 8
# input_config.ini separates by commas, ends a value with a semicolon and strips quotes and blanks.
_WRITABLE = re.compile(r"[^\s,;'\"]([^,;'\"\r\n]*[^\s,;'\"])?")


def render(
    advice: Sequence[Advice],
    names: Sequence[str],
    limits: Thresholds,
    measurement: Measurement | None = None,
    tried: Totals | None = None,
    rows: Sequence[Row] = (),
) -> str:
    """names: the words of tensor_arrays to write. tried: the outputs' sums against float with these raised. rows: the
    comparison of the fixed model's dump with the float model's, where there is one."""
    return "".join(f"{line}\n" for line in _lines(advice, names, limits, measurement, tried, rows))


def conv_config(names: Sequence[str]) -> str:
    """The section of input_config.ini that raises these inputs."""
    return f"[CONV_CONFIG]\ntensor_arrays='{','.join(names)}';"


def _lines(
    advice: Sequence[Advice],
    names: Sequence[str],
    limits: Thresholds,
    measurement: Measurement | None,
    tried: Totals | None,
    rows: Sequence[Row],
) -> Iterator[str]:
    bad = False
    if measurement:
        bad = not holds(measurement.all_8, limits)
        pictures = f"{measurement.pictures} picture{'s' if measurement.pictures > 1 else ''}"
        yield f"Output error against float (RMSE), {pictures}, {measurement.runs} runs; past limits is {limits}:"
        yield from _errors(measurement, tried)
        if not holds(measurement.all_16, limits):
            yield (
                f"Even with every convolution at 16 bits an output has {limits}: INT16 alone does not repair it; look "
                f"at the ranges and the calibration pictures."
            )
    unknown = list(dict.fromkeys(a.convolution.shown_input for a in advice if not a.signs.limits))
    if unknown:
        yield f"Not judged, as the ranges file has no range for them: {listed(unknown, MOST_NAMES)}."
    maybe = list(dict.fromkeys(a.convolution.shown_input for a in advice if a.verdict == MAYBE))
    if names:
        if tried:
            state = "the outputs are within limits" if holds(tried, limits) else f"still {limits}: raise the maybes too"
            yield f"With {listed(names, MOST_NAMES)} raised {state}."
        yield f"Raise {len(names)}: put this into input_config.ini and calibrate again."
        yield conv_config(names)
        for name in names:
            if not _WRITABLE.fullmatch(name):
                yield f"{name!r} cannot stand in tensor_arrays: rename the tensor in the model."
        return
    if not maybe and not measurement and not all(each.convolution.reads_picture for each in advice):
        yield from _rules_alone(rows)
    elif not maybe:
        yield (
            "Nothing to raise: no convolution needs INT16 inputs."
            if not unknown
            else "Nothing to raise among the rest."
        )
    elif not measurement:
        yield f"Nothing is sure. Measure on pictures (-i) to know whether to raise {listed(maybe, MOST_NAMES)}."
    elif bad:
        most = listed(maybe, MOST_NAMES)
        yield f"No convolution stands out: the error adds up from many. What would help most: {most}."
    else:
        yield f"Nothing to raise. What would help most, if you want less error still: {listed(maybe, MOST_NAMES)}."


def _rules_alone(rows: Sequence[Row]) -> Iterator[str]:
    """Where no rule fires the model may still be bad: the layers past the limits are counted."""
    past = [row.name for row in rows if not _within(row)]
    if past:
        yield (
            f"{len(past)} of {len(rows)} layers have {DOCUMENTED}, and no rule of thumb says which convolution to "
            f"raise for them: {listed(past, MOST_NAMES)}."
        )
    else:
        yield "No rule of thumb asks for INT16 inputs; that does not say that 8 bits are enough."
    yield "Measure on pictures (-i) to know."


def _within(row: Row) -> bool:
    return row.finite and DOCUMENTED.hold(row.cos, row.rmse, row.mse)  # type: ignore[arg-type]


def _errors(measurement: Measurement, tried: Totals | None) -> Iterator[str]:
    """A line for each judged tensor, and the mean where there are several."""
    plans = [("all 8 bits", measurement.all_8), ("these raised", tried), ("all 16 bits", measurement.all_16)]
    given = [(title, totals) for title, totals in plans if totals is not None]
    labels = {name: f"{name} (logits)" if name in measurement.logits else name for name in measurement.all_8}
    width = max(map(len, [*labels.values(), "mean"]))
    yield f"  {'':{width}}" + "".join(f"  {title:>12}" for title, _ in given)
    for name in measurement.all_8:
        cells = "".join(f"  {error_of(totals[name]):12.4f}" for _, totals in given)
        yield f"  {labels[name]:<{width}}{cells}"
    if len(measurement.all_8) > 1:
        yield f"  {'mean':<{width}}" + "".join(f"  {output_error(totals):12.4f}" for _, totals in given)
