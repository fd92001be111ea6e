"""Quant files: export the parameters of a fixed model, and override what calibration finds.

A range has one value, or one per channel (for weights, one per output channel). A range in the file replaces the
calibrated one. Bit 16 of a convolution's first input or weights raises the convolution and the rest of its domain to
INT16. If the file and input_config.ini differ, or two tensors of one domain do, the wider type wins. ``data`` replaces
the weights of a convolution, in the model's layout, with BatchNormalization folded in.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sgsdump.errors import ConfigError, ModelError, hint
from sgsdump.files.bounded_read import read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.fixedpoint.quantisation.analysis import (
    GROUP_INPUT,
    GROUP_OUTPUT,
    GROUP_WEIGHTS,
    REQUANTISED,
    Analysis,
    analyse,
    is_grouped,
    of_groups,
    output_axis,
)
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan
from sgsdump.fixedpoint.quantisation.type_rules import keeps_scale
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.sidecars import quant_param
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.quant_param_entries import PICKLE_LIMIT, QuantParam, with_model_names
from sgsdump.sidecars.tensor_min_max import read_ranges
from sgsdump.tensors.types import Range

BITS = (8, 16)
# A range this many times as wide as the values loses two bits.
WIDE_TIMES = 4.0


@dataclass(frozen=True, eq=False)
class Imported:
    """The entries of a quant file, checked against a model.

    model    the model to calibrate, with the weights of the file.
    config   the configuration to calibrate with, including the raised tensors.
    ranges   replace the calibration ranges.
    moved    names in ``ranges`` that the file lacks; they follow from a tensor whose values an operator moves.
    unknown  names of the file that the model does not have.
    changed  weights that the file replaces.
    """

    model: Model
    config: InputConfig
    ranges: Mapping[str, Range] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()


def read_quant_file(path: Path | str) -> list[QuantParam]:
    """Return the entries of a quant file, or the ranges of a tensor_min_max.txt as entries without bits.

    Raises what ``quant_param.read`` and ``read_ranges`` raise.
    """
    if is_log(path):
        return [QuantParam(name, measured) for name, measured in read_ranges(path).items()]
    return quant_param.read(path)


def is_log(path: Path | str) -> bool:
    """Return whether a quant file is the tensor_min_max.txt of a calibration."""
    return read_bytes(Path(path), PICKLE_LIMIT).startswith(b"Name:")


def import_params(
    model: Model,
    params: Sequence[QuantParam],
    config: InputConfig,
    fuse: bool = True,
    where: str = "quant file",
    one_per_tensor: bool = True,
) -> Imported:
    """Check the entries of a quant file against a simplified float model; ``where`` begins the messages.

    one_per_tensor  False drops one-value ranges of convolution weights without a bit, as tensor_min_max.txt has them.
                    Use False for levels that find one range per output channel.

    Raises ConfigError if no entry names a tensor of the model, if a bit is not 8 or 16, if an image gets 16 bits, if a
    tensor that no convolution reads gets 8 bits, if the number of values is not the number of channels, if ``data`` has
    another shape or does not belong to convolution weights, and if two entries of one name differ.
    """
    graph_of_model = Graph(model.proto)
    own = {*graph_of_model.inputs, *graph_of_model.producer, *graph_of_model.constants}
    requantised = {REQUANTISED.format(name) for name in own}
    params = with_model_names(params, own | requantised)
    model = _with_data(model, params, fuse, where)
    graph = Graph(deployed(model))
    pictures = {entry.name for entry in config.inputs if entry.is_picture and entry.quantised} & set(graph.inputs)
    analysis = analyse(graph.proto, pictures if config.inputs else None, fuse)
    graph_of_model = Graph(model.proto)
    convolutions = [node for nodes in analysis.first_inputs.values() for node in nodes]
    grouped = [node for node in convolutions if is_grouped(analysis.graph, node)]
    existing = {
        *graph_of_model.inputs,
        *graph_of_model.producer,
        *graph_of_model.constants,
        *graph.constants,
        *requantised,
        *(
            name
            for node in grouped
            for part in (GROUP_INPUT, GROUP_WEIGHTS, GROUP_OUTPUT)
            for name in of_groups(part, node)
        ),
    }
    unknown = tuple(dict.fromkeys(param.name for param in params if param.name not in existing))
    if params and len(unknown) == len({param.name for param in params}):
        raise ConfigError(
            f"{where}: no entry names a tensor of the model; the first name is {quoted(unknown[0])}"
            f"{hint(unknown[0], list(existing))}. Was the file made for another model?"
        )
    if not params:
        raise ConfigError(f"{where}: the file has no quant parameters")
    channels = _channels(graph_of_model, analysis)
    weights = {node.input[1] for node in convolutions} | {
        name for node in grouped for name in of_groups(GROUP_WEIGHTS, node)
    }
    ranges: dict[str, Range] = {}
    raised: dict[str, None] = dict.fromkeys(config.tensor_arrays)
    for param in params:
        if param.name in unknown:
            continue
        subject = f"{where}: {quoted(param.name)}"
        alone = channels.get(param.name) == 1
        coarse = param.range is not None and param.range.min.size == 1 and param.bit is None and not alone
        if param.range is not None and not (coarse and not one_per_tensor and param.name in weights):
            _check_channels(param, channels, subject)
            if param.name in requantised and param.name in ranges:
                # The SDK numbers one entry per operator that the tensor is requantised for.
                low, high = param.range.low, param.range.high
                ranges[param.name] = Range.of(min(low, ranges[param.name].low), max(high, ranges[param.name].high))
                continue
            if param.name in ranges and not ranges[param.name].same(param.range):
                raise ConfigError(f"{subject} has two entries with different ranges; keep only one entry")
            ranges[param.name] = param.range
        raised.update(dict.fromkeys(_raised(analysis, param, subject)))
    changed = frozenset(param.name for param in params if param.data is not None and param.name not in unknown)
    by_file = tuple(name for name in raised if name not in config.tensor_arrays)
    config = replace(config, tensor_arrays=tuple(raised), by_quant_file=(*config.by_quant_file, *by_file))
    moved = moved_ranges(analysis, ranges)
    return Imported(model, config, {**ranges, **moved}, frozenset(moved), unknown, changed)


def plan_params(path: Path) -> list[QuantParam]:
    """Return the weights that a fixed model stores at INT16, as entries of a quant file.

    Raises ModelError if the file is not a fixed model.
    """
    from sgsdump.models.model import open_model

    facts = read_facts(open_model(path))
    if facts is None:
        raise ModelError(f"{path} is not a fixed model and has no plan. Pass fixed.sim or a model from calibrate")
    wide = dict.fromkeys(weights.name for weights in facts.weights.values() if weights.dtype.itemsize > 1)
    return [QuantParam(name, None, 16) for name in wide]


def moved_ranges(analysis: Analysis, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return ranges for tensors that have none but whose values are only moved or averaged from tensors with a range.

    The files of the SDK omit such tensors: the output of a Transpose or Reshape, also in front of a fully connected
    operator.
    """
    known, moved = dict(ranges), dict[str, Range]()
    for op in analysis.operators:
        concatenates = op.head.op_type == "Concat"
        alike = op.moves_values or concatenates or keeps_scale(analysis.graph, op.head)
        sources = op.inputs if concatenates else op.inputs[:1]
        if len(op.nodes) > 1 or not alike or not all(name in known for name in sources):
            continue
        # A tensor that the SDK requantises before moving it has a range of its own.
        taken = [known.get(REQUANTISED.format(name), known[name]) for name in sources]
        whole = Range.of(min(each.low for each in taken), max(each.high for each in taken))
        new = {name: whole for name in op.outputs if name not in known}
        known |= new
        moved |= new
    return moved


def measured_beside(imported: Imported, plan: QuantPlan, measured: Container[str]) -> list[str]:
    """Return the tensors of a plan that the file gives no range for, so that images had to supply one."""
    counted = {name for name, quant in plan.tensors.items() if quant.scale == 1}  # the indices that an ArgMax returns
    names = [name for op in plan.operators for node in op.nodes for name in (*node.input, *node.output)]
    return [n for n in dict.fromkeys(names) if n in measured and n not in imported.ranges and n not in counted]


def too_wide(given: Mapping[str, Range], seen: Mapping[str, Range]) -> dict[str, float]:
    """Return how many times wider than the observed values each range is, if more than WIDE_TIMES; widest first."""
    times = {name: _width(given[name]) / _width(seen[name]) for name in given if name in seen and _width(seen[name])}
    return {name: times[name] for name in sorted(times, key=lambda name: -times[name]) if times[name] > WIDE_TIMES}


def _width(bounds: Range) -> float:
    """Return the width of the range that the scale is computed from, which includes 0."""
    return max(bounds.high, 0.0) - min(bounds.low, 0.0)


def quant_params(model: Model) -> list[QuantParam]:
    """Return the range and bit width of each stored tensor and each convolution weight of a fixed model.

    Parameters
    ----------
    model : Model
        A fixed model: a fixed.sim, or a model that ``calibrate`` wrote.

    Returns
    -------
    list of QuantParam
        One entry per tensor, in the order of operators: inputs, weights, outputs. ``range`` holds float64 values, one
        per tensor or one per output channel. The values are the calibration ranges of the model. If the model does not
        store calibration ranges, they are computed from its scales. ``bit`` is 8 or 16.

    Raises
    ------
    ModelError
        If ``model`` is a float model.
    """
    facts = read_facts(model)
    if facts is None:
        raise ModelError(
            f"{model.path} is a float model without quant parameters. Pass fixed.sim or a model from calibrate"
        )
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


def _raised(analysis: Analysis, param: QuantParam, subject: str) -> list[str]:
    """Return the first inputs of convolutions that an entry raises to INT16."""
    if param.bit is not None and param.bit not in BITS:
        raise ConfigError(f"{subject} is set to bit = {param.bit}; use 8 or 16")
    inputs = [
        name
        for name, nodes in analysis.first_inputs.items()
        if name == param.name or any(param.name in (node.input[1], *of_groups(GROUP_WEIGHTS, node)) for node in nodes)
    ]
    domain = analysis.domain
    if param.bit == 8:
        stored = param.name in analysis.stored
        if stored and domain[param.name] not in {domain[name] for name in (*analysis.first_inputs, *analysis.pictures)}:
            raise ConfigError(
                f"{subject} is set to bit = 8, but no convolution reads this tensor, so the tensor is "
                "always INT16. Write bit = 16"
            )
        return []
    if param.bit == 16 and analysis.pictures.intersection((param.name, *inputs)):
        raise ConfigError(
            f"{subject} is set to bit = 16, but an image input and the weights of the convolution "
            "that reads the image input always have 8 bits"
        )
    return inputs if param.bit == 16 else []


def _channels(graph: Graph, analysis: Analysis) -> dict[str, int]:
    """Return the channels per tensor of known shape: axis 1, or the output channels of convolution weights."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(graph.proto).graph
    except Exception:  # a model over 2 GB, or an operator it does not know: fewer tensors can be checked
        inferred = graph.proto.graph
    channels: dict[str, int] = {}
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        dims = info.type.tensor_type.shape.dim
        if len(dims) >= 2 and dims[1].HasField("dim_value"):
            channels[info.name] = dims[1].dim_value
    for name, tensor in {**graph.constants, **analysis.graph.constants}.items():
        channels[name] = int(np.prod(tensor.dims))
    for nodes in analysis.first_inputs.values():
        for node in nodes:
            channels[node.input[1]] = analysis.graph.constants[node.input[1]].dims[output_axis(analysis.graph, node)]
    return channels


def _check_channels(param: QuantParam, channels: Mapping[str, int], subject: str) -> None:
    assert param.range is not None
    count = param.range.min.size
    if count > 1 and channels.get(param.name, count) != count:
        raise ConfigError(
            f"{subject} has {count} values of min and max, but the tensor has {channels[param.name]} channels"
        )


def _with_data(model: Model, params: Sequence[QuantParam], fuse: bool, where: str) -> Model:
    """Return the model with the weights of the file and, if there are any, BatchNormalization folded in."""
    new_weights = {param.name: param.data for param in params if param.data is not None}
    if not new_weights:
        return model
    from onnx import ModelProto, numpy_helper

    proto = ModelProto()
    proto.CopyFrom(deployed(model))
    graph = Graph(proto)
    weights = {node.input[1] for nodes in analyse(proto, None, fuse).first_inputs.values() for node in nodes}
    for name, data in new_weights.items():
        if name not in graph.constants:
            continue
        tensor = graph.constants[name]
        subject = f"{where}: {quoted(name)}"
        if name not in weights:
            raise ConfigError(f"{subject} has the key 'data', which is allowed only for the weight of a convolution")
        if data.shape != tuple(tensor.dims):
            raise ConfigError(
                f"{subject} has data of shape {list(data.shape)}, but this weight has shape "
                f"{list(tensor.dims)} in the model"
            )
        if not np.isfinite(data).all():
            raise ConfigError(f"{subject} has data with NaN or infinity; only finite weights are allowed")
        tensor.CopyFrom(numpy_helper.from_array(data.astype(graph.value(name).dtype), name))
    return replace(model, proto=proto)


def _param(
    name: str, dtype: np.dtype, scale: float | tuple[float, ...], zero_point: int, ranges: Mapping[str, Range]
) -> QuantParam:
    bit = 8 * dtype.itemsize
    if name in ranges:
        return QuantParam(name, Range(ranges[name].min, ranges[name].max, bit), bit)
    limits, steps = np.iinfo(dtype), np.atleast_1d(np.asarray(scale, np.float64))
    low, high = max(limits.min, -limits.max) - zero_point, limits.max - zero_point
    return QuantParam(name, Range(low * steps, high * steps, bit), bit)
