"""The cures by name, which are tried, what came of each, and the ways there are then: records that reports read too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgsdump.errors import ConfigError, hint

CURES = ("ranges", "fold", "equalise", "absorb", "bias", "round")
RANGES, FOLD, EQUALISE, ABSORB, BIAS, ROUND = CURES
# Those that keep what the float model computes, which differs by so much of an output's size at most.
KEEPING = (RANGES, FOLD, EQUALISE, ABSORB)
KEPT = 1e-5
# The ways of a network onto the chip.
AS_IT_IS, CURED_8, PLAN, ALL_16 = "as it is", "cured", "cured with a plan", "all at 16 bits"


@dataclass(frozen=True)
class CureOptions:
    """level  of the calibration, whose weight scales are cured for; its fits and bits are not searched again.
    cures  which of CURES are tried.
    """

    level: str = "L2"
    cures: tuple[str, ...] = CURES

    def __post_init__(self) -> None:
        for name in self.cures:
            if name not in CURES:
                raise ConfigError(
                    f"there is no cure {name!r}{hint(name, list(CURES))}; the cures are {', '.join(CURES)}"
                )


EVERY = CureOptions()


@dataclass(frozen=True)
class Step:
    """A cure that was tried.

    errors   by output, of the model with what was taken before and with this cure.
    count    of what it changed (layers, channels, tensors).
    kept     the largest change of an output where the cure should keep it, in parts of the output.
    spoiled  whether it was not taken because the float model changes too much.
    """

    cure: str
    taken: bool
    before: Mapping[str, float]
    errors: Mapping[str, float]
    count: int
    kept: float | None = None
    spoiled: bool = False


@dataclass(frozen=True)
class Way:
    """errors  by output, sum((y - r)^2) / sum(r^2), of the network this way.
    raised  so many of ``convolutions`` are at 16 bits; both are told of a plan alone.
    """

    kind: str
    errors: Mapping[str, float]
    raised: int = 0
    convolutions: int = 0
