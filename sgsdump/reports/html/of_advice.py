"""What to do next, by an advice that was measured; and each layer's own error, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sgsdump.registry import listed
from sgsdump.reports.html.report import Layer, Step
from sgsdump.reports.tuning.advice_verdict import conv_config
from sgsdump.tuning.advice import MAYBE, MeasuredAdvice, holds
from sgsdump.tuning.sensitivity_analysis import output_error

MOST_NAMED = 4


def steps_of(found: MeasuredAdvice) -> Iterator[Step]:
    """The text to copy is the [CONV_CONFIG] to put into input_config.ini."""
    measured, measurement, limits = found.measured, found.measured.measurement, found.measured.limits
    tried = measured.tried
    if found.good:
        names = found.config_names
        has = f"; the fixed model has {listed(names, MOST_NAMED)} at INT16 already" if names else ""
        copy = conv_config(names) if names else ""
        yield Step(f"Nothing more has to be raised to INT16: no output has {limits}{has}.", copy)
        return
    if tried is not None:
        errors = [output_error(totals) for totals in (measurement.all_8, tried, measurement.all_16)]
        state = "within the limits" if holds(tried, limits) else f"still {limits}"
        yield Step(
            f"Put this into input_config.ini and calibrate again: with {_count(len(measured.names), 'input')} of "
            f"convolutions at INT16 the outputs' error goes to {errors[1]:.4f}, {state} ({errors[0]:.4f} with all at 8 "
            f"bits, {errors[2]:.4f} with all at 16; measured on {_count(measurement.pictures, 'picture')}).",
            conv_config(found.config_names),
        )
    if not holds(measurement.all_16, limits):
        yield Step(
            f"Even with every convolution at 16 bits an output has {limits}: INT16 alone does not repair it; "
            f"look at the ranges and the calibration pictures."
        )
    maybe = list(dict.fromkeys(entry.convolution.shown_input for entry in found.advice if entry.verdict == MAYBE))
    if maybe and not (tried is not None and holds(tried, limits)):
        yield Step(f"What would help most{' after that' if tried is not None else ''}: {listed(maybe, MOST_NAMED)}.")


def with_measured(layers: Sequence[Layer], found: MeasuredAdvice) -> tuple[Layer, ...]:
    """The layers, with their own and their inherited error measured where a convolution ends in them."""
    own: dict[str, float] = {}
    inherited: dict[str, float] = {}
    for sensitivity in found.measured.measurement.sensitivities:
        own |= {found.measured.layers[name]: error for name, error in sensitivity.own.items()}
        inherited |= {found.measured.layers[name]: error for name, error in sensitivity.inherited.items()}
    return tuple(
        replace(layer, own_error=own[layer.name], inherited=inherited[layer.name]) if layer.name in own else layer
        for layer in layers
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
