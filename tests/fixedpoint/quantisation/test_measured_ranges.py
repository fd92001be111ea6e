"""The statistics are the same whoever runs the pictures, in buffers or tensor by tensor, read or derived."""

import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, residual_net, run_all, weights

from sgsdump.errors import InputError
from sgsdump.executors.onnx_runtime import repeated_graph
from sgsdump.executors.onnx_runtime.repeated_graph import PlacedGraph, Unplaceable
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.workers.task_pool import Workers
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.quant_file import _channels
from sgsdump.fixedpoint.quantisation.ranges import measured_ranges
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import (
    Collector,
    OnePicture,
    followed,
    gather,
    measure_ranges,
)
from sgsdump.fixedpoint.quantisation.ranges.simulator_rules import rules_of
from sgsdump.fixedpoint.quantisation.ranges.simulator_run import SimulatorRunner
from sgsdump.fixedpoint.quantisation.ranges.statistics import (
    RowExtremes,
    Rows,
    Selection,
)
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.graph import Graph
from sgsdump.models.model import graph_inputs
from sgsdump.progress import Silent


@pytest.fixture(scope="module")
def net():
    nodes = [conv("c", "data"), node("Relu", ["c"], "r"), node("Shape", ["r"], "shape")]
    return model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 2, 2)}, ["r", "shape"])


@pytest.fixture
def without_rules(monkeypatch):
    """As of a model without sums, all of which onnxruntime runs."""
    monkeypatch.setattr(measured_ranges, "rules_of", lambda graph: {})


FEEDS = [
    (str(seed), {"data": np.random.default_rng(seed).normal(0, 1, (1, 3, 2, 2)).astype(np.float32)})
    for seed in range(3)
]


@pytest.mark.parametrize(
    ("workers", "feeds", "sent"),
    [
        (Workers(1), FEEDS, None),
        (Workers(2), FEEDS, Workers(2)),
        (Workers(8), FEEDS, Workers(3)),
        (Workers(8), iter(FEEDS), None),
        (Workers(1, "tcp://host:8786"), FEEDS, Workers(1, "tcp://host:8786")),
        (Workers(8, "tcp://host:8786"), iter(FEEDS), Workers(8, "tcp://host:8786")),
    ],
)
def test_pictures_go_to_as_many_processes_as_there_are_pictures(monkeypatch, net, workers, feeds, sent):
    asked = []

    def run_tasks(make_work, given, items, workers, progress):
        asked.append(workers)
        return map(make_work(*given), items)

    monkeypatch.setattr(measured_ranges, "run_tasks", run_tasks)
    found = gather(net, feeds, workers=workers)
    assert asked == ([] if sent is None else [sent])
    values = np.stack([feed["data"] for _, feed in FEEDS])
    assert (found.whole["data"].low, found.whole["data"].high) == (values.min(), values.max())


def test_ranges_are_in_the_order_of_the_graph_for_float_tensors(net):
    found = measure_ranges(net, FEEDS)
    assert list(found) == ["data", "c.w", "c.b", "c", "r"]
    given = weights("c", (4, 3, 1, 1))["c.w"]
    assert (found["c.w"].low, found["c.w"].high) == tuple(float(f"{end:f}") for end in (given.min(), given.max()))
    assert found["r"].low == 0 and found["r"].high == found["c"].high > 0


@pytest.mark.parametrize("feeds", [[], iter(())])
def test_without_a_picture_there_is_nothing_to_calibrate_with(net, feeds):
    with pytest.raises(InputError, match="there is no image to calibrate with"):
        gather(net, feeds)


def test_channels_are_known_where_axis_1_has_a_size():
    nodes = [conv("c", "data"), node("Relu", ["c"], "r"), node("Shape", ["r"], "shape"), node("Relu", ["any"], "s")]
    constants = weights("c", (4, 3, 1, 1))
    one = model(nodes, constants, {"data": (1, 3, 2, 2), "any": (1, "channels")}, ["r", "shape", "s"])
    assert _channels(Graph(one.proto), analyse(one.proto)) == {"data": 3, "c": 4, "r": 4, "c.w": 4, "c.b": 4}
    transposed = model([node("MatMul", ["x", "w"], "y")], {"w": np.ones((3, 5), np.float32)}, {"x": (2, 3)}, ["y"])
    assert _channels(Graph(transposed.proto), analyse(transposed.proto)) == {"x": 3, "w": 5, "y": 5}


@pytest.mark.parametrize("cores", [1, 3])
def test_pictures_side_by_side_give_what_one_after_the_other_gives(monkeypatch, net, cores):
    """Each picture's own extremes, by numpy; more pictures than cores, and a sequence as well as an iterator."""
    monkeypatch.setattr(measured_ranges, "cores", lambda: cores)
    many = [
        (str(s), {"data": np.random.default_rng(s).normal(0, s, (1, 3, 2, 2)).astype(np.float32)}) for s in range(9)
    ]
    values = np.stack([feed["data"] for _, feed in many])
    for feeds in (many, iter(many)):
        found = gather(net, feeds)
        assert (found.whole["data"].low, found.whole["data"].high) == (values.min(), values.max())


@pytest.mark.parametrize(("preprocess", "together"), [(None, True), ("pre.py", False)])
def test_only_our_own_preparing_is_done_by_several_threads_at_once(monkeypatch, tmp_path, net, preprocess, together):
    for seed, (_, feed) in enumerate(FEEDS * 4):
        np.save(tmp_path / f"{seed:02}.npy", feed["data"])
    (tmp_path / "pre.py").write_text(
        "import numpy\ndef get_image(path, norm=True, nchw=True): return numpy.load(path)\n"
    )
    pictures = PictureFeeds(str(tmp_path), preprocess and str(tmp_path / preprocess), graph_inputs(net.proto))
    monkeypatch.setattr(measured_ranges, "cores", lambda: 2)
    inside, most, make = [], [], PictureFeeds.__getitem__

    def slow(self, index):
        inside.append(index)
        most.append(len(inside))
        time.sleep(0.02)
        inside.remove(index)
        return make(self, index)

    monkeypatch.setattr(PictureFeeds, "__getitem__", slow)
    gather(net, pictures)
    assert len(most) >= len(FEEDS) * 4
    assert (max(most) > 1) == together


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


PICTURES = [
    (str(seed), {"data": np.random.default_rng(seed).normal(0, seed + 1, (1, 3, 4, 5)).astype(np.float32)})
    for seed in range(3)
]


def test_extremes_are_those_of_the_values_over_all_pictures():
    net = chain()
    runner = SimulatorRunner(net, rules_of(Graph(net.proto)))
    arrays: dict[str, list] = {}
    for _, feed in PICTURES:
        for layer in runner.run(feed):
            arrays.setdefault(layer.name, []).append(layer.array)
        arrays.setdefault("data", []).append(feed["data"])
    values = {name: np.stack(each) for name, each in arrays.items() if each[0].dtype == np.float32}
    found = gather(net, PICTURES).whole
    assert {name: (low, high) for name, (low, high) in found.items()} == {
        name: (each.min(), each.max()) for name, each in values.items()
    }
    assert found["none"] == (0, 0)


def test_what_follows_is_not_looked_at_unless_more_is_wanted_of_it(monkeypatch, without_rules):
    net, asked = chain(), []
    make, run = PlacedGraph.__init__, SegmentRunner.run
    monkeypatch.setattr(PlacedGraph, "__init__", lambda *given: asked.append(given[3]) or make(*given))
    monkeypatch.setattr(SegmentRunner, "run", lambda self, feed, only: asked.append(only) or run(self, feed, only))
    larger = {"data": np.zeros((2, 3, 4, 5), np.float32)}  # not the first one's shape, so run in the other way
    net.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    kept = gather(net, [*PICTURES[:1], ("larger", larger)], Selection(histograms=frozenset("r")))
    assert asked == [{"c", "d", "late", "s", "shape", "r"}] * 2 and kept.histograms["r"].total == 3 * 4 * 20
    bounded = [rows.name for rows in OnePicture(net, Selection(histograms=frozenset("r")))(PICTURES[0]).ends.tensors]
    assert "c" in bounded and "r" not in bounded
    following = followed(Graph(net.proto))
    assert list(following) == ["r", "none", "turned", "turned.r", "flat", "sizes"] and following["flat"] == "r"


EVERYTHING = Selection(
    frozenset({"data", "r1", "c2", "add"}),
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
    return of_bytes(seen.statistics)


def of_bytes(statistics):
    """Everything that is kept, down to bytes."""
    whole, histograms, channels, below, tops, _ = vars(statistics).values()
    return (
        whole,
        {name: (h.exponent, h.counts.tobytes(), h.zeros) for name, h in histograms.items()},
        {name: (ends.low.tobytes(), ends.high.tobytes()) for name, ends in channels.items()},
        below,
        tops,
    )


class Counter(Silent):
    def __init__(self, counted):
        self._counted = counted

    def bar(self, what, unit, total=None):
        return nullcontext(lambda done, total=None: self._counted.append(done))


@pytest.mark.parametrize(("together", "group_bytes", "sizes"), [(3, 1 << 20, [3, 3, 1]), (5, 1600, [3, 3, 1])])
def test_images_of_one_task_are_merged_by_its_worker(monkeypatch, together, group_bytes, sizes):
    """The scales of the images grow, so that the histograms of groups have different exponents."""
    net, feeds, tasks = residual_net(), list(pictures(7)), []

    def on_cluster(make_work, arguments, groups, workers, progress):
        groups = list(groups)
        tasks.extend(map(len, groups))
        return map(make_work(*arguments), groups)

    monkeypatch.setattr(measured_ranges, "run_tasks", on_cluster)
    monkeypatch.setattr(measured_ranges, "FEWEST_TASKS", 1)
    monkeypatch.setattr(measured_ranges, "TOGETHER", together)
    monkeypatch.setattr(measured_ranges, "GROUP_BYTES", group_bytes)
    cluster = Workers(scheduler="tcp://host:8786")
    counted = []
    found = gather(net, feeds, EVERYTHING, cluster, Counter(counted), kept=(1, 6))
    alone = gather(net, feeds, EVERYTHING, kept=(1, 6))
    assert counted == [1, 2, 3, 4, 5, 6, 7]
    assert tasks == sizes and of_bytes(found) == of_bytes(alone)
    for one, other in zip(found.runs, alone.runs, strict=True):
        assert [array.tobytes() for array in one.feed.values()] == [array.tobytes() for array in other.feed.values()]
        assert [a.tobytes() for a in one.outputs.values()] == [a.tobytes() for a in other.outputs.values()]
    assert len(found.runs) == 2


def in_all(see, feeds):
    first, *others = map(see, feeds)
    for seen in others:
        first = first.merged(seen)
    return first


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
@pytest.mark.parametrize("batch", [1, 3])
def test_both_ways_see_the_same(monkeypatch, without_rules, segment_bytes, batch):
    net = residual_net()
    net.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    monkeypatch.setattr(repeated_graph, "SEGMENT_BYTES", segment_bytes)
    one_by_one = SegmentRunner.run
    monkeypatch.setattr(SegmentRunner, "run", lambda *_, **__: pytest.fail("not one by one"))
    at_places = in_all(OnePicture(net, EVERYTHING), pictures(batch=batch))
    monkeypatch.setattr(SegmentRunner, "run", one_by_one)
    monkeypatch.setattr(PlacedGraph, "__init__", refuse)
    assert plain(at_places) == plain(in_all(OnePicture(net, EVERYTHING), pictures(batch=batch)))


@pytest.mark.parametrize("way", ["threads", "at their places", "one by one", "processes"])
def test_of_the_pictures_to_be_kept_the_float_model_s_outputs_are(monkeypatch, way):
    """Also of whole numbers, and of what follows from others; they are not overwritten by the next picture."""
    nodes = [conv("c", "data"), node("Relu", ["c"], "r"), node("ArgMax", ["r"], "best", axis=1)]
    net = model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["best"])
    if way in ("at their places", "one by one"):
        monkeypatch.setattr(measured_ranges, "rules_of", lambda graph: {})
    if way == "one by one":
        monkeypatch.setattr(PlacedGraph, "__init__", refuse)
    workers = Workers(2) if way == "processes" else Workers(1)
    feeds = list(pictures(3))
    kept = gather(net, feeds, Selection(outputs=frozenset({"r", "best"})), workers, kept=(0, 2)).runs
    for run, (_, feed) in zip(kept, feeds[::2], strict=True):
        expected = run_all(net.proto, feed)
        np.testing.assert_array_equal(run.feed["data"], feed["data"])
        assert run.outputs.keys() == {"r", "best"}
        for name, values in run.outputs.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-6)
    assert gather(net, feeds, kept=()).runs == ()


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
    see = OnePicture(net, Selection(channels={"c": 1}))
    see(("good.png", good))
    with pytest.raises(InputError, match=r"'root' holds NaN or infinity on bad\.png"):
        see(("bad.png", {"data": good["data"] * 1000}))
    assert see(("good.png", good)).statistics.whole["root"].low > 0


def test_a_graph_that_is_refused_at_its_run_is_not_tried_again(monkeypatch, without_rules):
    net, tried = residual_net(), []

    def steps(self, feed):
        tried.append(feed)
        raise RuntimeError("refused")

    monkeypatch.setattr(repeated_graph.PlacedRun, "steps", steps)
    found = plain(in_all(OnePicture(net, EVERYTHING), pictures()))
    monkeypatch.setattr(PlacedGraph, "__init__", refuse)
    assert len(tried) == 1 and found == plain(in_all(OnePicture(net, EVERYTHING), pictures()))


def test_ends_of_tensors_that_not_every_picture_has_are_kept():
    one = RowExtremes((Rows("a", 1, 0), Rows("b", 4, 2)), np.array([-1.0, 5, 1, 3, 2]), np.array([1.0, 6, 7, 8, 9]))
    two = RowExtremes((Rows("b", 2, 2), Rows("c", 1, 0)), np.array([0.0, 4, -7]), np.array([4.0, 5, -6]))
    both = one.merged(two)
    assert both.whole == {"a": (-1, 1), "b": (0, 9), "c": (-7, -6)}
    assert [end.tolist() for end in both.channels["b"]] == [[0, 1], [8, 9]] and list(both.channels) == ["b"]
    assert [one.tensor_at(row) for row in range(5)] == ["a", "b", "b", "b", "b"]
    three = replace(two, tensors=(Rows("b", 2, 1), Rows("c", 1, 0)))
    with pytest.raises(InputError, match="the number of channels of tensor 'b' differs between images: 2 and 1"):
        one.merged(three)


@pytest.mark.parametrize("values", [[0, np.inf], [-np.inf, 0], [np.nan, 1], [-np.inf, np.inf], [np.nan, np.inf]])
def test_a_tensor_with_nan_or_infinity_has_no_range(values):
    with pytest.raises(InputError, match=r"'t' holds NaN or infinity on cat\.png"):
        collector = Collector(Selection(), "cat.png")
        collector.see("finite", np.zeros(2, np.float32))
        collector.see("t", np.array(values, np.float32))
        _ = collector.seen


def test_below_is_counted_from_the_maximum_along_the_softmax_axis():
    values = np.array([[1, 3], [9, 5]], np.float32)
    for axis, low in ((1, -4.0), (0, -8.0)):
        collector = Collector(Selection(softmax={"t": axis}), "")
        collector.see("t", values)
        below = collector.seen.below["t"]
        assert (below.low, below.high) == (low, 0.0)


def test_statistics_are_kept_of_what_is_wanted_only():
    everything = Selection(frozenset("t"), {"t": 1}, {"t": 1})
    values = np.array([[[1, -2]], [[3, 5]]], np.float32).transpose(1, 0, 2)  # [1, channels 2, 2]
    collector = Collector(everything, "")
    for name in ("t", "u"):
        collector.see(name, values)
    collector.see("indices", np.array([1, 2]))
    collector.see("empty", np.zeros((0, 2), np.float32))
    seen = collector.seen
    kept = seen.statistics
    assert list(kept.whole) == ["t", "u"] and (kept.whole["u"].low, kept.whole["u"].high) == (-2, 5)
    assert [list(each) for each in (kept.histograms, kept.channels, kept.below)] == [["t"]] * 3
    channels = kept.channels["t"]
    assert (channels.low.tolist(), channels.high.tolist()) == ([-2, 3], [1, 5])
    twice = seen.merged(replace(seen, below={})).statistics
    assert (kept.histograms["t"].total, twice.histograms["t"].total) == (4, 8)
