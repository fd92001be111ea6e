"""diagnose names what is to be put right before any INT16, and nothing of a sound network."""

import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from PIL import Image

import sgsdump
from sgsdump.fixedpoint.reports.root_causes import CAUSES
from sgsdump.fixedpoint.tuning.examined import FLAT_PART, GREYS, ODD_TIMES

MEAN, STD, SIZE, PICTURES = 127, 64, 8, 6
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = {order};
input_formats = {order};
mean_red = {mean};
mean_green = {mean};
mean_blue = {mean};
std_value = {std};
[OUTPUT_CONFIG]
outputs = out;
dequantizations = TRUE;
"""
PREPROCESS = """import numpy as np
from PIL import Image
def image_preprocess(path, norm=True):
    picture = np.asarray(Image.open(path), np.float32)[None]
    return (picture - 127) / 64 if norm else picture
"""


def _nodes(between=()):
    last = between[-1].output[0] if between else "r1"
    return [
        helper.make_node("Conv", ["data", "w1", "b1"], ["c1"], name="c1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        *between,
        helper.make_node("Conv", [last, "w2", "b2"], ["c2"], name="c2", pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["out"], name="out"),
    ]


def _constants():
    rng = np.random.default_rng(7)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (5, 8, 1, 1)}
    constants = {name: rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape) for name, shape in shapes.items()}
    return constants | {"b1": rng.normal(0, 0.3, 8), "b2": rng.normal(0, 0.3, 8), "b3": rng.normal(0, 0.3, 5)}


def _save(constants, between=(), nodes=None):
    graph = helper.make_graph(
        nodes or _nodes(between),
        "net",
        [helper.make_tensor_value_info("data", onnx.TensorProto.FLOAT, (1, 3, SIZE, SIZE))],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32(array), name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(proto), "net.onnx")


def _pictures(folder, change=lambda array: array, cast=(0, 0, 0)):
    """Red, green and blue are told apart by brightness where there is a ``cast``."""
    rng = np.random.default_rng(3)
    folder.mkdir(exist_ok=True)
    arrays = []
    for number in range(PICTURES):
        array = (127 + np.array(cast) + rng.normal(0, 40, (SIZE, SIZE, 3))).clip(0, 255)
        array = np.round(change(array)).astype(np.uint8)
        Image.fromarray(array).save(folder / f"{number}.png")
        arrays.append(((array.astype(np.float32) - MEAN) / STD).transpose(2, 0, 1)[None])
    return arrays


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _config("input_config.ini")
    (tmp_path / "preprocess.py").write_text(PREPROCESS)
    _save(_constants())
    _pictures(tmp_path / "pictures")
    return tmp_path


def _config(name, order="RGB", mean=MEAN, std=STD):
    with open(name, "w") as file:
        file.write(INI.format(order=order, mean=mean, std=std))


def _diagnosed(level="L2", data="pictures", config="input_config.ini", **given):
    given |= {"input_config": config} if config else {}
    return sgsdump.diagnose("net.onnx", data, quant_level=level, **given)


def _causes(found):
    """(reason, input) of each cause in the JSON, if the first one is to be corrected before any INT16."""
    findings = [f for f in json.loads(found.texts["layers.json"])["findings"] if f["kind"] == "cause"]
    told = bool(findings) and findings[0]["facts"]["reason"] in CAUSES and "brings" not in findings[0]["figures"]
    assert found.verdict[1].startswith("Cause: ") == bool(findings)
    return [(f["facts"]["reason"], f["facts"]["input"]) for f in findings] if told else []


def _error(findings, name="error_after"):
    return next(f["figures"][name] for f in findings if name in f["figures"])


@pytest.mark.parametrize("level", ["L1", "L3"])
@pytest.mark.parametrize("preprocess", [None, "preprocess.py"])
def test_a_sound_network_has_no_cause(net, level, preprocess):
    found = _diagnosed(level, preprocess=preprocess)
    assert not _causes(found) and found.verdict[0].startswith("PASS: ")


ARRAYS = """import numpy as np
def image_preprocess(path, norm=True):
    array = np.load(path)
    return (array{turned} - {mean}) / 64 if norm else array
"""


@pytest.mark.parametrize("order", ["RGB", "BGR"])
@pytest.mark.parametrize(
    ("turned", "mean", "cause"),
    [("", 127, None), ("[..., ::-1]", 127, "order"), ("", 90, "normalisation")],
)
def test_arrays_show_what_the_preprocess_file_does_with_them(net, order, turned, mean, cause):
    """The order of an array's channels is the user's word; it shows only whether norm=True turns them."""
    rng = np.random.default_rng(5)
    (net / "arrays").mkdir()
    for number in range(3):
        np.save(net / "arrays" / f"{number}.npy", rng.integers(0, 256, (1, SIZE, SIZE, 3)).astype(np.float32))
    (net / "arrays.py").write_text(ARRAYS.format(turned=turned, mean=mean))
    _config("input_config.ini", order)
    found = _diagnosed("L1", data="arrays", preprocess="arrays.py")
    told = found.verdict[1]
    assert ("the colour order of input data" in told) == (cause == "order"), told
    assert (f"mean {MEAN}" in told) == (cause == "normalisation"), told
    if cause == "order":
        assert float(re.search(r"up to ([\d.]+) grey levels", told)[1]) > 100


def test_weights_of_one_scale_are_told_with_the_level_that_repairs_them(net):
    constants = _constants()
    constants["w1"][2] *= 150  # always 0 after the Relu
    constants["b1"][2] = -3 * np.abs(constants["w1"][2]).sum()
    _save(constants)
    found = _diagnosed("L1")
    assert _causes(found)[0] == ("weights per tensor", "c1")
    assert (
        "Output channel 2 of 8" in found.verdict[1] and "--quant-level L2 or above" in found.report.next_steps[0].text
    )
    findings = json.loads(found.texts["layers.json"])["findings"]
    above = _diagnosed("L2")
    output = next(f for f in json.loads(above.texts["layers.json"])["findings"] if f["kind"] == "output")
    assert _error(findings) == pytest.approx(output["figures"]["rmse"], rel=1e-9), "what a run at that level gives"
    assert not found.to_copy and not _causes(above)
    found.save("d"), above.save("above")
    assert "(advised.onnx uses it)" in found.report.next_steps[0].text
    assert _outputs_of("d/advised.onnx") == _outputs_of("above/fixed.onnx") != _outputs_of("d/fixed.onnx")
    assert not (net / "above/advised.onnx").exists()


def _outputs_of(path):
    session = onnxruntime.InferenceSession(path)
    kind = np.uint8 if session.get_inputs()[0].type == "tensor(uint8)" else np.float32
    raw = np.random.default_rng(0).integers(0, 256, (1, 3, SIZE, SIZE)).astype(kind)
    return session.run(None, {"data": raw})[0].tolist()


def test_an_operator_that_no_int16_cures_is_named_and_no_convolution_is_proposed(net):
    high = {"high": [3e4], "back": [3e4]}
    between = [
        helper.make_node("Add", ["r1", "high"], ["raised"], name="raised"),
        helper.make_node("Sub", ["raised", "back"], ["low"], name="low"),
    ]
    _save(_constants() | high, between)
    found = _diagnosed()
    assert _causes(found)[0] == ("operator", "raised") and "raised (ADD)" in found.verdict[1]
    assert not found.to_copy and not [
        f for f in json.loads(found.texts["layers.json"])["findings"] if f["kind"] == "advice"
    ]
    found.save("d")
    assert "tensor_arrays" not in (net / "d/input_config.ini").read_text()
    _save(_constants() | {"high": [3.0], "back": [3.0]}, between)
    assert not _causes(_diagnosed()), "a small constant costs nothing"


@pytest.mark.parametrize(("times", "named"), [(30, True), (ODD_TIMES - 1.5, False)])
def test_an_odd_picture_is_named(net, times, named):
    arrays = [array * (times if number == 2 else 1) for number, array in enumerate(_pictures(net / "pictures"))]
    found = _diagnosed("L2", arrays, config=None)
    assert [reason for reason, _ in _causes(found)[:1]] == ["odd picture"] * named
    if named:
        assert found.report.next_steps[0].text.startswith("Remove ") and "on the 5 other images" in found.verdict[1]
        figures = next(f for f in json.loads(found.texts["layers.json"])["findings"] if f["kind"] == "cause")["figures"]
        rest = _diagnosed("L2", [array for number, array in enumerate(arrays) if number != 2], config=None)
        output = next(f for f in json.loads(rest.texts["layers.json"])["findings"] if f["kind"] == "output")
        assert figures["error_after"] == pytest.approx(output["figures"]["rmse"], rel=1e-9)


@pytest.mark.parametrize(("part", "named"), [(FLAT_PART - 0.03, True), (0.0, True), (FLAT_PART + 0.1, False)])
def test_dim_and_black_pictures_are_told(net, part, named):
    _pictures(net / "dim", lambda array: (array - array.min()) / (array.max() - array.min()) * part * GREYS)
    found = _diagnosed("L2", "dim")
    assert [reason for reason, _ in _causes(found)[:1]] == ["flat pictures"] * named


def _ranges(data="pictures", config="input_config.ini"):
    sgsdump.calibrate("net.onnx", data, input_config=config, quant_level="L2").save("fixed.onnx", "log")
    return "log/tensor_min_max.txt"


def test_ranges_of_dim_pictures_are_told_as_of_others(net):
    _pictures(net / "dim", lambda array: array / 8)
    ranges = _ranges("dim")
    found = _diagnosed(ranges=ranges)
    assert _causes(found)[0][0] == "unlike pictures" and "are outside the calibration ranges" in found.verdict[1]
    assert found.report.next_steps[0].text == "Calibrate on images that resemble the given images."
    assert not _causes(_diagnosed("L2", "dim", ranges=ranges)) or "grey levels" in found.verdict[1]


def test_one_clipped_range_is_told_with_what_is_needed(net):
    text = (net / _ranges()).read_text()
    line = next(line for line in text.splitlines() if line.startswith("Name:r2,"))
    (net / "cut.txt").write_text(text.replace(line, "Name:r2, min: 0.0, max: 0.3;"))
    found = _diagnosed(ranges="cut.txt")
    assert (
        _causes(found)[0] == ("clipped", "r2") and "r2 is 0 to 0.3, but the given images need 0 to" in found.verdict[1]
    )


@pytest.mark.parametrize("other", [{"mean": 0}, {"std": 255}, {"std": 1}])
def test_ranges_of_another_normalisation_are_told(net, other):
    _config("other.ini", **other)
    found = _diagnosed(ranges=_ranges(config="other.ini"))
    assert _causes(found)[0] == ("normalisation", "data")
    figures = next(f for f in json.loads(found.texts["layers.json"])["findings"] if f["kind"] == "cause")["figures"]
    for name, value in other.items():
        assert figures[f"{name}_done_0"] == pytest.approx(value, rel=0.03, abs=3)


def test_ranges_of_the_opposite_order_are_told(net):
    constants = _constants()
    constants["w1"][:, 0], constants["w1"][:, 2] = np.abs(constants["w1"][:, 0]), -np.abs(constants["w1"][:, 2])
    _save(constants)
    _pictures(net / "pictures", cast=(70, 0, -70))
    _config("other.ini", order="BGR")
    found = _diagnosed(ranges=_ranges(config="other.ini"))
    assert _causes(found)[0] == ("channel order", "data")


@pytest.mark.parametrize(
    ("other", "reason"),
    [({"mean": 0}, "normalisation"), ({"std": 128}, "normalisation"), ({"order": "BGR"}, "channel order")],
)
def test_a_preprocess_file_that_does_another_thing_is_told(net, other, reason):
    _config("other.ini", **other)
    found = _diagnosed(config="other.ini", preprocess="preprocess.py")
    assert _causes(found)[0] == (reason, "data")
    if reason == "normalisation":
        assert found.to_copy == ["mean_red = 127;\nmean_green = 127;\nmean_blue = 127;\nstd_value = 64;"]


def test_pictures_that_were_not_trained_with_are_told_though_no_file_says_otherwise(net):
    constants, nodes = _constants(), _nodes()
    data = np.concatenate(_pictures(net / "pictures"))
    _save(constants)
    session = onnxruntime.InferenceSession(_with_output("c1"))
    sums = np.concatenate([session.run(["c1"], {"data": one[None]})[0] for one in data])
    constants |= {"mean": sums.mean((0, 2, 3)), "variance": sums.var((0, 2, 3))}
    constants |= {"gamma": np.sqrt(constants["variance"]), "beta": constants["mean"]}
    nodes[0].output[0] = "sum"
    parameters = ["gamma", "beta", "mean", "variance"]
    nodes.insert(1, helper.make_node("BatchNormalization", ["sum", *parameters], ["c1"], name="bn1"))
    _save(constants, nodes=nodes)
    assert not _causes(_diagnosed())
    _config("other.ini", mean=0, std=1)
    found = _diagnosed(config="other.ini")
    assert _causes(found)[0] == ("unlike training", "data")
    assert (
        "images are normalised with mean 0, std 1. With mean 123.675:116.28:103.53, std "
        "58.395:57.12:57.375 instead, the channel means are " in found.verdict[1]
    )


def _with_output(name):
    proto = onnx.load("net.onnx")
    proto.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return proto.SerializeToString()


def test_a_fixed_model_of_another_normalisation_is_told(net):
    _config("other.ini", mean=0)
    _ranges(config="other.ini")
    found = _diagnosed(fixed="fixed.onnx")
    assert _causes(found)[0] == ("normalisation", "data") and "with mean 0, std 64" in found.verdict[1]
    assert not _causes(_diagnosed(fixed="fixed.onnx", config="other.ini"))
