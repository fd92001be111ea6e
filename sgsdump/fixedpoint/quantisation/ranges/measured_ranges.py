"""Measure ranges: run images through the float model once for statistics of every tensor, also on worker machines.

The statistics of single images are merged in image order wherever they were computed, so one process and many give the
same bits. On a cluster, a worker merges the statistics of the images of one task before it returns them, because
histograms are large. Most images have one shape. For the shape of the first image, the model's tensors get fixed
buffers, which are inspected image after image. If this is impossible, and for other shapes, tensors are delivered one
by one.

The ends of some tensors follow exactly from another tensor, so their values are not read. Moving operators keep both
ends; a Relu raises ends below 0 to 0. In most models this is a third of all tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice, repeat, zip_longest
from pathlib import Path
from threading import Lock

import numpy as np

from sgsdump.errors import InputError
from sgsdump.executors.onnx_runtime.repeated_graph import PlacedGraph, PlacedRun, Unplaceable
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.onnx_runtime.session import REFUSALS, release_unused
from sgsdump.executors.runner import Runner
from sgsdump.executors.workers.task_pool import ALONE, Workers, in_threads, run_tasks
from sgsdump.files.process import cores
from sgsdump.fixedpoint.quantisation.analysis import is_convolution, operators
from sgsdump.fixedpoint.quantisation.float_model import deployed, serialise
from sgsdump.fixedpoint.quantisation.ranges.masks import (
    BEYOND,
    EXP_IS_ZERO,
    MARGIN,
    MASKED,
    cut,
    guarded,
    masking,
    softmax_inputs,
)
from sgsdump.fixedpoint.quantisation.ranges.simulator_rules import rules_of
from sgsdump.fixedpoint.quantisation.ranges.simulator_run import SimulatorRunner
from sgsdump.fixedpoint.quantisation.ranges.statistics import (
    PLAIN,
    Extremes,
    FloatRun,
    RowExtremes,
    Rows,
    Selection,
    Statistics,
    ValueHistogram,
    as_printed,
    count_values,
)
from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.graph import REARRANGING, Graph, captured, has_weights_outside, infer_types, weight_names
from sgsdump.models.model import Model
from sgsdump.models.passes.segment import tensor_bytes
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.one_pass.compiled import RowWatch, extremes
from sgsdump.tensors.types import Range

# Tensors wait for this many bytes and are inspected together, while they are still in the processor's cache.
WAITING_BYTES = 4 << 20
# Memory for all tensors of the images that run together through a model with external weights.
STEP_BYTES = 256 << 20
# Largest number of images in a task on a cluster. The worker merges their statistics, which take megabytes per image.
TOGETHER = 8
# A task whose images have this many bytes gets no more images.
GROUP_BYTES = 2 << 20
# Least number of tasks, to keep many workers busy. Fewer than twice as many images are sent one by one.
FEWEST_TASKS = 64
Feed = tuple[str, Mapping[str, np.ndarray]]


def measure_ranges(model: Model, feeds: Iterable[Feed], fuse: bool = True) -> dict[str, Range]:
    """Return the minimum and maximum over all feeds (level L1); see ``gather`` and ``plain_ranges``."""
    graph = Graph(deployed(model))
    return plain_ranges(model, gather(model, feeds, of_masks(graph)), graph)


def of_masks(graph: Graph) -> Selection:
    """Return the statistics that a model's masks need, besides the ends of its tensors."""
    masks = masking(graph)
    masked = {node.output[0] for node in graph.nodes if node.op_type == "Softmax" and node.input[0] in masks}
    return Selection(softmax=softmax_inputs(graph), masks=masks, guarded=guarded(graph), masked=frozenset(masked))


def gather(
    model: Model,
    feeds: Iterable[Feed],
    selection: Selection = PLAIN,
    workers: Workers = ALONE,
    progress: Progress = SILENT,
    kept: Collection[int] = (),
) -> Statistics:
    """Return the statistics of a simplified model's float tensors, in one pass over all feeds.

    feeds      (label, {input: array}) one at a time; memory does not grow with their number. Several processes need a
               sequence that can be pickled: ``Feeds``.
    workers    they do not affect a single bit of the result. This process alone runs one image per core. Processes get
               file names; a cluster gets the arrays, so its machines need no files.
    progress   counts the feeds and reports a lost worker.
    kept       indices of the feeds whose ``runs`` are kept.

    Raises InputError if there is no feed, or if a tensor holds NaN or infinity (which have no range) that ``selection``
    does not allow.
    """
    total = len(feeds) if isinstance(feeds, Sequence) else None
    if workers.scheduler is not None:
        shared = (serialise(model.proto), model.path, selection)
        groups = _groups(feeds, kept, max(1, min(TOGETHER, (total or 1) // FEWEST_TASKS)))
        seen = _of_groups(run_tasks(_see_together, shared, groups, workers, progress))
    elif workers.processes > 1 and isinstance(feeds, Sequence):
        by_index = (serialise(model.proto), model.path, selection, feeds)
        some = replace(workers, processes=min(workers.processes, len(feeds)))
        seen = _with_runs(run_tasks(_see_by_index, by_index, range(len(feeds)), some, progress), kept)
    else:
        seen = _with_runs(_in_threads(model, selection, feeds), kept)
    observation: Observation | None = None
    for part in each(progress, seen, "calibrate", "image", total):
        if part is not None:
            observation = part if observation is None else observation.merged(part)
    release_unused()
    if observation is None:
        raise InputError("there is no image to calibrate with")
    statistics = observation.statistics
    whole = with_followers(Graph(model.proto), statistics.whole)
    # NaN that is removed later comes from fully masked rows; the values of other rows are shares of 1.
    whole |= {name: Extremes(0.0, 1.0) for name in selection.guarded if name in whole and np.isnan(whole[name].low)}
    return replace(statistics, whole=whole, runs=observation.runs)


def plain_ranges(model: Model, statistics: Statistics, deployed_graph: Graph | None = None) -> dict[str, Range]:
    """Return minimum and maximum of every float tensor, in graph order and six decimals.

    Constants of the deployed model are included as the fixed model stores them (``deployed_graph``, if the caller has
    it). Ranges are cut if a mask extends them far beyond their ends (``masks``). A constant that holds infinity and is
    not a mask has no range. Weights of a convolution must have one.
    """
    deployed_graph = deployed_graph or Graph(deployed(model))
    masks = masking(deployed_graph)
    constants = Collector(Selection(masks=masks), "the model's weights")
    weights = {node.input[1] for node in deployed_graph.nodes if is_convolution(deployed_graph, node)}
    for name in deployed_graph.constants:
        values = deployed_graph.value(name)
        if name in weights or values.dtype.kind != "f" or name in masks or not np.isinf(values).any():
            constants.see(name, values)
    extremes = {**statistics.whole, **constants.seen.ends.whole}
    order = dict.fromkeys([*_graph_order(Graph(model.proto)), *deployed_graph.constants])
    ranges = {name: Range.of(extremes[name].low, extremes[name].high) for name in order if name in extremes}
    return {name: as_printed(each) for name, each in cut(deployed_graph, ranges, statistics.tops).items()}


def followed(graph: Graph) -> dict[str, str]:
    """Return each tensor whose ends follow from another, with that tensor, in execution order; not from constants."""
    return {
        node.output[0]: node.input[0]
        for node in graph.nodes
        if node.op_type in {"Relu", *REARRANGING}
        and node.domain in ("", "ai.onnx")
        and node.input[0] not in graph.constants
    }


def with_followers(graph: Graph, extremes: Mapping[str, Extremes]) -> dict[str, Extremes]:
    """Return the extremes, with those that follow from them."""
    complete = dict(extremes)
    for name, source in followed(graph).items():
        if source in complete:
            low, high = complete[source]
            rectified = graph.producer[name].op_type == "Relu"
            complete[name] = Extremes(max(low, 0.0), max(high, 0.0)) if rectified else Extremes(low, high)
    return complete


class OnePicture:
    """A function from one (label, feed) to its observation; keeps the model's sessions. Several threads may call it.

    A feed has one thread, on any machine, because the way onnxruntime splits a matrix among threads changes the last
    bits.
    """

    def __init__(self, model: Model, selection: Selection):
        self._model, self._wanted = model, selection
        graph = Graph(model.proto)
        self._followers = set(followed(graph)) - set(selection.channels)
        self._looked_at = (set(graph.producer) - self._followers) | selection.closer
        # External weights are not kept: feeds go through the model together, segment by segment.
        outside = has_weights_outside(model.proto)
        rules = {} if outside else rules_of(graph)
        self._runner: Runner = (
            SimulatorRunner(model, rules)
            if rules
            else SegmentRunner(model, keep_sessions=not outside, threads=1, keep_last=outside)
        )
        self._first, self._begun = Lock(), outside or bool(rules)
        self._graph: PlacedGraph | None = None
        # Collectors that no thread uses at the moment.
        self._collectors: list[PlacedCollector] = []

    def __call__(self, labelled: tuple[str, Mapping[str, np.ndarray]]) -> Observation:
        """Return the observation of a feed.

        Raises InputError for a feed that does not fit, and for NaN or infinity; ModelError for a node that fails.
        """
        label, feed = labelled
        graph = self._placed(feed)
        if graph is not None and graph.takes(feed):
            try:
                return self._at_their_places(graph, label, feed)
            except REFUSALS:  # the other way may avoid the error, or name the failing node
                self._graph = None
        return self._one_by_one(label, feed)

    def _placed(self, feed: Mapping[str, np.ndarray]) -> PlacedGraph | None:
        with self._first:
            if not self._begun:
                self._begun = True
                try:
                    self._graph = PlacedGraph(self._model, feed, self._looked_at)
                except (Unplaceable, *REFUSALS):
                    pass
            return self._graph

    def _at_their_places(self, graph: PlacedGraph, label: str, feed: Mapping[str, np.ndarray]) -> Observation:
        try:
            collector = self._collectors.pop()
        except IndexError:
            collector = PlacedCollector(PlacedRun(graph), self._wanted, self._followers)
        observation = collector.seen(label, feed)
        self._collectors.append(collector)
        return observation

    def _one_by_one(self, label: str, feed: Mapping[str, np.ndarray]) -> Observation:
        return self.together([(label, feed)])[0]

    def together(self, feeds: Sequence[Feed]) -> list[Observation]:
        """Return the observations of several feeds that run in step, layer by layer.

        Raises what a single call raises.
        """
        collectors = [Collector(self._wanted, label, self._followers, feed) for label, feed in feeds]
        for collector, (_, feed) in zip(collectors, feeds):
            for name, array in feed.items():
                collector.see(name, array)
        for layers in zip_longest(*(self._runner.run(feed, only=self._looked_at) for _, feed in feeds)):
            for collector, layer in zip(collectors, layers):
                if layer is not None:
                    collector.see(layer.name, layer.array)
        return [collector.seen for collector in collectors]


@dataclass(frozen=True, eq=False)
class Observation:
    """The statistics of one or several images: fields as in ``Statistics``, extremes by rows."""

    ends: RowExtremes
    histograms: dict[str, ValueHistogram]
    below: dict[str, Extremes]
    tops: dict[str, Extremes]
    runs: tuple[FloatRun, ...] = ()

    def merged(self, other: Observation) -> Observation:
        """Return both together. Raises InputError if a tensor's number of channels changes between images."""
        return Observation(
            self.ends.merged(other.ends),
            _both(self.histograms, other.histograms),
            _both(self.below, other.below),
            _both(self.tops, other.tops),
            self.runs + other.runs,
        )

    def with_runs(self, kept: bool) -> Observation:
        """Return the observation with its runs if they are kept, else without them."""
        return self if kept else replace(self, runs=())

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.ends.whole, self.histograms, self.ends.channels, self.below, self.tops)


class Collector:
    """Collects the statistics of one image's tensors, which arrive one by one.

    followers  tensors whose ends follow from others, so that they are not measured.
    """

    def __init__(
        self,
        selection: Selection,
        label: str,
        followers: Collection[str] = (),
        feed: Mapping[str, np.ndarray] = {},
    ):
        self._wanted, self._label, self._followers = selection, label, followers
        self._closer = _Closer(selection, feed)
        self._ends = RowExtremes((), np.empty(0), np.empty(0))
        self._waiting: list[tuple[str, np.ndarray]] = []
        self._bytes = 0

    @property
    def seen(self) -> Observation:
        """The observation of all tensors so far. Raises what ``see`` raises."""
        self._look()
        return self._closer.seen(self._ends)

    def see(self, name: str, array: np.ndarray) -> None:
        """Take a tensor. Raises InputError if it or an earlier tensor holds NaN or infinity, which have no range."""
        if not _is_looked_at(array):
            self._closer.look(name, array)
            return
        self._waiting.append((name, array))
        self._bytes += array.nbytes
        if self._bytes >= WAITING_BYTES:
            self._look()

    def _look(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        bounded = [each for each in waiting if each[0] not in self._followers]
        tables = [_table(self._wanted, name, array) for name, array in bounded]
        rows = tuple(_rows(self._wanted, *each, table) for each, table in zip(bounded, tables))
        ends = RowExtremes(rows, *extremes(tables))
        _check(ends, self._wanted, self._label)
        self._ends = self._ends.followed_by(ends)
        for name, array in waiting:
            self._closer.look(name, array)


class PlacedCollector:
    """Collects statistics from successive runs whose tensors stay in place; ``followers``: see ``Collector``."""

    def __init__(self, run: PlacedRun, selection: Selection, followers: Collection[str]):
        self._run, self._wanted = run, selection
        steps = [
            {n: array for n, array in arrays.items() if n not in followers and _is_looked_at(array)}
            for arrays in run.made
        ]
        tables = [[_table(selection, name, array) for name, array in arrays.items()] for arrays in steps]
        self._watch = RowWatch(tables)
        self._rows = tuple(
            _rows(selection, name, array, table)
            for arrays, group in zip(steps, tables)
            for (name, array), table in zip(arrays.items(), group)
        )
        closer = selection.closer
        self._closer_at = [[(n, array) for n, array in arrays.items() if n in closer] for arrays in run.made]

    def seen(self, label: str, feed: Mapping[str, np.ndarray]) -> Observation:
        """Return the observation of one feed. Raises what ``Collector`` and ``PlacedRun.steps`` raise."""
        closer = _Closer(self._wanted, feed)
        for step in self._run.steps(feed):
            self._watch.look(step)
            for name, array in self._closer_at[step]:
                closer.look(name, array)
        ends = RowExtremes(self._rows, *self._watch.ends())
        _check(ends, self._wanted, label)
        return closer.seen(ends)


class _Closer:
    """Collects statistics beyond the extremes."""

    def __init__(self, selection: Selection, feed: Mapping[str, np.ndarray]):
        self._wanted = selection
        self._feed = feed if selection.outputs else {}
        self._outputs: dict[str, np.ndarray] = {}
        self._histograms: dict[str, ValueHistogram] = {}
        self._below: dict[str, Extremes] = {}
        self._tops: dict[str, Extremes] = {}

    def look(self, name: str, array: np.ndarray) -> None:
        selection = self._wanted
        if name in selection.outputs:
            self._outputs[name] = array.copy()
        if not _is_looked_at(array):
            return
        if name in selection.histograms:
            self._histograms[name] = count_values(array)
        if name in selection.softmax:
            self._look_at_rows(name, array, selection.softmax[name])

    def _look_at_rows(self, name: str, array: np.ndarray, axis: int) -> None:
        """Inspect a Softmax's input.

        Fully masked rows are ignored, and so is a mask in the distance below the maximum.
        """
        tops = array.max(axis=axis, keepdims=True)
        with np.errstate(invalid="ignore"):
            kept = (tops >= max(tops.max(), 0) - MASKED) & np.isfinite(tops)
            below = (array - tops)[np.broadcast_to(kept, array.shape)]
        if not below.size:
            return
        low = float(below.min())
        self._below[name] = Extremes(low if low >= -EXP_IS_ZERO - BEYOND else -EXP_IS_ZERO - MARGIN, float(below.max()))
        self._tops[name] = Extremes(float(tops[kept].min()), float(tops[kept].max()))

    def seen(self, ends: RowExtremes) -> Observation:
        runs = (FloatRun(self._feed, self._outputs),)
        return Observation(ends, self._histograms, self._below, self._tops, runs)


def _is_looked_at(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.size > 0


def _table(selection: Selection, name: str, array: np.ndarray) -> np.ndarray:
    """Return a view of the array: one row, or if channels matter, rows of one channel each in repeating order."""
    axis = selection.channels.get(name)
    if axis is None:
        return array.reshape(1, -1)
    if axis == 1:
        return array.reshape(array.shape[0] * array.shape[1], -1)
    return _by_channel(array, axis)


def _rows(selection: Selection, name: str, array: np.ndarray, table: np.ndarray) -> Rows:
    axis = selection.channels.get(name)
    return Rows(name, len(table), 0 if axis is None else array.shape[axis])


def _check(ends: RowExtremes, selection: Selection, label: str) -> None:
    odd = ~(np.isfinite(ends.low) & np.isfinite(ends.high))
    for row in np.flatnonzero(odd):
        name = ends.tensor_at(int(row))
        if np.isnan(ends.low[row]):
            odd[row] = name not in selection.guarded
        elif name in selection.masks:
            low, high = selection.masks[name]
            odd[row] = (ends.low[row] == -np.inf == low) or (ends.high[row] == np.inf == high)
    if not odd.any():
        return
    first = int(odd.argmax())
    name = ends.tensor_at(first)
    if name in selection.masked and np.isnan(ends.low[first]):
        raise InputError(
            f"Softmax {name!r} holds NaN on {label}, because a whole row of its input is -infinity "
            "after masking. Remove the inputs in which a whole row is masked, or mask with a large "
            "negative number"
        )
    raise InputError(
        f"tensor {name!r} holds NaN or infinity on {label}, so this tensor has no calibration range. "
        "Dump the float model on this input and find the first layer with NaN or Inf"
    )


def _both(first: dict, other: dict) -> dict:
    result = dict(first)
    for name, statistics in other.items():
        if name not in result:
            result[name] = statistics
            continue
        try:
            result[name] = result[name].merged(statistics)
        except ValueError as error:
            raise InputError(f"the number of channels of tensor {name!r} differs between images: {error}") from error
    return result


def _by_channel(array: np.ndarray, axis: int) -> np.ndarray:
    """Return an array [C, values of each channel]; a view for the last axis of a contiguous array."""
    if axis in (-1, array.ndim - 1):
        return array.reshape(-1, array.shape[axis]).T
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _in_threads(model: Model, selection: Selection, feeds: Iterable[Feed]) -> Iterator[Observation]:
    """Run one image per core; the user's preprocess file is called by one thread at a time, in order."""
    threads = min(cores(), max(1, len(feeds))) if isinstance(feeds, Sequence) else cores()
    see = OnePicture(model, selection)
    if has_weights_outside(model.proto):
        return _in_step(model, see, iter(feeds))
    if isinstance(feeds, Feeds) and feeds.by_threads:
        return in_threads(lambda index: see(feeds[index]), range(len(feeds)), threads)
    return in_threads(see, feeds, threads)


def _in_step(model: Model, see: OnePicture, feeds: Iterator[Feed]) -> Iterator[Observation]:
    """Run as many feeds at a time as keep the sum of all their tensors within STEP_BYTES."""
    first = next(feeds, None)
    if first is None:
        return
    types = infer_types(model.proto, {name: array.shape for name, array in first[1].items()})
    weights = weight_names(model.proto.graph)
    size = sum(size for name, size in tensor_bytes(types).items() if name not in weights)
    count = max(1, STEP_BYTES // max(1, size))
    waiting = [first, *islice(feeds, count - 1)]
    while waiting:
        yield from see.together(waiting)
        waiting = list(islice(feeds, count))


def _see_feed(data: bytes, path: Path, selection: Selection) -> Callable[[Feed], Observation]:
    from onnx import ModelProto

    return OnePicture(Model(ModelProto.FromString(data), path), selection)


def _see_together(
    data: bytes, path: Path, selection: Selection
) -> Callable[[Sequence[tuple[Feed, bool]]], tuple[Observation, int]]:
    """Return a function from several feeds to their merged observation and their number.

    Each feed comes with whether its run is kept.
    """
    see = _see_feed(data, path, selection)

    def together(feeds: Sequence[tuple[Feed, bool]]) -> tuple[Observation, int]:
        return reduce(Observation.merged, (see(feed).with_runs(kept) for feed, kept in feeds)), len(feeds)

    return together


def _groups(feeds: Iterable[Feed], kept: Collection[int], most: int) -> Iterator[list[tuple[Feed, bool]]]:
    """Yield at most ``most`` neighbouring feeds of about GROUP_BYTES at a time, each with whether its run is kept."""
    group: list[tuple[Feed, bool]] = []
    size = 0
    for index, feed in enumerate(feeds):
        group.append((feed, index in kept))
        size += sum(array.nbytes for array in feed[1].values())
        if len(group) == most or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _of_groups(groups: Iterable[tuple[Observation, int]]) -> Iterator[Observation | None]:
    """Yield one item for each image: the observation of a group for its first, and None for the others."""
    for observation, count in groups:
        yield observation
        yield from repeat(None, count - 1)


def _with_runs(parts: Iterable[Observation], kept: Collection[int]) -> Iterator[Observation | None]:
    """Yield the observation of each image, with the run only if it is kept."""
    for index, part in enumerate(parts):
        yield part.with_runs(index in kept)


def _see_by_index(data: bytes, path: Path, selection: Selection, feeds: Sequence[Feed]) -> Callable[[int], Observation]:
    see = _see_feed(data, path, selection)
    return lambda index: see(feeds[index])


def _graph_order(graph: Graph) -> list[str]:
    """Return every tensor once, in the SDK's order of tensor_min_max.

    Per operator: its inputs, its constants, tensors that its bodies read, its outputs.
    """
    names: dict[str, None] = {}
    for operator in operators(graph, fuse=None):
        names.update(dict.fromkeys(name for name in (*operator.head.input, *captured(operator.head)) if name))
        names.update(dict.fromkeys(operator.outputs))
    return list(names)
