"""Sums in the order of the SDK's float simulator: its dump to the last bit, its ranges to the last digit.

The network of ``golden/sigmastar/sums`` has an operator of each kind with a rule. Without the compiled kernel the sums
have the same bits.
"""

import lzma
from contextlib import contextmanager

import numpy as np
import pytest
from small_nets import conv, model, node, run_all, weights

from sgsdump.dumps.io import open_dump
from sgsdump.errors import ModelError
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges import simulator_sums as sums
from sgsdump.fixedpoint.quantisation.ranges.simulator_rules import UNFIT, rules_of
from sgsdump.fixedpoint.quantisation.ranges.simulator_run import SimulatorRunner
from sgsdump.fixedpoint.quantisation.ranges.simulator_sums import Filters, Window
from sgsdump.models.graph import Graph
from sgsdump.models.model import open_model
from sgsdump.sidecars import input_config

# What the SDK's converter adds or numbers as it fills up inputs of a Concat, spreads those of a transposed convolution
# and requantises a mean.
ADDED = {
    *("right#1#43", "left#1#42", "joined#1#44", "dilated_w#1#45"),
    *("up_dilation_output", "mean#/Mul0Input#46", "mean#/Mul0Input1#47"),
}


def feed_of(path):
    """A picture of height, width, channels as the float model takes it."""
    picture = np.load(path)
    return {"data": ((picture - np.float32(127)) / np.float32(128)).transpose(2, 0, 1)[None].astype(np.float32)}


def values_of(found, feed):
    runner = SimulatorRunner(found, rules_of(Graph(found.proto)))
    return {layer.name: layer.array.copy() for layer in runner.run(feed)}


@pytest.mark.parametrize("compiled", [True, False])
def test_every_value_is_the_float_simulators(shared, tmp_path, monkeypatch, compiled):
    folder = shared / "sigmastar/sums"
    (tmp_path / "float.bin").write_bytes(lzma.decompress((folder / "float.bin.xz").read_bytes()))
    if not compiled:
        monkeypatch.setattr(sums, "_KERNEL", None)
    ours = values_of(simplify(open_model(folder / "net.onnx")), feed_of(folder / "input.npy"))
    theirs = open_dump(tmp_path / "float.bin")
    assert set(ours) - set(theirs) == {"joined"}  # filled up there
    del ours["joined"]
    for name, array in ours.items():
        np.testing.assert_array_equal(np.moveaxis(array, 1, -1).reshape(-1), theirs[name].stored().reshape(-1), name)


def test_the_ranges_are_the_calibrators_to_the_last_digit(shared, tmp_path):
    folder = shared / "sigmastar/sums"
    found, config = simplify(open_model(folder / "net.onnx")), input_config.read(folder / "input_config.ini")
    feeds = [(path.name, feed_of(path)) for path in sorted((folder / "calib").iterdir())]
    calibration = calibrate(found, feeds, config, "L1")
    fixed = make_fixed(found, calibration.ranges, calibration.config)
    write_log(tmp_path, found, calibration, fixed.plan, LogOptions(weights=False))
    for name in ("tensor_min_max.txt", "tensor_chn.txt"):
        ours, theirs = ((where / name).read_text().splitlines() for where in (tmp_path, folder))
        missing = {line.removeprefix("Name:").split(",")[0] for line in set(theirs) - set(ours)}
        assert missing == (ADDED if name == "tensor_min_max.txt" else set())
    assert "Name:dilated_bias, min: 0.000000, max: 1.000000;" in (tmp_path / "tensor_min_max.txt").read_text()


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "filters", "groups", "window"),
    [
        ((1, 3, 9, 7), (5, 3, 3, 3), 1, Window((2, 1), (1, 0, 2, 1))),
        ((2, 19, 6, 6), (9, 19, 3, 1), 1, Window((1, 1), (2, 0, 2, 0), (2, 1))),
        ((1, 8, 5, 5), (16, 4, 3, 3), 2, Window((1, 1), (1, 1, 1, 1))),
        ((1, 6, 5, 5), (12, 1, 3, 3), 6, Window((1, 2), (1, 1, 1, 1))),
        ((2, 5, 9, 8), (5, 1, 3, 2), 5, Window((2, 1), (2, 0, 1, 1), (2, 3))),
        ((1, 4, 2, 2), (4, 1, 3, 3), 4, Window()),
        ((1, 17, 1, 1), (3, 17, 1, 1), 1, Window()),
        ((1, 3, 2, 2), (3, 3, 3, 3), 1, Window()),
        ((1, 24, 1, 5), (17, 24, 1, 1), 1, Window()),
        ((1, 8, 4, 4), (8, 8, 1, 2), 1, Window((3, 2))),
    ],
)
@pytest.mark.parametrize("vectors", ["AVX-512", "AVX2", "plain C"])
def test_numpy_gives_the_kernels_bits(monkeypatch, vectors, shape, filters, groups, window):
    x, w, bias = random(*shape), random(*filters, seed=1), random(filters[0], seed=2)
    with using(vectors):
        made = Filters(w, groups).convolve(x, bias, window)
    monkeypatch.setattr(sums, "_KERNEL", None)
    monkeypatch.setattr(sums, "_CHUNK_FLOATS", 1)
    np.testing.assert_array_equal(Filters(w, groups).convolve(x, bias, window), made)
    assert made.flags.c_contiguous and made.dtype == np.float32


@contextmanager
def using(vectors):
    kernel = sums._KERNEL
    if kernel is None:
        pytest.skip("no compiled kernel")
    if not kernel.use(vectors):
        pytest.skip(f"this processor has no {vectors}")
    try:
        yield
    finally:
        assert any(map(kernel.use, ("AVX-512", "AVX2", "plain C")))


def test_a_sum_of_eight_partial_sums():
    x, w = random(1, 20, 1, 1), random(1, 20, 1, 1, seed=1)
    lanes = [np.float32(0)] * 8
    for channel in range(20):
        lanes[channel % 8] += x[0, channel, 0, 0] * w[0, channel, 0, 0]
    total = lanes[0]
    for lane in lanes[1:]:
        total = total + lane
    assert Filters(w).convolve(x, None, Window())[0, 0, 0, 0] == total
    apart = Filters(w, channels=(4, 16)).convolve(x, None, Window())[0, 0, 0, 0]  # the fifth channel begins a block
    assert apart == pytest.approx(total, rel=1e-5) and apart != total


NETS = {
    "grouped": ([conv("c", "x", group=2, pads=[1] * 4)], weights("c", (6, 2, 3, 3)), (1, 4, 7, 5)),
    "same": ([conv("c", "x", auto_pad="SAME_LOWER", strides=[2, 2])], weights("c", (6, 4, 3, 3)), (1, 4, 7, 6)),
    "one axis": ([conv("c", "x", pads=[2, 1], strides=[2], dilations=[2])], weights("c", (6, 4, 3)), (2, 4, 9)),
    "transposed": (
        [node("ConvTranspose", ["x", "c.w"], "y", strides=[2, 3], pads=[1, 0, 2, 1], output_padding=[1, 0], group=2)],
        weights("c", (4, 3, 3, 4)),
        (1, 4, 5, 4),
    ),
    "cropped": ([node("ConvTranspose", ["x", "c.w"], "y", pads=[3] * 4)], weights("c", (4, 3, 3, 3)), (1, 4, 9, 8)),
    "gemm": ([node("Gemm", ["x", "c.w", "c.b"], "y", transB=1)], weights("c", (5, 9)), (3, 9)),
    "scaled": ([node("Gemm", ["x", "c.w", "c.b"], "y", transB=1, alpha=2.0)], weights("c", (5, 9)), (3, 9)),
    "matmul": ([node("MatMul", ["x", "c.w"], "y")], weights("c", (9, 5)), (2, 3, 9)),
    "dynamic": ([node("MatMul", ["x", "x"], "y")], {}, (2, 9, 9)),
    "pool": ([node("AveragePool", ["x"], "y", kernel_shape=[3, 2], pads=[1, 0, 1, 1])], {}, (1, 4, 7, 5)),
    "counted": (
        [node("AveragePool", ["x"], "y", kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1)],
        {},
        (1, 4, 7, 5),
    ),
    "ceil": ([node("AveragePool", ["x"], "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], {}, (1, 4, 7, 5)),
    "mean": ([node("ReduceMean", ["x"], "y", axes=[-1, 1], keepdims=0)], {}, (2, 4, 7, 5)),
    "softmax": ([node("Softmax", ["x"], "y", axis=1)], {}, (2, 4, 7)),
    "tanh": ([node("Tanh", ["x"], "y")], {}, (2, 300)),
    "sigmoid": ([node("Sigmoid", ["x"], "y")], {}, (2, 300)),
    "exp": ([node("Exp", ["x"], "y")], {}, (2, 300)),
}


@pytest.mark.parametrize("name", NETS)
def test_what_is_computed_is_onnxruntimes_but_for_the_last_bits(name):
    nodes, constants, shape = NETS[name]
    net = model(nodes, constants, {"x": shape}, [nodes[-1].output[0]])
    feed = {"x": random(*shape) * np.float32(4)}
    assert bool(rules_of(Graph(net.proto))) == (name not in ("scaled", "dynamic", "ceil"))
    ours, expected = values_of(net, feed), run_all(net.proto, feed)
    for output, array in ours.items():
        assert array.shape == expected[output].shape
        np.testing.assert_allclose(array, expected[output], rtol=2e-5, atol=2e-6)


DAMAGED = [
    conv("c", "x", strides=[0, 1]),
    conv("c", "x", strides=[-1, -1]),
    conv("c", "x", dilations=[1, -9]),
    conv("c", "x", pads=[-3, 0, 0, 0]),
    conv("c", "x", pads=[1 << 40] * 4),
    conv("c", "x", group=3),
    conv("c", "x", group=2),
    node("AveragePool", ["x"], "c"),
    node("Softmax", ["x"], "c", axis=9),
    node("ReduceMean", ["x"], "c", axes=[7]),
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_node_is_left_to_onnxruntime(damaged):
    net = model([node("Relu", ["x"], "r")], weights("c", (6, 4, 3, 3)), {"x": (1, 4, 7, 5)}, ["r"])
    net.proto.graph.node.append(damaged)
    net.proto.graph.output[0].name = "c"
    rules = rules_of(Graph(net.proto))
    with pytest.raises(UNFIT), np.errstate(all="ignore"):
        rules["c"](random(1, 4, 7, 5)) if "c" in rules else int("no rule")
    with pytest.raises(ModelError):
        values_of(net, {"x": random(1, 4, 7, 5)})


def test_tanh_ends_at_one():
    with np.errstate(all="ignore"):
        found = sums.tanh(np.array([-np.inf, -30, -0.0, 1e-30, 30, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(found, np.array([-1, -1, -0.0, 1e-30, 1, 1, np.nan], np.float32))
