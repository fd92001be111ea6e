"""Folders with the file names of TIDL's documentation; the values were written by this project."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dumps.formats.read_only_folder import ReadOnlyFolder

from sgsdump import compare, open_dump, save_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import FormatError
from sgsdump.reports.comparison import REPORTS

INFO = "0 0 data\n1 1 /conv1/Conv_output_0\n2 2 prob\n"


def values(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class TestReadOnlyFolder(ReadOnlyFolder):
    format = "tidl_traces"
    files: ClassVar = {
        "tidl_trace0001_00001_00008_00005x00004_float.bin": values(1, 8, 4, 5).tobytes(),
        "tidl_trace0002_00001_00001_00010x00001.y": bytes(range(10)),
        "subgraph_0_tidl_net.bin.layer_info.txt": INFO.encode(),
    }
    optional = ("layer_info.txt",)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("tidl_trace0072_00001_00256_00010x00014{}", (1, 256, 14, 10)),
        ("tidl_trace_subgraph_0_0072_0001_0001_00001_00256_00010x00014{}", (1, 256, 14, 10)),
        ("tidl_trace_subgraph_0_0072_00002_00001_00003_00256_00010x00014{}", (2, 3, 256, 14, 10)),
        ("onnx_tidl_infer_resnet18v1.txt_0072_00512_00007x00007{}", (1, 512, 7, 7)),
    ],
)
@pytest.mark.parametrize(("ending", "dtype"), [("_float.bin", "<f4"), (".y", "<i1"), (".y", "<i2"), (".y", "<f4")])
def test_shape_and_type_of_a_name(name: str, shape: tuple[int, ...], ending: str, dtype: str, tmp_path: Path) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    (tmp_path / name.format(ending)).write_bytes(array.tobytes())
    dump = open_dump(tmp_path)
    assert dump.format == "tidl_traces" and list(dump) == ["data72"]
    assert dump["data72"].shape == shape and dump["data72"].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(dump["data72"].stored(), array)


def folder(path: Path, changed: float = 0.0) -> Path:
    path.mkdir()
    conv, prob = values(1, 8, 4, 5), values(2, 10)
    conv[3] += changed
    for name, array in (("0001_00001_00008_00005x00004", conv), ("0002_00001_00001_00010x00001", prob)):
        (path / f"tidl_trace_subgraph_0_{name}_float.bin").write_bytes(array.tobytes())
        (path / f"tidl_trace_subgraph_0_{name}.y").write_bytes((array * 20).astype(np.int8).tobytes())
    (path / "subgraph_0_tidl_net.bin.layer_info.txt").write_text(INFO)
    return path


def test_float_values_are_preferred_and_named_by_layer_info(tmp_path: Path) -> None:
    good = open_dump(folder(tmp_path / "good"))
    assert list(good) == ["/conv1/Conv_output_0", "prob"] and not good.notes
    save_dump({"/conv1/Conv_output_0": values(1, 1, 8, 4, 5), "prob": values(2, 1, 10)}, tmp_path / "onnx.npz")
    assert REPORTS["verdict"](compare(good, tmp_path / "onnx.npz"), Thresholds()).startswith("EQUAL")


def test_a_planted_difference_has_the_figures_of_numpy(tmp_path: Path) -> None:
    found = compare(folder(tmp_path / "bad", 1.0), folder(tmp_path / "good"))
    verdict = REPORTS["verdict"](found, Thresholds())
    assert verdict.startswith("DIFFERS") and "/conv1/Conv_output_0" in verdict.splitlines()[1]
    assert found.rows[0].mse == pytest.approx(1 / 8, rel=1e-5)


def test_names_from_the_folder_above_and_from_several_subgraphs(tmp_path: Path) -> None:
    inner = folder(tmp_path / "traces")
    (inner / "subgraph_0_tidl_net.bin.layer_info.txt").rename(tmp_path / "subgraph_0_tidl_net.bin.layer_info.txt")
    (inner / "tidl_trace_subgraph_1_0001_00001_00001_00002x00001.y").write_bytes(b"\1\2")
    dump = open_dump(inner)
    assert list(dump) == ["/conv1/Conv_output_0", "prob", "subgraph1/data1"]
    assert dump.notes and "without a scale" in dump.notes[0]


def test_traces_of_several_cores_are_refused(tmp_path: Path) -> None:
    (tmp_path / "C7x_1_tidl_trace_subgraph_0_0001_00001_00001_00002x00001.y").write_bytes(b"\1\2")
    with pytest.raises(FormatError, match="stitch_multicore_traces"):
        open_dump(tmp_path)


def test_a_size_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tidl_trace0001_00001_00008_00005x00004.y").write_bytes(bytes(7))
    with pytest.raises(FormatError, match="do not fit the shape"):
        open_dump(tmp_path)


def test_two_traces_of_one_data_id_are_noted(tmp_path: Path) -> None:
    for width in (2, 1):
        (tmp_path / f"tidl_trace0001_00001_00001_0000{width}x00001.y").write_bytes(bytes(width))
    assert any("same data id" in note for note in open_dump(tmp_path).notes)
