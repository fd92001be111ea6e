"""What calibration leaves in the log folder, as the SDK does.

tensor_min_max.txt                the range every tensor is stored with
tensor_chn.txt                    the range of every channel of the convolutions' outputs, as seen
softmax_lut_range.txt             how far the inputs of softmaxes lie below their maximum
tensor_weight.txt, tensor_weight_calibration.txt   the convolutions' weights, and their ranges (above L1); the
                                  weights themselves up to ``WEIGHTS_LIMIT`` of them, ten bytes of text each
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.fusion import is_convolution, is_depthwise, sdk_name
from sgsdump.quantisation.levels import Calibration
from sgsdump.quantisation.quant_plan import QuantPlan
from sgsdump.quantisation.ranges.weight_fit import output_rows
from sgsdump.sidecars import tensor_chn, tensor_weight
from sgsdump.sidecars.tensor_min_max import write_ranges
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


def write_log(
    folder: Path,
    model: Model,
    calibration: Calibration,
    plan: QuantPlan,
    fuse: bool = True,
    form: str = "text",
    weights: bool = True,
    changed: Collection[str] = (),
) -> Path:
    """Fill an empty folder; returns the tensor_min_max file. ``changed``: weights a quant file replaced."""
    graph = Graph(deployed(model, fuse))
    ranges = used_ranges(graph, calibration.ranges, plan)
    path = folder / ("tensor_min_max.json" if form == "json" else "tensor_min_max.txt")
    write_ranges(ranges, path, form)
    statistics = calibration.statistics
    channels = {name: Range(extremes.low, extremes.high) for name, extremes in statistics.channels.items()}
    tensor_chn.write(channels, folder / "tensor_chn.txt")
    below = {name: Range.of(extremes.low, extremes.high) for name, extremes in statistics.below.items()}
    if below:
        write_ranges(below, folder / "softmax_lut_range.txt")
    if weights:
        entries = list(_weights(graph, ranges, plan, changed))
        few = sum(entry.data.size for entry in entries) <= WEIGHTS_LIMIT
        tensor_weight.write(entries, folder / "tensor_weight.txt", with_ranges=False, with_data=few)
        tensor_weight.write(entries, folder / "tensor_weight_calibration.txt", with_ranges=True, with_data=few)
    return path


def used_ranges(graph: Graph, ranges: Mapping[str, Range], plan: QuantPlan) -> dict[str, Range]:
    """The ranges for the types that a plan stores the tensors with."""
    types = {graph.producer[name].input[1]: quant.dtype for name, quant in plan.weights.items()}
    types |= {name: quant.dtype for name, quant in plan.tensors.items()}
    return {
        name: measured if (dtype := types.get(name)) is None else measured.at(dtype)
        for name, measured in ranges.items()
    }


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
