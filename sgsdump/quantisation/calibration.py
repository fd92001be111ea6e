"""Calibrate: run pictures through the float model, record every tensor's range; then make the fixed model from them.

model = simplify(open_model("float.onnx"))
ranges = measure_ranges(model, feeds)
fixed = make_fixed(model, ranges, config)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.runner import Runner
from sgsdump.executors.workers.task_pool import ALONE, Workers, run_tasks
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model, graph_inputs
from sgsdump.models.passes.fold_batchnorm import fold_batchnorm
from sgsdump.models.passes.fold_constants import fold_constants
from sgsdump.models.passes.topology import sorted_nodes
from sgsdump.progress import SILENT, Progress, each
from sgsdump.quantisation.fixed_model import Picture, fixed_facts, quantise
from sgsdump.quantisation.fusion import operators
from sgsdump.quantisation.observers import PLAIN, Collector, Statistics, Wanted
from sgsdump.quantisation.quant_plan import Choice, QuantPlan, plan
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.value_range import Range

if TYPE_CHECKING:
    from onnx import ModelProto

Feed = tuple[str, Mapping[str, np.ndarray]]


def simplify(model: Model) -> Model:
    """The model the simulators work on: nodes in an order they can run in, shape arithmetic folded away.

    Layer names stay as they are. Raises ModelError for a graph that cannot be sorted, and for a fixed model.
    """
    if fixed_facts(model.proto) is not None:
        raise ModelError(f"{model.path} is a fixed model made by calibrate; give the float model it was made from")
    ordered = type(model.proto)()
    ordered.CopyFrom(model.proto)
    if model.folder is not None:
        _load_external_data(ordered, model)
    del ordered.graph.node[:]
    ordered.graph.node.extend(sorted_nodes(model.proto.graph))
    return replace(model, proto=fold_constants(ordered), folder=None)


def deployed(model: Model, fuse: bool = True) -> ModelProto:
    """The float model as the hardware computes it: BatchNormalization folded, unless every layer stays visible."""
    return fold_batchnorm(model.proto) if fuse else model.proto


def measure_ranges(model: Model, feeds: Iterable[Feed], fuse: bool = True) -> dict[str, Range]:
    """Running min and max over all feeds (level L1); see ``gather`` and ``plain_ranges``."""
    return plain_ranges(model, gather(model, feeds), fuse)


def gather(
    model: Model,
    feeds: Iterable[Feed],
    wanted: Wanted = PLAIN,
    workers: Workers = ALONE,
    progress: Progress = SILENT,
) -> Statistics:
    """One pass over all feeds of a simplified model: the figures of its float tensors.

    feeds      (label, {input: array}) one at a time; memory does not grow with their number. For more than one
               process a sequence that can be sent there, e.g. ``PictureFeeds``.
    workers    give the same bits whoever they are. To processes the names of the files are sent, to a cluster the
               arrays, so that its machines need no file.
    progress   counts the feeds, and says when a worker was lost.
    Raises InputError when there is no feed, or when a tensor holds NaN or infinity (which have no range).
    """
    if workers.scheduler is not None:
        parts = run_tasks(_see_feed, (serialise(model.proto), model.path, wanted), feeds, workers, progress)
    elif workers.processes > 1 and isinstance(feeds, Sequence):
        given = (serialise(model.proto), model.path, wanted, feeds)
        some = replace(workers, processes=min(workers.processes, len(feeds)))
        parts = run_tasks(_see_by_index, given, range(len(feeds)), some, progress)
    else:
        parts = map(_seer(model, wanted), feeds)
    total = len(feeds) if isinstance(feeds, Sequence) else None
    found: Statistics | None = None
    for part in each(progress, parts, "calibrate", "picture", total):
        found = part if found is None else found.merged(part)
    if found is None:
        raise InputError("there is no picture to calibrate with")
    return found


def plain_ranges(model: Model, statistics: Statistics, fuse: bool = True) -> dict[str, Range]:
    """Min and max of every float tensor, in graph order, and of the constants as the fixed model stores them (with
    ``fuse`` after folding BatchNormalization)."""
    own = Graph(deployed(model, fuse))
    constants = Collector(PLAIN, "the model's own weights")
    for name in own.constants:
        constants.see(name, own.value(name))
    found = {**statistics.whole, **constants.statistics.whole}
    order = dict.fromkeys([*_graph_order(Graph(model.proto)), *own.constants])
    return {name: Range.of(float(found[name].low), float(found[name].high)) for name in order if name in found}


def _seer(model: Model, wanted: Wanted) -> Callable[[Feed], Statistics]:
    """The function from one feed to its figures; it keeps the model ready for the next."""
    runner: Runner = SegmentRunner(model, keep_sessions=True)

    def see(labelled: Feed) -> Statistics:
        label, feed = labelled
        collector = Collector(wanted, label)
        for name, array in feed.items():
            collector.see(name, array)
        for layer in runner.run(feed):
            collector.see(layer.name, layer.array)
        return collector.statistics

    return see


def _see_feed(data: bytes, path: Path, wanted: Wanted) -> Callable[[Feed], Statistics]:
    from onnx import ModelProto

    return _seer(Model(ModelProto.FromString(data), path), wanted)


def _see_by_index(data: bytes, path: Path, wanted: Wanted, feeds: Sequence[Feed]) -> Callable[[int], Statistics]:
    see = _see_feed(data, path, wanted)
    return lambda index: see(feeds[index])


@dataclass(frozen=True, eq=False)
class FixedModel:
    """``proto`` is QDQ ONNX; ``plan`` says what was decided for each tensor and convolution."""

    proto: ModelProto
    plan: QuantPlan


def make_fixed(
    model: Model,
    ranges: Mapping[str, Range],
    config: InputConfig | None = None,
    fuse: bool = True,
    per_channel: bool = False,
) -> FixedModel:
    """The fixed model of a simplified float model.

    config       input_config.ini: which inputs are pictures, which convolutions are INT16, which outputs stay integer.
    fuse         False with disableDomainFuseOps: every layer stays visible.
    per_channel  one weight scale per output channel (levels above L1).
    Raises ConfigError when the config or the ranges name nothing of this model.
    """
    config = config or InputConfig(())
    _check_names(model, config)
    proto = deployed(model, fuse)
    float_inputs = {entry.name for entry in config.inputs if not entry.quantised}
    ranges = {name: found for name, found in ranges.items() if name not in float_inputs}
    if not ranges.keys() & Graph(proto).producer.keys():
        raise ConfigError("the ranges name no layer of this model; were they calibrated on another one?")
    pictures = pictures_of(model, config, ranges)
    choice = Choice(config.conv_format or "ALL_UINT8", config.tensor_arrays, per_channel)
    decided = plan(proto, ranges, choice, pictures, fuse)
    integer = frozenset(o.name for o in config.outputs if not o.dequantised)
    notes = {"inputs": [asdict(entry) for entry in config.inputs], "ranges": _used(decided, ranges, Graph(proto))}
    return FixedModel(quantise(proto, decided, pictures, integer, notes), decided)


def _used(decided: QuantPlan, ranges: Mapping[str, Range], graph: Graph) -> dict[str, tuple[list, list]]:
    """(min, max) lists of what the plan was made from, for those who want to make it again."""
    weights = {graph.producer[name].input[1]: quant for name, quant in decided.weights.items()}
    quants = {**weights, **decided.tensors}
    found = {name: ranges[name].at(quant.dtype) for name, quant in quants.items() if name in ranges and quant.dtype}
    return {name: (used.min.tolist(), used.max.tolist()) for name, used in found.items()}


def serialise(proto: ModelProto) -> bytes:
    """The model as a file's bytes. Raises ModelError for one that does not fit into a file (2 GB)."""
    try:
        return proto.SerializeToString()
    except Exception as error:
        raise ModelError(f"the model does not fit into one ONNX file of 2 GB: {error}") from error


def _load_external_data(proto: ModelProto, model: Model) -> None:
    import onnx

    try:
        onnx.load_external_data_for_model(proto, str(model.folder))
    except Exception as error:
        raise ModelError(f"{model.path}: its external weights cannot be read: {str(error).splitlines()[0]}") from error


def _graph_order(graph: Graph) -> list[str]:
    """Every tensor once: per operator its inputs, its constants, its outputs; the SDK's order of tensor_min_max."""
    names: dict[str, None] = {}
    for operator in operators(graph, fuse=None):
        names.update(dict.fromkeys(name for name in operator.head.input if name))
        names.update(dict.fromkeys(operator.outputs))
    return list(names)


def _check_names(model: Model, config: InputConfig) -> None:
    graph = Graph(model.proto)
    for kind, given, known in (
        ("inputs", [e.name for e in config.inputs], graph.inputs),
        ("outputs", [e.name for e in config.outputs], graph.outputs),
    ):
        for name in given:
            if name not in known:
                raise ConfigError(f"input_config: {kind} names {name!r}, the model has {', '.join(known)}")


def pictures_of(model: Model, config: InputConfig, ranges: Mapping[str, Range]) -> dict[str, Picture]:
    """The picture inputs that are quantised, and how they were normalised. Raises ConfigError for a shape that is
    no picture's."""
    return {entry.name: _picture(model, entry) for entry in config.inputs if entry.is_picture and entry.name in ranges}


def _picture(model: Model, entry: ModelInput) -> Picture:
    """Mean and std in the order of the model's channels."""
    shape = next(i.shape for i in graph_inputs(model.proto) if i.name == entry.name)
    channels = 1 if entry.training_format == "GRAY" else 3
    if shape is None or len(shape) != 4 or shape[1] not in (None, channels):
        raise ConfigError(
            f"input_config: input {entry.name!r} is a {entry.training_format} picture, but the model's input has the "
            f"shape {list(shape or ())}, not [N, {channels}, H, W]; use RAWDATA_F32_NHWC"
        )
    order = slice(None, None, -1) if entry.training_format == "BGR" else slice(channels)
    return Picture(entry.mean[order], entry.std[order])
