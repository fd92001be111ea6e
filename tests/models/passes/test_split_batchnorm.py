"""BatchNormalization as Mul and Add: the same values, under the names of the SDK's converter."""

import numpy as np
import onnx
import pytest
from small_nets import helper, model, node, run_all

from sgsdump.models.passes.split_batchnorm import split_batchnorm


def norm(name, seed, channels=3):
    rng = np.random.default_rng(seed)
    return {f"{name}.{each}": rng.uniform(0.5, 2, channels).astype(np.float32) for each in ("s", "b", "m", "v")}


def batchnorm(source, name, **how):
    return node("BatchNormalization", [source, *(f"{name}.{each}" for each in ("s", "b", "m", "v"))], name, **how)


@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_it_becomes_a_product_and_a_sum(epsilon):
    net = model([batchnorm("x", "bn", epsilon=epsilon)], norm("bn", 0), {"x": (2, 3, 4, 5)}, ["bn"]).proto
    split = split_batchnorm(net)
    assert [(each.op_type, list(each.input), list(each.output)) for each in split.graph.node] == [
        ("Mul", ["x", "bn_scale"], ["x_MUL"]),
        ("Add", ["x_MUL", "bn_offset"], ["bn"]),
    ]
    assert {each.name: list(each.dims) for each in split.graph.initializer} == {
        "bn_scale": [3, 1, 1], "bn_offset": [3, 1, 1],
    }  # fmt: skip
    feed = {"x": np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)}
    np.testing.assert_allclose(run_all(split, feed)["bn"], run_all(net, feed)["bn"], rtol=1e-5, atol=1e-6)


def scale(name, seed, channels=3):
    """A Scale layer: no statistics, and epsilon 0."""
    known = {f"{name}.m": np.zeros(channels, np.float32), f"{name}.v": np.ones(channels, np.float32)}
    return norm(name, seed, channels) | known


def test_a_scale_behind_it_joins_and_keeps_its_own_name():
    nodes = [batchnorm("x", "bn"), batchnorm("bn", "bs", epsilon=0.0), node("Relu", ["bs"], "r")]
    net = model(nodes, norm("bn", 0) | scale("bs", 1), {"x": (1, 3, 4, 5)}, ["r"]).proto
    split = split_batchnorm(net)
    assert [each.op_type for each in split.graph.node] == ["Mul", "Add", "Relu"]
    assert [each.name for each in split.graph.initializer] == ["bn_scale", "bn_offset"]
    feed = {"x": np.random.default_rng(1).normal(size=(1, 3, 4, 5)).astype(np.float32)}
    np.testing.assert_allclose(run_all(split, feed)["bs"], run_all(net, feed)["bs"], rtol=1e-5, atol=1e-5)


def test_one_that_is_read_twice_or_leaves_stays_apart():
    for outputs, extra in ((["bs", "bn"], []), (["bs", "r"], [node("Relu", ["bn"], "r")])):
        nodes = [batchnorm("x", "bn"), batchnorm("bn", "bs"), *extra]
        net = model(nodes, norm("bn", 0) | norm("bs", 1), {"x": (1, 3, 4, 5)}, outputs).proto
        split = split_batchnorm(net)
        assert [each.op_type for each in split.graph.node][:4] == ["Mul", "Add", "Mul", "Add"]
        feed = {"x": np.random.default_rng(1).normal(size=(1, 3, 4, 5)).astype(np.float32)}
        for name in outputs:
            np.testing.assert_allclose(run_all(split, feed)[name], run_all(net, feed)[name], rtol=1e-5, atol=1e-5)


def test_statistics_that_are_computed_leave_it_as_it_is():
    nodes = [node("Identity", ["k"], "bn.m"), batchnorm("x", "bn")]
    constants = {name: each for name, each in norm("bn", 0).items() if name != "bn.m"} | {"k": np.zeros(3, np.float32)}
    net = model(nodes, constants, {"x": (1, 3, 4, 5)}, ["bn"]).proto
    assert [each.op_type for each in split_batchnorm(net).graph.node] == ["Identity", "BatchNormalization"]


def test_a_rank_that_is_unknown_leaves_it_as_it_is():
    """Where the channels lie, the constants' shape has to say."""
    net = model([batchnorm("x", "bn")], norm("bn", 0), {"x": (1, 3, 4, 5)}, ["bn"]).proto
    net.graph.input[0].type.tensor_type.ClearField("shape")
    net.graph.output[0].type.tensor_type.ClearField("shape")
    assert [each.op_type for each in split_batchnorm(net).graph.node] == ["BatchNormalization"]


def test_what_it_reads_may_leave_the_graph():
    nodes = [node("Relu", ["x"], "r"), batchnorm("r", "bn")]
    net = model(nodes, norm("bn", 0), {"x": (1, 3, 4, 5)}, ["r", "bn"]).proto
    assert [each.op_type for each in split_batchnorm(net).graph.node] == ["Relu", "Mul", "Add"]


def test_names_that_are_taken_are_left_alone_and_the_model_too():
    nodes = [node("Relu", ["x"], "x_MUL"), node("Relu", ["x_MUL"], "bn_scale"), batchnorm("x", "bn")]
    nodes.append(helper.make_node("Add", ["bn", "bn_scale"], ["y"], name="y"))
    net = model(nodes, norm("bn", 0), {"x": (1, 3, 4, 5)}, ["y"]).proto
    before = net.SerializeToString()
    split = split_batchnorm(net)
    made = [name for each in split.graph.node for name in each.output] + [each.name for each in split.graph.initializer]
    assert len(made) == len(set(made)) and net.SerializeToString() == before
    feed = {"x": np.random.default_rng(1).normal(size=(1, 3, 4, 5)).astype(np.float32)}
    np.testing.assert_allclose(run_all(split, feed)["y"], run_all(net, feed)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 7), (2, 3, 4, 5, 2)])
def test_any_rank_keeps_its_values(shape):
    net = model([batchnorm("x", "bn")], norm("bn", 0), {"x": shape}, ["bn"]).proto
    feed = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    split = split_batchnorm(net)
    np.testing.assert_allclose(run_all(split, feed)["bn"], run_all(net, feed)["bn"], rtol=1e-5, atol=1e-5)


def test_only_a_scale_directly_after_a_batchnorm_joins():
    nodes = [batchnorm("x", "a"), batchnorm("a", "b", epsilon=0.0), batchnorm("b", "c", epsilon=0.0)]
    nodes += [batchnorm("c", "d"), batchnorm("d", "e")]
    constants = norm("a", 0) | scale("b", 1) | scale("c", 2) | norm("d", 3) | norm("e", 4)
    split = split_batchnorm(model(nodes, constants, {"x": (1, 3, 4, 5)}, ["e"]).proto)
    assert [each.output[0] for each in split.graph.node if each.op_type == "Add"] == ["b", "c", "d", "e"]


def test_the_variance_and_epsilon_are_added_in_float32():
    rng = np.random.default_rng(5)
    variance, gamma = rng.uniform(0.5, 2, 200).astype(np.float32), np.ones(200, np.float32)
    constants = {"bn.s": gamma, "bn.b": gamma * 0, "bn.m": gamma * 0, "bn.v": variance}
    net = model([batchnorm("x", "bn", epsilon=1e-3)], constants, {"x": (1, 200, 1, 1)}, ["bn"]).proto
    found = onnx.numpy_helper.to_array(split_batchnorm(net).graph.initializer[0]).reshape(-1)
    single = (1 / np.sqrt((variance + np.float32(1e-3)).astype(np.float64))).astype(np.float32)
    double = (1 / np.sqrt(variance.astype(np.float64) + 1e-3)).astype(np.float32)
    np.testing.assert_array_equal(found, single)
    assert (single != double).sum() > 10
