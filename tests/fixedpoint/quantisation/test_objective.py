"""Which tensors a plan is judged by, and how its error adds up."""

import numpy as np
import pytest
from onnx import helper
from small_nets import model, node

from sgsdump.fixedpoint.quantisation.objective import score, total, watched_by_output, watched_tensors


@pytest.mark.parametrize("softmax", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    "behind", [None, "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Cast"]
)
def test_where_a_softmax_makes_an_output_its_input_is_judged(softmax, behind):
    nodes = [node("Relu", ["x"], "logits"), node(softmax, ["logits"], "prob")]
    if behind:
        nodes.append(node(behind, ["prob", "k"], "out", **({"to": 1} if behind == "Cast" else {})))
    net = model(nodes, {"k": np.array([-1])}, {"x": (1, 4)}, [nodes[-1].output[0]])
    assert watched_tensors(net.proto) == ["logits"]


@pytest.mark.parametrize("behind", ["Relu", "Mul"])
def test_what_computes_behind_a_softmax_is_judged_itself(behind):
    nodes = [node("Softmax", ["x"], "prob"), node(behind, ["prob"], "out")]
    assert watched_tensors(model(nodes, {}, {"x": (1, 4)}, ["out"]).proto) == ["out"]


def test_places_are_no_objective_and_what_they_are_picked_from_is_judged():
    nodes = [node("Softmax", ["x"], "prob"), node("ArgMax", ["prob"], "out")]
    assert watched_tensors(model([node("Relu", ["d"], "x"), *nodes], {}, {"d": (1, 4)}, ["out"]).proto) == ["x"]


def test_a_detectors_boxes_are_judged_though_its_scores_come_out():
    """TopK puts scores out, which are judged; the boxes that Gather takes by its indices would not be."""
    nodes = [
        node("Relu", ["d"], "boxes"),
        node("Sigmoid", ["d"], "scores"),
        helper.make_node("TopK", ["scores", "k"], ["top", "places"]),
        node("Gather", ["boxes", "places"], "picked", axis=1),
    ]
    net = model(nodes, {"k": np.array([2])}, {"d": (1, 4)}, ["top", "picked"])
    assert watched_by_output(net.proto) == {"top": "top", "boxes": "boxes"}


def test_what_a_comparison_compares_is_judged_once_and_no_sizes():
    nodes = [
        node("Relu", ["d"], "scores"),
        node("Greater", ["scores", "limit"], "mask"),
        node("NonZero", ["mask"], "places"),
        node("Squeeze", ["scores", "zero"], "row"),
        node("Shape", ["row"], "size"),
        node("Mod", ["places", "size"], "wrapped"),
        node("Gather", ["row", "wrapped"], "out"),
    ]
    net = model(nodes, {"limit": np.float32([0.5]), "zero": np.array([0])}, {"d": (1, 4)}, ["out"])
    assert watched_tensors(net.proto) == ["scores"]


def test_each_tensor_is_judged_once():
    nodes = [
        node("Relu", ["x"], "r"),
        node("Softmax", ["r"], "a"),
        node("LogSoftmax", ["r"], "b"),
        node("Abs", ["r"], "c"),
    ]
    assert watched_tensors(model(nodes, {}, {"x": (1, 4)}, ["a", "c", "b"]).proto) == ["r", "c"]


@pytest.mark.parametrize(
    ("values", "floats", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([2.0, 2.0], [1.0, 2.0], 1 / 5),
        ([0.0], [0.0], 0.0),
        ([1.0], [0.0], float("inf")),
        ([float("nan")], [1.0], float("inf")),
    ],
)
def test_the_error_is_the_noise_over_the_energy(values, floats, error):
    assert score({"y": np.array(values)}, {"y": np.array(floats)}).error("y") == pytest.approx(error)


def test_both_sums_are_over_all_pictures():
    floats = [{"y": np.array([2.0]), "z": np.array([1.0])}, {"y": np.array([4.0]), "z": np.array([3.0])}]
    values = [{"y": np.array([3.0]), "z": np.array([1.0])}, {"y": np.array([4.0]), "z": np.array([1.0])}]
    both = total(score(a, b, metric) for a, b, metric in zip(values, floats, (0.5, 1.0)))
    assert both.error("y") == pytest.approx(1 / 20) and both.error("z") == pytest.approx(4 / 10)
    assert both.pictures == 2 and both.mean_metric == 0.75
