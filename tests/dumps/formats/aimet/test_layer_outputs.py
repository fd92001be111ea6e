"""Layer outputs that AIMET wrote of a network of this project: quantised, and the float model with a changed weight."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dumps.formats.read_only_folder import ReadOnlyFolder
from vendor_files import VENDORS, unpacked

from sgsdump import Dump, compare, list_runs, open_dump
from sgsdump.cli import main
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ConfigError, FormatError
from sgsdump.reports.comparison import REPORTS

INT8, WEIGHT = unpacked("aimet") / "outputs_int8", unpacked("aimet") / "outputs_weight"
RUN = "outputs/layer_outputs_0"
CONV = "/block/conv2/Conv_output_0"


class TestReadOnlyFolder(ReadOnlyFolder):
    format = "aimet_outputs"
    files: ClassVar = {
        "out/layer_output_name_order.json": b'{"layer_output_names": ["data", "_relu_Relu_output_0"]}',
        f"out/{RUN}/data.raw": np.float32([1, 2, 3]).tobytes(),
        f"out/{RUN}/_relu_Relu_output_0.raw": np.float32([-1, 0.5]).tobytes(),
    }
    place = f"out/{RUN}"
    # Sizes are not recorded: a file that ends between two values has fewer values.
    optional = (".raw",)


@pytest.fixture(scope="module")
def float_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("float") / "float.bin"
    assert main(["dump", "-m", f"{VENDORS / 'net.onnx'}", "-i", f"{VENDORS / 'input.npy'}", "-o", f"{path}"]) == 0
    return path


def layer(dump: Dump, name: str) -> np.ndarray:
    """Return a layer of the float dump as AIMET writes it, flat and NCHW."""
    values = dump[name].real().astype(np.float64)
    return (values.transpose(0, 3, 1, 2) if values.ndim == 4 else values).ravel()


def test_each_call_is_a_run_that_can_be_opened_by_folder(tmp_path: Path) -> None:
    assert [run.step for run in list_runs(INT8)] == [0]
    names = sorted(open_dump(INT8))
    assert len(names) == 11 and "_block_conv2_Conv_output_0" in names
    for inner in ("outputs", RUN):
        assert sorted(open_dump(INT8 / inner)) == names
    folder = TestReadOnlyFolder().write(tmp_path).parent
    (folder / "layer_outputs_1").mkdir()
    (folder / "layer_outputs_1/data.raw").write_bytes(bytes(8))
    assert [run.step for run in list_runs(tmp_path / "out")] == [0, 1]
    with pytest.raises(ConfigError, match="step="):
        open_dump(tmp_path / "out")
    dump = open_dump(tmp_path / "out", step=1)
    assert list(dump) == ["data"] and "lists 1 layers without a file: _relu_Relu_output_0" in dump.notes[0]


def test_a_planted_weight_is_named_first_with_the_figures_of_numpy(float_dump: Path) -> None:
    found = compare(WEIGHT, float_dump)
    assert CONV in REPORTS["verdict"](found, Thresholds()).splitlines()[1]
    row = next(row for row in found.rows if row.name == CONV)
    a = np.fromfile(WEIGHT / RUN / "_block_conv2_Conv_output_0.raw", np.float32).astype(np.float64)
    b = layer(open_dump(float_dump), CONV)
    assert row.mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert row.cos == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)


def test_the_quantised_model_pairs_with_the_float_model(float_dump: Path) -> None:
    found = compare(INT8, float_dump)
    assert len(found.rows) == 10 and not found.only_in_benchmark
    dump = open_dump(float_dump)
    for row in found.rows:
        a = np.fromfile(INT8 / RUN / f"{row.name.replace('/', '_')}.raw", np.float32).astype(np.float64)
        assert row.mse == pytest.approx(((a - layer(dump, row.name)) ** 2).mean(), rel=1e-4), row.name
        assert 0.99 < row.cos < 1


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"layer_output_names": [1]}', b"{"])
def test_a_damaged_list_is_refused(text: bytes, tmp_path: Path) -> None:
    path = TestReadOnlyFolder().write(tmp_path)
    (tmp_path / "out/layer_output_name_order.json").write_bytes(text)
    with pytest.raises(FormatError, match="has no list 'layer_output_names'"):
        open_dump(path)


@pytest.mark.parametrize("command", ["show", "histogram"])
def test_commands_accept_a_folder(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, str(INT8)]) == 0
