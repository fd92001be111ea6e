"""Sentences and JSON of a cure, for ``cure`` and ``diagnose --cure``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.curing.steps import ALL_16, AS_IT_IS, CURED_8, PLAN, RANGES
from sgsdump.models.feeds.by_content import FEWEST_HELD_OUT
from sgsdump.reports.text import counted
from sgsdump.reports.verdict import Step

if TYPE_CHECKING:
    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.curing.steps import Step as CureStep
    from sgsdump.fixedpoint.curing.steps import Way

# What the count of a step counts.
COUNTED = {
    "ranges": "ranges",
    "fold": "BatchNormalizations",
    "equalise": "channels",
    "absorb": "channels",
    "bias": "layers' biases",
    "round": "layers",
}
# Below this share of its energy a float model is called the same.
SAME = 1e-10


def lines(cured: Cured) -> Iterator[str]:
    """Yield the errors, step by step, and the change of the float model."""
    yield f"output error relative to the float model, on {_judged(cured)}:"
    yield f"  unchanged: {errors(cured.as_it_is)}"
    for step in cured.steps:
        yield f"  {step.cure} ({step.count} {COUNTED[step.cure]}): {errors(step.errors)}{_verdict(step)}"
    for name, share in cured.changed.items():
        if share > SAME:
            yield f"output {name} of the float model changed by {share:.2g} (relative squared error)"


def summary(cured: Cured) -> str:
    """Return the verdict: what to expect on other images."""
    if not cured.helps:
        return "no improvement found; the model is unchanged"
    taken = ", ".join(step.cure for step in cured.steps if step.taken)
    if cured.expected_gain is None:
        return (
            f"cured ({taken}). The effect on other images is unknown; to measure this effect, give at "
            f"least {FEWEST_HELD_OUT} different images"
        )
    return (
        f"cured ({taken}); expected error on other images: {errors(cured.expected)}, which is "
        f"{cured.expected_gain:.3g} times the original error ({_spread(cured.by_image)})"
    )


def _spread(by_image: Sequence[float]) -> str:
    """Return the median and the largest factor of the held-out images."""
    return f"this factor for single images: median {median(by_image):.3g}, largest {max(by_image):.3g}"


def text(cured: Cured) -> str:
    return "\n".join([*lines(cured), summary(cured)])


def cure_json(cured: Cured, level: str) -> str:
    """Return the errors of the original and the cured model, each step, and the ranges with room."""
    document = {
        "format": "sgsdump cure",
        "version": 1,
        "level": level,
        "as_it_is": dict(cured.as_it_is),
        "errors": dict(cured.errors),
        "gain": cured.gain,
        "expected": dict(cured.expected),
        "expected_gain": cured.expected_gain,
        "by_image": list(cured.by_image),
        "steps": [
            {
                "cure": step.cure,
                "taken": step.taken,
                "count": step.count,
                "before": dict(step.before),
                "errors": dict(step.errors),
                "kept": step.kept,
                "spoiled": step.spoiled,
                "undone": step.undone,
            }
            for step in cured.steps
        ],
        "changed": dict(cured.changed),
        "judged": cured.judged,
        "held_out": cured.held_out,
        "ranges": None if cured.params is None else [param.name for param in cured.params],
    }
    return json_text(document)


def cured_steps(cured: Cured, ways: Sequence[Way], planned: bool, level: str, folder: str) -> tuple[Step, ...]:
    """Return the next steps with a cured model in ``folder``; ``planned``: whether one of the ways is a plan."""
    if not cured.helps:
        return (Step(f"sgsdump cure finds no improvement at level {level}."),)
    taken = ", ".join(step.cure for step in cured.steps if step.taken)
    before, after = errors(cured.as_it_is), errors(cured.errors)
    first = Step(
        f"Use the cured model before raising anything. Output errors at level {level} on {_judged(cured)}: {before} "
        f"→ {after} ({taken}). Convert {folder}/cured.onnx instead of your model, and diagnose it for the remaining "
        "error. Calibrate with these options:",
        f"--quant-level {level} --quant-file {folder}/cured.quant.json",
    )
    told = "; ".join(f"{_way(way)}: {errors(way.errors)}" for way in ways)
    text = f"Output errors at level {level} on the same images: {told}."
    if not planned:
        return first, Step(f"{text} No INT16 on top of the cures: it is not needed, or does not help.")
    return first, Step(
        f"{text} To use the plan, convert {folder}/planned.onnx. Its quant file raises the convolutions:",
        f"--quant-level {level} --quant-file {folder}/planned.quant.json",
    )


def _way(way: Way) -> str:
    return {
        AS_IT_IS: "unchanged",
        CURED_8: "cured",
        PLAN: f"cured with {way.raised} of {counted(way.convolutions, 'convolution')} at INT16",
        ALL_16: "unchanged with all convolutions at INT16",
    }[way.kind]


def _judged(cured: Cured) -> str:
    images = counted(cured.judged, "image")
    if cured.held_out:
        return f"{images} held out"
    few = f"fewer than {FEWEST_HELD_OUT} different images: none held out, only ranges tried"
    return f"the {images} of calibration ({few})"


def _verdict(step: CureStep) -> str:
    if step.taken:
        return ""
    if step.spoiled and step.kept is not None:
        return f"; skipped, because this step changes an output of the float model by {step.kept:.2g} (relative change)"
    if step.undone and step.cure == RANGES:
        return "; undone with the step before"
    if step.undone:
        return "; undone, because without the quant file an output would be worse than in the original model"
    return "; skipped: no improvement"


def errors(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.3g}" for name, share in shares.items())
