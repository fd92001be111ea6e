"""The files of a tuned plan: quant parameters and an input_config.ini, as the SDK's sim_optimizer names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sgsdump.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.quantisation.quant_export import quant_params
from sgsdump.quantisation.ranges.side_ranges import NOTHING_BESIDE, SideRanges
from sgsdump.quantisation.trials.plan_trial import PlanTrial
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tuning.results.pareto import Row


def stem(index: int, rate: float) -> str:
    """``0_0.65``: the number of the plan and the rate asked for, as in optimized_quant_info_0_0.65.pkl."""
    return f"{index}_{rate:.4g}"


def fixed_of(trial: PlanTrial, row: Row, side: SideRanges = NOTHING_BESIDE) -> FixedModel:
    """The fixed model of a plan, in the hardware's own integers."""
    config = replace(trial.config, tensor_arrays=row.tensors)
    return make_fixed(trial.model, trial.ranges, config, side=side)


def optimized(trial: PlanTrial, fixed: FixedModel, path: Path) -> list[QuantParam]:
    """All quant parameters of a plan, so that a file of them alone makes its fixed model again.

    As in the SDK's file, input and weights of every convolution come first, in execution order; then every other
    tensor, whose range would be measured anew otherwise (a max pool shares a convolution's domain, and so its scale).
    """
    params = {p.name: p for p in quant_params(replace(trial.model, proto=fixed.proto, path=path))}
    convolutions = {node.output[0] for nodes in trial.analysis.first_inputs.values() for node in nodes}
    read = [name for node in trial.analysis.graph.nodes if convolutions & {*node.output} for name in node.input[:2]]
    return [params[name] for name in dict.fromkeys([*read, *params]) if name in params]
