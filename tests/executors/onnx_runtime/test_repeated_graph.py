"""A stage that is entered again writes over what it made, and nothing of a run before is seen in the next."""

import numpy as np
import onnx
import pytest
from small_nets import model, node

from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph


def staged(nodes, outputs, cuts):
    net = model(nodes, {}, {"data": (2, 3)}, outputs)
    return StagedGraph(net.proto, cuts, {"data"}, outputs)


def run(graph, entries, array):
    live = {"data": graph.hold(array)}
    for stage, entry in enumerate(entries):
        live |= graph.run(stage, live, entry)
    return graph.arrays(live)


def test_outputs_of_one_run_outlast_the_next():
    graph = staged([node("Neg", ["data"], "a"), node("Exp", ["a"], "b")], ["a", "b"], [1])
    entries = graph.entries()
    arrays = [np.full((2, 3), value, np.float32) for value in (1, 2, 1)]
    found = [run(graph, entries, array) for array in arrays]
    for array, each in zip(arrays, found):
        np.testing.assert_array_equal(each["a"], -array)
        np.testing.assert_allclose(each["b"], np.exp(-array), rtol=1e-6)
    first = entries[0].made["a"]
    run(graph, entries, arrays[1])
    assert entries[0].made["a"] is first


def test_sizes_that_depend_on_values_may_change():
    graph = staged([node("NonZero", ["data"], "at"), node("Neg", ["at"], "back")], ["back"], [1])
    entries = graph.entries()
    for array in (np.eye(2, 3), np.ones((2, 3)), np.zeros((2, 3)), np.eye(2, 3)):
        found = run(graph, entries, array.astype(np.float32))["back"]
        np.testing.assert_array_equal(found, -np.array(np.nonzero(array)))


def test_a_run_that_fails_fails_again_as_itself():
    """Rows are picked by what is fed: the second time there is none at that place."""
    net = model([node("Cast", ["data"], "at", to=onnx.TensorProto.INT64), node("Gather", ["rows", "at"], "picked")],
                {"rows": np.arange(4, dtype=np.float32)}, {"data": (2, 3)}, ["picked"])  # fmt: skip
    graph = StagedGraph(net.proto, [1], {"data"}, ["picked"])
    entries = graph.entries()
    run(graph, entries, np.full((2, 3), 3, np.float32))
    with pytest.raises(Exception, match="indices element out of data bounds"):
        run(graph, entries, np.full((2, 3), 9, np.float32))
    np.testing.assert_array_equal(run(graph, entries, np.full((2, 3), 2, np.float32))["picked"], np.full((2, 3), 2))
