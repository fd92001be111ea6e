"""Scaling channels keeps what a model computes, whatever the factors, through every operator it goes through.

Oracle: onnxruntime.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from small_nets import conv, model, node, run_all, weights

from sgsdump.fixedpoint.curing.folding import folded
from sgsdump.fixedpoint.curing.scaling import CLIP_ROOM, scaled, scaling_of

DATA = {"data": (1, 3, 8, 8)}


def pw(name, source, **attributes):
    return conv(name, source, **attributes)


def bn_constants(name, channels):
    rng = np.random.default_rng(5)
    return {f"{name}.{k}": rng.uniform(0.5, 1.5, channels).astype(np.float32) * (1 if k != "m" else -1) for k in "gbmv"}


def bn(name, source):
    return helper.make_node("BatchNormalization", [source, *(f"{name}.{k}" for k in "gbmv")], [name], name=name)


def chain(*middle, constants=(), last=8):
    """c1 (8 channels) -> middle, the last of which is called m -> c2."""
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), *middle, conv("c2", "m")]
    own = {**weights("c1", (8, 3, 3, 3), 1), **weights("c2", (5, last, 1, 1), 2)}
    return model(nodes, {**own, **dict(constants)}, DATA, ["c2"])


def networks():
    slope = {"slope": np.full((8, 1, 1), 0.3, np.float32)}
    yield "relu", chain(node("Relu", ["c1"], "m"))
    yield "leaky", chain(node("LeakyRelu", ["c1"], "m", alpha=0.2))
    yield "prelu", chain(helper.make_node("PRelu", ["c1", "slope"], ["m"], name="m"), constants=slope)
    yield (
        "pools",
        chain(
            node("MaxPool", ["c1"], "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("AveragePool", ["p"], "q", kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
            node("GlobalAveragePool", ["q"], "m"),
        ),
    )
    yield (
        "depthwise",
        chain(
            node("Relu", ["c1"], "r"),
            conv("d", "r", group=8, pads=[1, 1, 1, 1]),
            node("Relu", ["d"], "m"),
            constants=weights("d", (8, 1, 3, 3), 3),
        ),
    )
    yield "grouped", chain(node("Relu", ["c1"], "r"), conv("m", "r", group=2), constants=weights("m", (8, 4, 1, 1), 3))
    yield (
        "residual",
        chain(
            node("Relu", ["c1"], "r"),
            conv("d", "r"),
            node("Add", ["r", "d"], "m"),
            constants=weights("d", (8, 8, 1, 1), 3),
        ),
    )
    yield (
        "concat",
        chain(
            node("Relu", ["c1"], "r"),
            conv("d", "r"),
            node("Concat", ["d", "r"], "m", axis=1),
            constants=weights("d", (4, 8, 1, 1), 3),
            last=12,
        ),
    )
    yield (
        "transposed",
        chain(
            node("Relu", ["c1"], "r"),
            helper.make_node("ConvTranspose", ["r", "m.w", "m.b"], ["m"], name="m", strides=[2, 2]),
            constants={"m.w": weights("m", (8, 6, 2, 2), 3)["m.w"], "m.b": weights("m", (6, 6, 2, 2), 3)["m.b"]},
            last=6,
        ),
    )
    yield (
        "line",
        chain(
            node("Mul", ["c1", "k"], "t"),
            node("Add", ["t", "k"], "m"),
            constants={"k": np.array(0.7, np.float32)},
        ),
    )
    yield "normalisation", chain(node("Relu", ["c1"], "r"), bn("m", "r"), constants=bn_constants("m", 8))
    fc = {"fc.w": weights("fc", (5, 8 * 64), 4)["fc.w"], "fc.b": weights("fc", (5, 8), 4)["fc.b"]}
    gemm = helper.make_node("Gemm", ["f", "fc.w", "fc.b"], ["fc"], name="fc", transB=1)
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), node("Relu", ["c1"], "r"), node("Flatten", ["r"], "f"), gemm]
    yield "flattened", model(nodes, {**weights("c1", (8, 3, 3, 3), 1), **fc}, DATA, ["fc"])


NETWORKS = dict(networks())


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_model_computes_stays(name: str) -> None:
    proto = NETWORKS[name].proto
    scaling = scaling_of(proto, {})
    free = [c for ids in scaling.classes.values() for c in ids.tolist() if c not in scaling.fixed]
    assert free, "something can be scaled"
    factors = np.ones(scaling.size)
    factors[free] = np.exp(np.random.default_rng(7).normal(0, 1, len(free)))
    new = scaled(proto, scaling, factors)
    feed = {"data": np.random.default_rng(1).normal(size=DATA["data"]).astype(np.float32)}
    before, after = run_all(proto, feed), run_all(new, feed)
    (output,) = (o.name for o in proto.graph.output)
    np.testing.assert_allclose(after[output], before[output], rtol=2e-4, atol=2e-5)
    for tensor, ids in scaling.classes.items():
        if tensor in before and before[tensor].ndim == 4:
            expected = before[tensor] * factors[ids].reshape(1, -1, 1, 1)
            np.testing.assert_allclose(after[tensor], expected, rtol=2e-4, atol=2e-4, err_msg=tensor)
    assert [n.name for n in new.graph.node] == [n.name for n in proto.graph.node]


@pytest.mark.parametrize("kind", ["Sigmoid", "Softmax", "Exp", "HardSigmoid"])
def test_what_is_no_multiple_of_its_input_is_left_alone(kind: str) -> None:
    proto = chain(node(kind, ["c1"], "m")).proto
    scaling = scaling_of(proto, {})
    assert scaling.fixed.issuperset(scaling.classes["c1"].tolist())
    assert scaling.fixed.issuperset(scaling.classes["data"].tolist())


def test_a_clip_is_scaled_up_only_and_binds_above_its_room() -> None:
    limits = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    proto = chain(node("Clip", ["c1", "low", "high"], "m"), constants=limits).proto
    tops = np.array([0.1, 0.5, 1.0, 2.0, 3.9, 4.1, 6.0, 0.0])
    scaling = scaling_of(proto, {"m": tops})
    found = [scaling.limits[int(c)] for c in scaling.classes["m"]]
    expected = [max(1.0, 6 / (CLIP_ROOM * top)) if top else 1.0 for top in tops]
    np.testing.assert_allclose(found, expected)
    assert not scaling.fixed.intersection(scaling.classes["m"].tolist())


def test_folded_is_the_same_function_under_the_same_names() -> None:
    proto = chain(bn("n", "c1"), node("Relu", ["n"], "m"), constants=bn_constants("n", 8)).proto
    new, names = folded(proto)
    feed = {"data": np.random.default_rng(1).normal(size=DATA["data"]).astype(np.float32)}
    before, after = run_all(proto, feed), run_all(new, feed)
    assert names == ("n",)
    assert [n.op_type for n in new.graph.node] == ["Conv", "Relu", "Conv"]
    assert set(after) == set(before) - {"c1"}
    for name in after:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-5)


def test_a_normalisation_whose_convolution_others_read_is_not_folded() -> None:
    middle = [bn("n", "c1"), node("Add", ["n", "c1"], "m")]
    proto = chain(*middle, constants=bn_constants("n", 8)).proto
    new, names = folded(proto)
    assert names == () and new is proto


def test_weights_that_two_layers_read_are_not_scaled() -> None:
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c1", "s.w"], ["a"], name="a"),
        helper.make_node("Conv", ["a", "s.w"], ["c2"], name="c2"),
    ]
    constants = {**weights("c1", (8, 3, 3, 3), 1), "s.w": weights("s", (8, 8, 1, 1), 2)["s.w"]}
    scaling = scaling_of(model(nodes, constants, DATA, ["c2"]).proto, {})
    assert scaling.fixed.issuperset(scaling.classes["a"].tolist())
    assert scaling.fixed.issuperset(scaling.classes["c1"].tolist())
