"""A picture's run through the float model, and what is seen of its tensors.

Pictures are of one shape, mostly: for that of the first the model's tensors get places, where those of one picture
after another are looked at. Where that cannot be, and for other shapes, the tensors come one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import numpy as np

from sgsdump.executors.onnx_runtime.placed_graph import PlacedGraph, PlacedRun, Unplaceable
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.onnx_runtime.session import REFUSALS
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.quantisation.ranges.followers import followed
from sgsdump.quantisation.ranges.observers import Collector, PlacedCollector, Seen
from sgsdump.quantisation.ranges.statistics import Wanted


class OnePicture:
    """The function from one (label, feed) to what is seen; it keeps the model's sessions for the next. Several threads
    may call it side by side.

    A feed has one thread, on any machine: how onnxruntime cuts a matrix for several decides the last bits.
    """

    def __init__(self, model: Model, wanted: Wanted):
        self._model, self._wanted = model, wanted
        graph = Graph(model.proto)
        self._looked_at = (set(graph.producer) - set(followed(graph))) | wanted.names
        self._runner = SegmentRunner(model, keep_sessions=True, threads=1)
        self._first, self._begun = Lock(), False
        self._graph: PlacedGraph | None = None
        # Those that no thread uses now.
        self._collectors: list[PlacedCollector] = []

    def __call__(self, labelled: tuple[str, Mapping[str, np.ndarray]]) -> Seen:
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

    def _at_their_places(self, graph: PlacedGraph, label: str, feed: Mapping[str, np.ndarray]) -> Seen:
        try:
            collector = self._collectors.pop()
        except IndexError:
            collector = PlacedCollector(PlacedRun(graph), self._wanted, self._looked_at)
        seen = collector.seen(label, feed)
        self._collectors.append(collector)
        return seen

    def _one_by_one(self, label: str, feed: Mapping[str, np.ndarray]) -> Seen:
        collector = Collector(self._wanted, label)
        for name, array in feed.items():
            collector.see(name, array)
        for layer in self._runner.run(feed, only=self._looked_at):
            collector.see(layer.name, layer.array)
        return collector.seen
