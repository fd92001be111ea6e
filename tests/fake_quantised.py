"""The fake-quantised form of a plan, which the graph with switches has to equal: one QDQ model for this plan alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sgsdump.fixedpoint.quantisation.float_model import deployed, pictures_of
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, plan
from sgsdump.fixedpoint.quantisation.trials.qdq_graph import quantise
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range


def fake_quantised(model: Model, ranges: Mapping[str, Range], config: InputConfig, per_channel: bool = False) -> Model:
    """``model`` with the fixed graph in float32 between QuantizeLinear and DequantizeLinear."""
    proto, pictures = deployed(model), pictures_of(model, config, ranges)
    choice = Choice(config.conv_format or "ALL_UINT8", config.tensor_arrays, per_channel)
    return replace(model, proto=quantise(proto, plan(proto, ranges, choice, pictures), pictures))
