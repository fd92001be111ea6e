"""Records of a cure, shared with the reports: the names of the cures, options, steps and ways to deploy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgsdump.errors import ConfigError, hint

CURES = ("ranges", "fold", "equalise", "absorb", "bias", "round")
RANGES, FOLD, EQUALISE, ABSORB, BIAS, ROUND = CURES
# The cures that keep the function of the float model. Outputs may change by this part of their size.
KEEPING = (RANGES, FOLD, EQUALISE, ABSORB)
KEPT = 1e-5
# The ways to bring a model onto the chip.
AS_IT_IS, CURED_8, PLAN, ALL_16 = "as it is", "cured", "cured with a plan", "all at 16 bits"


@dataclass(frozen=True)
class CureOptions:
    """Options of ``cure``.

    level  calibration level, which determines the weight scales; its fits and bits are not searched again.
    cures  the members of CURES to try.
    """

    level: str = "L2"
    cures: tuple[str, ...] = CURES

    def __post_init__(self) -> None:
        for name in self.cures:
            if name not in CURES:
                raise ConfigError(f"unknown cure {name!r}{hint(name, list(CURES))}")


EVERY = CureOptions()


@dataclass(frozen=True)
class Step:
    """A cure that was tried.

    before   errors by output, of the model with the cures taken before.
    errors   errors by output with this cure.
    count    number of changed layers, channels or tensors.
    kept     largest relative change of an output, for cures that must keep the function.
    spoiled  rejected because the float model changes too much.
    undone   helped, but was undone, because without the quant file an output would be worse than in the original model;
             ranges are undone with the step that they follow.
    """

    cure: str
    taken: bool
    before: Mapping[str, float]
    errors: Mapping[str, float]
    count: int
    kept: float | None = None
    spoiled: bool = False
    undone: bool = False


@dataclass(frozen=True)
class Way:
    """A way to deploy the model.

    errors  by output, sum((y - r)^2) / sum(r^2).
    raised  number of ``convolutions`` at 16 bits; set for a plan only.
    """

    kind: str
    errors: Mapping[str, float]
    raised: int = 0
    convolutions: int = 0
