"""Sentences on a cause that was measured by running changed models: the evidence, and what to do about it.

The core asks for these texts by name (``sgsdump/plugins.py``), since only this plug-in measures such causes.
"""

from __future__ import annotations

from sgsdump.comparison.finding import Finding
from sgsdump.errors import listed
from sgsdump.fixedpoint.reports import root_causes
from sgsdump.reports.text import counted, percent

MOST_NAMED = 4
# Weights are named instead of the input if they cause so many times the error of the input.
MOST_OF_BOTH = 2.0


def cause_text(finding: Finding, images: int = 0) -> str:
    """Return the cause and its evidence, without a full stop; ``images``: how many images it was measured on."""
    reason, on = finding.facts.get("reason", ""), f"Measured on {counted(images, 'image')}" if images else "Measured"
    if finding.kind == "spread":
        return (
            f"the error is spread over {counted(len(finding.names), 'convolution')}. {on}: raising "
            f"all their inputs to INT16 removes {percent(finding.figures['gives_back'])} of the "
            "error; raising only one of these inputs removes less than a fifth of the error"
        )
    if finding.kind == "part":
        return _part_text(finding, on)
    if reason in root_causes.CAUSES and "brings" not in finding.figures:
        return root_causes.cause_text(finding)
    if reason in _QUANTISED:
        return _QUANTISED[reason](finding, on)
    if reason == "INT8":
        which = listed(list(finding.names), MOST_NAMED)
        outputs = f"output {which} exceeds" if len(finding.names) == 1 else f"outputs {which} exceed"
        return f"with all convolutions at INT8, {outputs} the limits"
    if reason == "not INT8":
        figures = finding.figures
        if not figures:
            return "not INT8: no plan of INT16 convolutions reduces the error"
        return (
            "something other than INT8. Measured: raising all convolutions to INT16 changes the "
            f"output error (relative squared) only from {figures['error']:.3g} to "
            f"{figures['left']:.3g}"
        )
    if reason == "rules":
        return (
            f"tensor {finding.facts['input']}, input of {_operator(finding)} (inferred from rules of "
            f"thumb, not measured): {finding.facts['why']}"
        )
    if reason == "misread":
        return (
            f"the operators that read the output of Softmax {finding.layer} assume {finding.figures['factor']:.2g} "
            "times the true scale of this output, as in the SDK's fixed model. INT16 does not correct "
            f"this error in {listed(list(finding.names), MOST_NAMED)}"
        )
    if reason == "picture":
        return (
            f"operator {_operator(finding)}, which cannot be raised to INT16, because it reads the 8-bit image. "
            f"{on}: with all other convolutions at INT16, {percent(finding.figures['brings'])} of the error remains"
        )
    if "together" in finding.figures:
        return (
            f"{finding.figures['count']:.0f} tensors that cause the error together, among them "
            f"{finding.facts['input']}, input of {_operator(finding)}. {on}: raising all these "
            f"tensors to INT16 removes {percent(finding.figures['together'])} of the error; raising "
            "only one of these tensors removes less than a fifth of the error"
        )
    if reason == "clipped":
        return (
            f"the calibration range of tensor {finding.facts['input']}, input of {_operator(finding)}, is too narrow "
            f"for its values. {on}: INT16 with a wider range removes "
            f"{percent(finding.figures['gives_back'])} of the error"
        )
    if is_of_weights(finding):
        return (
            f"weights of {_operator(finding)}. {on}: raising these weights and the input {finding.facts['input']} to "
            f"INT16 removes {_removed(finding)}"
        )
    return (
        f"tensor {finding.facts['input']}, input of {_operator(finding)}. {on}: raising only this "
        f"tensor to INT16 removes {_removed(finding)}"
    )


def _removed(finding: Finding) -> str:
    figures = finding.figures
    what = "these weights" if is_of_weights(finding) else "this tensor"
    brings = f"; quantising only {what} causes {percent(figures['brings'])}" if figures.get("brings") else ""
    return f"{percent(max(figures['gives_back'], 0.0))} of the error{brings}"


def is_of_weights(finding: Finding) -> bool:
    """Return whether the weights of the convolution cause most of its error, not its input."""
    figures = finding.figures
    return figures.get("weights_bring", 0.0) >= MOST_OF_BOTH * figures.get("input_brings", 0.0) > 0.0


def _part_text(finding: Finding, on: str) -> str:
    """Return the text on the largest part of an error that is within the limits."""
    figures, reason = finding.figures, finding.facts["reason"]
    if reason == "picture":
        least = (
            f"only {figures['left']:.3g} of {figures['error']:.3g} remains"
            if figures["left"] < figures["error"]
            else "the error does not decrease"
        )
        return (
            f"the output error is within the limits. Its largest part comes from {_operator(finding)}, which "
            f"cannot be raised to INT16, because it reads the 8-bit image. {on}: with all other "
            f"convolutions at INT16, {least}"
        )
    if reason == "clipped":
        return (
            "the output error is within the limits. Its largest part comes from tensor "
            f"{finding.facts['input']}, input of {_operator(finding)}. The calibration range of this tensor is too "
            "narrow for the tensor's values"
        )
    what = f"tensor {finding.facts['input']}, input of {_operator(finding)}"
    if is_of_weights(finding):
        what = f"the weights of {_operator(finding)}, which have the bit width of its input {finding.facts['input']}"
    return (
        f"the output error is within the limits. Its largest part comes from {what}. {on}: raising this input to "
        "INT16 removes "
        f"{_removed(finding)}"
    )


def _of_quantised(finding: Finding, on: str) -> str:
    """Return the text on a tensor or weight of a model that another tool quantised."""
    figures, weight = finding.figures, finding.facts["reason"] == "weight"
    kind = "weight" if weight else "tensor"
    what = f"{kind} {finding.layer}"
    if "bias" in finding.facts:
        what += f" with its bias {finding.facts['bias']}"
    if "factor" in figures:
        what += f" (wrong scale: its dequantised values are {figures['factor']:.3g} times its float values)"
    text = f"{what}. {on}: quantising only this {kind} causes {percent(figures['brings'])}"
    if "gives_back" in figures:
        return (
            f"{text} of the error; keeping only this {kind} in float removes "
            f"{percent(max(figures['gives_back'], 0.0))} of the error"
        )
    return f"{text} of the error"


def _of_kernels(finding: Finding, on: str) -> str:
    figures = finding.figures
    least = min(figures["precise"], figures["defined"])
    how = (
        "8-bit products saturate in 16 bits, as on processors without VNNI"
        if finding.facts["kernels"] == "saturating"
        else "fused operators compute different values"
    )
    return (
        f"the kernels of onnxruntime on this processor: {how}. {on}: the output error is "
        f"{figures['as_run']:.3g} with these kernels and {least:.3g} with exact kernels"
    )


_QUANTISED = {"weight": _of_quantised, "tensor": _of_quantised, "kernels": _of_kernels}


def remedy_text(finding: Finding) -> str:
    """Return what to do about a cause, without a full stop."""
    reason = finding.facts.get("reason", "")
    if reason == "misread":
        return (
            f"cut the model before Softmax {finding.layer}, and compute this Softmax and all later "
            f"operators on the CPU. Set --model-outputs to {finding.facts['input']} and the other "
            "model outputs"
        )
    if reason in root_causes.CAUSES:
        return root_causes.remedy_text(finding)
    return "correct the cause"


def _operator(finding: Finding) -> str:
    return f"{finding.layer} ({finding.op_type})" if finding.op_type else finding.layer
