"""The quant parameters of a fixed model: what ``--quant-file`` takes to make the same one again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.quantisation.fixed_metadata import read_facts
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from sgsdump.models.model import Model


def quant_params(model: Model) -> list[QuantParam]:
    """Every stored tensor and convolution's weights of a fixed model, per operator inputs, weights, outputs.

    Ranges are those it was made from; a fixed model that does not remember them gives what its scales span.
    Raises ModelError for a float model.
    """
    facts = read_facts(model)
    if facts is None:
        raise ModelError(f"{model.path} is a float model; only a fixed one (made by calibrate) has quant parameters")
    ranges = facts.origin.ranges if facts.origin else {}
    params: dict[str, QuantParam] = {}
    for operator in facts.operators:
        for name in (*operator.inputs, *operator.constants, *operator.outputs):
            if name in facts.tensors:
                tensor = facts.tensors[name]
                params.setdefault(name, _param(name, tensor.dtype, tensor.scale, tensor.zero_point, ranges))
            elif name in facts.weights:
                weights = facts.weights[name]
                params.setdefault(weights.name, _param(weights.name, weights.dtype, weights.scale, 0, ranges))
    return list(params.values())


def _param(
    name: str, dtype: np.dtype, scale: float | tuple[float, ...], zero_point: int, ranges: Mapping[str, Range]
) -> QuantParam:
    bit = 8 * dtype.itemsize
    if name in ranges:
        return QuantParam(name, Range(ranges[name].min, ranges[name].max, bit), bit)
    limits, steps = np.iinfo(dtype), np.atleast_1d(np.asarray(scale, np.float64))
    low, high = max(limits.min, -limits.max) - zero_point, limits.max - zero_point
    return QuantParam(name, Range(low * steps, high * steps, bit), bit)
