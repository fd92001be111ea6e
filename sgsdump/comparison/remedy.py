"""Remedies that were measured, and which of them is recommended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

# What kind of change.
Action = Literal[
    "use the same input",
    "make calls alike",
    "change the operator",
    "keep channels",
    "dump what is missing",
    "nothing",
    "measure quantised tensors",
    "raise convolutions",
    "correct the cause",
    "use a scale per channel",
    "raise all convolutions",
    "use the cured model",
    "keep operators in float",
    "calibrate on more images",
]


@dataclass(frozen=True)
class Remedy:
    """A change that was run.

    action    what kind of change.
    error     the outputs' error with it.
    cost      what it costs on the device, such as the share of weights at 16 bits; 0 for nothing.
    within    whether the outputs are within the limits with it.
    worse     outputs that it makes worse than the model as it is.
    command   what to run or to write for it.
    layers    what it changes.
    expected  its figures to expect on images that nothing was fitted to, by name.
    """

    action: Action
    error: float
    cost: float = 0.0
    within: bool = False
    worse: tuple[str, ...] = ()
    command: str = ""
    layers: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict, hash=False)


def recommended(remedies: Iterable[Remedy], before: float) -> Remedy | None:
    """Return the cheapest remedy within the limits; where none is, the one that leaves the smallest error.

    Parameters
    ----------
    remedies
        All that were measured, on the same images.
    before
        The outputs' error of the model as it is. What leaves no smaller one is not recommended, nor is what makes any
        output worse.
    """
    helping = [remedy for remedy in remedies if not remedy.worse and remedy.error < before]
    within = [remedy for remedy in helping if remedy.within]
    if within:
        return min(within, key=lambda remedy: (remedy.cost, remedy.error))
    return min(helping, key=lambda remedy: (remedy.error, remedy.cost), default=None)
