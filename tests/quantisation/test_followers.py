"""What follows from other tensors' extremes is what looking at the values gives."""

import numpy as np
from small_nets import conv, model, node, weights

from sgsdump.executors.onnx_runtime.placed_graph import PlacedGraph
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.graph import Graph
from sgsdump.quantisation.ranges.followers import followed
from sgsdump.quantisation.ranges.measured_ranges import gather
from sgsdump.quantisation.ranges.statistics import Wanted


def chain():
    """Two convolutions, one all negative, and all that follows from them; ``late`` is of a constant."""
    constants = {**weights("c", (4, 3, 1, 1)), **weights("d", (4, 3, 1, 1), 1), "k": np.full((4, 1), -2, np.float32)}
    constants["d.b"] -= 100
    nodes = [
        conv("c", "data"),
        conv("d", "data"),
        node("Relu", ["c"], "r"),
        node("Relu", ["d"], "none"),
        node("Transpose", ["d"], "turned", perm=[0, 2, 3, 1]),
        node("Relu", ["turned"], "turned.r"),
        node("Flatten", ["r"], "flat"),
        node("Identity", ["k"], "late"),
        node("Sigmoid", ["r"], "s"),
        node("Shape", ["r"], "shape"),
        node("Identity", ["shape"], "sizes"),
    ]
    outputs = ["none", "turned.r", "flat", "late", "s", "sizes"]
    return model(nodes, constants, {"data": (1, 3, 4, 5)}, outputs)


FEEDS = [
    (str(seed), {"data": np.random.default_rng(seed).normal(0, seed + 1, (1, 3, 4, 5)).astype(np.float32)})
    for seed in range(3)
]


def test_extremes_are_those_of_the_values_over_all_pictures():
    net = chain()
    arrays: dict[str, list] = {}
    for _, feed in FEEDS:
        for layer in SegmentRunner(net).run(feed):
            arrays.setdefault(layer.name, []).append(layer.array)
        arrays.setdefault("data", []).append(feed["data"])
    values = {name: np.stack(each) for name, each in arrays.items() if each[0].dtype == np.float32}
    found = gather(net, FEEDS).whole
    assert {name: (low, high) for name, (low, high) in found.items()} == {
        name: (each.min(), each.max()) for name, each in values.items()
    }
    assert found["none"] == (0, 0)


def test_what_follows_is_not_looked_at_unless_more_is_wanted_of_it(monkeypatch):
    net, asked = chain(), []
    make, run = PlacedGraph.__init__, SegmentRunner.run
    monkeypatch.setattr(PlacedGraph, "__init__", lambda *given: asked.append(given[3]) or make(*given))
    monkeypatch.setattr(SegmentRunner, "run", lambda self, feed, only: asked.append(only) or run(self, feed, only))
    larger = {"data": np.zeros((2, 3, 4, 5), np.float32)}  # not the first one's shape, so run in the other way
    net.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    kept = gather(net, [*FEEDS[:1], ("larger", larger)], Wanted(moments={"r": 1}))
    assert asked == [{"c", "d", "late", "s", "shape", "r"}] * 2 and kept.moments["r"].count == 3 * 20
    following = followed(Graph(net.proto))
    assert list(following) == ["r", "none", "turned", "turned.r", "flat", "sizes"] and following["flat"] == "r"
