"""Sentences on what is to be put right before any INT16, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sgsdump.comparison.finding import Finding
from sgsdump.errors import listed
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
from sgsdump.fixedpoint.tuning.examined import (
    CLIPPED,
    FLAT,
    NORMALISATION,
    ODD,
    OPERATOR,
    ORDER,
    STILL,
    UNLIKE,
    UNTRAINED,
    WEIGHTS,
    WIDE,
)
from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice
from sgsdump.reports.text import counted, percent

MOST_NAMED = 4
# The fixed model of the level that is advised, in the folder of ``diagnose``.
ADVISED = "advised.onnx"
A_SCALE_PER_CHANNEL = (
    f"--quant-level L2 or above, which gives weights a scale for each output channel ({ADVISED} in the folder has "
    f"that, and what else is advised)"
)


@dataclass(frozen=True, eq=False)
class Righted:
    """A cause, and the outputs and the advice with it put right; None where that was not tried."""

    finding: Finding
    outputs: PlanOutputs | None = None
    advice: MeasuredAdvice | None = None


def root_line(finding: Finding) -> str:
    """The cause and its evidence, in one sentence or two."""
    return f"The cause: {_CAUSES[finding.facts['reason']](finding)}."


def what_to_do(finding: Finding) -> str:
    return _STEPS[finding.facts["reason"]](finding)


def told_config(finding: Finding) -> str:
    """The lines of input_config.ini that agree with the preprocess file; "" where it is not about these."""
    if finding.facts.get("by") != "preprocess" or finding.facts["reason"] != NORMALISATION:
        return ""
    mean, std = ([value for _, value in _channels(finding.figures, f"{word}_done")] for word in ("mean", "std"))
    lines = [f"{colour} = {value:g};" for colour, value in zip(("mean_red", "mean_green", "mean_blue"), mean)]
    return "\n".join([*lines, f"std_value = {_joined(std)};"])


def _weights(finding: Finding) -> str:
    figures, at = finding.figures, finding.layer
    whose = f"the weights of {at} ({finding.op_type})" if at else "the weights"
    row = ""
    if "row" in figures:
        row = (
            f" (output channel {figures['row']:.0f} of {figures['rows']:.0f} reaches {figures['row_reaches']:.3g}, "
            f"half of the others at most {figures['row_others']:.3g})"
        )
    return (
        f"{whose}, of 8 bits and one scale per tensor{row}: with a scale for each output channel, as from "
        f"--quant-level L2 on, {_errors(figures)}"
    )


def _odd(finding: Finding) -> str:
    figures, names = finding.figures, finding.names
    others = int(figures["of"]) - len(names)
    text = (
        f"{'one calibration picture' if len(names) == 1 else f'{len(names)} calibration pictures'}, "
        f"{listed(list(names), MOST_NAMED)}, whose values reach {figures['times']:.1f} times as far as the others'. "
        f"Without {'it' if len(names) == 1 else 'them'} {_errors(figures)} on the {counted(others, 'other')}"
    )
    if figures["wide_after"] < figures["wide"]:
        text += (
            f", with {counted(int(figures['wide_after']), 'convolution')} at 16 bits where there are "
            f"{figures['wide']:.0f}"
        )
    return text


def _unlike(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"the calibration pictures are unlike these: {percent(figures['outside'])} of the values of "
        f"{figures['layers']:.0f} of {figures['of']:.0f} layers lie outside the calibrated ranges. Calibrated on "
        f"pictures like these, {_errors(figures)}"
    )


def _wide(finding: Finding) -> str:
    figures = finding.figures
    if len(finding.names) == 1:
        return f"the range of {_ranged(finding)}. With one that fits, {_errors(figures)}"
    return (
        f"the ranges of {figures['layers']:.0f} of {figures['of']:.0f} layers are {figures['times']:.1f} times as wide "
        f"as these pictures need, {finding.facts['input']} first. Calibrated on pictures like these, {_errors(figures)}"
    )


def _clipped(finding: Finding) -> str:
    figures = finding.figures
    more = f" (and of {counted(len(finding.names) - 1, 'more')})" if len(finding.names) > 1 else ""
    return (
        f"the range of {_ranged(finding)}{more}: {percent(figures['outside'])} of its values lie outside. With ranges "
        f"that hold them, {_errors(figures)}"
    )


def _ranged(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"{finding.facts['input']}, {figures['low']:.4g} to {figures['high']:.4g} where these pictures need "
        f"{figures['needed_low']:.4g} to {figures['needed_high']:.4g}"
    )


def _flat(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"the calibration pictures use the grey levels {figures['low']:.0f} to {figures['high']:.0f} of 0 to 255 "
        f"alone: of pictures that use all, {percent(figures['outside'])} of the values of {figures['layers']:.0f} of "
        f"{figures['of']:.0f} layers would lie outside the calibrated ranges"
    )


def _operator(finding: Finding) -> str:
    figures = finding.figures
    ends = f" reaches from {figures['low']:.4g} to {figures['high']:.4g}, and" if "low" in figures else ""
    return (
        f"{finding.layer} ({finding.op_type}), which{ends} has steps of {figures['step']:.3g} in 16 bits: rounded to "
        f"these alone it brings {figures['alone']:.4f} of the outputs' error, where {figures['left']:.4f} is left "
        f"with every convolution at 16 bits"
    )


def _normalisation(finding: Finding) -> str:
    figures = finding.figures
    told, done = (_normalised(figures, word) for word in ("told", "done"))
    if finding.facts["by"] == "preprocess":
        return (
            f"the preprocess file and input_config normalise the input {finding.facts['input']} differently, so the "
            f"fixed model gets another image than the float model. Preprocess file: {done}; input_config: {told}"
        )
    if finding.facts["by"] == "fixed":
        return f"the input {finding.facts['input']}: the fixed model was made with {done}, input_config says {told}"
    return (
        f"the ranges were calibrated on pictures normalised otherwise: the input {finding.facts['input']} has the "
        f"range of {done}, input_config says {told}. Calibrated with that, {_errors(figures)}"
    )


def _order(finding: Finding) -> str:
    figures = finding.figures
    if finding.facts["by"] == "preprocess":
        return (
            f"the order of the channels of the input {finding.facts['input']}: one of the preprocess file and "
            f"input_config uses RGB, the other BGR (up to {figures['levels']:.3g} grey levels off)"
        )
    if finding.facts["by"] == "fixed":
        return (
            f"the order of the channels of the input {finding.facts['input']}: the fixed model was made with another "
            f"than input_config says (RGB and BGR)"
        )
    return (
        f"the ranges were calibrated on pictures whose channels had the opposite order (RGB and BGR): with those of "
        f"the input {finding.facts['input']} swapped these pictures fill the calibrated ranges. Calibrated as "
        f"input_config says, {_errors(figures)}"
    )


def _errors(figures: Mapping[str, float]) -> str:
    return f"the outputs' error goes from {figures['error']:.4f} to {figures['error_after']:.4f}"


def _normalised(figures: Mapping[str, float], word: str) -> str:
    mean, std = (_joined([value for _, value in _channels(figures, f"{name}_{word}")]) for name in ("mean", "std"))
    return f"mean {mean}, std {std}"


def _channels(figures: Mapping[str, float], word: str) -> Iterator[tuple[str, float]]:
    return ((name, value) for name, value in figures.items() if name.startswith(f"{word}_"))


def _joined(values: list[float]) -> str:
    return ":".join(f"{value:g}" for value in (values[:1] if len(set(values)) == 1 else values))


def _still(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"these pictures hardly move {finding.layer}: it spans {figures['seen']:.3g} of the {figures['reaches']:.3g} "
        f"that it can, and is off by at most {figures['largest_error']:.3g}, so that relative figures say little of it"
    )


def _untrained(finding: Finding) -> str:
    figures, pictures = finding.figures, bool(finding.facts["input"])
    text = (
        f"the {'pictures' if pictures else 'inputs'} are not those that the network was trained on: before "
        f"{finding.layer} (BatchNormalization) the means of the channels are {_far(figures, '')} as in training"
    )
    if not pictures:
        return text
    told, done = (_normalised(figures, word) for word in ("told", "done"))
    return f"{text}. They have {told}; with {done} it is {_far(figures, '_after')}"


def _far(figures: Mapping[str, float], word: str) -> str:
    off, times = figures[f"deviations{word}"], figures[f"times{word}"]
    return f"{off:.{0 if off >= 10 else 2}f} standard deviations off, and their spread is {times:.3g} times as large"


_CAUSES = {
    STILL: _still,
    WEIGHTS: _weights,
    ODD: _odd,
    UNLIKE: _unlike,
    WIDE: _wide,
    CLIPPED: _clipped,
    FLAT: _flat,
    OPERATOR: _operator,
    NORMALISATION: _normalisation,
    ORDER: _order,
    UNTRAINED: _untrained,
}


def _to_normalise(finding: Finding) -> str:
    if finding.facts["by"] == "preprocess":
        return "Make input_config.ini agree with the preprocess file, and calibrate again. The preprocess file uses:"
    return "Calibrate again, with the input_config.ini that is right."


def _to_train(finding: Finding) -> str:
    if not finding.facts["input"]:
        return (
            "Prepare the inputs as in training (whether values go from 0 to 1 or from 0 to 255, mean and std), and "
            "diagnose again: what else is said here is of other inputs."
        )
    done = _normalised(finding.figures, "done")
    return (
        f"Look up how pictures were prepared in training; if with {done}, write that into input_config.ini and the "
        f"preprocess file, and diagnose again: what else is said here is of other pictures."
    )


_STEPS = {
    STILL: lambda finding: (
        "Give pictures that show what the network finds, prepared as in its training (-n), and diagnose again."
    ),
    WEIGHTS: lambda finding: f"Choose {A_SCALE_PER_CHANNEL}.",
    ODD: lambda finding: f"Leave {listed(list(finding.names), MOST_NAMED)} out of the calibration pictures.",
    UNLIKE: lambda finding: "Calibrate on pictures like these.",
    WIDE: lambda finding: "Calibrate again, on pictures like these, and leave out what is unlike them.",
    CLIPPED: lambda finding: f"Calibrate the range of {finding.facts['input']} again, on pictures like these.",
    FLAT: lambda finding: "Calibrate on pictures as they will come, bright and dark ones.",
    OPERATOR: lambda finding: (
        f"Write the network so that {finding.facts['input']} stays within the range of its neighbours: what is added "
        f"or multiplied there and taken back later can be left out, or folded into the weights."
    ),
    NORMALISATION: _to_normalise,
    UNTRAINED: _to_train,
    ORDER: lambda finding: "Give both the same order of channels (training_input_formats), and calibrate again.",
}
