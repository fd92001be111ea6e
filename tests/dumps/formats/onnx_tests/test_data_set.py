"""Test cases of the onnx package, and tensors of every element type as the onnx library writes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from dumps.formats.read_only import ReadOnly
from dumps.formats.read_only_folder import ReadOnlyFolder
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import sgsdump
from sgsdump import compare, list_runs, open_dump
from sgsdump.cli import main
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ConfigError, FormatError, SgsdumpError
from sgsdump.reports.comparison import REPORTS

CASES = Path(onnx.__file__).parent / "backend" / "test" / "data"
GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "vendors"


def proto(array: np.ndarray, name: str = "") -> bytes:
    return numpy_helper.from_array(array, name).SerializeToString()


class TestReadOnlyFolder(ReadOnlyFolder):
    format = "onnx_test_data"
    files: ClassVar = {
        "set/test_data_set_0/input_0.pb": proto(np.arange(6, dtype=np.float32).reshape(2, 3), "x"),
        "set/test_data_set_0/output_0.pb": proto(np.arange(3, dtype=np.int64), "y"),
        "set/test_data_set_0/output_1.pb": helper.make_tensor("z", TensorProto.INT32, [2], [1, -1]).SerializeToString(),
    }
    place = "set"


class TestReadOnly(ReadOnly):
    format = "onnx_tensor"
    file_name = "output_0.pb"
    data = proto(np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 3, 4), "y")

    def test_it_is_recognised_by_its_content(self, tmp_path: Path) -> None:
        for name in (self.file_name, "renamed"):
            dump = open_dump(self.write(tmp_path, name=name))
            assert dump.format == self.format and list(dump) == ["y"]

    def test_truncation_at_every_byte_is_told(self, tmp_path: Path) -> None:
        for length in range(len(self.data)):
            with pytest.raises(FormatError):
                open_dump(self.write(tmp_path, self.data[:length]))


def test_all_tensors_of_the_onnx_package_are_as_the_onnx_library_reads_them() -> None:
    files = sorted(CASES.rglob("*.pb"))
    equal = 0
    for file in files:
        expected = onnx.TensorProto()
        expected.ParseFromString(file.read_bytes())
        if expected.data_type == TensorProto.STRING:
            with pytest.raises(FormatError):
                open_dump(file)
            continue
        (tensor,) = open_dump(file).values()
        array = numpy_helper.to_array(expected)
        assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(tensor.stored(), array)
        equal += 1
    assert equal > 100 or not files


def test_data_sets_have_the_names_of_the_model() -> None:
    for folder in sorted(CASES.rglob("test_data_set_0")):
        if not (folder.parent / "model.onnx").is_file() or "strnorm" in str(folder):
            continue
        model = onnx.load(folder.parent / "model.onnx", load_external_data=False)
        names = {value.name for value in (*model.graph.input, *model.graph.output)}
        for path in (folder, folder.parent):
            dump = open_dump(path)
            assert set(dump) <= names and dump.outputs and not dump.damage, path


@pytest.mark.parametrize("number", [n for n in TensorProto.DataType.values() if n not in (0, 8)])
@pytest.mark.parametrize("raw", [False, True])
def test_every_element_type(number: int, raw: bool, tmp_path: Path) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(number)
    values = np.array([0, 1, 1, 0, 1]).astype(dtype) if number != TensorProto.FLOAT8E8M0 else np.ones(5, dtype)
    if dtype.kind == "i" or dtype.name.startswith("int"):
        values = np.array([0, 1, -1, -2 if dtype.name == "int2" else -8, 1]).astype(dtype)
    if raw:
        made = numpy_helper.from_array(values, "x")
    else:
        try:
            made = helper.make_tensor("x", number, [5], values)
        except (TypeError, ValueError) as error:
            pytest.skip(f"onnx cannot make it: {error}")
    (tmp_path / "x.pb").write_bytes(made.SerializeToString())
    tensor = open_dump(tmp_path / "x.pb")["x"]
    assert tensor.dtype == dtype
    assert tensor.stored().tobytes() == values.tobytes()


def test_a_planted_difference_has_the_figures_of_numpy(tmp_path: Path) -> None:
    """Outputs of this project's network from two back-ends, and from one with a wrong weight."""
    model = onnx.load(GOLDEN / "net.onnx")
    fed = np.load(GOLDEN / "input.npy")
    weight = next(w for w in model.graph.initializer if w.name == "w4")
    for name, changed in (("good", 0.0), ("weight", 5.0)):
        array = numpy_helper.to_array(weight).copy()
        array[3, 2] += changed
        folder = tmp_path / name / "test_data_set_0"
        folder.mkdir(parents=True)
        shutil.copy(GOLDEN / "net.onnx", tmp_path / name / "model.onnx")
        weight.CopyFrom(numpy_helper.from_array(array, "w4"))
        (output,) = ReferenceEvaluator(model).run(None, {"data": fed})
        (folder / "input_0.pb").write_bytes(proto(fed))
        (folder / "output_0.pb").write_bytes(proto(output, "wrong name"))
    onnxruntime = tmp_path / "ort.npz"
    assert main(["dump", "-m", str(GOLDEN / "net.onnx"), "-i", str(GOLDEN / "input.npy"), "-o", str(onnxruntime)]) == 0
    same = REPORTS["verdict"](compare(tmp_path / "good", onnxruntime), Thresholds())
    assert same.startswith(("EQUAL", "WITHIN ROUNDING"))
    found = compare(tmp_path / "weight", tmp_path / "good")
    verdict = REPORTS["verdict"](found, Thresholds())
    assert verdict.startswith("DIFFERS") and "prob" in verdict.splitlines()[1]
    a, b = (open_dump(tmp_path / name)["prob"].real().astype(float) for name in ("weight", "good"))
    assert found.rows[0].mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)


def test_several_data_sets_are_runs(tmp_path: Path) -> None:
    for number in (0, 1, 10):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        (folder / "output_0.pb").write_bytes(proto(np.full(2, number, np.float32), "y"))
    assert [run.step for run in list_runs(tmp_path)] == [0, 1, 10]
    assert open_dump(tmp_path, step=10)["y"].real().tolist() == [10, 10]
    with pytest.raises(ConfigError, match="step"):
        open_dump(tmp_path)


def test_onnxruntimes_files_are_read(tmp_path: Path) -> None:
    for name in ("conv1", "relu1"):
        (tmp_path / f"{name}.tensorproto").write_bytes(proto(np.ones(2, np.float32), name))
    assert list(open_dump(tmp_path)) == ["conv1", "relu1"]


def test_text_sequences_and_external_values_are_left_out(tmp_path: Path) -> None:
    sequence = onnx.SequenceProto(elem_type=1, name="s")
    sequence.tensor_values.add().CopyFrom(numpy_helper.from_array(np.ones(2, np.float32)))
    external = onnx.TensorProto(dims=[2], data_type=1, data_location=1)
    (tmp_path / "input_0.pb").write_bytes(sequence.SerializeToString())
    (tmp_path / "input_1.pb").write_bytes(external.SerializeToString())
    (tmp_path / "input_2.pb").write_bytes(helper.make_tensor("t", 8, [1], [b"a"]).SerializeToString())
    (tmp_path / "output_0.pb").write_bytes(proto(np.ones(2, np.float32), "y"))
    dump = open_dump(tmp_path)
    assert list(dump) == ["y"] and len(dump.notes) == 3 and not dump.damage


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (helper.make_tensor("x", 1, [2], [1.0, 2.0]).SerializeToString().replace(b"\x08\x02", b"\x08\x03"), "needs"),
        (
            onnx.TensorProto(dims=[2**40, 2**40], data_type=1, raw_data=b"1234").SerializeToString(),
            "is invalid: numpy cannot make",
        ),
        (onnx.TensorProto(dims=[-1], data_type=1, raw_data=b"1234").SerializeToString(), "x.pb"),
        (onnx.TensorProto(dims=[1], data_type=99, raw_data=b"1234").SerializeToString(), "x.pb"),
    ],
)
def test_damage_is_refused(data: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.pb").write_bytes(data)
    with pytest.raises(SgsdumpError, match=match):
        sgsdump.open_dump(tmp_path / "x.pb")
