"""A quant file on top of calibration: what it overrides, what it raises, what it may not say."""

import json
import pickle
from dataclasses import replace

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, residual_net, run_all, single_convolution, weights

import sgsdump
from sgsdump.errors import ConfigError, ModelError, SgsdumpError
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.quant_file import import_params, read_quant_file
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.models.graph import Graph
from sgsdump.models.model import open_model
from sgsdump.sidecars import quant_param
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("prob", True),))
NET = simplify(residual_net())


def feeds(count=3):
    rng = np.random.default_rng(0)
    return [(str(i), {"data": rng.uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)}) for i in range(count)]


def given(tmp_path, *entries):
    """Entries as they come out of a file; with data they make a pickle."""
    path = tmp_path / "q"
    if any("data" in entry for entry in entries):
        path.write_bytes(pickle.dumps(list(entries), 3))
    else:
        path.write_text(json.dumps(list(entries)))
    return quant_param.read(path)


def fixed_with(params, config=CONFIG, net=NET):
    imported = import_params(net, params, config)
    ranges = measure_ranges(imported.model, feeds()) | imported.ranges
    return make_fixed(imported.model, ranges, imported.config), imported


def _without_who(proto):
    """The model's bytes, but for who raised what: the file, where it was the config."""
    plain = onnx.ModelProto.FromString(proto.SerializeToString())
    for entry in plain.metadata_props:
        facts = json.loads(entry.value)
        entry.value = json.dumps({key: value for key, value in facts.items() if key not in ("decided", "raised_by")})
    return plain.SerializeToString()


def types(fixed):
    return {name: str(quant.dtype) for name, quant in fixed.plan.weights.items()}


def test_ranges_take_the_place_of_the_calibrated_ones(tmp_path):
    channels = np.linspace(0.1, 0.8, 8)
    params = given(
        tmp_path,
        {"name": "r1", "min": [0.0], "max": [5.1], "bit": 8},
        {"name": "c2.w", "min": (-channels).tolist(), "max": (channels / 2).tolist(), "bit": 8},
        {"name": "c3.w", "min": [-1.27], "max": [0.5]},
    )
    fixed, imported = fixed_with(params)
    assert list(imported.ranges) == ["r1", "c2.w", "c3.w"] and not imported.unknown
    assert fixed.plan.tensors["r1"].scale == pytest.approx(0.02)
    np.testing.assert_allclose(fixed.plan.weights["c2"].scale, channels / 127, rtol=1e-6)
    assert fixed.plan.weights["c3"].scale == pytest.approx(0.01) and fixed.plan.weights["c3"].axis is None
    untouched = make_fixed(NET, measure_ranges(NET, feeds()), CONFIG).plan
    assert fixed.plan.weights["fc"] == untouched.weights["fc"]


def test_one_value_per_channel_of_a_tensor_is_its_union(tmp_path):
    low, high = np.linspace(-1, -0.1, 8), np.linspace(0.5, 4.1, 8)
    fixed, _ = fixed_with(given(tmp_path, {"name": "r1", "min": low.tolist(), "max": high.tolist(), "bit": 8}))
    assert fixed.plan.tensors["r1"].scale == pytest.approx(5.1 / 255)


@pytest.mark.parametrize("name", ["pool", "c3.w"])
def test_bit_16_of_the_input_or_the_weights_raises_the_convolution(tmp_path, name):
    fixed, imported = fixed_with(given(tmp_path, {"name": name, "min": [-2.0], "max": [2.0], "bit": 16}))
    assert types(fixed) == {"c1": "int8", "c2": "int8", "c3": "int16", "fc": "int8"}
    assert imported.config.tensor_arrays == ("pool",)


def test_the_wider_of_file_and_config_holds(tmp_path):
    config = replace(CONFIG, tensor_arrays=("r1",))
    params = given(
        tmp_path, {"name": "r1", "min": [0], "max": [2], "bit": 8}, {"name": "flat", "min": [0], "max": [1], "bit": 16}
    )
    fixed, _ = fixed_with(params, config)
    assert types(fixed) == {"c1": "int8", "c2": "int16", "c3": "int8", "fc": "int16"}


def test_an_entry_without_a_range_may_still_raise(tmp_path):
    fixed, imported = fixed_with(given(tmp_path, {"name": "pool", "min": [], "max": [], "bit": 16}))
    assert types(fixed)["c3"] == "int16" and not imported.ranges


def test_names_of_no_tensor_are_handed_back(tmp_path):
    params = given(tmp_path, *({"name": name, "min": [0.0], "max": [1.0]} for name in ("r1", "x", "y", "x")))
    assert import_params(NET, params, CONFIG).unknown == ("x", "y")


def test_genuine_parameters_of_the_small_network(shared):
    from sgsdump.sidecars import input_config

    folder = shared / "sigmastar"
    net = simplify(open_model(folder / "model/tiny.prototxt", folder / "model/tiny.caffemodel"))
    config = replace(input_config.read(folder / "model/input_config.ini"), outputs=())
    imported = import_params(net, quant_param.read(folder / "quant_param/optimized_quant_info_0_0.65.pkl"), config)
    assert imported.unknown == ("fc_reshape#1_output#30",), "fc_weight#28 is the converter's name of fc_weight"
    assert imported.ranges["block/dw_filter"].min.size == 10 and not imported.config.tensor_arrays


NEW_WEIGHTS = np.random.default_rng(9).normal(0, 0.2, (8, 8, 1, 1)).astype(np.float32)


def test_data_takes_the_place_of_the_weights(tmp_path):
    entry = {"name": "c2.w", "min": [-1.0], "max": [1.0], "bit": 8, "data": NEW_WEIGHTS}
    imported = import_params(NET, given(tmp_path, entry), CONFIG)
    assert imported.changed == {"c2.w"}
    ((_, feed),) = feeds(1)
    expected = np.einsum("oi,nihw->nohw", NEW_WEIGHTS[..., 0, 0], run_all(NET.proto, feed)["r1"])
    bias = weights("c2", (8, 8, 1, 1), 2)["c2.b"].reshape(1, -1, 1, 1)
    np.testing.assert_allclose(run_all(imported.model.proto, feed)["c2"], expected + bias, atol=1e-5)
    assert run_all(NET.proto, feed)["c2"] != pytest.approx(expected + bias, abs=1e-3), "the model given is not changed"


def test_data_counts_as_folded():
    rng = np.random.default_rng(0)
    norm = {name: rng.uniform(0.5, 1.5, 4).astype(np.float32) for name in ("gamma", "beta", "mean", "var")}
    nodes = [conv("c", "data"), node("BatchNormalization", ["c", *norm], "bn")]
    net = simplify(model(nodes, weights("c", (4, 3, 3, 3)) | norm, {"data": (1, 3, 8, 8)}, ["bn"]))
    data = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    imported = import_params(net, [QuantParam("c.w", None, None, data)], InputConfig(()))
    constants = {t.name: t for t in imported.model.proto.graph.initializer}
    assert constants["c.w"].raw_data == data.tobytes() and "gamma" not in constants


def entry(name="r1", low=(0.0,), high=(1.0,), bit=None, data=None):
    return QuantParam(name, Range(np.array(low), np.array(high), bit), bit, data)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([entry("conv9"), entry("conv8")], "no entry names a tensor of the model; the first name is 'conv9'"),
        ([], "the file has no quant parameters"),
        ([entry(bit=4)], "'r1' is set to bit = 4; use 8 or 16"),
        ([entry("c2.w", bit=32)], "'c2.w' is set to bit = 32"),
        ([entry("data", bit=16)], "'data' is set to bit = 16, but an image input"),
        ([entry("c1.w", bit=16)], "'c1.w' is set to bit = 16, but an image input and the weights of the convolution"),
        ([entry("sig", bit=8)], "'sig' is set to bit = 8, but no convolution reads this tensor"),
        ([entry("c2.w", (0.0,) * 7, (1.0,) * 7)], "'c2.w' has 7 values of min and max, but the tensor has 8 channels"),
        ([entry("pool", (0.0,) * 6, (1.0,) * 6)], "'pool' has 6 values of min and max, but the tensor has 8 channels"),
        ([entry(), entry(high=(2.0,))], "'r1' has two entries with different ranges"),
        (
            [entry("c2.w", data=NEW_WEIGHTS[:4])],
            r"'c2.w' has data of shape [4, 8, 1, 1], but this weight has shape [8, 8, 1, 1] in the model",
        ),
        (
            [entry("c2.b", data=np.zeros(8))],
            "'c2.b' has the key 'data', which is allowed only for the weight of a convolution",
        ),
        ([entry("c2.w", data=NEW_WEIGHTS * np.nan)], "'c2.w' has data with NaN"),
        ([entry("c2.w", data=np.where(np.arange(64) == 9, np.inf, 0).reshape(8, 8, 1, 1))], "'c2.w' has data with NaN"),
        ([entry("c2.w", (0.0,) * 2, (1.0,) * 2)], "'c2.w' has 2 values of min and max, but the tensor has 8 channels"),
        ([entry("fc", (0.0,) * 4, (1.0,) * 4)], "'fc' has 4 values of min and max, but the tensor has 5 channels"),
    ],
)
def test_what_cannot_be_is_one_line(params, message):
    with pytest.raises(ConfigError) as caught:
        import_params(NET, params, CONFIG, where="q.json")
    assert message in str(caught.value) and str(caught.value).startswith("q.json") and "\n" not in str(caught.value)


@pytest.mark.parametrize("level", ["L1", "L2", "L5"])
@pytest.mark.parametrize("form", ["json", "pickle"])
@pytest.mark.parametrize("raised", [(), ("pool",)])
def test_what_a_fixed_model_exports_makes_it_again(tmp_path, level, form, raised):
    found = calibrate(NET, feeds(), replace(CONFIG, tensor_arrays=raised), level)
    fixed = make_fixed(NET, found.ranges, found.config)
    params = sgsdump.quant_params(replace(NET, proto=fixed.proto))
    assert {p.name for p in params} == {*fixed.plan.tensors, "c1.w", "c2.w", "c3.w", "fc.w"}
    assert [p.bit for p in params if p.name == "c3.w"] == [16 if raised else 8]
    quant_param.write(params, tmp_path / "q", form)
    again, _ = fixed_with(quant_param.read(tmp_path / "q"))
    assert _without_who(again.proto) == _without_who(fixed.proto)


def test_a_model_that_remembers_no_ranges_exports_what_its_scales_span():
    fixed = make_fixed(NET, measure_ranges(NET, feeds()), CONFIG)
    (metadata,) = fixed.proto.metadata_props
    facts = json.loads(metadata.value)
    del facts["ranges"]
    metadata.value = json.dumps(facts)
    params = {p.name: p for p in sgsdump.quant_params(replace(NET, proto=fixed.proto))}
    quant = fixed.plan.tensors["r1"]
    assert (params["r1"].range.low, params["r1"].range.high) == (0.0, pytest.approx(255 * quant.scale))
    picture = fixed.plan.tensors["data"]
    assert picture.zero_point > 0
    ends = [(stored - picture.zero_point) * picture.scale for stored in (0, 255)]
    assert [params["data"].range.low, params["data"].range.high] == pytest.approx(ends)
    assert params["c3.w"].range.high == pytest.approx(127 * fixed.plan.weights["c3"].scale) == -params["c3.w"].range.low


def test_a_float_model_exports_nothing():
    with pytest.raises(ModelError, match="is a float model"):
        sgsdump.quant_params(NET)


def test_a_tensor_min_max_gives_its_ranges_without_bits(tmp_path):
    (tmp_path / "t.txt").write_text("Name:a b, min: -0.500000, max: 1.000000;\n")
    (param,) = read_quant_file(tmp_path / "t.txt")
    assert (param.name, param.range.low, param.range.high, param.bit, param.data) == ("a b", -0.5, 1.0, None, None)


def test_a_damaged_tensor_min_max_is_one_line(tmp_path):
    (tmp_path / "t.txt").write_text("Name:a, min: 0.000000, max: 1.000000\n")
    with pytest.raises(SgsdumpError, match="is not 'Name:x, min: a, max: b;'"):
        read_quant_file(tmp_path / "t.txt")


def test_entries_of_a_quant_file_that_the_model_lacks_are_passed_over():
    new = np.full((4, 3, 1, 1), 0.25, np.float32)
    params = [QuantParam("other.w", None, None, new), QuantParam("c.w", None, None, new)]
    imported = import_params(single_convolution(), params, InputConfig(()))
    assert (imported.unknown, imported.changed, imported.ranges) == (("other.w",), {"c.w"}, {})
    np.testing.assert_array_equal(Graph(imported.model.proto).value("c.w"), new)


def test_what_is_requantised_before_a_pool_has_the_range_of_the_sdks_file():
    """From level L3 on the SDK fits it and what the pool puts out one by one; the pool reads an output, so INT16."""
    nodes = [node("Relu", ["x"], "r"), node("MaxPool", ["r"], "p", kernel_shape=[2, 2]), conv("c", "p")]
    net = model(nodes, weights("c", (3, 3, 1, 1)), {"x": (1, 3, 4, 4)}, ["r", "c"])
    config = InputConfig((ModelInput("x", "RGB", "RGB"),))
    tops = {"x": 255.0, "r": 2.5, "r#/Mul0Output#7": 2.25, "r#/Mul0Output#9": 2.0, "p": 2.375, "c": 1.0}

    def scale(given):
        params = [QuantParam(name, Range.of(0, top)) for name, top in given.items()]
        imported = import_params(simplify(net), params, config)
        assert not imported.unknown
        return make_fixed(imported.model, imported.ranges, config).plan.tensors["p"].scale

    assert scale(tops) == pytest.approx(2.375 / 255)
    assert scale({**tops, "p": 1.0}) == pytest.approx(2.25 / 255)
    assert scale({name: top for name, top in tops.items() if "#" not in name}) == pytest.approx(2.5 / 255)


def test_the_weights_of_groups_have_ranges_of_their_own():
    nodes = [conv("c", "x", group=2), node("Relu", ["c"], "y")]
    net = simplify(model(nodes, weights("c", (4, 2, 1, 1)), {"x": (1, 4, 4, 4)}, ["y"]))
    config = InputConfig((ModelInput("x", "RAWDATA_S16_NHWC", "RAWDATA_S16_NHWC"),))
    whole = [QuantParam(name, Range.of(-1, 1)) for name in ("x", "c", "y")]
    parts = [
        QuantParam(f"c_conv#{i}_filter#{i}", Range(np.array([-i - 1.0, -i - 2.0]), np.array([0.0, 0.0])))
        for i in (0, 1)
    ]
    imported = import_params(net, [*whole, *parts], config, one_per_tensor=False)
    fixed = make_fixed(imported.model, imported.ranges, config, per_channel=True)
    top = np.iinfo(fixed.plan.weights["c"].dtype).max
    np.testing.assert_allclose(fixed.plan.weights["c"].scale, np.array([1, 2, 2, 3]) / top)


def test_a_picture_that_no_convolution_reads_is_taken_back():
    """As in a YOLOX, whose first convolution reads four pieces of the picture put together."""
    steps = {f"{part}{at}": np.array(value, np.int64) for at in (0, 1) for part, value in (("from", [at]), ("to", [8]))}
    constants = {
        **steps,
        "axes": np.array([2], np.int64),
        "two": np.array([2], np.int64),
        **weights("c", (4, 6, 1, 1), 1),
    }
    pieces = [node("Slice", ["data", f"from{at}", f"to{at}", "axes", "two"], f"piece{at}") for at in (0, 1)]
    nodes = [*pieces, node("Concat", ["piece0", "piece1"], "focus", axis=1), conv("c", "focus")]
    net = simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c"]))
    config = replace(CONFIG, outputs=(ModelOutput("c", True),))
    fixed = make_fixed(net, measure_ranges(net, feeds()), config)
    params = sgsdump.quant_params(replace(net, proto=fixed.proto))
    assert {"data": 8, "c": 16}.items() <= {param.name: param.bit for param in params}.items()
    again, _ = fixed_with(params, config, net)
    assert _without_who(again.proto) == _without_who(fixed.proto)
