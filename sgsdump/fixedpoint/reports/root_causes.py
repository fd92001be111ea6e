"""Sentences on causes that must be corrected before any INT16, and what to do about each."""

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
# The fixed model of the recommended level, in the folder of ``diagnose``.
ADVISED = "advised.onnx"
A_SCALE_PER_CHANNEL = f"--quant-level L2 or above, with one weight scale per output channel ({ADVISED} uses it)"


@dataclass(frozen=True, eq=False)
class Righted:
    """A cause, and the outputs and the plan with the cause corrected; None if the correction was not tried."""

    finding: Finding
    outputs: PlanOutputs | None = None
    advice: MeasuredAdvice | None = None


def cause_text(finding: Finding) -> str:
    """Return the cause and its evidence, without a full stop."""
    return CAUSES[finding.facts["reason"]](finding)


def remedy_text(finding: Finding) -> str:
    """Return what to do about the cause, without a full stop and with a small first letter."""
    return _REMEDIES[finding.facts["reason"]](finding)


def what_to_do(finding: Finding) -> str:
    """Return what to do about the cause, as a sentence."""
    text = remedy_text(finding)
    return f"{text[0].upper()}{text[1:]}."


def told_config(finding: Finding) -> str:
    """Return the lines of input_config.ini that agree with the preprocess file; "" for other causes."""
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
            f" Output channel {figures['row']:.0f} of {figures['rows']:.0f} reaches {figures['row_reaches']:.3g}, half "
            f"of the other channels reach at most {figures['row_others']:.3g}."
        )
    return f"{whose} have 8 bits and one scale per tensor.{row} With one scale per output channel, {_errors(figures)}"


def _odd(finding: Finding) -> str:
    figures, names = finding.figures, finding.names
    others = int(figures["of"]) - len(names)
    has = "has" if len(names) == 1 else "have"
    text = (
        f"calibration {'image' if len(names) == 1 else 'images'} {listed(list(names), MOST_NAMED)} {has} values "
        f"{figures['times']:.1f} times as large as those of the other images. Without "
        f"{'this image' if len(names) == 1 else 'these images'}, {_errors(figures)} "
        f"on the {counted(others, 'other image')}"
    )
    if figures["wide_after"] < figures["wide"]:
        text += (
            f". The number of convolutions that need INT16 changes from {figures['wide']:.0f} "
            f"to {figures['wide_after']:.0f}"
        )
    return text


def _unlike(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"the calibration images differ from the given images: {percent(figures['outside'])} of the "
        f"values in {figures['layers']:.0f} of {figures['of']:.0f} layers are outside the calibration "
        f"ranges. After calibration on the given images, {_errors(figures)}"
    )


def _wide(finding: Finding) -> str:
    figures = finding.figures
    if len(finding.names) == 1:
        return f"the calibration range of {_ranged(finding)}. After calibration on the given images, {_errors(figures)}"
    return (
        f"the calibration ranges of {figures['layers']:.0f} of {figures['of']:.0f} layers are wider "
        f"than the given images need: {figures['times']:.1f} times as wide in the median; the ratio is largest for "
        f"tensor {finding.facts['input']}. After calibration on the given images, {_errors(figures)}"
    )


def _clipped(finding: Finding) -> str:
    figures = finding.figures
    more = f". The same applies to {counted(len(finding.names) - 1, 'more tensor')}" if len(finding.names) > 1 else ""
    return (
        f"the calibration range of {_ranged(finding)}{more}. {percent(figures['outside'])} of the "
        f"values are outside the calibration range. After calibration on the given images, {_errors(figures)}"
    )


def _ranged(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"{finding.facts['input']} is {figures['low']:.3g} to {figures['high']:.3g}, but the given "
        f"images need {figures['needed_low']:.3g} to {figures['needed_high']:.3g}"
    )


def _flat(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"the calibration images use only the grey levels {figures['low']:.0f} to "
        f"{figures['high']:.0f}. With images that use 0 to 255, {percent(figures['outside'])} of the "
        f"values in {figures['layers']:.0f} of {figures['of']:.0f} layers would be outside the "
        "calibration ranges"
    )


def _operator(finding: Finding) -> str:
    figures = finding.figures
    ends = f" from {figures['low']:.3g} to {figures['high']:.3g}" if "low" in figures else ""
    return (
        f"the output of operator {finding.layer} ({finding.op_type}) has a wide range{ends}; one "
        f"INT16 step is {figures['step']:.3g}. Rounding only this tensor to INT16 causes an output "
        f"error of {figures['alone']:.3g}; with every convolution at INT16, the output error is "
        f"{figures['left']:.3g}"
    )


def _normalisation(finding: Finding) -> str:
    figures = finding.figures
    told, done = (_normalised(figures, word) for word in ("told", "done"))
    if finding.facts["by"] == "preprocess":
        return (
            f"the preprocess file and input_config.ini normalise the input {finding.facts['input']} differently, so "
            f"the fixed model gets a different image than the float model. Preprocess file: {done}; input_config.ini: "
            f"{told}"
        )
    if finding.facts["by"] == "fixed":
        return (
            f"the fixed model normalises the input {finding.facts['input']} with {done}, but "
            f"input_config.ini says {told}"
        )
    return (
        "the calibration images were not normalised as input_config.ini says. The calibration range "
        f"of input {finding.facts['input']} corresponds to {done}, but input_config.ini says {told}. "
        f"With the values of input_config.ini, {_errors(figures)}"
    )


def _order(finding: Finding) -> str:
    figures = finding.figures
    if finding.facts["by"] == "preprocess":
        return (
            f"the colour order of input {finding.facts['input']} is {finding.facts['order']} in the preprocess file, "
            f"but reversed in input_config.ini. The images of the float model and of the "
            f"fixed model differ by up to {figures['levels']:.3g} grey levels"
        )
    if finding.facts["by"] == "fixed":
        return (
            f"the colour order of input {finding.facts['input']} is {finding.facts['order']} in the fixed model, but "
            f"reversed in input_config.ini"
        )
    return (
        "the calibration images had the opposite colour order (RGB or BGR): the given images fit the "
        f"calibration ranges only if the channels of input {finding.facts['input']} are swapped. "
        f"After calibration in the colour order of input_config.ini, {_errors(figures)}"
    )


def _errors(figures: Mapping[str, float]) -> str:
    return f"the output error changes from {figures['error']:.3g} to {figures['error_after']:.3g}"


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
        f"the given images barely affect output {finding.layer}: on these images, the values of the output span only "
        f"{figures['seen']:.3g}; with the calibration images, the values span {figures['reaches']:.3g}. The largest "
        f"error of the output is {figures['largest_error']:.3g}. Relative errors are not meaningful for this output"
    )


def _untrained(finding: Finding) -> str:
    figures, images = finding.figures, bool(finding.facts["input"])
    text = (
        f"the {'images' if images else 'inputs'} differ from the training data: before the BatchNormalization "
        f"{finding.layer}, the channel means are {_far(figures, '')}"
    )
    if not images:
        return text
    told, done = (_normalised(figures, word) for word in ("told", "done"))
    return (
        f"{text}. The images are normalised with {told}. With {done} instead, the channel means are "
        f"{_far(figures, '_after')}"
    )


def _far(figures: Mapping[str, float], word: str) -> str:
    off, times = figures[f"deviations{word}"], figures[f"times{word}"]
    digits = 0 if off >= 10 else 2
    return (
        f"{off:.{digits}f} standard deviations from the means in the training data, and the spread of the "
        f"values is {times:.3g} times the spread in the training data"
    )


CAUSES = {
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
        return "make input_config.ini agree with the preprocess file (lines below), then calibrate again"
    return "calibrate again with the correct input_config.ini"


def _to_train(finding: Finding) -> str:
    if not finding.facts["input"]:
        return (
            "prepare the inputs as in training (values from 0 to 1 or from 0 to 255, mean and std), then diagnose "
            "again; until then, all results apply to the given inputs only"
        )
    done = _normalised(finding.figures, "done")
    return (
        f"find out how the training images were normalised. If they were normalised with {done}, "
        "write these values into input_config.ini and the preprocess file, then diagnose again. "
        "Until then, all results apply to the given images only"
    )


def _to_order(finding: Finding) -> str:
    by, order = finding.facts["by"], finding.facts.get("order")
    if by == "preprocess":
        return (
            f"if the model was trained on {order}, set training_input_formats and input_formats to {order} in "
            f"input_config.ini; if not, swap the channels in the preprocess file. Then calibrate again"
        )
    if by == "fixed":
        return (
            f"if the model was trained on {order}, write {order} into input_config.ini; otherwise "
            "convert the model again with the colour order of input_config.ini"
        )
    return "calibrate again with the correct input_config.ini"


_REMEDIES = {
    STILL: lambda finding: (
        "use images that contain what the model detects, prepared as in training (-n), then diagnose again"
    ),
    WEIGHTS: lambda finding: f"use {A_SCALE_PER_CHANNEL}",
    ODD: lambda finding: f"remove {listed(list(finding.names), MOST_NAMED)} from the calibration images",
    UNLIKE: lambda finding: "calibrate on images that resemble the given images",
    WIDE: lambda finding: "calibrate again, using only images that resemble the given images",
    CLIPPED: lambda finding: (
        f"calibrate again on images that resemble the given images; this widens the range of {finding.facts['input']}"
    ),
    FLAT: lambda finding: "calibrate on bright and dark images, as the camera will deliver them",
    OPERATOR: lambda finding: (
        f"rewrite the model so that {finding.facts['input']} stays within the range of its neighbours: remove a "
        f"factor or offset that is applied there and reversed later, or fold it into the weights"
    ),
    NORMALISATION: _to_normalise,
    UNTRAINED: _to_train,
    ORDER: _to_order,
}
