"""The calibration levels L1 to L5: what each one searches."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.errors import ConfigError, hint


@dataclass(frozen=True)
class Level:
    """The searches of a level."""

    weights: bool = False
    activations: bool = False
    bits: bool = False


LEVELS = {
    "L1": Level(),
    "L2": Level(weights=True),
    "L3": Level(weights=True, activations=True),
    "L4": Level(weights=True, bits=True),
    "L5": Level(weights=True, activations=True, bits=True),
}
# The level that finds the same ranges without proposing bits.
WITHOUT_BITS = {"L1": "L1", "L2": "L2", "L3": "L3", "L4": "L2", "L5": "L3"}


def level_named(name: str) -> Level:
    """Return the level. Raises ConfigError for an unknown name."""
    if name not in LEVELS:
        raise ConfigError(f"unknown quant level {name!r}{hint(name, LEVELS)}")
    return LEVELS[name]
