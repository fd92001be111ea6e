"""At their places tensors have the bits that one run with every output marked gives, feed after feed.

Tensors that are needed at the same time do not share a byte, and memory is used again; drawn lives of tensors.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_nets import conv, model, node, residual_net, weights

from sgsdump.errors import InputError
from sgsdump.executors.onnx_runtime import repeated_graph
from sgsdump.executors.onnx_runtime.repeated_graph import ALIGNMENT, PlacedGraph, PlacedRun, Unplaceable, plan_memory
from sgsdump.executors.onnx_runtime.session import REFUSALS
from sgsdump.models.passes.rewrites import mark_outputs


def feed(seed, shape=(1, 3, 8, 8)):
    return {"data": np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)}


def one_run(net, given):
    names = [name for node in net.proto.graph.node for name in node.output]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    marked = mark_outputs(net.proto, names).SerializeToString()
    session = ort.InferenceSession(marked, options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, given)))


def values(run, given):
    """Copies of all there is, taken at the step at which it is there."""
    return {name: array.copy() for step in run.steps(given) for name, array in run.made[step].items()}


@pytest.mark.parametrize("segment_bytes", [1, 2000, 1 << 20])
def test_every_tensor_of_every_feed_has_the_bits_of_one_run(monkeypatch, segment_bytes):
    monkeypatch.setattr(repeated_graph, "SEGMENT_BYTES", segment_bytes)
    net = residual_net()
    wanted = {name for node in net.proto.graph.node for name in node.output}
    graph = PlacedGraph(net, feed(0), wanted)
    run = PlacedRun(graph)
    assert len(run.made) > 1 and (segment_bytes > 1 or len(run.made) == 1 + len(net.proto.graph.node))
    for seed in (1, 2, 1):
        expected = one_run(net, feed(seed)) | feed(seed)
        found = values(run, feed(seed))
        assert found.keys() == expected.keys()
        assert all(found[name].tobytes() == expected[name].tobytes() for name in found)


def test_runs_of_one_graph_go_side_by_side():
    net = residual_net()
    graph = PlacedGraph(net, feed(0), {"prob", "c2"})

    def outputs(seed):
        return values(PlacedRun(graph), feed(seed))

    with ThreadPoolExecutor(4) as pool:
        for seed, found in enumerate(pool.map(outputs, range(16))):
            assert found["prob"].tobytes() == one_run(net, feed(seed))["prob"].tobytes()


def test_only_what_is_wanted_or_handed_on_is_kept(monkeypatch):
    net = residual_net()
    assert [list(made) for made in PlacedRun(PlacedGraph(net, feed(0), {"c2"})).made] == [["data"], ["c2"]]
    monkeypatch.setattr(repeated_graph, "SEGMENT_BYTES", 1)
    made = PlacedRun(PlacedGraph(net, feed(0), ())).made
    assert "prob" not in {name for each in made for name in each} and ["r1"] in [list(each) for each in made]


def test_feeds_of_another_shape_or_type_are_not_taken():
    net = residual_net()
    graph = PlacedGraph(net, feed(0), {"prob"})
    assert graph.takes(feed(5)) and not graph.takes({"data": np.zeros((2, 3, 8, 8), np.float32)})
    assert not graph.takes({"data": np.zeros((1, 3, 8, 8))}) and not graph.takes({})
    with pytest.raises(InputError, match=r"expects float32 \[1, ?3, ?8, ?8\]"):
        PlacedGraph(net, {"data": np.zeros((1, 3, 9, 8), np.float32)}, {"prob"})


def test_what_is_not_known_before_the_run_has_no_place():
    picked = model([node("NonZero", ["data"], "at")], {}, {"data": (1, 3)}, ["at"])
    with pytest.raises(Unplaceable, match="'at'"):
        PlacedGraph(picked, {"data": np.ones((1, 3), np.float32)}, {"at"})


def test_a_shape_that_is_inferred_wrongly_is_refused_at_the_run(monkeypatch):
    net = model([conv("c", "data")], weights("c", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["c"])
    infer = repeated_graph.infer_types

    def wrong(proto, shapes):
        types = infer(proto, shapes)
        types["c"].tensor_type.shape.dim[3].dim_value = 9
        return types

    monkeypatch.setattr(repeated_graph, "infer_types", wrong)
    with pytest.raises(REFUSALS):
        values(PlacedRun(PlacedGraph(net, feed(0), {"c"})), feed(0))


@st.composite
def lives(draw):
    made = draw(st.lists(st.lists(st.integers(1, 500), max_size=4), min_size=1, max_size=7))
    named = [{f"{step}.{i}": size for i, size in enumerate(sizes)} for step, sizes in enumerate(made)]
    read = []
    for step in range(len(named)):
        before = [name for sizes in named[:step] for name in sizes]
        read.append(draw(st.lists(st.sampled_from(before), unique=True)) if before else [])
    return named, read


@given(lives())
def test_no_two_tensors_that_are_needed_at_once_overlap(drawn):
    made, read = drawn
    found, size = plan_memory(made, read)
    sizes = {name: each for step in made for name, each in step.items()}
    assert found.keys() == sizes.keys() and all(place % ALIGNMENT == 0 for place in found.values())
    assert all(found[name] + sizes[name] <= size for name in found)
    first = {name: step for step, names in enumerate(made) for name in names}
    last = {name: max([first[name], *(s for s, names in enumerate(read) if name in names)]) for name in first}
    for one in found:
        for other in found:
            together = first[one] <= last[other] and first[other] <= last[one]
            if one < other and together:
                assert found[one] + sizes[one] <= found[other] or found[other] + sizes[other] <= found[one]


def test_memory_is_used_again():
    chain = [{str(step): 100} for step in range(50)]
    found, size = plan_memory(chain, [(), *((str(step),) for step in range(49))])
    assert size == 2 * 128 and found["0"] == found["2"] == found["48"]
    assert plan_memory([{"a": 64, "b": 64}, {"c": 64}, {"d": 64}], [(), ("a", "b"), ("b",)])[1] == 3 * 64


def test_nothing_takes_nothing():
    assert plan_memory([{}], [()]) == ({}, 0)
