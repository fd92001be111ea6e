"""Run pictures through the float model once, for each tensor's statistics and range; also on workers' machines.

One picture's statistics are merged in the pictures' order wherever they were computed, so one process and many give
the same bits. Pictures are mostly of one shape: for that of the first the model's tensors get buffers of their own,
which are looked at picture after picture. Where that cannot be, and for other shapes, the tensors come one by one.

The ends of some tensors follow from another's, exactly, so their values need not be read: what only moves values keeps
both ends; a Relu takes what lies below 0 to 0. A third of most networks' tensors is such.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
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

# Tensors wait until so much of them is there, and are looked at together: they still lie in the processor's cache.
WAITING_BYTES = 4 << 20
# Of all tensors of the pictures that go through a model together whose weights are outside.
STEP_BYTES = 256 << 20
Feed = tuple[str, Mapping[str, np.ndarray]]


def measure_ranges(model: Model, feeds: Iterable[Feed], fuse: bool = True) -> dict[str, Range]:
    """Running min and max over all feeds (level L1); see ``gather`` and ``plain_ranges``."""
    graph = Graph(deployed(model))
    return plain_ranges(model, gather(model, feeds, of_masks(graph)), graph)


def of_masks(graph: Graph) -> Selection:
    """What has to be seen of a model's masks, beside the ends of its tensors."""
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
    """One pass over all feeds of a simplified model: the statistics of its float tensors.

    feeds      (label, {input: array}) one at a time; memory does not grow with their number. For more than one
               process a sequence that can be sent there: ``Feeds``.
    workers    the result is bit-identical with any of them. This process alone runs a picture on every core. Processes
               are sent file names, a cluster is sent the arrays, so that its machines need no files.
    progress   counts the feeds, and says when a worker was lost.
    kept       the numbers of those whose ``runs`` are kept.
    Raises InputError when there is no feed, or when a tensor holds NaN or infinity (which have no range), but for those
               that ``selection`` allows them.
    """
    if workers.scheduler is not None:
        parts = run_tasks(_see_feed, (serialise(model.proto), model.path, selection), feeds, workers, progress)
    elif workers.processes > 1 and isinstance(feeds, Sequence):
        shared = (serialise(model.proto), model.path, selection, feeds)
        some = replace(workers, processes=min(workers.processes, len(feeds)))
        parts = run_tasks(_see_by_index, shared, range(len(feeds)), some, progress)
    else:
        parts = _in_threads(model, selection, feeds)
    total = len(feeds) if isinstance(feeds, Sequence) else None
    observation: Observation | None = None
    runs = []
    for index, part in enumerate(each(progress, parts, "calibrate", "picture", total)):
        if index in kept and part.run is not None:
            runs.append(part.run)
        observation = part if observation is None else observation.merged(part)
    release_unused()
    if observation is None:
        raise InputError("there is no picture to calibrate with")
    statistics = observation.statistics
    whole = with_followers(Graph(model.proto), statistics.whole)
    # NaN that is taken out again is of rows that are masked wholly; the others' are shares of 1.
    whole |= {name: Extremes(0.0, 1.0) for name in selection.guarded if name in whole and np.isnan(whole[name].low)}
    return replace(statistics, whole=whole, runs=tuple(runs))


def plain_ranges(model: Model, statistics: Statistics, deployed_graph: Graph | None = None) -> dict[str, Range]:
    """Min and max of every float tensor, in graph order and in six decimals, and of the constants as the fixed model
    stores them, those of the deployed model (``deployed_graph`` where it is at hand). Where a mask carries values far
    below what counts, the ranges are cut (``masks``). A constant that holds infinity and is no mask has no range; the
    weights of a convolution must have one."""
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
    """Each such tensor and what it is made of, in execution order; none that is made of a constant."""
    return {
        node.output[0]: node.input[0]
        for node in graph.nodes
        if node.op_type in {"Relu", *REARRANGING}
        and node.domain in ("", "ai.onnx")
        and node.input[0] not in graph.constants
    }


def with_followers(graph: Graph, extremes: Mapping[str, Extremes]) -> dict[str, Extremes]:
    """The extremes, and those that follow from them."""
    complete = dict(extremes)
    for name, source in followed(graph).items():
        if source in complete:
            low, high = complete[source]
            rectified = graph.producer[name].op_type == "Relu"
            complete[name] = Extremes(max(low, 0.0), max(high, 0.0)) if rectified else Extremes(low, high)
    return complete


class OnePicture:
    """The function from one (label, feed) to what is seen; it keeps the model's sessions for the next. Several threads
    may call it side by side.

    A feed has one thread, on any machine: how onnxruntime cuts a matrix for several decides the last bits.
    """

    def __init__(self, model: Model, selection: Selection):
        self._model, self._wanted = model, selection
        graph = Graph(model.proto)
        self._followers = set(followed(graph)) - set(selection.channels)
        self._looked_at = (set(graph.producer) - self._followers) | selection.closer
        # Weights that are outside are not kept: feeds go through the model together, a segment after the other.
        outside = has_weights_outside(model.proto)
        rules = {} if outside else rules_of(graph)
        self._runner: Runner = (
            SimulatorRunner(model, rules)
            if rules
            else SegmentRunner(model, keep_sessions=not outside, threads=1, keep_last=outside)
        )
        self._first, self._begun = Lock(), outside or bool(rules)
        self._graph: PlacedGraph | None = None
        # Those that no thread uses now.
        self._collectors: list[PlacedCollector] = []

    def __call__(self, labelled: tuple[str, Mapping[str, np.ndarray]]) -> Observation:
        """Raises InputError for a feed that does not fit, and for NaN or infinity; ModelError for a node that fails."""
        label, feed = labelled
        graph = self._placed(feed)
        if graph is not None and graph.takes(feed):
            try:
                return self._at_their_places(graph, label, feed)
            except REFUSALS:  # which the other way may not meet, or names the node for
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
        """Several feeds in step, from layer to layer. Raises as a call for one of them."""
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
    """Of one picture or several; the fields are those of ``Statistics``, extremes by rows. ``run``: of one picture."""

    ends: RowExtremes
    histograms: dict[str, ValueHistogram]
    below: dict[str, Extremes]
    tops: dict[str, Extremes]
    run: FloatRun | None = None

    def merged(self, other: Observation) -> Observation:
        """Both together. Raises InputError for a tensor whose number of channels changes with the picture."""
        return Observation(
            self.ends.merged(other.ends),
            _both(self.histograms, other.histograms),
            _both(self.below, other.below),
            _both(self.tops, other.tops),
        )

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.ends.whole, self.histograms, self.ends.channels, self.below, self.tops)


class Collector:
    """Observes one picture's tensors one by one and keeps their statistics; ``followers``: without their ends, which
    follow from others'."""

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
        """Of all tensors seen so far. Raises as ``see``."""
        self._look()
        return self._closer.seen(self._ends)

    def see(self, name: str, array: np.ndarray) -> None:
        """Raises InputError when this tensor, or one before, holds NaN or infinity, which have no range."""
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
    """Observes the tensors of one run after another, which lie where they lay before; ``followers``: see
    ``Collector``."""

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
        """Of one feed's tensors. Raises as ``Collector``, and what ``PlacedRun.steps`` raises."""
        closer = _Closer(self._wanted, feed)
        for step in self._run.steps(feed):
            self._watch.look(step)
            for name, array in self._closer_at[step]:
                closer.look(name, array)
        ends = RowExtremes(self._rows, *self._watch.ends())
        _check(ends, self._wanted, label)
        return closer.seen(ends)


class _Closer:
    """Looks at more than the extremes."""

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
        """A Softmax's input. Rows that are masked wholly do not count; nor does, in what lies below, a mask."""
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
        run = FloatRun(self._feed, self._outputs)
        return Observation(ends, self._histograms, self._below, self._tops, run)


def _is_looked_at(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.size > 0


def _table(selection: Selection, name: str, array: np.ndarray) -> np.ndarray:
    """A view of the array: one row; where channels matter rows of one channel each, in order and again and again."""
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
            f"the Softmax {name!r} holds NaN on {label}: a row of its input is -infinity wholly, where a mask leaves "
            f"nothing; leave such inputs out, or mask with a large negative number"
        )
    raise InputError(
        f"tensor {name!r} holds NaN or infinity on {label}, so it has no range; dump the float model on this input and "
        f"look for the first layer with NaN or Inf"
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
            raise InputError(f"tensor {name!r} has another number of channels on another picture: {error}") from error
    return result


def _by_channel(array: np.ndarray, axis: int) -> np.ndarray:
    """[C, values of each]; of the last axis a view, if the array lies in one piece."""
    if axis in (-1, array.ndim - 1):
        return array.reshape(-1, array.shape[axis]).T
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _in_threads(model: Model, selection: Selection, feeds: Iterable[Feed]) -> Iterator[Observation]:
    """A picture on every core; what the user's own preprocess file makes is made by one thread at a time, in order."""
    threads = min(cores(), max(1, len(feeds))) if isinstance(feeds, Sequence) else cores()
    see = OnePicture(model, selection)
    if has_weights_outside(model.proto):
        return _in_step(model, see, iter(feeds))
    if isinstance(feeds, Feeds) and feeds.by_threads:
        return in_threads(lambda index: see(feeds[index]), range(len(feeds)), threads)
    return in_threads(see, feeds, threads)


def _in_step(model: Model, see: OnePicture, feeds: Iterator[Feed]) -> Iterator[Observation]:
    """So many feeds at a time that their tensors, all together, take at most STEP_BYTES."""
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


def _see_by_index(data: bytes, path: Path, selection: Selection, feeds: Sequence[Feed]) -> Callable[[int], Observation]:
    see = _see_feed(data, path, selection)
    return lambda index: see(feeds[index])


def _graph_order(graph: Graph) -> list[str]:
    """Every tensor once: per operator its inputs, its constants, what its bodies read, its outputs; the SDK's order of
    tensor_min_max."""
    names: dict[str, None] = {}
    for operator in operators(graph, fuse=None):
        names.update(dict.fromkeys(name for name in (*operator.head.input, *captured(operator.head)) if name))
        names.update(dict.fromkeys(operator.outputs))
    return list(names)
