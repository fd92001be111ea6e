"""The quant parameters of a fixed model: what ``--quant_file`` takes to make the same one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.quantisation.fixed_model import fixed_facts
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.value_range import Range

if TYPE_CHECKING:
    from sgsdump.models.model import Model


def quant_params(model: Model) -> list[QuantParam]:
    """Every stored tensor and convolution's weights of a fixed model, per operator inputs, weights, outputs.

    Ranges are those it was made from; a fixed model that does not remember them gives what its scales span.
    Raises ModelError for a float model.
    """
    facts = fixed_facts(model.proto)
    if facts is None:
        raise ModelError(f"{model.path} is a float model; only a fixed one (made by calibrate) has quant parameters")
    found: dict[str, QuantParam] = {}
    for operator in facts["operators"]:
        for name in (*operator["inputs"], *operator["constants"], *operator["outputs"]):
            entry = facts["tensors"].get(name) or facts["weights"].get(name)
            if entry is not None:
                own = entry.get("name", name)
                found.setdefault(own, _param(own, entry, facts.get("ranges", {})))
    return list(found.values())


def _param(name: str, entry: dict[str, Any], ranges: dict[str, Any]) -> QuantParam:
    dtype = np.dtype(entry["dtype"])
    bit = 8 * dtype.itemsize
    if name in ranges:
        low, high = (np.asarray(end, np.float64) for end in ranges[name])
    else:
        limits = np.iinfo(dtype)
        scale = np.atleast_1d(np.asarray(entry["scale"], np.float64))
        zero = entry.get("zero_point", 0)
        low, high = (max(limits.min, -limits.max) - zero) * scale, (limits.max - zero) * scale
    return QuantParam(name, Range(low, high, bit), bit)
