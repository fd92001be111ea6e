"""Who runs the pictures: this process, several, or a cluster; the statistics are the same."""

import time

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.errors import InputError
from sgsdump.executors.workers.task_pool import Workers
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.graph import Graph
from sgsdump.models.model import graph_inputs
from sgsdump.quantisation.domains import analyse
from sgsdump.quantisation.quant_import import _channels
from sgsdump.quantisation.ranges import measured_ranges
from sgsdump.quantisation.ranges.measured_ranges import gather, measure_ranges


@pytest.fixture(scope="module")
def net():
    nodes = [conv("c", "data"), node("Relu", ["c"], "r"), node("Shape", ["r"], "shape")]
    return model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 2, 2)}, ["r", "shape"])


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
    assert (found["c.w"].low, found["c.w"].high) == (given.min(), given.max())
    assert found["r"].low == 0 and found["r"].high == found["c"].high > 0


@pytest.mark.parametrize("feeds", [[], iter(())])
def test_without_a_picture_there_is_nothing_to_calibrate_with(net, feeds):
    with pytest.raises(InputError, match="there is no picture to calibrate with"):
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
