"""The files of a tuned plan: quant parameters and an input_config.ini, as the SDK's sim_optimizer names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sgsdump.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.quantisation.plan_trial import PlanTrial
from sgsdump.quantisation.quant_export import quant_params
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tuning.pareto import Row


def stem(index: int, rate: float) -> str:
    """``0_0.65``: the number of the plan and the rate asked for, as in optimized_quant_info_0_0.65.pkl."""
    return f"{index}_{rate:.4g}"


def fixed_of(trial: PlanTrial, row: Row) -> FixedModel:
    """The fixed model of a plan."""
    config = replace(trial.config, tensor_arrays=row.tensors)
    return make_fixed(trial.model, trial.ranges, config)


def optimized(trial: PlanTrial, fixed: FixedModel, path: Path) -> list[QuantParam]:
    """Input and weights of every convolution that can have either width, in execution order, as the SDK lists them."""
    params = {p.name: p for p in quant_params(replace(trial.model, proto=fixed.proto, path=path))}
    changeable = {name for domain in trial.domains for name in domain.convolutions}
    return _listed(trial, params, changeable)


def _listed(trial: PlanTrial, params: Mapping[str, QuantParam], changeable: set[str]) -> list[QuantParam]:
    graph = trial.analysis.graph
    nodes = [node for node in graph.nodes if changeable.intersection(node.output)]
    return [params[name] for node in nodes for name in node.input[:2] if name in params]
