"""Measured remedies, and the choice of the recommended one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

# Kind of change.
Action = Literal[
    "use the same input",
    "make calls alike",
    "change the operator",
    "keep channels",
    "dump what is missing",
    "nothing",
    "measure quantised tensors",
    "make layers comparable",
    "compare the operator",
    "find convolutions",
    "raise convolutions",
    "raise by rules",
    "measure with images",
    "correct the cause",
    "use a scale per channel",
    "raise all convolutions",
    "use the cured model",
    "keep operators in float",
    "name the nodes",
    "find the cause",
    "calibrate on more images",
    "convert again",
    "change the quantisation",
    "change the kernels",
]


@dataclass(frozen=True)
class Remedy:
    """A change whose effect was measured by running the changed model.

    action    kind of change.
    error     error of the outputs with the change.
    cost      bytes of weights as a share of all INT16; 0 if the change costs nothing.
    within    whether the outputs are within the limits with the change.
    worse     outputs that the change makes worse.
    command   command to run or lines to write for the change.
    layers    names of the tensors that change.
    expected  expected figures on held-out images, by name.
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
    """Return the cheapest remedy within the limits, else the remedy with the smallest error; None if none helps.

    A remedy that makes an output worse, or does not reduce the error, is never recommended.

    Parameters
    ----------
    remedies
        All measured remedies, on the same images.
    before
        Error of the outputs of the unchanged model.
    """
    helping = [remedy for remedy in remedies if not remedy.worse and remedy.error < before]
    within = [remedy for remedy in helping if remedy.within]
    if within:
        return min(within, key=lambda remedy: (remedy.cost, remedy.error))
    return min(helping, key=lambda remedy: (remedy.error, remedy.cost), default=None)
