"""Run pictures through the float model once, and keep the statistics and the range of every tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sgsdump.errors import InputError
from sgsdump.executors.workers.task_pool import ALONE, Workers, run_tasks
from sgsdump.executors.workers.threads import in_threads
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.graph import Graph, captured
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress, each
from sgsdump.quantisation.float_model import deployed, serialise
from sgsdump.quantisation.fusion import is_convolution, operators
from sgsdump.quantisation.ranges.followers import with_followers
from sgsdump.quantisation.ranges.observers import Collector, Seen
from sgsdump.quantisation.ranges.one_picture import OnePicture
from sgsdump.quantisation.ranges.statistics import PLAIN, Statistics, Wanted
from sgsdump.tensors.kernels import cores
from sgsdump.tensors.types import Range

Feed = tuple[str, Mapping[str, np.ndarray]]


def measure_ranges(model: Model, feeds: Iterable[Feed], fuse: bool = True) -> dict[str, Range]:
    """Running min and max over all feeds (level L1); see ``gather`` and ``plain_ranges``."""
    return plain_ranges(model, gather(model, feeds), Graph(deployed(model, fuse)))


def gather(
    model: Model,
    feeds: Iterable[Feed],
    wanted: Wanted = PLAIN,
    workers: Workers = ALONE,
    progress: Progress = SILENT,
) -> Statistics:
    """One pass over all feeds of a simplified model: the statistics of its float tensors.

    feeds      (label, {input: array}) one at a time; memory does not grow with their number. For more than one
               process a sequence that can be sent there, e.g. ``PictureFeeds``.
    workers    the result is bit-identical with any of them. This process alone runs a picture on every core. Processes
               are sent file names, a cluster is sent the arrays, so that its machines need no files.
    progress   counts the feeds, and says when a worker was lost.
    Raises InputError when there is no feed, or when a tensor holds NaN or infinity (which have no range).
    """
    if workers.scheduler is not None:
        parts = run_tasks(_see_feed, (serialise(model.proto), model.path, wanted), feeds, workers, progress)
    elif workers.processes > 1 and isinstance(feeds, Sequence):
        shared = (serialise(model.proto), model.path, wanted, feeds)
        some = replace(workers, processes=min(workers.processes, len(feeds)))
        parts = run_tasks(_see_by_index, shared, range(len(feeds)), some, progress)
    else:
        parts = _in_threads(model, wanted, feeds)
    total = len(feeds) if isinstance(feeds, Sequence) else None
    seen: Seen | None = None
    for part in each(progress, parts, "calibrate", "picture", total):
        seen = part if seen is None else seen.merged(part)
    if seen is None:
        raise InputError("there is no picture to calibrate with")
    statistics = seen.statistics
    return replace(statistics, whole=with_followers(Graph(model.proto), statistics.whole))


def plain_ranges(model: Model, statistics: Statistics, own: Graph | None = None) -> dict[str, Range]:
    """Min and max of every float tensor, in graph order, and of the constants as the fixed model stores them: of the
    deployed model, which is ``own`` where it is at hand. A constant that holds infinity, as masks and limits do, has no
    range; the weights of a convolution must have one."""
    own = own or Graph(deployed(model))
    constants = Collector(PLAIN, "the model's own weights")
    weights = {node.input[1] for node in own.nodes if is_convolution(own, node)}
    for name in own.constants:
        values = own.value(name)
        if name in weights or values.dtype.kind != "f" or not np.isinf(values).any():
            constants.see(name, values)
    extremes = {**statistics.whole, **constants.seen.ends.whole}
    order = dict.fromkeys([*_graph_order(Graph(model.proto)), *own.constants])
    return {name: Range.of(extremes[name].low, extremes[name].high) for name in order if name in extremes}


def _in_threads(model: Model, wanted: Wanted, feeds: Iterable[Feed]) -> Iterator[Seen]:
    """A picture on every core; what the user's own preprocess file makes is made by one thread at a time, in order."""
    threads = min(cores(), max(1, len(feeds))) if isinstance(feeds, Sequence) else cores()
    see = OnePicture(model, wanted)
    if isinstance(feeds, PictureFeeds) and feeds.preprocess is None:
        return in_threads(lambda index: see(feeds[index]), range(len(feeds)), threads)
    return in_threads(see, feeds, threads)


def _see_feed(data: bytes, path: Path, wanted: Wanted) -> Callable[[Feed], Seen]:
    from onnx import ModelProto

    return OnePicture(Model(ModelProto.FromString(data), path), wanted)


def _see_by_index(data: bytes, path: Path, wanted: Wanted, feeds: Sequence[Feed]) -> Callable[[int], Seen]:
    see = _see_feed(data, path, wanted)
    return lambda index: see(feeds[index])


def _graph_order(graph: Graph) -> list[str]:
    """Every tensor once: per operator its inputs, its constants, what its bodies read, its outputs; the SDK's order of
    tensor_min_max."""
    names: dict[str, None] = {}
    for operator in operators(graph, fuse=None):
        names.update(dict.fromkeys(name for name in (*operator.head.input, *captured(operator.head)) if name))
        names.update(dict.fromkeys(operator.outputs))
    return list(names)
