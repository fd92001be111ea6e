"""Ranges against numpy over all feeds; the fixed model's refusals."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_nets import conv, model, node, residual_net, run_all, weights

from sgsdump.errors import ConfigError, InputError
from sgsdump.fixedpoint.quantisation.analysis import Analysis
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.fixedpoint.quantisation.float_model import Picture, pictures_of, serialise, simplify
from sgsdump.fixedpoint.quantisation.quant_file import Imported
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.ranges.statistics import Statistics
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.type_rules import Operator
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
from sgsdump.tensors.types import Range


def feeds(count):
    for seed in range(count):
        yield f"picture {seed}", {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}


def config(**changes):
    entry = ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3)
    return InputConfig(**{"inputs": (entry,), "outputs": (ModelOutput("prob", True),), **changes})


def test_ranges_are_the_minimum_and_maximum_over_all_feeds_in_graph_order():
    net = residual_net()
    ranges = measure_ranges(simplify(net), feeds(3))
    assert list(ranges)[:6] == ["data", "c1.w", "c1.b", "c1", "r1", "c2.w"]
    runs = [{**feed, **run_all(net.proto, feed)} for _, feed in feeds(3)]
    for name in ("data", "c1", "add", "gap", "prob"):
        assert ranges[name].low == pytest.approx(min(run[name].min() for run in runs), rel=1e-5)
        assert ranges[name].high == pytest.approx(max(run[name].max() for run in runs), rel=1e-5)
    assert ranges["c2.w"].low == float(f"{weights('c2', (8, 8, 1, 1), 2)['c2.w'].min():f}")


def test_feeds_are_taken_one_at_a_time():
    alive = 0

    def lazily():
        nonlocal alive
        for label, feed in feeds(3):
            alive += 1
            assert alive == 1
            yield label, feed
            alive -= 1

    measure_ranges(simplify(residual_net()), lazily())


def test_nan_has_no_range_and_is_said_with_its_tensor_and_picture():
    def bad():
        yield "cat.jpg", {"data": np.full((1, 3, 8, 8), np.nan, np.float32)}

    with pytest.raises(InputError, match=r"'data' holds NaN or infinity on cat\.jpg"):
        measure_ranges(simplify(residual_net()), bad())


def test_no_picture_is_said():
    with pytest.raises(InputError, match="no image to calibrate"):
        measure_ranges(simplify(residual_net()), iter(()))


def test_names_of_another_model_are_refused():
    simple = simplify(residual_net())
    ranges = measure_ranges(simple, feeds(1))
    with pytest.raises(ConfigError, match="inputs names 'dat'"):
        make_fixed(simple, ranges, config(inputs=(ModelInput("dat", "RGB", "RGB"),)))
    with pytest.raises(ConfigError, match="outputs names 'p'"):
        make_fixed(simple, ranges, config(outputs=(ModelOutput("p"),)))
    with pytest.raises(ConfigError, match="no layer of this model"):
        make_fixed(simple, {"other": Range.of(0, 1)}, config())


def test_a_picture_of_the_wrong_channels_is_refused():
    simple = simplify(residual_net())
    with pytest.raises(ConfigError, match=r"GRAY image.*\[1, 3, 8, 8\]"):
        make_fixed(simple, measure_ranges(simple, feeds(1)), config(inputs=(ModelInput("data", "GRAY", "GRAY"),)))


def test_bgr_takes_its_means_in_the_order_of_its_channels():
    simple = simplify(residual_net())
    entry = ModelInput("data", "BGR", "BGR", (123.0, 117.0, 104.0), (58.0,) * 3)
    fixed = make_fixed(simple, measure_ranges(simple, feeds(1)), config(inputs=(entry,)))
    record = next(
        iter(simulate(replace(simple, proto=fixed.proto), {"data": np.full((1, 3, 8, 8), 110, np.float32)}).records)
    )
    blue, green, red = record.tensor.real()[0, 0, 0]
    np.testing.assert_allclose([blue, green, red], (110 - np.array([104.0, 117.0, 123.0])) / 58, atol=0.02)


def test_batchnorm_is_a_factor_and_an_offset_that_join_the_convolution():
    rng = np.random.default_rng(0)
    constants = weights("c", (4, 3, 3, 3)) | {
        name: rng.uniform(0.5, 1.5, 4).astype(np.float32) for name in ("gamma", "beta", "mean", "var")
    }
    nodes = [
        conv("c", "data"),
        node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], "bn"),
        node("Relu", ["bn"], "r"),
    ]
    simple = simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["r"]))
    ranges, visible = (measure_ranges(simple, feeds(2), fuse=fuse) for fuse in (True, False))
    plain = InputConfig((ModelInput("data", "RGB", "RGB"),))
    fixed = make_fixed(simple, ranges, plain)
    assert set(fixed.plan.tensors) == {"data", "r"}
    assert fixed.plan.weights["c"].scale == pytest.approx(np.abs(constants["c.w"]).max() / 127, rel=1e-5)
    unfused = make_fixed(simple, visible, plain, fuse=False)
    assert set(unfused.plan.tensors) == {"data", "c", "bn_MUL_output", "bn", "r"}


def test_an_input_that_is_not_quantised_stays_float():
    simple = simplify(residual_net())
    entry = ModelInput("data", "RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC", (), (), quantised=False)
    fixed = make_fixed(simple, measure_ranges(simple, feeds(1)), config(inputs=(entry,)))
    assert "data" not in fixed.plan.tensors and "c1" not in fixed.plan.weights
    run_all(fixed.proto, dict(next(feeds(1))[1]))


def test_the_fixed_model_is_a_valid_file_that_any_onnx_reader_takes(tmp_path):
    simple = simplify(residual_net())
    fixed = make_fixed(simple, measure_ranges(simple, feeds(2)), config())
    path = tmp_path / "fixed.onnx"
    path.write_bytes(serialise(fixed.proto))
    onnx.checker.check_model(str(path))


@pytest.mark.parametrize(("dequantised", "name"), [(True, "prob"), (False, "prob#stored")])
def test_an_output_that_is_not_dequantised_leaves_as_integers(dequantised, name):
    simple = simplify(residual_net())
    fixed = make_fixed(simple, measure_ranges(simple, feeds(1)), config(outputs=(ModelOutput("prob", dequantised),)))
    assert [output.name for output in fixed.proto.graph.output] == [name]


@pytest.mark.parametrize(
    ("kind", "channels", "picture"),
    [
        *(("RGB", 3, ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))), ("BGR", 3, ((3.0, 2.0, 1.0), (6.0, 5.0, 4.0)))),
        *(("GRAY", 1, ((1.0,), (4.0,))), ("GRAY", 3, None), ("RGB", 1, None), ("BGR", 4, None)),
    ],
)
def test_the_mean_and_std_of_a_picture_by_its_colours(kind, channels, picture):
    net = model([node("Relu", ["x"], "y")], {}, {"x": (1, channels, 4, 4)}, ["y"])
    given = InputConfig((ModelInput("x", kind, kind, (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),))
    if picture is None:
        with pytest.raises(ConfigError, match=rf"{kind} image.*\[1, {channels}, 4, 4\], not \[N, [13], H, W\]"):
            pictures_of(net, given, {"x": Range.of(0, 1)})
        return
    assert pictures_of(net, given, {"x": Range.of(0, 1)}) == {"x": Picture(*picture)}
    assert pictures_of(net, given, {}) == {}, "without a range it is not quantised"


# To 26: the newest that onnxruntime takes today. Some INT16 layers differ by a step, where onnxruntime fuses.
@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 17, 20, 21, 23, min(26, onnx.defs.onnx_opset_version())])
def test_every_fixed_model_runs_in_plain_onnxruntime_at_every_optimisation_level(opset):
    net = residual_net(opset)
    net.proto.ir_version = 3 if opset < 9 else 10
    for tensor in net.proto.graph.initializer if opset < 9 else ():
        shape = list(tensor.dims)
        net.proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    simple = simplify(net)
    fixed = make_fixed(simple, measure_ranges(simple, feeds(2)), config(), per_channel=True)
    picture = {"data": np.random.default_rng(9).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)}
    simulation = simulate(replace(simple, proto=fixed.proto), picture)
    list(simulation.records)
    for level in ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
        session = ort.InferenceSession(fixed.proto.SerializeToString(), options)
        (prob,) = session.run(["prob"], picture)
        np.testing.assert_allclose(prob, simulation.outputs["prob"], atol=2e-3, err_msg=level)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Statistics({}, {}, {}, {}, {}),
        lambda: Operator((), (), ()),
        lambda: Analysis(None, (), {}, {}, frozenset()),
        lambda: FixedModel(None, None),
        lambda: Imported(None, None),
    ],
)
def test_what_holds_arrays_or_models_is_compared_by_identity(make):
    one = make()
    assert one == one and one != make() and len({one, make()}) == 2


def test_an_operator_whose_first_output_is_left_out_stays_what_it_is():
    """An LSTM of which only the last state is read: its second output was taken for the first."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(0, 0.3, (1, 16, 3)).astype(np.float32),
        "r": rng.normal(0, 0.3, (1, 16, 4)).astype(np.float32),
        "axes": np.array([0]),
        **weights("fc", (2, 4), 1),
    }
    nodes = [
        onnx.helper.make_node("LSTM", ["x", "w", "r"], ["", "last"], name="cell", hidden_size=4),
        onnx.helper.make_node("Squeeze", ["last", "axes"], ["flat"], name="flat"),
        onnx.helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["y"], name="fc", transB=1),
    ]
    net = simplify(model(nodes, constants, {"x": (5, 1, 3)}, ["y"]))
    feed = {"x": rng.normal(size=(5, 1, 3)).astype(np.float32)}
    fixed = make_fixed(net, measure_ranges(net, [("one", feed)]), InputConfig(()))
    (given,) = ort.InferenceSession(fixed.proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        ["y"], feed
    )
    np.testing.assert_allclose(given, run_all(net.proto, feed)["y"], atol=0.02)
