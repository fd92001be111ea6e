"""Sentences on measured findings: an output with its verdict, where the outputs' error arises, and what to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import listed
from sgsdump.fixedpoint.quantisation.quant_plan import WIDEST_RATIO
from sgsdump.reports.text import number, percent

MOST_CAUSES = 3
# Of a convolution's input and weights the weights are named where they bring so many times as much.
MOST_OF_BOTH = 2.0
_NONE: Mapping[str, str] = MappingProxyType({})


def first_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The outputs, then where their error arises, or its largest part."""
    outputs = [finding for finding in findings if finding.kind == "output"]
    if outputs:
        yield f"Outputs with all at 8 bits: {'; '.join(output_text(finding) for finding in outputs)}."
    yield from source_lines([finding for finding in findings if finding.kind in ("cause", "part", "spread")])


def source_lines(sources: Sequence[Finding]) -> Iterator[str]:
    """Yield what the outputs' error comes from: its causes, the largest part of a good one, or the many that it is
    spread over."""
    if not sources:
        return
    first, *others = sources
    if first.kind == "spread":
        yield (
            f"No single convolution removes a fifth of the error ({first.figures['error']:.4f}); it is spread over "
            f"{len(first.names)} convolutions, whose inputs at INT16 remove {percent(first.figures['gives_back'])}."
        )
        return
    if "together" in first.figures:
        yield f"{_together(sources)}."
    else:
        yield f"{_part(first) if first.kind == 'part' else _cause(first)}."
    yield from _contributions(first)
    if others and "together" not in first.figures:
        yield f"Then come {'; '.join(map(_short_cause, others[: MOST_CAUSES - 1]))}."


def _together(sources: Sequence[Finding]) -> str:
    """The few that remove most of the error together, and none of them a fifth."""
    first, *others = sources
    inputs = listed([each.facts["input"] for each in others], len(others))
    return (
        f"Most of it arises at the input {first.facts['input']} of {first.layer} ({first.op_type}), together with "
        f"{inputs}: raising these {len(sources)} tensors to INT16 removes {percent(first.figures['together'])} of the "
        f"error; no single one removes a fifth"
    )


def _part(part: Finding) -> str:
    """The largest part of an error that is within the limits."""
    figures, name = part.figures, f"{part.layer} ({part.op_type})"
    of_all, left = f"The outputs' error is {figures['error']:.4f}", f"{figures['left']:.4f}"
    if part.facts["reason"] == "picture":
        return (
            f"{of_all}; most of it comes from {name}, which reads the picture and always has 8 bits: with every other "
            f"convolution at INT16 {left} stays"
        )
    what = f"the input {part.facts['input']} of {name}"
    if part.facts["reason"] == "clipped":
        return f"{of_all}; its largest part comes from {what}, whose range does not hold its values"
    return (
        f"{of_all}; its largest part comes from {what}: raising only this tensor to INT16 removes "
        f"{percent(figures['gives_back'])} of the error and leaves {left}; quantising only this tensor causes "
        f"{percent(figures['brings'])} (float approximation)"
    )


def _contributions(finding: Finding) -> Iterator[str]:
    """Whether it is the input or the weights that have too few bits, and a channel that takes them from the others."""
    figures = finding.figures
    if "input_brings" not in figures or finding.facts["reason"] == "clipped":
        return
    text = (
        f"Its 8-bit input alone brings {percent(figures['input_brings'])}, its 8-bit weights alone "
        f"{percent(figures['weights_bring'])}"
    )
    scale = "one scale"
    if finding.facts.get("scale") == "one at every level":
        scale += f" at every level, as its channels are more than {WIDEST_RATIO} times apart"
    for kind, where in (("channel", "in the input channel"), ("row", f"in the weights, of {scale}, output channel")):
        if kind in figures:
            index, count, reach, others = (
                figures[name] for name in (kind, f"{kind}s", f"{kind}_reaches", f"{kind}_others")
            )
            text += f"; {where} {index:.0f} of {count:.0f} reaches {reach:.3g}, half of the others at most {others:.3g}"
    yield f"{text}."


def int16_is_not_enough(limits: Thresholds, always_8: Sequence[str] = (), look: bool = True) -> str:
    """``always_8``: the convolutions that read a picture; ``look``: nothing else is known to repair it."""
    but = f" but {listed(always_8)}, which always has 8 as it reads the picture," if always_8 else ""
    where = "; look at the ranges and the calibration pictures" if look else ""
    return f"Even with every convolution at 16 bits{but} an output has {limits}: INT16 alone does not repair it{where}."


def conv_config(names: Sequence[str]) -> str:
    """The section of input_config.ini that raises these inputs."""
    return f"[CONV_CONFIG]\ntensor_arrays='{','.join(names)}';"


def output_text(finding: Finding, labels: Mapping[str, str] = _NONE) -> str:
    figures, name = finding.figures, labels.get(finding.layer, finding.layer)
    text = f"{name} COS {number(figures['cos'])}, RMSE {number(figures['rmse'])}: {finding.facts['verdict']}"
    reason = finding.facts.get("reason")
    if reason == "probabilities":
        changed = figures["answers_changed"]
        answers = f"{percent(changed)} of the answers change" if changed else "no answer changes"
        return f"{text} (probabilities change by at most {number(figures['probability_change'])}; {answers})"
    if reason == "resolution":
        return (
            f"{text} (off by at most {number(figures['largest_error'])} of the {number(figures['reaches'])} that it "
            f"reaches over all pictures, which is what 8 bits leave)"
        )
    if reason == "hardly moved":
        return (
            f"{text} (these pictures hardly move it: it spans {number(figures['seen'])} of the "
            f"{number(figures['reaches'])} that it can, and is off by at most {number(figures['largest_error'])})"
        )
    if reason == "drowned":
        return (
            f"{text}, as what differs between the pictures is lost "
            f"(about the mean over the pictures COS {number(figures['cos_about_mean'])})"
        )
    return text


def layers_text(finding: Finding, limits: Thresholds, inner: int) -> str:
    """The layers past the limits, ``inner`` of them no outputs, and what they share."""
    past, count = (int(finding.figures[name]) for name in ("past", "of"))
    reason, are = finding.facts["reason"], "is" if past == 1 else "are"
    if reason == "not reached" and inner:
        which = "layers, inner ones, are" if inner > 1 else "layers, an inner one, is"
        return f"{inner} of {count} compared {which} past the thresholds ({limits}), which did not reach the outputs."
    bad = f"{past} of {count} compared layers {are} bad ({limits})"
    if reason != "cause":
        return f"{bad}."
    after = int(finding.figures["after"])
    if not after:
        return f"{bad}."
    which = "it" if past == 1 else "all of them" if after == past else f"{after} of them"
    return f"{bad}; {which} {'comes' if after == 1 else 'come'} after {finding.facts['input']}."


def _cause(finding: Finding) -> str:
    name = f"{finding.layer} ({finding.op_type})"
    reason, figures = finding.facts["reason"], finding.figures
    if reason == "picture":
        return (
            f"Most of it arises at {name}, which reads the picture and always has 8 bits: with all others at 16 bits "
            f"{percent(figures['brings'])} of the output error stays"
        )
    at = f"at the input {finding.facts['input']} of {name}"
    if reason == "clipped":
        return (
            f"Most of it arises {at}: its range does not hold its values; with one that does, "
            f"{percent(figures['gives_back'])} of the output error goes away"
        )
    if figures.get("weights_bring", 0.0) >= MOST_OF_BOTH * figures.get("input_brings", 0.0) > 0.0:
        at = f"at the weights of {name}, which get 16 bits with its input {finding.facts['input']}"
    part = figures["gives_back"] >= 0.5 or figures["brings"] >= 0.5
    return (
        f"{'Most' if part else 'The largest part'} of it arises {at}: raising only this tensor to INT16 removes "
        f"{percent(figures['gives_back'])} of the error; quantising only this tensor causes "
        f"{percent(figures['brings'])} (float approximation: its own error is {figures['own']:.3g}, what it inherits "
        f"{figures['inherited']:.3g})"
    )


def _short_cause(finding: Finding) -> str:
    figures = finding.figures
    if finding.facts["reason"] == "picture":
        return f"{finding.layer} ({finding.op_type}), which reads the picture, {percent(figures['brings'])}"
    back = f"removes {percent(figures['gives_back'])}, " if figures["gives_back"] > 0 else ""
    return (
        f"the input {finding.facts['input']} of {finding.layer} ({finding.op_type}), which alone {back}"
        f"causes {percent(figures['brings'])}"
    )
