"""Ranges that AIMET, AMD Quark and NNCF calibrated for a network of this project; ``weight`` has a changed weight.

The expected ranges come from onnxruntime's values of the calibration inputs.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from vendor_files import VENDORS, unpacked

from sgsdump import histogram
from sgsdump.cli import main
from sgsdump.comparison.range_change import compare_ranges
from sgsdump.errors import FormatError
from sgsdump.sidecars.tensor_min_max import holds_ranges, read_ranges
from sgsdump.tensors.types import Range

AIMET = [unpacked("aimet") / f"good_{version}.encodings" for version in ("0_6_1", "1_0_0", "2_0_0")]
QUARK, NNCF = unpacked("quark"), unpacked("nncf")
CONV, RELU = "/block/conv2/Conv_output_0", "/block/relu/Relu_output_0"


@pytest.fixture(scope="module")
def values() -> dict[str, np.ndarray]:
    """The values of each tensor, by tensor: an axis for the calibration input, and a flat axis."""
    model = onnx.load(VENDORS / "net.onnx")
    names = [name for node in model.graph.node for name in node.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = np.load(VENDORS / "calibration.npy")
    found: dict[str, list[np.ndarray]] = {"data": [each.ravel() for each in inputs]}
    for each in inputs:
        for name, array in zip(names, session.run(None, {"data": each})):
            found.setdefault(name, []).append(array.ravel())
    return {name: np.stack(arrays).astype(np.float64) for name, arrays in found.items()}


def weights(name: str) -> np.ndarray:
    initializers = onnx.load(VENDORS / "net.onnx").graph.initializer
    array = next(onnx.numpy_helper.to_array(each) for each in initializers if each.name == name)
    return array.reshape(len(array), -1)


def test_quark_has_the_minima_and_maxima_of_all_inputs(values: dict[str, np.ndarray]) -> None:
    ranges = read_ranges(QUARK / "good.json")
    assert len(ranges) == 11
    for name, bounds in ranges.items():
        assert (bounds.low, bounds.high) == pytest.approx((values[name].min(), values[name].max()), abs=1e-5), name


def test_aimet_has_the_same_ranges_in_each_version_within_a_step(values: dict[str, np.ndarray]) -> None:
    first, *others = (read_ranges(path) for path in AIMET)
    for other in others:
        assert other.keys() >= first.keys()
        for name, bounds in first.items():
            np.testing.assert_allclose(other[name].min, bounds.min, rtol=1e-6, atol=1e-12)
            np.testing.assert_allclose(other[name].max, bounds.max, rtol=1e-6, atol=1e-12)
            assert other[name].bit == bounds.bit == 8
    for name in first.keys() & values.keys():
        low, high = first[name].low, first[name].high
        step = (high - low) / 255
        ends = min(values[name].min(), 0), max(values[name].max(), 0)
        # AIMET moves 0 to a step, and measures behind the quantised inputs of a layer.
        assert (low, high) == pytest.approx(ends, abs=2.5 * step), name
    np.testing.assert_allclose(first["w2"].max, 127 / 128 * np.abs(first["w2"].min), rtol=1e-6)
    assert (first["w2"].max >= 0.992 * np.abs(weights("w2")).max(1)).all()


def test_nncf_has_the_means_over_the_inputs(values: dict[str, np.ndarray]) -> None:
    ranges = read_ranges(NNCF / "good")
    assert read_ranges(NNCF / "good" / "statistics_metadata.json").keys() == ranges.keys()
    for name in ranges.keys() & values.keys():
        low = values[name].min(1).mean()
        high = np.abs(values[name]).max(1).mean()
        assert (ranges[name].low, ranges[name].high) == pytest.approx((low, high), abs=1e-5), name
    bounds = ranges["/conv1/Conv_weight_1"]
    np.testing.assert_allclose(bounds.max, np.abs(weights("w1")).max(1), rtol=1e-6)


@pytest.mark.parametrize(
    ("good", "bad", "first"),
    [
        (AIMET[1], unpacked("aimet") / "weight_1_0_0.encodings", "w2"),
        (NNCF / "good", NNCF / "weight", "/block/conv2/Conv_weight_1"),
    ],
)
def test_a_planted_weight_is_named_first(good: Path, bad: Path, first: str) -> None:
    found = compare_ranges(read_ranges(bad), read_ranges(good))
    change = found.changes[0]
    assert (change.name, change.channel, change.wider) == (first, 3, "sample")
    assert change.apart == pytest.approx(4, rel=1e-4)
    activations = [change.name for change in found.changes if "output" in change.name]
    assert set(activations[:2]) == {CONV, RELU}


def test_a_planted_weight_changes_the_ranges_of_quark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(QUARK / "weight.json"), str(QUARK / "good.json")]) == 0
    rows = [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert set(rows) == {"/block/Add_output_0", RELU, CONV}


def test_a_dump_is_drawn_against_the_ranges_of_nncf(
    values: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-m", f"{VENDORS / 'net.onnx'}", "-i", f"{VENDORS / 'input.npy'}", "-o", "float.bin"]
    assert main(["dump", *words]) == 0
    assert main(["histogram", "float.bin", str(NNCF / "good")]) == 0
    found = histogram("float.bin", NNCF / "good")
    assert [layer.name for layer in found.troubled] == [RELU]
    layer = found[RELU]
    assert np.array_equal(np.load(VENDORS / "input.npy"), np.load(VENDORS / "calibration.npy")[0])
    limits = values[RELU].min(1).mean(), values[RELU].max(1).mean()
    assert layer.limits == pytest.approx(limits, abs=1e-6)
    assert layer.outside == np.count_nonzero(values[RELU][0] > limits[1]) == 1
    assert histogram("float.bin", AIMET[2])[CONV].limits == pytest.approx((-2.1681955, 2.0848033))


def test_ranges_are_named_by_node_if_the_tensor_has_another_name(tmp_path: Path) -> None:
    """The names of AIMET's analyser: ``prob`` is the output of ``/Softmax``."""
    words = ["-m", f"{VENDORS / 'net.onnx'}", "-i", f"{VENDORS / 'input.npy'}", "-o", f"{tmp_path / 'float.bin'}"]
    assert main(["dump", *words]) == 0
    (tmp_path / "activations.json").write_text(
        json.dumps({"_Softmax_output_0": [0.0, 0.1], "_relu1_Relu_output_0": [0, 1]})
    )
    found = histogram(tmp_path / "float.bin", tmp_path / "activations.json")
    assert found["prob"].limits == (0, 0.1) and found["/relu1/Relu_output_0"].limits == (0, 1)
    assert not found.unused


def entry(**more: object) -> dict[str, object]:
    return {"name": "a", "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "scale": [0.5], "offset": [-128], **more}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"activation_encodings": [entry()]}, Range.of(-64, 63.5, 8)),
        ({"activation_encodings": [entry(enc_type="PER_BLOCK", scale=[0.5, 1], offset=[0, -2])]}, Range.of(-2, 253, 8)),
        ({"encodings": [{"name": "a", "output_dtype": "int16", "y_scale": 2}]}, Range.of(-65536, 65534, 16)),
        (
            {"encodings": [{"name": "a", "output_dtype": "uint4", "y_scale": [1, 2], "y_zero_point": [8, 0]}]},
            Range(np.array([-8.0, 0]), np.array([7.0, 30]), 4),
        ),
        (
            {"encodings": [{"name": "a", "output_dtype": "int4", "block_size": 2, "y_scale": [[1, 2], [3, 4]]}]},
            Range.of(-32, 28, 4),
        ),
        ({"tensors_range": {"a": [[-1, 0], [1, 2]]}}, Range(np.array([-1.0, 0]), np.array([1.0, 2]))),
        ({"a": {"a_0": [0, 1], "a_1": [2, 3]}}, Range(np.array([0.0, 2]), np.array([1.0, 3]))),
        ({"a": [-1.5e0, 2]}, Range.of(-1.5, 2)),
    ],
)
def test_forms_of_entries(document: object, expected: Range, tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    for indent in (None, 2):
        path.write_text(json.dumps(document, indent=indent))
        assert holds_ranges(path, path.read_bytes()) or "tensors_range" in str(document)
        assert read_ranges(path)["a"].same(expected)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"activation_encodings": [entry(dtype="FLOAT")]}, "holds no range of a tensor"),
        ({"encodings": [{"name": "b", "output_dtype": "int32", "y_scale": 1}]}, "holds no range of a tensor"),
        ({"activation_encodings": [entry(bw=True)]}, "the bit width 'True' is not a number from 1 to 32"),
        ({"activation_encodings": [entry(scale="1")]}, "scale must be numbers, this is a str"),
        ({"activation_encodings": [entry(scale=[])]}, "scale is an empty list"),
        ({"activation_encodings": [entry(scale=[10**400])]}, "out of range"),
        ({"activation_encodings": [entry(scale=[1, 2], offset=[1, 2, 3])]}, "there are 2 scales, but 3 offsets"),
        ({"activation_encodings": [{"bw": 8}]}, "encoding 0 has no name"),
        ({"activation_encodings": 3}, "expected ranges by tensor name, this is a int"),
        ({"activation_encodings": {"conv": {"output": {}}}}, "Encodings of aimet-torch are not supported"),
        ({"tensors_range": {"a": [[1], [0]]}}, "has its min above its max"),
        ({"tensors_range": {"a": [[1, 2], [3]]}}, "min has 2 values, but max has 1"),
        ({"a": [0, 1], "b": 3}, r"b: expected \[min, max\]"),
        ({"a": [0, 1], "b": {}}, r"b: expected \[min, max\]"),
    ],
)
def test_damage_is_refused_in_one_line(document: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.encodings"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=said) as caught:
        read_ranges(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def folder(root: Path, data: bytes, key: str = "MinMaxTensorStatistic_/a_4_0", file: str = "a.safetensors") -> Path:
    root.mkdir()
    (root / "statistics_metadata.json").write_text(json.dumps({"mapping": {file: key}, "backend": "ONNX"}))
    (root / "a.safetensors").write_bytes(data)
    return root


def stored(dtype: str = "F32", ends: tuple[int, int] = (4, 8)) -> bytes:
    """A safetensors file with the minimum -1 and the maximum 2."""
    tensor = {"dtype": dtype, "shape": [1, 1]}
    header = json.dumps(
        {"min_values": {**tensor, "data_offsets": [0, 4]}, "max_values": {**tensor, "data_offsets": [*ends]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + np.float32([-1, 2]).tobytes()


def test_a_folder_of_nncf(tmp_path: Path) -> None:
    assert read_ranges(folder(tmp_path / "a", stored()))["/a_output_0"].same(Range.of(-1, 2))
    named = folder(tmp_path / "b", stored(), "MinMaxTensorStatistic_/a_3_1")
    assert list(read_ranges(named)) == ["/a_input_1"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (stored()[:-1], "has no values 'max_values' of a float type"),
        (stored()[:40], "is cut off"),
        (stored()[:3], "is cut off"),
        (stored("I32"), "has no values 'min_values' of a float type"),
        (stored(ends=(4, 4)), "has no values 'max_values' of a float type"),
        (stored(ends=(-4, 0)), "has no values 'max_values' of a float type"),
    ],
)
def test_damaged_statistics_are_refused(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=said):
        read_ranges(folder(tmp_path / "x", data))


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(stored())
    with pytest.raises(FormatError, match="which is not in the folder"):
        read_ranges(folder(tmp_path / "x", stored(), file="../a.safetensors"))


def test_other_statistics_of_nncf_are_a_dump(tmp_path: Path) -> None:
    key = "MeanTensorStatistic_/a_4_0"
    assert not holds_ranges(folder(tmp_path / "x", stored(), key))
    assert main(["compare", str(tmp_path / "x"), str(tmp_path / "x")]) == 0
