"""Sentences on measured findings beyond the first lines: outputs, contributions, layers, and lines to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import listed
from sgsdump.fixedpoint.quantisation.quant_plan import WIDEST_RATIO
from sgsdump.fixedpoint.reports.measured_cause import cause_text
from sgsdump.reports.text import counted, number, percent

MOST_CAUSES = 3
_NONE: Mapping[str, str] = MappingProxyType({})
_PREFIXES = MappingProxyType({"spread": "No single cause", "part": "No cause to fix"})


def first_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the outputs, then where their error arises."""
    outputs = [finding for finding in findings if finding.kind == "output"]
    if outputs:
        yield f"Outputs with all convolutions at INT8: {'; '.join(output_text(finding) for finding in outputs)}."
    yield from source_lines([finding for finding in findings if finding.kind in ("cause", "part", "spread")])


def source_lines(sources: Sequence[Finding]) -> Iterator[str]:
    """Yield where the output error comes from: the causes, the largest part, or the many convolutions."""
    if sources:
        text = cause_text(sources[0])
        yield f"{_PREFIXES.get(sources[0].kind, 'Cause')}: {text}."
    yield from further_lines(sources)


def further_lines(sources: Sequence[Finding]) -> Iterator[str]:
    """Yield the contributions of the first cause, and the causes after the first."""
    if not sources or sources[0].kind == "spread":
        return
    first, *others = sources
    yield from _contributions(first)
    if "together" in first.figures and others:
        yield (
            f"Tensors raised to INT16 together with {first.facts['input']}: "
            f"{listed([each.facts['input'] for each in others], len(others))}."
        )
    elif others:
        yield f"Further causes: {'; '.join(map(_short_cause, others[: MOST_CAUSES - 1]))}."


def _contributions(finding: Finding) -> Iterator[str]:
    """Yield the contributions of the input and of the weights, and the channel with much larger values."""
    figures = finding.figures
    if "input_brings" not in figures or finding.facts["reason"] == "clipped":
        return
    yield (
        f"Contributions to the output error (float approximation): 8-bit input {percent(figures['input_brings'])}, "
        f"8-bit weights {percent(figures['weights_bring'])}."
    )
    scale = "one scale"
    if finding.facts.get("scale") == "one at every level":
        scale += f" at every level because channels differ more than {WIDEST_RATIO} times"
    for kind, where in (("channel", "Input channel"), ("row", f"In the weights ({scale}), output channel")):
        if kind in figures:
            index, count, reach, others = (
                figures[name] for name in (kind, f"{kind}s", f"{kind}_reaches", f"{kind}_others")
            )
            yield (
                f"{where} {index:.0f} of {count:.0f} has absolute values up to {reach:.3g}; half of "
                f"the other channels have absolute values of at most {others:.3g}."
            )


def int16_is_not_enough(limits: Thresholds, always_8: Sequence[str] = (), look: bool = True) -> str:
    """Return that INT16 alone does not repair the outputs.

    always_8  convolutions that read an image.
    look      whether no other remedy is known.
    """
    but = f" except {listed(always_8)}, which read an image and always have 8 bits," if always_8 else ","
    where = " Check the calibration ranges and the calibration images." if look else ""
    return (
        f"INT16 is not enough to correct the model: even with every convolution at INT16{but} an output "
        f"has {limits}.{where}"
    )


def conv_config(names: Sequence[str]) -> str:
    """Return the section of input_config.ini that raises these inputs."""
    return f"[CONV_CONFIG]\ntensor_arrays='{','.join(names)}';"


def output_text(finding: Finding, labels: Mapping[str, str] = _NONE) -> str:
    """Return the figures of an output, and why it is good or bad if COS and RMSE do not say so."""
    figures, name = finding.figures, labels.get(finding.layer, finding.layer)
    text = f"{name} COS {number(figures['cos'])}, RMSE {number(figures['rmse'])}: {finding.facts['verdict']}"
    reason = finding.facts.get("reason")
    if reason == "probabilities":
        changed = figures["answers_changed"]
        answers = f"{percent(changed)} of the answers change" if changed else "no answer changes"
        return f"{text} (probabilities change by at most {figures['probability_change']:.3g}; {answers})"
    if reason == "resolution":
        return (
            f"{text} (its largest error is {figures['largest_error']:.3g} and its range spans "
            f"{figures['reaches']:.3g}, so the error is within the 8-bit resolution)"
        )
    if reason == "hardly moved":
        return (
            f"{text} (the given images barely affect this output: its values span only "
            f"{figures['seen']:.3g}; with the calibration images, the values span {figures['reaches']:.3g}; its "
            f"largest error is {figures['largest_error']:.3g})"
        )
    if reason == "drowned":
        return (
            f"{text} (differences between images are lost: COS is {figures['cos_about_mean']:.3g} after subtracting "
            f"the mean over the images)"
        )
    return text


def layers_text(finding: Finding, limits: Thresholds, inner: int) -> str:
    """Return how many layers exceed the limits, ``inner`` of them internal layers, and their common cause."""
    past, count = (int(finding.figures[name]) for name in ("past", "of"))
    reason, exceed = finding.facts["reason"], "exceeds" if past == 1 else "exceed"
    if reason == "not reached" and inner:
        which = "exceeds" if inner == 1 else "exceed"
        return (
            f"{counted(inner, 'internal layer')} (of {count} layers) {which} the limits ({limits}), "
            "but the outputs are unaffected."
        )
    bad = f"{past} of {counted(count, 'layer')} {exceed} the limits ({limits})"
    after = int(finding.figures["after"]) if reason == "cause" else 0
    if not after:
        return f"{bad}."
    which = "it" if past == 1 else "all" if after == past else f"{after} of them"
    return f"{bad}; {which} {'comes' if after == 1 else 'come'} after {finding.facts['input']} in the model."


def _short_cause(finding: Finding) -> str:
    figures = finding.figures
    if finding.facts["reason"] == "picture":
        return (
            f"{finding.layer} ({finding.op_type}), which reads the image, causes "
            f"{percent(figures['brings'])} of the error"
        )
    back = (
        f"INT16 for this tensor alone removes {percent(figures['gives_back'])}, " if figures["gives_back"] > 0 else ""
    )
    return (
        f"tensor {finding.facts['input']}, input of {finding.layer} ({finding.op_type}): {back}INT8 for this "
        f"tensor alone causes {percent(figures['brings'])} of the error"
    )
