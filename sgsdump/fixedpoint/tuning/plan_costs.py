"""What quant plans cost: bytes of the convolutions' weights, and multiplications at 16 bits; either steers a search.

Both are counted as a rate from 0.5, all at 8 bits, to 1, all at 16: 16 bits count twice. What is INT16 in every plan
counts in neither.
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

    @cached_property
    def _of_domain(self) -> dict[str, int]:
        return dict(zip(self.domains, self.weights.tolist()))

    @cached_property
    def _of_plan(self) -> dict[Plan, int]:
        return {}

    def wide(self, plan: Plan) -> int:
        """Weights at INT16; counted once for each plan, which a search compares again and again."""
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
    """Of one network: ``bytes`` counts its weights, ``macs`` its multiplications, None where shapes are not known."""

    bytes: Sizes
    macs: Sizes | None = None

    def steering(self, cost: str) -> Sizes:
        """Those that a search has to make small. Raises ConfigError where they cannot be counted."""
        if cost == BYTES:
            return self.bytes
        if self.macs is None:
            raise ConfigError(
                "--cost macs: some convolutions have no known shape, so their multiplications cannot be counted; "
                "leave it out, or give the model's inputs fixed shapes"
            )
        return self.macs

    def bytes_of(self, plan: Plan) -> int:
        return self.bytes.total + self.bytes.wide(plan)

    def macs16(self, plan: Plan) -> float | None:
        """The part of all multiplications that are done at 16 bits."""
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
    """Multiplications of each convolution by its output's name; convolutions of unknown shape are missing."""
    graph = analysis.graph
    shapes = _shapes(graph.proto)
    macs = {}
    for nodes in analysis.first_inputs.values():
        for node in nodes:
            dims = list(graph.constants[node.input[1]].dims)
            # A transposed convolution reads each of its weights once per input position, others per output position.
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
