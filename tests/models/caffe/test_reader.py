"""Genuine Caffe models: against the same weights as ONNX, and against the SDK's own dumps and calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models.caffe.nets import caffemodel
from PIL import Image

from sgsdump import compare, open_dump
from sgsdump.cli import main
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.caffe.weights import read_weights
from sgsdump.models.model import Model, graph_inputs, open_model


def run(model: Model, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {layer.name: layer.array for layer in SegmentRunner(model).run(feed, model.blobs)}


def compared(sample: str, benchmark: Path) -> list[float]:
    """The COS of every pair of the two dumps."""
    return [row.cos for row in compare(open_dump(sample), open_dump(benchmark)).rows]


def tiny(shared: Path) -> list[str]:
    model = shared / "sigmastar/model"
    return [f"{model}/tiny.prototxt", "--weight-file", f"{model}/tiny.caffemodel"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_face_detector_finds_the_same_as_its_onnx_model(shared: Path) -> None:
    ultraface = shared / "ultraface"
    caffe = open_model(ultraface / "RFB-320.prototxt", ultraface / "RFB-320.caffemodel")
    onnx.checker.check_model(caffe.proto, full_check=True)
    other = open_model(ultraface / "version-RFB-320_without_postprocessing.onnx")
    assert graph_inputs(caffe.proto) == graph_inputs(other.proto)
    pixels = np.asarray(Image.open(ultraface / "images/1.jpg").convert("RGB").resize((320, 240)), np.float32)
    feed = {"input": ((pixels - 127) / 128).transpose(2, 0, 1)[None]}
    ours, wanted = run(caffe, feed), run(other, feed)
    assert wanted["scores"][..., 1].max() > 0.5  # there is a face
    for name in ("scores", "boxes"):
        np.testing.assert_allclose(ours[name], wanted[name], rtol=0, atol=1e-4)


def test_the_small_net_is_its_onnx_model(shared: Path) -> None:
    model = shared / "sigmastar/model"
    caffe = open_model(model / "tiny.prototxt", model / "tiny.caffemodel")
    feed = {"data": np.random.default_rng(0).normal(0, 1, (1, 3, 20, 24)).astype(np.float32)}
    ours, wanted = run(caffe, feed), run(open_model(model / "tiny.onnx"), feed)
    assert ours.keys() == wanted.keys() - {"flat"}
    for name, array in ours.items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-6)


def test_dump_has_the_records_of_the_sdk_dumper(shared: Path, folder: Path) -> None:
    assert main(["dump", "-m", *tiny(shared), "-i", str(shared / "sigmastar/model/in_norm.txt")]) == 0
    reference = shared / "sigmastar/reference_dumps/caffe/dump_bin_True"
    ours, sdk = (open_dump(p / "caffe_NHWC_outtensor_dump.bin") for p in (folder / "dumpData", reference))
    assert [(r.name, r.op_index, r.op_type, r.tensor.info.shape) for r in ours.records] == [
        (r.name, r.op_index, r.op_type, r.tensor.info.shape) for r in sdk.records
    ]
    for name in sdk:  # its picture was resized by another path of OpenCV, 1e-5 away
        np.testing.assert_allclose(ours[name].real(), sdk[name].real(), rtol=1e-4, atol=1e-4)
    assert (folder / "dumpData/shape.txt").read_text() == (reference / "shape.txt").read_text()


def test_dump_equals_the_simulators_float_dump(shared: Path, folder: Path) -> None:
    assert main(["dump", "-m", *tiny(shared), "-i", str(shared / "sigmastar/model/in_norm.txt"), "-o", "out.bin"]) == 0
    found = compared("out.bin", shared / "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin")
    assert [f"{cos:.6f}" for cos in found] == ["1.000000"] * 13


def test_calibrated_and_simulated_as_the_sdk_does(shared: Path, folder: Path) -> None:
    """input_config.ini names cat as an output, which a Caffe net cannot say of itself."""
    model = shared / "sigmastar/model"
    config = ["--input-config", f"{model}/input_config.ini"]
    level = ["--quant-level", "L1"]
    assert main(["calibrate", "-m", *tiny(shared), "-i", f"{model}/calib_arrays", *config, *level]) == 0
    assert [o.name for o in onnx.load("tiny_fixed.onnx").graph.output] == ["prob", "cat"]
    Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    assert main(["simulate", "-t", "Fixed", "-m", "tiny_fixed.onnx", "-i", f"{model}/in_raw.txt"]) == 0
    dump, dumps = "sigma_outtensor_dump.bin", shared / "sigmastar/dumps"
    found = compared(dump, dumps / "tiny_L1_elim_dequant" / dump)
    assert len(found) >= 10
    assert min(found) > 0.9999
    assert main(["simulate", "-t", "Float", "-m", *tiny(shared), "-i", f"{model}/in_norm.txt", *config]) == 0
    found = compared(dump, dumps / "tiny_float_a_full" / dump)
    assert len(found) >= 13
    assert min(found) > 0.999999


IN_PLACE = """
layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: 1 dim: 2 dim: 3 dim: 4 } } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
layer { name: "double" type: "Power" bottom: "sum" top: "sum" power_param { scale: 2 } }
layer { name: "relu" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "fc" type: "InnerProduct" bottom: "sum" top: "fc" inner_product_param { num_output: 2 axis: 3
  bias_term: false } }
"""


def test_dump_shows_blobs_or_every_layer(folder: Path) -> None:
    from models.caffe.nets import save

    save(folder, IN_PLACE, {"fc": [np.ones((2, 4), np.float32)]})
    for name, array in (("a", np.ones((1, 2, 3, 4))), ("b", -np.arange(24).reshape(1, 2, 3, 4))):
        np.save(f"{name}.npy", array.astype(np.float32))
    command = ["dump", "-m", "net.prototxt", "--weight-file", "net.caffemodel", "-i", "a.npy,b.npy"]
    assert main(command) == 0
    blobs = open_dump("dumpData/caffe_NHWC_outtensor_dump.bin")
    # The first input is left out, as the SDK's script leaves it out.
    assert [record.name for record in blobs.records] == ["b", "sum", "fc"]
    assert blobs["sum"].real().max() == 2
    assert main([*command, "--every-layer", "-o", "every.bin"]) == 0
    every = open_dump("every.bin")
    assert [record.name for record in every.records] == ["b", "sum@sum", "double", "sum", "fc"]
    np.testing.assert_array_equal(every["double"].real(), 2 * every["sum@sum"].real())


def test_of_several_layers_of_one_name_the_first_counts(tmp_path: Path) -> None:
    file = tmp_path / "net.caffemodel"
    first, second = (caffemodel({"fc": [np.full(2, value, np.float32)]}) for value in (1, 2))
    file.write_bytes(first + second)
    (blob,) = read_weights(file).blobs("fc") or ()
    assert blob.values.tolist() == [1, 1]


def test_batch_norm_and_scale_are_factors_and_offsets(folder: Path) -> None:
    from models.caffe.nets import opened

    from sgsdump.models.passes.converted import as_converted

    text = """
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3
      bias_term: false } }
    layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
    layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
    layer { name: "relu" type: "ReLU" bottom: "conv" top: "relu" }
    """
    rng = np.random.default_rng(5)
    weights = {
        "conv": [rng.normal(0, 1, (4, 3, 3, 3))],
        "bn": [rng.normal(0, 1, 4), rng.uniform(1, 2, 4), np.array([2.0])],
        "scale": [rng.normal(0, 1, 4), rng.normal(0, 1, 4)],
    }
    model = opened(folder, text, weights)
    feed = {"data": rng.normal(0, 1, (1, 3, 6, 6)).astype(np.float32)}
    written = Model(as_converted(model.proto), model.path)
    assert [node.op_type for node in written.proto.graph.node] == ["Conv", "Mul", "Add", "Mul", "Add", "Relu"]
    np.testing.assert_allclose(run(written, feed)["conv"], run(model, feed)["conv"], rtol=1e-4, atol=1e-5)
