"""The log folder of calibration in the format of the SDK's calibrator: writer, and reader for both origins.

tensor_min_max.txt                the range that every tensor is stored with
tensor_chn.txt                    the observed range of every channel of the convolution outputs
softmax_lut_range.txt             how far the inputs of a Softmax lie below their maximum
tensor_weight.txt, tensor_weight_calibration.txt   the weights of convolutions and their ranges (above L1). The values
                                  are included up to ``WEIGHTS_LIMIT`` of them; each takes ten bytes of text

On reading, tensors of the converter and names that it numbers (``f1#22`` for f1) become names of the model where
possible.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import (
    GROUP_WEIGHTS,
    SIZED,
    is_convolution,
    is_depthwise,
    is_grouped,
    of_groups,
    output_rows,
    sdk_name,
)
from sgsdump.fixedpoint.quantisation.calibration import Calibration
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan
from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.sidecars import tensor_chn, tensor_weight
from sgsdump.sidecars.quant_param_entries import QuantParam, model_name
from sgsdump.sidecars.tensor_min_max import read_ranges, write_ranges
from sgsdump.tensors.types import Range, to_nhwc

WEIGHTS_LIMIT = 1 << 22
FILES = (
    "tensor_min_max.txt",
    "tensor_min_max.json",
    "tensor_chn.txt",
    "softmax_lut_range.txt",
    "tensor_weight.txt",
    "tensor_weight_calibration.txt",
)
Item = TypeVar("Item")
_BITS = {"UINT8": 8, "INT8": 8, "INT16": 16}


@dataclass(frozen=True)
class LogOptions:
    """Options of the log.

    fuse     the option that the model was calibrated with.
    form     format of tensor_min_max: text or json.
    weights  also write the files of the weights (levels above L1).
    changed  weights that a quant file replaced.
    """

    fuse: bool = True
    form: str = "text"
    weights: bool = True
    changed: Collection[str] = ()


def write_log(
    folder: Path,
    model: Model,
    calibration: Calibration,
    plan: QuantPlan,
    options: LogOptions = LogOptions(),
) -> Path:
    """Fill an empty folder and return the tensor_min_max file."""
    graph = Graph(deployed(model))
    ranges = used_ranges(graph, calibration.ranges, plan)
    path = folder / ("tensor_min_max.json" if options.form == "json" else "tensor_min_max.txt")
    write_ranges(logged_ranges(graph, ranges), path, options.form)
    statistics = calibration.statistics
    channels = {name: Range(extremes.low, extremes.high) for name, extremes in statistics.channels.items()}
    tensor_chn.write(channels, folder / "tensor_chn.txt")
    below = {name: Range.of(extremes.low, extremes.high) for name, extremes in statistics.below.items()}
    if below:
        write_ranges(below, folder / "softmax_lut_range.txt")
    if options.weights:
        nodes = [n for n in graph.nodes if n.output[0] in plan.weights and is_convolution(graph, n)]
        few = sum(math.prod(graph.constants[node.input[1]].dims) for node in nodes) <= WEIGHTS_LIMIT
        each = _weights(graph, ranges, plan, options.changed)  # one at a time, to drop values early
        entries = [entry if few else entry.without_values() for entry in each]
        tensor_weight.write(entries, folder / "tensor_weight.txt", with_ranges=False, with_data=few)
        tensor_weight.write(entries, folder / "tensor_weight_calibration.txt", with_ranges=True, with_data=few)
    return path


def read_log(path: Path, model: Model, weights: bool) -> tuple[list[QuantParam], SideRanges]:
    """Return the entries of the files beside a tensor_min_max.txt, under the names of a simplified model.

    weights  also read the weight ranges per output channel and the bits (levels above L1).
    """
    if not path.name.startswith("tensor_min_max"):
        return [], SideRanges()
    graph = Graph(model.proto)
    model_names = {*graph.inputs, *graph.producer, *graph.constants}
    side = read_side_ranges(path)
    # If a Dropout takes over the last stage of a fully connected layer, the file has the layer's own name.
    layers = {node.name: node.output[0] for node in graph.nodes if is_convolution(graph, node) and node.name}
    channels = {layers.get(name, name): each for name, each in _renamed(side.channels, {*model_names, *layers}).items()}
    side = SideRanges({**channels, **_renamed(side.channels, model_names)}, _renamed(side.softmax, model_names))
    groups = {name for node in graph.nodes if is_grouped(graph, node) for name in of_groups(GROUP_WEIGHTS, node)}
    return read_weight_params(path, model_names | groups) if weights else [], side


def has_weight_ranges(path: Path) -> bool | None:
    """Return whether a calibrator's log was made above L1; None if the file is not in such a log.

    Above L1, tensor_weight_calibration.txt has one range per output channel of the weights.
    """
    if not path.name.startswith("tensor_min_max") or not (path.parent / "tensor_chn.txt").is_file():
        return None
    file = path.parent / "tensor_weight_calibration.txt"
    return file.is_file() and any(entry.range.min.size > 1 for entry in tensor_weight.read(file))


def read_side_ranges(path: Path) -> SideRanges:
    """Read tensor_chn.txt and softmax_lut_range.txt beside ``path``; a missing file gives no ranges.

    Raises what their readers raise.
    """
    channels, softmax = (path.parent / name for name in ("tensor_chn.txt", "softmax_lut_range.txt"))
    return SideRanges(
        tensor_chn.read(channels) if channels.is_file() else {},
        read_ranges(softmax) if softmax.is_file() and softmax.stat().st_size else {},
    )


def read_weight_params(path: Path, model_names: Collection[str]) -> list[QuantParam]:
    """Return weight ranges per output channel and bits from the tensor_weight_calibration.txt beside ``path``.

    ``model_names`` resolve which comma in ``[input,weights]`` separates the names.
    """
    file = path.parent / "tensor_weight_calibration.txt"
    if not file.is_file():
        return []
    params = []
    for entry in tensor_weight.read(file):
        parts = entry.names.split(",")
        splits = [(",".join(parts[:i]), ",".join(parts[i:])) for i in range(1, len(parts))]
        for _, weights in splits:
            name = model_name(weights, model_names)
            if name is not None:
                bit = _BITS.get(entry.types[-1].strip())
                params.append(QuantParam(name, entry.range, bit if bit == 16 else None))
                break
    return params


def used_ranges(graph: Graph, ranges: Mapping[str, Range], plan: QuantPlan) -> dict[str, Range]:
    """Return the ranges for the types that a plan stores the tensors with."""
    types = {graph.producer[name].input[1]: quant.dtype for name, quant in plan.weights.items()}
    types |= {name: quant.dtype for name, quant in plan.tensors.items()}
    return {
        name: measured if (dtype := types.get(name)) is None else measured.at(dtype)
        for name, measured in ranges.items()
    }


def logged_ranges(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges of the tensors that the SDK's calibrator writes.

    The SDK stores a second row beside every bias, which is 1 in the float model. A convolution without a bias gets a
    bias of zeros, named after its node, or after the list of its outputs. Sizes, limits and single slopes are not
    tensors.
    """
    biases: set[str] = set()
    absent: dict[str, str] = {}
    for node in graph.nodes:
        if is_convolution(graph, node):
            if len(node.input) > 2 and node.input[2]:
                biases.add(node.input[2])
            elif not is_grouped(graph, node):
                absent[node.input[1]] = f"{node.name or list(node.output)}_bias"
    settings = _settings(graph)
    written: dict[str, Range] = {}
    for name, each in ranges.items():
        if name not in settings:
            written[name] = Range.of(min(each.low, 1.0), max(each.high, 1.0)) if name in biases else each
        if name in absent:
            written.setdefault(absent[name], Range.of(0.0, 1.0))
    return written


def _settings(graph: Graph) -> set[str]:
    """Return the constants that the SDK's converter turns into options of operators."""
    settings: set[str] = set()
    operands: set[str] = set()
    for node in graph.nodes:
        slope = graph.constants.get(node.input[1]) if node.op_type == "PRelu" else None
        is_option = node.op_type in SIZED or (slope is not None and math.prod(slope.dims) == 1)
        (settings if is_option else operands).update(node.input[1:])
        operands.update(node.input[:1])
    return settings & graph.constants.keys() - operands


def _weights(
    graph: Graph, ranges: Mapping[str, Range], plan: QuantPlan, changed: Collection[str]
) -> Iterator[tensor_weight.ConvolutionWeights]:
    for node in graph.nodes:
        if not is_convolution(graph, node) or node.output[0] not in plan.weights:
            continue
        source, name = node.input[0], node.input[1]
        array = graph.value(name)
        rows = output_rows(graph, node)
        if array.ndim == 4 and node.op_type == "Conv":
            data = to_nhwc(array)
            data = np.moveaxis(data, 0, 3).reshape(1, *data.shape[1:3], -1) if is_depthwise(graph, node) else data
        else:
            data = rows.reshape(rows.shape[0], 1, 1, -1)
        types = (str(plan.tensors[source].dtype).upper(), str(plan.weights[node.output[0]].dtype).upper())
        allowed = (8,) if source in graph.inputs else (8, 16)
        weights = ranges.get(name) or Range(rows.min(axis=1), rows.max(axis=1))
        yield tensor_weight.ConvolutionWeights(
            source, name, sdk_name(graph, node), data, weights, types, allowed, name in changed
        )


def _renamed(ranges: Mapping[str, Item], model_names: Collection[str]) -> dict[str, Item]:
    return {(model_name(name, model_names) or name): item for name, item in ranges.items()}
