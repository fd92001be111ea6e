"""The demo files in sgsdump/samples are small, safe to load, valid and as accurate as their README says."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sgsdump

SAMPLES = Path(sgsdump.__file__).parent / "samples"
MODEL, DIGITS = SAMPLES / "digits.onnx", SAMPLES / "digits.npz"
LIMIT = 300 * 1024


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(MODEL)


@pytest.fixture(scope="module")
def digits() -> dict[str, np.ndarray]:
    with np.load(DIGITS, allow_pickle=False) as stored:
        return dict(stored)


@pytest.mark.parametrize("path", [MODEL, DIGITS], ids=lambda path: path.name)
def test_files_are_small(path: Path) -> None:
    assert 0 < path.stat().st_size <= LIMIT


def test_digits_are_plain_arrays(digits: dict[str, np.ndarray]) -> None:
    assert set(digits) == {"images", "labels", "calibration"}
    images, labels, calibration = digits["images"], digits["labels"], digits["calibration"]
    assert images.dtype == calibration.dtype == np.uint8
    assert images.shape[1:] == calibration.shape[1:] == (8, 8)
    assert len(images) <= 100 and len(calibration) <= 32
    assert max(images.max(), calibration.max()) == 240
    assert labels.dtype == np.int64 and labels.shape == (len(images),)
    assert set(labels) == set(range(10))


def test_no_calibration_digit_is_a_test_digit(digits: dict[str, np.ndarray]) -> None:
    tested = {image.tobytes() for image in digits["images"]}
    assert not tested & {image.tobytes() for image in digits["calibration"]}


def test_model_is_valid_and_loads_in_old_runtimes(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version <= 8
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 13)]
    assert [node.name for node in model.graph.node] == [node.output[0] for node in model.graph.node]
    assert [output.name for output in model.graph.output] == ["prob", "logits"]


def test_planted_names_are_convolutions(model: onnx.ModelProto) -> None:
    planted = {entry.key: entry.value for entry in model.metadata_props}["planted"].split(",")
    convolutions = {node.output[0] for node in model.graph.node if node.op_type == "Conv"}
    assert len(planted) == 2 and set(planted) <= convolutions


def test_float_model_reads_the_digits(digits: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(MODEL.read_bytes(), providers=["CPUExecutionProvider"])
    inputs = (digits["images"][:, None, None].astype(np.float32) - 127) / 128
    prob = np.concatenate([session.run(["prob"], {"image": image})[0] for image in inputs])
    assert np.mean(prob.argmax(1) == digits["labels"]) >= 0.98
