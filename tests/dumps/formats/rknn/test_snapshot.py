"""Snapshots that RKNN-Toolkit2 wrote of a network of this project, quantised, and with one weight changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dumps.formats.read_only_folder import ReadOnlyFolder

from sgsdump import compare, list_runs, open_dump
from sgsdump.cli import main
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ConfigError, FormatError
from sgsdump.reports.comparison import REPORTS

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "vendors"
GOOD, WEIGHT = GOLDEN / "rknn" / "good", GOLDEN / "rknn" / "weight"
FIGURES = re.compile(r"\[\w+\] (\S+) +([\d.]+) \| ([\d.]+) +[\d.]+ \| [\d.]+")


class TestReadOnlyFolder(ReadOnlyFolder):
    format = "rknn_snapshot"
    files: ClassVar = {
        "snap/map_name_to_file.txt": (
            b"layer_name                         file_name                          \n"
            + b"-" * 70
            + b"\n/block/relu1                       _block_relu1.txt                   \n"
            + b"sum                                sum.txt                            \n"
        ),
        "snap/error_analysis.txt": b"layer_name\n---\n[Relu] /block/relu1   0.99994 | 0.31845   1 | 0\n[Add] sum\n",
        "snap/simulator/_block_relu1.txt": b"0.500000\n-1.250000\n",
        "snap/simulator/npy/sum.npy": (GOOD / "simulator/npy/prob.npy").read_bytes(),
    }
    place = "snap/simulator"
    # Six decimals: a text that ends within a number is another number.
    optional = ("error_analysis.txt", "_block_relu1.txt")


def test_each_folder_is_a_run_and_can_be_opened_itself() -> None:
    assert [run.graph for run in list_runs(GOOD)] == ["golden", "simulator"]
    with pytest.raises(ConfigError, match="graph="):
        open_dump(GOOD)
    names = list(open_dump(f"{GOOD}@graph=simulator"))
    assert names[:3] == ["data", "data_int8", "/conv1/Conv_output_0"] and names[-1] == "prob"
    for inner in ("simulator", "simulator/npy"):
        assert list(open_dump(GOOD / inner)) == names
    assert list(open_dump(WEIGHT)) == names
    dump = open_dump(GOOD / "golden")
    assert list(dump.inputs) == ["data"] and dump.records[4].op_type == "Conv"
    assert dump["/fc/Gemm_output_0_mm"].shape == (1, 10, 1, 1) and dump["prob"].dtype == np.float32


def test_the_columns_entire_of_the_tool_are_the_distances_of_the_two_folders() -> None:
    """The errors that RKNN-Toolkit2 printed, against cosine and distance of what is read."""
    sides = [open_dump(GOOD / folder) for folder in ("golden", "simulator")]
    rows = FIGURES.findall((GOOD / "error_analysis.txt").read_text())
    assert len(rows) > 9
    for name, cosine, distance in rows:
        a, b = (side[name].real().ravel().astype(np.float64) for side in sides)
        assert abs(float(cosine) - a @ b / np.linalg.norm(a) / np.linalg.norm(b)) < 1.1e-5
        assert abs(float(distance) - np.linalg.norm(a - b)) < 1.1e-5


def test_a_planted_weight_is_named_first_with_the_figures_of_numpy() -> None:
    found = compare(WEIGHT, f"{GOOD}@graph=simulator")
    assert "/block/conv2/Conv_output_0" in REPORTS["verdict"](found, Thresholds()).splitlines()[1]
    row = next(row for row in found.rows if row.name == "/block/conv2/Conv_output_0")
    a, b = (np.load(side / "simulator/npy/_block_conv2_Conv_output_0.npy").astype(float) for side in (WEIGHT, GOOD))
    cosine = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
    assert row.cos == pytest.approx(cosine, abs=1e-6)
    assert row.mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)


def test_it_pairs_with_the_onnx_model_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["dump", "-m", f"{GOLDEN / 'net.onnx'}", "-i", f"{GOLDEN / 'input.npy'}", "-o", f"{tmp_path / 'float.npz'}"]
    assert main(model) == 0
    found = compare(f"{GOOD}@graph=golden", tmp_path / "float.npz")
    assert REPORTS["verdict"](found, Thresholds()).startswith("WITHIN ROUNDING")
    paired = {row.name: row for row in found.rows}
    assert len(paired) == 9 and [u.record.name for u in found.only_in_benchmark] == ["/Flatten_output_0"]
    assert paired["/fc/Gemm_output_0"].paired == "module and operator"


@pytest.mark.parametrize("command", ["show", "histogram"])
def test_commands_accept_a_folder(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, str(GOOD / "simulator")]) == 0
    assert main(["convert", str(GOOD / "simulator"), "out.npz"]) == 0
    assert list(open_dump("out.npz")) == list(open_dump(GOOD / "simulator"))


def test_a_text_file_is_read_where_the_array_is_missing(tmp_path: Path) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "map_name_to_file.txt").write_bytes((GOOD / "map_name_to_file.txt").read_bytes())
    (tmp_path / "golden/prob.txt").write_bytes((GOOD / "golden/prob.txt").read_bytes())
    dump = open_dump(tmp_path)
    assert list(dump) == ["prob"] and dump["prob"].shape is None and len(dump.damage) == 12
    np.testing.assert_allclose(dump["prob"].real(), np.load(GOOD / "golden/npy/prob.npy").ravel(), atol=5.1e-7)
    (tmp_path / "golden/prob.txt").write_text("0.5\nnumber\n")
    with pytest.raises(FormatError, match="must contain only numbers"):
        open_dump(tmp_path)["prob"].real()
    assert open_dump(tmp_path / "golden").records


def test_a_name_longer_than_its_column_is_read(tmp_path: Path) -> None:
    long = "n" * 60
    (tmp_path / "runtime").mkdir()
    (tmp_path / "map_name_to_file.txt").write_text(f"layer_name   file_name\n---\n{long} {long}.txt\n")
    (tmp_path / f"runtime/{long}.txt").write_text("1\n2\n")
    assert open_dump(tmp_path)[long].real().tolist() == [1, 2]
    (tmp_path / "map_name_to_file.txt").write_text("layer_name   file_name\n---\nx            ../../x.txt\n")
    with pytest.raises(FormatError, match="not in the folder"):
        open_dump(tmp_path)
