"""What a tuned plan must reach: ``output-cos>=0.999`` and the like."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sgsdump.errors import ConfigError
from sgsdump.quantisation.objective import Score

NAMES = ("output-cos", "output-rmse", "error", "metric")


@dataclass(frozen=True)
class Target:
    """``name`` is one of NAMES; output-cos is the lowest COS of any output, output-rmse the highest RMSE."""

    name: str
    at_least: bool
    value: float

    def of(self, score: Score, outputs: Sequence[str], error: float) -> float:
        """What is held against ``value``; ``error`` is the ``CombinedError`` of the score."""
        if self.name == "output-cos":
            return min((score.cos(name) for name in outputs), default=math.nan)
        if self.name == "output-rmse":
            return max((score.rmse(name) for name in outputs), default=math.nan)
        return error if self.name == "error" else score.mean_metric

    def reached(self, score: Score, outputs: Sequence[str], error: float) -> bool:
        value = self.of(score, outputs, error)
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"{self.name}{'>=' if self.at_least else '<='}{self.value:g}"


def parse_target(text: str) -> Target:
    """Raises ConfigError for anything but NAME>=NUMBER or NAME<=NUMBER, in the direction that is better."""
    match = re.fullmatch(r"\s*([a-z-]+)\s*(>=|<=)\s*(\S+)\s*", text)
    try:
        value = float(match[3]) if match else math.nan
    except ValueError:
        value = math.nan
    if not match or not math.isfinite(value) or match[1] not in NAMES:
        raise ConfigError(f"--target {text!r} is not NAME>=NUMBER or NAME<=NUMBER; names are {', '.join(NAMES)}")
    at_least = match[1] in ("output-cos", "metric")
    if at_least != (match[2] == ">="):
        raise ConfigError(f"--target {text!r}: {match[1]} is better when {'higher' if at_least else 'lower'}")
    return Target(match[1], at_least, value)
