"""What a cure did, in sentences: for ``cure`` and ``diagnose --cure``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sgsdump.curing.cure import KEPT
from sgsdump.reports.sentences import Step
from sgsdump.reports.text import counted

if TYPE_CHECKING:
    from sgsdump.curing.cure import Cured
    from sgsdump.curing.cure import Step as CureStep

# What the count of a step counts.
COUNTED = {
    "ranges": "ranges",
    "fold": "BatchNormalizations",
    "equalise": "channels",
    "bias": "layers' biases",
    "round": "layers",
}
# Below this share of its energy a float model is called the same.
SAME = 1e-10


def lines(cured: Cured) -> Iterator[str]:
    """The errors, step by step, and how far the float model has changed."""
    yield f"errors against the model as it is in float, on {_judged(cured)}:"
    yield f"  as it is: {_errors(cured.as_it_is)}"
    for step in cured.steps:
        yield f"  {step.cure} ({step.count} {COUNTED[step.cure]}): {_errors(step.errors)}{_verdict(step)}"
    for name, share in cured.changed.items():
        if share > SAME:
            yield f"as a float model {name} differs by {share:.2g} of its energy from yours"


def summary(cured: Cured) -> str:
    if not cured.helps:
        return "no cure helps; this is the model as it is"
    return f"cured; its error is {cured.gain:.3g} of what it was, in the geometric mean over the outputs"


def cured_step(cured: Cured, level: str, folder: str) -> Step:
    """What there is to do with a cured model in a folder, before anything is raised."""
    if not cured.helps:
        return Step(f"Curing in 8 bits (sgsdump cure) does not help at level {level}.")
    taken = ", ".join(step.cure for step in cured.steps if step.taken)
    before, after = _errors(cured.as_it_is), _errors(cured.errors)
    return Step(
        f"Before raising anything take the cured model: all in 8 bits at level {level} its outputs' squared errors go "
        f"from {before} to {after} ({taken}; in the hardware's integers, on {_judged(cured)}). Convert "
        f"{folder}/cured.onnx in place of yours, and diagnose it for what is left; the calibrator takes its ranges:",
        f"--quant-level {level} --quant-file {folder}/cured.quant.json",
    )


def _judged(cured: Cured) -> str:
    pictures = counted(cured.judged, "picture")
    if cured.held_out:
        return f"{pictures} that nothing was fitted to"
    return f"the {pictures} it is fitted to, too few to hold any out"


def _verdict(step: CureStep) -> str:
    if step.taken:
        return ""
    if step.kept is not None and step.kept > KEPT:
        return f"; left out: it changes the float model by {step.kept:.2g}"
    return "; left out: it does not help"


def _errors(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
