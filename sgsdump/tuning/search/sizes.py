"""Sizes of quant plans, in numbers of weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgsdump.quantisation.trials.plan_walk import Plan


@dataclass(frozen=True)
class Sizes:
    """Numbers of weights: of each domain, and of the convolutions that stay at 8 bits in every plan."""

    domains: tuple[str, ...]
    weights: np.ndarray
    fixed: int

    @property
    def total(self) -> int:
        return int(self.weights.sum()) + self.fixed

    def limit(self, rate: float) -> float:
        """How many weights may be at INT16 for a rate (bytes over the bytes of all at 16 bits)."""
        return (2 * rate - 1) * self.total + 1e-6

    def wide(self, plan: Plan) -> int:
        """Weights at INT16."""
        return int(self.weights[self.mask(plan)].sum())

    def rate(self, plan: Plan) -> float:
        return (self.total + self.wide(plan)) / (2 * self.total)

    def mask(self, plan: Plan) -> np.ndarray:
        return np.array([name in plan for name in self.domains], bool)

    def plan(self, mask: np.ndarray) -> Plan:
        return frozenset(name for name, raised in zip(self.domains, mask) if raised)
