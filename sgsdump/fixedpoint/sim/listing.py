"""The listing that ``show`` prints of a .sim file or an offline image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import FormatError, ModelError
from sgsdump.fixedpoint.sim import image
from sgsdump.fixedpoint.sim.file import INTEGER_KINDS, SimFile, SimOperator, SimTensor, read
from sgsdump.fixedpoint.sim.nodes import BUILDERS
from sgsdump.fixedpoint.sim.plan import CONVOLUTIONS, groups_of, is_inner
from sgsdump.models.listing import ModelListing

_ROLES = {1: "input", 2: "output", 16: "inner"}
_KINDS = {
    "debug": "Debug_float.sim",
    "float": "float.sim",
    "cmodel float": "cmodel_float.sim",
    "fixed": "fixed.sim",
    "image": "fixed model of an image",
}
_PADS = {"CONV_2D": 6, "DEPTHWISE_CONV_2D": 7, "MAX_POOL_2D": 6, "AVERAGE_POOL_2D": 6}
_SPATIAL = ("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D")
_ACTIVATIONS = {1: "RELU", 3: "RELU6"}


def list_sim(path: Path) -> ModelListing:
    """List a .sim file. Raises ModelError."""
    return _listing(read(path), {})


def list_image(path: Path) -> ModelListing:
    """List an offline image. Raises ModelError."""
    read_image = image.read(path)
    return _listing(read_image.model, {"working memory": read_image.memory, "SDK": read_image.version})


def _listing(sim: SimFile, facts: Mapping[str, Any]) -> ModelListing:
    try:
        domains = _domains(sim)
        everything = {
            "SDK": sim.version,
            "inputs": [_end(sim, index) for index in sim.inputs],
            "outputs": [_end(sim, index) for index in sim.outputs],
            **facts,
        }
        operators = [_operator(sim, index, operator, domains) for index, operator in enumerate(sim.operators)]
        return ModelListing(
            _KINDS[sim.kind], everything, operators, [_tensor(sim, each, domains) for each in sim.tensors]
        )
    except FormatError as error:
        raise ModelError(f"{sim.path}: the .sim model {error}. Convert the model again") from None


def _domains(sim: SimFile) -> dict[str, int]:
    """Return, by variable tensor, the number of the dumped operator that makes it.

    Inner tensors have the number of the operator that contains them. Float models fuse nothing.
    """
    if sim.kind not in INTEGER_KINDS:
        return {sim.tensors[i].name: number for number, op in enumerate(sim.operators) for i in op.outputs}
    groups = groups_of(sim)
    return {sim.tensors[i].name: number for number, group in enumerate(groups) for op in group for i in op.outputs}


def _end(sim: SimFile, index: int) -> dict[str, Any]:
    tensor = sim.tensors[index]
    row = _tensor(sim, tensor, {})
    return {key: row[key] for key in ("name", "shape", "type", "format", "scale", "zero_point")}


def _operator(sim: SimFile, index: int, operator: SimOperator, domains: Mapping[str, int]) -> dict[str, Any]:
    name = sim.tensors[operator.outputs[0]].name if operator.outputs else ""
    return {
        "name": name,
        "number": index,
        "type": operator.kind,
        "inputs": [sim.tensors[i].name if i >= 0 else "" for i in operator.inputs],
        "outputs": [sim.tensors[i].name for i in operator.outputs],
        "options": _options(sim, operator),
        "domain": domains.get(name),
        "known": operator.kind in BUILDERS,
    }


def _options(sim: SimFile, operator: SimOperator) -> dict[str, Any]:
    """Return the options with a known meaning."""
    kind, options = operator.kind, dict[str, Any]()
    if kind in _SPATIAL:
        options["stride"] = [max(operator.whole(2), 1), max(operator.whole(1), 1)]
        pad = _PADS[kind]
        left, right, top, bottom = (operator.whole(pad + side) for side in range(4))
        if any((left, right, top, bottom)):
            options["pads"] = [top, left, bottom, right]
    if kind.endswith("POOL_2D"):
        options["kernel"] = [operator.whole(4), operator.whole(3)]
    if kind in CONVOLUTIONS:
        shift = int(kind != "CONV_2D")
        dilation = [max(operator.whole(slot + shift), 1) for slot in (5, 4)]
        if max(dilation) > 1:
            options["dilation"] = dilation
        activation = _ACTIVATIONS.get(operator.whole(3 + shift) & 0xFF)
        if activation:
            options["activation"] = activation
    if kind == "CONCATENATION":
        options["axis"] = operator.whole(0)
    if kind == "LEAKY_RELU":
        options["alpha"] = float(np.float32(operator.option(0, "f")))
    return options


def _tensor(sim: SimFile, tensor: SimTensor, domains: Mapping[str, int]) -> dict[str, Any]:
    quant = tensor.quant
    scale = [] if quant is None else [float(step) for step in quant.scale]
    low, high = ([], []) if quant is None else ([float(end) for end in ends] for ends in (quant.low, quant.high))
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "type": str(tensor.dtype),
        "planned": "" if tensor.planned is None else str(tensor.planned),
        "role": "constant" if tensor.is_constant else _role(tensor),
        "format": tensor.format,
        "scale": _one(scale),
        "zero_point": quant.zero_point if quant is not None and scale else None,
        "min": _one(low),
        "max": _one(high),
        "memory": list(tensor.memory) if any(tensor.memory) else None,
        "domain": domains.get(tensor.name),
    }


def _role(tensor: SimTensor) -> str:
    if tensor.flags in _ROLES and not (tensor.format and is_inner(tensor)):
        return _ROLES[tensor.flags]
    return "fused" if is_inner(tensor) else ""


def _one(values: list[float]) -> float | list[float] | None:
    """Return a single number as such; None for no numbers."""
    return (values[0] if len(values) == 1 else values) if values else None
