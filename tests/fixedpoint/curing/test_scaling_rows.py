"""Scaling channels that lie along the last axis, as between a LayerNormalization and the MatMuls that read it.

A model computes the same whatever the factors.

Oracles: onnxruntime; sampled noise; numpy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from picture_folder import write_pictures
from small_nets import conv, model, node, run_all, weights

from sgsdump.fixedpoint.curing.channel_axes import channel_axes
from sgsdump.fixedpoint.curing.channels import ChannelFigures, channel_figures
from sgsdump.fixedpoint.curing.cure import cure
from sgsdump.fixedpoint.curing.noise import Noise, layers_of
from sgsdump.fixedpoint.curing.scaling import Scaling, scaled, scaling_of
from sgsdump.fixedpoint.curing.sensitivity import of_rounding
from sgsdump.fixedpoint.curing.steps import CureOptions
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.sidecars import input_config

TOKENS, CHANNELS = 5, 8
SHAPE = (1, TOKENS, CHANNELS)


class Net:
    """x [1, 5, 8] and what is put behind it, one operator after another, with constants of its own."""

    def __init__(self, seed: int = 0):
        self.random, self.nodes, self.constants = np.random.default_rng(seed), [], {}
        self.last = "x"

    def constant(self, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = self.random.uniform(low, high, shape).astype(np.float32)
        return name

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        """An operator; it reads what was put out last where no inputs are given."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(kind, list(inputs or [self.last]), name, **attributes))
        self.last = name
        return name

    def integers(self, *values: int) -> str:
        name = self.constant(())
        self.constants[name] = np.array(values, np.int64)
        return name

    def matmul(self, source: str, inputs: int = CHANNELS, outputs: int = CHANNELS, bias: bool = True) -> str:
        product = self.add("MatMul", source, self.constant((inputs, outputs)))
        return self.add("Add", self.constant((outputs,)), product) if bias else product

    def gemm(self, source: str, inputs: int, outputs: int = 3) -> str:
        return self.add("Gemm", source, self.constant((outputs, inputs)), self.constant((outputs,)), transB=1)

    def normalised(self, source: str, kind: str = "LayerNormalization", bias: bool = True) -> str:
        offset = [self.constant((CHANNELS,))] if bias else []
        return self.add(kind, source, self.constant((CHANNELS,), 0.5, 2), *offset, axis=-1, epsilon=1e-5)

    def spelled_out(self, source: str) -> str:
        """A LayerNormalization as old exporters write it."""
        mean = self.add("ReduceMean", source, axes=[-1])
        away = self.add("Sub", source, mean)
        squares = self.add("Pow", away, self.integers(2))
        self.constants[self.nodes[-1].input[1]] = np.array(2, np.float32)
        power = self.add("ReduceMean", squares, axes=[-1])
        size = self.add("Sqrt", self.add("Add", power, self.constant((), 1e-5, 2e-5)))
        times = self.add("Mul", self.add("Div", away, size), self.constant((CHANNELS,), 0.5, 2))
        return self.add("Add", times, self.constant((CHANNELS,)))

    def model(self, opset: int = 17) -> onnx.ModelProto:
        return model(self.nodes, self.constants, {"x": SHAPE}, [self.last], opset).proto


def of_kind(kind: str, bias: bool = True) -> Net:
    """A normalisation, an MLP of two MatMuls with a Relu between them."""
    net = Net()
    net.normalised("x", kind, bias)
    net.add("Relu", net.matmul(net.last, CHANNELS, 12))
    net.matmul(net.last, 12, 4)
    return net


def attention_inputs(residual: str | None = None) -> Net:
    """Three MatMuls that read one LayerNormalization; ``residual``: what reads it besides, added to a product."""
    net = Net()
    y = net.normalised("x")
    if residual is None:
        parts = [net.matmul(y, CHANNELS, 6, bias) for bias in (True, False, True)]
        net.add("Softmax", net.add("Concat", *parts, axis=-1))
        return net
    added = net.add("Add", y, net.matmul(y))
    if residual == "normalised":
        net.normalised(added)
    net.matmul(net.last, CHANNELS, 4)
    return net


def between(*kinds: str, **attributes: object) -> Net:
    """MatMul, Add, operators, MatMul."""
    net = Net()
    net.matmul("x")
    for kind in kinds:
        slopes = [net.constant((CHANNELS,), 0.1, 0.5)] if kind == "PRelu" else []
        net.add(kind, net.last, *slopes, **attributes)
    net.matmul(net.last)
    return net


def moved(how: str) -> Net:
    net = Net()
    y = net.normalised("x")
    if how == "a token":
        net.constants["first"] = np.array(0, np.int64)
        net.gemm(net.add("Gather", y, "first", axis=1), CHANNELS)
    elif how == "mean over tokens":
        net.gemm(net.add("ReduceMean", y, axes=[1], keepdims=0), CHANNELS)
    elif how == "rows of a matrix":
        net.gemm(net.add("Reshape", y, net.integers(-1, CHANNELS)), CHANNELS)
    elif how == "all in one row":
        net.gemm(net.add("Flatten", y), TOKENS * CHANNELS)
    elif how == "a convolution":
        turned = net.add("Transpose", y, perm=[0, 2, 1])
        net.add("Conv", turned, net.constant((4, CHANNELS, 3)), net.constant((4,)))
    else:
        lines = [("Mul", (CHANNELS,)), ("Add", (1, TOKENS, CHANNELS)), ("Div", ()), ("Sub", (1, CHANNELS))]
        for kind, shape in lines:
            net.add(kind, net.last, net.constant(shape, 0.5, 2))
        net.matmul(net.last)
    return net


NETWORKS = {
    "layer normalisation": of_kind("LayerNormalization").model(),
    "no offset": of_kind("LayerNormalization", bias=False).model(),
    "RMS normalisation": of_kind("RMSNormalization", bias=False).model(23),
    "simplified": of_kind("SimplifiedLayerNormalization", bias=False).model(),
    "three readers": attention_inputs().model(),
    "exact residual": attention_inputs("exact").model(),
    "Relu": between("Relu").model(),
    "LeakyRelu": between("LeakyRelu", alpha=0.2).model(),
    "PRelu": between("PRelu").model(),
    **{
        how: moved(how).model()
        for how in (
            "a token",
            "mean over tokens",
            "rows of a matrix",
            "all in one row",
            "a convolution",
            "multiples and sums",
        )
    },
}


def spelled_out() -> onnx.ModelProto:
    net = Net()
    net.add("Relu", net.matmul(net.spelled_out("x"), CHANNELS, 12))
    net.matmul(net.last, 12, 4)
    return net.model(13)


NETWORKS["spelled out"] = spelled_out()


def free(scaling: Scaling) -> list[int]:
    return sorted({c for ids in scaling.classes.values() for c in ids.tolist()} - scaling.fixed)


def assert_the_same_function(proto: onnx.ModelProto, scaling: Scaling, seed: int) -> None:
    """With random factors, and that each tensor is as many times as large."""
    random = np.random.default_rng(seed)
    factors = np.ones(scaling.size)
    factors[free(scaling)] = np.exp(random.normal(0, 1, len(free(scaling))))
    feed = {"x": random.normal(size=SHAPE).astype(np.float32)}
    before, after = run_all(proto, feed), run_all(scaled(proto, scaling, factors), feed)
    for output in (each.name for each in proto.graph.output):
        size = np.abs(before[output]).max()
        np.testing.assert_allclose(after[output] / size, before[output] / size, rtol=0, atol=1e-5)
    axes = channel_axes(Graph(proto))
    for name in scaling.classes.keys() & before.keys():
        times = factors[scaling.classes[name]].reshape(-1, *[1] * (before[name].ndim - 1 - axes[name]))
        expected = before[name] * times
        np.testing.assert_allclose(after[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_model_computes_stays(name: str) -> None:
    proto = NETWORKS[name]
    scaling = scaling_of(proto, {})
    assert free(scaling), "something can be scaled"
    assert_the_same_function(proto, scaling, 7)


def test_all_channels_of_a_normalisation_and_of_the_hidden_units_are_free() -> None:
    scaling = scaling_of(NETWORKS["layer normalisation"], {})
    assert len(free(scaling)) == CHANNELS + 12
    assert len(free(scaling_of(NETWORKS["spelled out"], {}))) == CHANNELS + 12
    assert len(free(scaling_of(NETWORKS["three readers"], {}))) == CHANNELS
    assert len(free(scaling_of(NETWORKS["exact residual"], {}))) == CHANNELS


def test_a_residual_that_ends_in_a_normalisation_holds_the_one_before() -> None:
    net = attention_inputs("normalised")
    scaling = scaling_of(net.model(), {})
    (first, second) = (each.output[0] for each in net.nodes if each.op_type == "LayerNormalization")
    assert scaling.fixed.issuperset(scaling.classes[first].tolist())
    assert not scaling.fixed.intersection(scaling.classes[second].tolist())
    assert_the_same_function(net.model(), scaling, 3)


def gated(kind: str) -> Net:
    """A value times a function of its own, as SiLU and Gelu are written out."""
    net = Net()
    value = net.matmul("x")
    net.add("Mul", value, net.add(kind, value))
    net.matmul(net.last)
    return net


ENDINGS = {kind: between(kind).model(20) for kind in "Gelu Softmax HardSwish HardSigmoid Sigmoid Tanh Elu".split()}
ENDINGS |= {"SiLU": gated("Sigmoid").model(), "Gelu written out": gated("Erf").model()}


@pytest.mark.parametrize("name", ENDINGS)
def test_what_is_no_multiple_of_its_input_ends_a_chain(name: str) -> None:
    scaling = scaling_of(ENDINGS[name], {})
    assert len(scaling.nodes) == 2 and not free(scaling)


@pytest.mark.parametrize("kind", ["HardSwish", "SiLU"])
def test_it_ends_a_chain_of_convolutions_too(kind: str) -> None:
    middle = [node("HardSwish", ["a"], "m")]
    if kind == "SiLU":
        middle = [node("Sigmoid", ["a"], "s"), node("Mul", ["a", "s"], "m")]
    constants = {**weights("a", (6, 3, 1, 1), 1), **weights("b", (4, 6, 1, 1), 2)}
    proto = model([conv("a", "x"), *middle, conv("b", "m")], constants, {"x": (1, 3, 4, 4)}, ["b"]).proto
    scaling = scaling_of(proto, {})
    assert len(scaling.nodes) == 2 and not free(scaling)


def test_a_tensor_whose_readers_disagree_about_the_axis_is_not_scaled() -> None:
    """A convolution takes the second axis for its channels, a MatMul the last; what follows each is scaled."""
    net = Net()
    y = net.add("Relu", net.add("Conv", "x", net.constant((6, TOKENS, 1)), net.constant((6,))))
    hidden = net.add("Relu", net.matmul(y, CHANNELS, 4))
    one = net.matmul(hidden, 4, 2)
    units = net.add("Relu", net.add("Conv", y, net.constant((7, 6, 1)), net.constant((7,))))
    other = net.add("Conv", units, net.constant((2, 7, 1)), net.constant((2,)))
    proto = model(net.nodes, net.constants, {"x": SHAPE}, [one, other]).proto
    scaling = scaling_of(proto, {})
    assert y not in scaling.classes and len(free(scaling)) == 4 + 7
    assert set(free(scaling)) == {*scaling.classes[hidden].tolist(), *scaling.classes[units].tolist()}
    assert_the_same_function(proto, scaling, 5)


@pytest.mark.parametrize("axes", [{"axis": 1}, {"axis": -2}])
def test_a_normalisation_of_several_axes_is_left(axes: dict[str, int]) -> None:
    net = Net()
    y = net.add("LayerNormalization", "x", net.constant(SHAPE[1:]), net.constant(SHAPE[1:]), **axes)
    net.matmul(y)
    assert not free(scaling_of(net.model(), {}))


def random_net(seed: int) -> Net:
    """Operators in any order, over what was put out before."""
    net, tensors = Net(seed), ["x"]
    for _ in range(12):
        source = tensors[-1] if net.random.random() < 0.8 else str(net.random.choice(tensors))
        kind = str(net.random.choice("line matmul matmul normalised Relu LeakyRelu PRelu Sigmoid sum turned".split()))
        if kind == "line":
            chosen = str(net.random.choice("Add Sub Mul Div".split()))
            shape = [(), (CHANNELS,), (TOKENS, 1), (1, TOKENS, CHANNELS)][net.random.integers(4)]
            operands = [source, net.constant(shape, 0.5, 2)]
            net.add(chosen, *(operands if net.random.random() < 0.7 else operands[::-1]))
        elif kind == "matmul":
            net.matmul(source)
        elif kind == "normalised":
            net.normalised(source, bias=bool(net.random.integers(2)))
        elif kind == "PRelu":
            net.add("PRelu", source, net.constant((CHANNELS,), 0.1, 0.9))
        elif kind == "sum":
            net.add("Add", source, str(net.random.choice(tensors)))
        elif kind == "turned":
            net.add("Transpose", net.add("Relu", net.add("Transpose", source, perm=[0, 2, 1])), perm=[0, 2, 1])
        else:
            net.add(kind, source)
        tensors.append(net.last)
    net.matmul(net.last)
    return net


def test_random_networks_keep_what_they_compute() -> None:
    counts = []
    for seed in range(60):
        proto = random_net(seed).model()
        scaling = scaling_of(proto, {})
        counts.append(len(free(scaling)))
        assert_the_same_function(proto, scaling, seed)
    assert sum(count > 0 for count in counts) > 20


def figures_of(arrays: dict[str, np.ndarray]) -> dict[str, ChannelFigures]:
    """Along the last axis."""
    rows = {name: array.reshape(-1, array.shape[-1]).astype(np.float64) for name, array in arrays.items()}
    return {
        name: ChannelFigures(each.min(axis=0), each.max(axis=0), (each**2).mean(axis=0), each.mean(axis=0))
        for name, each in rows.items()
    }


def test_figures_are_of_the_channels_along_the_last_axis() -> None:
    proto = NETWORKS["layer normalisation"]
    feed = {"x": np.random.default_rng(2).normal(size=SHAPE).astype(np.float32)}
    expected = figures_of(run_all(proto, feed))
    found = channel_figures(Model(proto, Path("net.onnx")), [("a", feed)], channel_axes(Graph(proto)))
    assert expected.keys() <= found.keys()
    for name, each in expected.items():
        for part in ("low", "high", "power", "mean"):
            np.testing.assert_allclose(getattr(found[name], part), getattr(each, part), rtol=1e-4, atol=1e-5)


def test_the_noise_of_a_matmul_is_that_of_rounding_its_input() -> None:
    proto = NETWORKS["layer normalisation"]
    feed = {"x": np.random.default_rng(2).normal(size=SHAPE).astype(np.float32)}
    figures = figures_of(run_all(proto, feed))
    scaling = scaling_of(proto, {})
    layers = layers_of(proto, scaling, figures)
    assert [each.node.op_type for each in layers] == ["MatMul", "MatMul"]
    noise, random = Noise(figures), np.random.default_rng(0)
    for layer in layers:
        inputs, *_ = noise.by_channel(layer, np.ones(scaling.size))
        read = figures[layer.node.input[0]]
        step = (max(read.high.max(), 0) - min(read.low.min(), 0)) / 255
        weight = next(numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == layer.node.input[1])
        moved_by = random.uniform(-step / 2, step / 2, (200_000, weight.shape[0])) @ weight.astype(np.float64)
        np.testing.assert_allclose(inputs, (moved_by**2).mean(axis=0), rtol=0.03)


def test_rounding_of_the_last_axis_is_measured() -> None:
    """x -> a -> Relu -> b: the tensor's channels rounded to their steps, by numpy."""
    net = Net()
    r = net.add("Relu", net.matmul("x", CHANNELS, 4))
    y = net.matmul(r, 4, 3, bias=False)
    proto = net.model()
    feed = {"x": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
    steps = np.array([0.5, 0.25, 0.1, 0.4])
    (found,) = of_rounding(proto, [feed], [y], {r: steps}, {r: 2})[r]
    real = run_all(proto, feed)
    away = np.rint(real[r] / steps.astype(np.float32)) * steps - real[r]
    moved_by = away @ net.constants[net.nodes[-1].input[1]]
    assert found == pytest.approx((moved_by**2).sum() / (real[y] ** 2).sum(), rel=1e-3)


@pytest.mark.parametrize("kind", ["LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("times", [20, 80])
def test_cure_equalises_a_loud_channel_of_a_normalisation(kind: str, times: float, tmp_path: Path) -> None:
    """data [1, 3, 8, 8] -> rows [1, 24, 8] -> normalisation -> MatMul, one channel louder, which the weights undo."""
    net = Net()
    net.add("Reshape", "data", net.integers(1, 24, CHANNELS))
    net.normalised(net.last, kind, bias=kind == "LayerNormalization")
    for name in net.nodes[-1].input[1:]:
        net.constants[name][3] *= times
    net.matmul(net.last, CHANNELS, 6)
    net.constants[net.nodes[-2].input[1]][3] /= times
    write_pictures(tmp_path, 12)
    opset = 23 if kind == "RMSNormalization" else 17
    proto = model(net.nodes, net.constants, {"data": (1, 3, 8, 8)}, [net.last], opset).proto
    onnx.save(proto, tmp_path / "net.onnx")
    source, config = open_model(tmp_path / "net.onnx"), input_config.read(tmp_path / "input_config.ini")
    feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    cured = cure(source, feeds, config, CureOptions("L2", ("equalise",)))
    (step,) = cured.steps
    assert step.taken and step.count == CHANNELS and step.kept is not None and step.kept < 1e-5
    assert cured.errors[net.last] < 0.05 * cured.as_it_is[net.last]
    assert cured.changed[net.last] < 1e-10


def test_weights_that_are_inputs_are_constants_to_the_cure(tmp_path: Path) -> None:
    """Models of IR version 3 list their weights among the inputs: the cure is that of the model that does not."""
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (4, 6, 1, 1), 2)}
    constants["a.w"][0] *= 60
    constants["b.w"][:, 0] /= 60
    nodes = [conv("a", "data"), node("Relu", ["a"], "r"), conv("b", "r")]
    plain = model(nodes, constants, {"data": (1, 3, 8, 8)}, ["b"], 9).proto
    write_pictures(tmp_path, 12)
    config = input_config.read(tmp_path / "input_config.ini")
    found = []
    for version, listed, beside in ((8, False, False), (8, True, False), (3, True, False), (3, True, True)):
        proto = onnx.ModelProto()
        proto.CopyFrom(plain)
        proto.ir_version = version
        if listed:
            proto.graph.input.extend(
                helper.make_tensor_value_info(name, 1, array.shape) for name, array in constants.items()
            )
        onnx.save(proto, tmp_path / "net.onnx", save_as_external_data=beside, location="net.data", size_threshold=0)
        source = open_model(tmp_path / "net.onnx")
        feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
        cured = cure(source, feeds, config, CureOptions("L2", ("ranges", "equalise")))
        assert [each.name for each in cured.proto.graph.input] == ["data"]
        assert [step.cure for step in cured.steps if step.taken][:1] == ["equalise"]
        onnx.checker.check_model(cured.proto)
        found.append(cured)
    for other in found[1:]:
        assert [step.taken for step in other.steps] == [step.taken for step in found[0].steps]
        assert other.errors == found[0].errors and other.by_image == found[0].by_image
        assert other.proto.graph.initializer == found[0].proto.graph.initializer
