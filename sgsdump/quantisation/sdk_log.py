"""The log folder of the SDK's calibrator (or of ours): tensor_min_max.txt and the side files that lie beside it.

The converter's own tensors and the names that it numbers (``f1#22`` for f1) become names of the model where they can.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgsdump.errors import ConfigError
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model, read_stages
from sgsdump.quantisation.ranges.side_ranges import SideRanges
from sgsdump.registry import listed
from sgsdump.sidecars import tensor_chn, tensor_weight
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.sidecars.tensor_min_max import read_ranges
from sgsdump.tensors.stages import last_of_table, of_layers

if TYPE_CHECKING:
    from onnx import ModelProto

Item = TypeVar("Item")
_NUMBERED = re.compile(r"(.+)#\d+")
_BITS = {"UINT8": 8, "INT8": 8, "INT16": 16}


def read_log(path: Path, model: Model, weights: bool) -> tuple[list[QuantParam], SideRanges]:
    """What lies beside a tensor_min_max.txt, under the names of a simplified model.

    weights  take the weights' ranges per output channel and the bits too (levels above L1).
    """
    if not path.name.startswith("tensor_min_max"):
        return [], SideRanges()
    graph = Graph(model.proto)
    known = {*graph.inputs, *graph.producer, *graph.constants}
    side = read_side_ranges(path)
    side = SideRanges(_renamed(side.channels, known), _renamed(side.softmax, known))
    return read_weight_params(path, known) if weights else [], side


def read_side_ranges(path: Path) -> SideRanges:
    """tensor_chn.txt and softmax_lut_range.txt beside ``path``, empty where they are not.

    Raises what their readers raise.
    """
    channels, softmax = (path.parent / name for name in ("tensor_chn.txt", "softmax_lut_range.txt"))
    return SideRanges(
        tensor_chn.read(channels) if channels.is_file() else {},
        read_ranges(softmax) if softmax.is_file() and softmax.stat().st_size else {},
    )


def read_weight_params(path: Path, known: Collection[str]) -> list[QuantParam]:
    """The weights' ranges per output channel, and the bits, of tensor_weight_calibration.txt beside ``path``.

    ``known``: the model's names, which tell where a comma in ``[input,weights]`` ends the first.
    """
    file = path.parent / "tensor_weight_calibration.txt"
    if not file.is_file():
        return []
    params = []
    for entry in tensor_weight.read(file):
        parts = entry.names.split(",")
        splits = [(",".join(parts[:i]), ",".join(parts[i:])) for i in range(1, len(parts))]
        for _, weights in splits:
            name = model_name(weights, known)
            if name is not None:
                bit = _BITS.get(entry.types[-1].strip())
                params.append(QuantParam(name, entry.range, bit if bit == 16 else None))
                break
    return params


def model_name(name: str, known: Collection[str]) -> str | None:
    """The name of a tensor in the model; None when it has none."""
    if name in known:
        return name
    while (numbered := _NUMBERED.fullmatch(name)) is not None:
        name = numbered[1]
        if name in known:
            return name
    return None


def check_names(names: Iterable[str], proto: ModelProto, source: str) -> None:
    """Raise ConfigError for a file that an earlier version of sgsdump wrote of a Caffe net with layers in place. That
    called a blob's last value by the blob's name, and those before by their layer's name or ``BLOB@LAYER``."""
    table = read_stages(proto)
    if not table:
        return
    graph = Graph(proto)
    known = {*graph.inputs, *graph.producer, *graph.constants}
    last = set(last_of_table(table).values())
    older = {*last_of_table(table), *of_layers(stage for stage in table if stage.name not in last)}
    older |= {f"{name}#bias" for name in known}  # of a convolution with its BatchNorm folded
    found = sorted(older.intersection(names) - known)
    if found:
        raise ConfigError(
            f"{source} has names of an earlier version of sgsdump ({listed(found, 3)}), which called the stages of a "
            f"Caffe blob otherwise than the SDK does; calibrate again to make it anew"
        )


def with_model_names(params: Iterable[QuantParam], known: Collection[str]) -> list[QuantParam]:
    """The entries under the model's names; where it has a tensor of the name already, the numbered one goes."""
    params = list(params)
    own = {param.name for param in params if param.name in known}
    renamed = []
    for param in params:
        name = model_name(param.name, known)
        if name is None or name == param.name:
            renamed.append(param)
        elif name not in own:
            renamed.append(replace(param, name=name))
    return renamed


def _renamed(ranges: Mapping[str, Item], known: Collection[str]) -> dict[str, Item]:
    return {(model_name(name, known) or name): each for name, each in ranges.items()}
