"""Costs of plans: bytes of the convolutions' weights, and multiplications at INT16; a search minimises one of them.

Both are counted as a rate from 0.5 (all INT8) to 1 (all INT16), where INT16 counts twice. Convolutions that have INT16
in every plan are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.fixedpoint.quantisation.analysis import Analysis
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan, PlanTrial

BYTES, MACS = "bytes", "macs"


@dataclass(frozen=True, eq=False)
class Sizes:
    """Numbers of weights: of each domain, and of the convolutions that have 8 bits in every plan (``fixed``)."""

    domains: tuple[str, ...]
    weights: np.ndarray
    fixed: int

    @property
    def total(self) -> int:
        return int(self.weights.sum()) + self.fixed

    def limit(self, rate: float) -> float:
        """Return how many weights may be at INT16 for a rate (bytes / bytes with all at INT16)."""
        return (2 * rate - 1) * self.total + 1e-6

    @cached_property
    def _of_domain(self) -> dict[str, int]:
        return dict(zip(self.domains, self.weights.tolist()))

    @cached_property
    def _of_plan(self) -> dict[Plan, int]:
        return {}

    def wide(self, plan: Plan) -> int:
        """Return the number of weights at INT16, cached by plan."""
        if plan not in self._of_plan:
            of_domain = self._of_domain
            self._of_plan[plan] = int(sum(of_domain[name] for name in plan if name in of_domain))
        return self._of_plan[plan]

    def rate(self, plan: Plan) -> float:
        return (self.total + self.wide(plan)) / (2 * self.total)

    def mask(self, plan: Plan) -> np.ndarray:
        return np.array([name in plan for name in self.domains], bool)

    def plan(self, mask: np.ndarray) -> Plan:
        return frozenset(name for name, raised in zip(self.domains, mask) if raised)


@dataclass(frozen=True, eq=False)
class PlanCosts:
    """Costs of a network: ``bytes`` counts its weights, ``macs`` its multiplications; None for unknown shapes."""

    bytes: Sizes
    macs: Sizes | None = None

    def steering(self, cost: str) -> Sizes:
        """Return the counts that a search minimises. Raises ConfigError if they are unknown."""
        if cost == BYTES:
            return self.bytes
        if self.macs is None:
            raise ConfigError(
                "--cost macs: the multiplications of some convolutions cannot be counted, because their shapes are "
                "unknown. Omit the option, or give the model's inputs fixed shapes"
            )
        return self.macs

    def bytes_of(self, plan: Plan) -> int:
        return self.bytes.total + self.bytes.wide(plan)

    def macs16(self, plan: Plan) -> float | None:
        """Return the share of all multiplications at INT16."""
        return None if self.macs is None else self.macs.wide(plan) / self.macs.total


def costs_of(trial: PlanTrial) -> PlanCosts:
    domains = trial.domains
    names = tuple(domain.name for domain in domains)
    sizes = Sizes(names, np.array([domain.weights for domain in domains]), trial.fixed_weights)
    macs = macs_of(trial.analysis)
    settled = [name for domain in trial.settled for name in domain.convolutions]
    every = [name for domain in domains for name in domain.convolutions]
    if not macs.keys() >= {*settled, *every} or not sum(macs[name] for name in every):
        return PlanCosts(sizes)
    counts = np.array([_sum(macs, domain.convolutions) for domain in domains])
    return PlanCosts(sizes, Sizes(names, counts, _sum(macs, settled)))


def _sum(macs: dict[str, int], names: Iterable[str]) -> int:
    return sum(macs[name] for name in names)


def macs_of(analysis: Analysis) -> dict[str, int]:
    """Return the multiplications of each convolution by name of its output, without convolutions of unknown shape."""
    graph = analysis.graph
    shapes = _shapes(graph.proto)
    macs = {}
    for nodes in analysis.first_inputs.values():
        for node in nodes:
            dims = list(graph.constants[node.input[1]].dims)
            # A transposed convolution reads each weight once per input position, others once per output position.
            turned = node.op_type == "ConvTranspose"
            shape = shapes.get(node.input[0] if turned else node.output[0])
            if not shape:
                continue
            channels = shape[1] if node.op_type in ("Conv", "ConvTranspose") else shape[-1]
            macs[node.output[0]] = int(np.prod(dims)) * int(np.prod(shape)) // max(channels, 1)
    return macs


def _shapes(proto: ModelProto) -> dict[str, list[int]]:
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:  # shapes only serve a column of the table
        graph = proto.graph
    lengths = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if dims and all(size > 0 for size in dims[1:]):
            lengths[info.name] = [dims[0] or 1, *dims[1:]]
    return lengths
