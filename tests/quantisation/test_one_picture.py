"""What is seen of a picture is the same whether its tensors lie at places known beforehand or come one by one."""

from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, residual_net, weights

from sgsdump.errors import InputError
from sgsdump.executors.onnx_runtime import placed_graph
from sgsdump.executors.onnx_runtime.placed_graph import PlacedGraph, Unplaceable
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.quantisation.ranges.one_picture import OnePicture
from sgsdump.quantisation.ranges.row_ends import RowEnds, Rows
from sgsdump.quantisation.ranges.statistics import Wanted

EVERYTHING = Wanted(
    frozenset({"data", "r1", "c2", "add"}),
    {"data": 1, "r1": 1, "flat": -1},
    {"c1": 1, "c2": 1, "c3": 1, "fc": -1},
    {"fc": -1},
)


def pictures(count=4, batch=1):
    for seed in range(count):
        values = np.random.default_rng(seed).normal(0, seed + 1, (batch, 3, 8, 8))
        yield f"{seed}.png", {"data": values.astype(np.float32)}


def refuse(*_):
    raise Unplaceable("for the test")


def plain(seen):
    """Everything that is kept, down to bytes."""
    whole, histograms, moments, channels, below = vars(seen.statistics).values()
    return (
        whole,
        {name: (h.exponent, h.counts.tobytes(), h.zeros) for name, h in histograms.items()},
        {name: (m.sums.tobytes(), m.squares.tobytes(), m.count) for name, m in moments.items()},
        {name: (ends.low.tobytes(), ends.high.tobytes()) for name, ends in channels.items()},
        below,
    )


def in_all(see, feeds):
    first, *others = map(see, feeds)
    for seen in others:
        first = first.merged(seen)
    return first


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
@pytest.mark.parametrize("batch", [1, 3])
def test_both_ways_see_the_same(monkeypatch, segment_bytes, batch):
    net = residual_net()
    net.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    monkeypatch.setattr(placed_graph, "SEGMENT_BYTES", segment_bytes)
    one_by_one = SegmentRunner.run
    monkeypatch.setattr(SegmentRunner, "run", lambda *_, **__: pytest.fail("not one by one"))
    at_places = in_all(OnePicture(net, EVERYTHING), pictures(batch=batch))
    monkeypatch.setattr(SegmentRunner, "run", one_by_one)
    monkeypatch.setattr(PlacedGraph, "__init__", refuse)
    assert plain(at_places) == plain(in_all(OnePicture(net, EVERYTHING), pictures(batch=batch)))


def test_a_picture_of_another_shape_than_the_first_is_seen_too():
    net = residual_net()
    net.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    (_, one), (_, two) = pictures(2)
    together = OnePicture(net, EVERYTHING)(("both", {"data": np.concatenate([one["data"], two["data"]])}))
    see = OnePicture(net, EVERYTHING)
    apart = in_all(see, [("one", one), ("two", two)])
    mixed = apart.merged(see(("both", {"data": np.concatenate([one["data"], two["data"]])})))
    for name, ends in together.statistics.whole.items():
        # another batch may have other last bits
        np.testing.assert_allclose(ends, apart.statistics.whole[name], rtol=1e-5)
        np.testing.assert_allclose(ends, mixed.statistics.whole[name], rtol=1e-5)
    assert mixed.statistics.channels["c2"].low.shape == (8,)


def test_the_first_tensor_with_nan_is_named_with_its_picture():
    nodes = [conv("c", "data"), node("Sqrt", ["c"], "root"), node("Neg", ["root"], "last")]
    constants = weights("c", (4, 3, 1, 1))
    constants["c.b"] += 50
    net = model(nodes, constants, {"data": (1, 3, 8, 8)}, ["last"])
    (_, good), *_ = pictures(1)
    see = OnePicture(net, Wanted(channels={"c": 1}))
    see(("good.png", good))
    with pytest.raises(InputError, match=r"'root' holds NaN or infinity on bad\.png"):
        see(("bad.png", {"data": good["data"] * 1000}))
    assert see(("good.png", good)).statistics.whole["root"].low > 0


def test_a_graph_that_is_refused_at_its_run_is_not_tried_again(monkeypatch):
    net, tried = residual_net(), []

    def steps(self, feed):
        tried.append(feed)
        raise RuntimeError("refused")

    monkeypatch.setattr(placed_graph.PlacedRun, "steps", steps)
    found = plain(in_all(OnePicture(net, EVERYTHING), pictures()))
    monkeypatch.undo()
    assert len(tried) == 1 and found == plain(in_all(OnePicture(net, EVERYTHING), pictures()))


def test_ends_of_tensors_that_not_every_picture_has_are_kept():
    one = RowEnds((Rows("a", 1, 0), Rows("b", 4, 2)), np.array([-1.0, 5, 1, 3, 2]), np.array([1.0, 6, 7, 8, 9]))
    two = RowEnds((Rows("b", 2, 2), Rows("c", 1, 0)), np.array([0.0, 4, -7]), np.array([4.0, 5, -6]))
    both = one.merged(two)
    assert both.whole == {"a": (-1, 1), "b": (0, 9), "c": (-7, -6)}
    assert [end.tolist() for end in both.channels["b"]] == [[0, 1], [8, 9]] and list(both.channels) == ["b"]
    assert [one.tensor_at(row) for row in range(5)] == ["a", "b", "b", "b", "b"]
    three = replace(two, tensors=(Rows("b", 2, 1), Rows("c", 1, 0)))
    with pytest.raises(InputError, match="'b' has another number of channels on another picture: 2 and 1"):
        one.merged(three)
