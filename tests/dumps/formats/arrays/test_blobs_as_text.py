"""Blobs of ncnn and MNN as text files, of a network of this project, float and with a changed weight."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from vendor_files import VENDORS, unpacked

from sgsdump import compare, open_dump
from sgsdump.cli import main
from sgsdump.comparison.naming.name_files import rule_of
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.comparison.naming.pairs_by_map import pairs_by_map
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.io import save_dump
from sgsdump.reports.comparison import REPORTS

CONV = "/block/conv2/Conv_output_0"


@pytest.fixture
def float_dump(tmp_path: Path) -> Path:
    path = tmp_path / "float.bin"
    assert main(["dump", "-m", f"{VENDORS / 'net.onnx'}", "-i", f"{VENDORS / 'input.npy'}", "-o", f"{path}"]) == 0
    return path


@pytest.mark.parametrize(
    ("tool", "file", "shapes"),
    [
        ("ncnn", "4", {"4": (8, 4, 4), "8": (1, 8), "1": (8, 8, 8)}),
        ("mnn", "_block_conv2_Conv_output_0", {"_conv1_Conv_output_0": (1, 8, 8, 8), "prob": (1, 10)}),
    ],
)
def test_the_map_of_the_float_run_names_a_planted_weight_first(
    tool: str, file: str, shapes: dict[str, tuple[int, ...]], float_dump: Path, tmp_path: Path
) -> None:
    good, weight, names = unpacked(tool) / "good", unpacked(tool) / "weight", tmp_path / "names.json"
    dump = open_dump(good)
    assert {name: dump[name].shape for name in shapes} == shapes
    assert main(["compare", f"{good}", f"{float_dump}", "--match-by-value", "--write-name-map", f"{names}"]) == 0
    assert (
        main(["compare", f"{weight}", f"{float_dump}", "--name-map", f"{names}", "--json", f"{tmp_path}/o.json"]) == 0
    )
    found = compare(weight, float_dump, name_map=json.loads(names.read_text()))
    assert CONV in REPORTS["verdict"](found, Thresholds()).splitlines()[1]
    row = next(row for row in found.rows if row.name == CONV)
    a = np.array([float(word) for word in (weight / f"{file}.txt").read_text().split() if word[-1].isdecimal()][-128:])
    b = open_dump(float_dump)[CONV].real().transpose(0, 3, 1, 2).ravel().astype(np.float64)
    assert row.mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert row.cos == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1 2\n3 4\n----\n5 6\n7 8\n----\n", (2, 2, 2)),
        ("1 2 \n--------\n", (1, 2)),
        ("1 2\n====\n3 4\n", (2, 1, 2)),
        ("1 2\n3 4\n---\n5 6\n", (3, 2)),
        ("1\n2\n----\n3\n4\n----\n", None),
    ],
)
def test_lines_of_signs_end_channels(text: str, shape: tuple[int, ...] | None, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(text)
    tensor = open_dump(tmp_path / "x.txt")["x"]
    numbers = [float(word) for word in text.split() if word.isdecimal()]
    assert tensor.shape == shape and tensor.real().ravel().tolist() == numbers


def test_a_rewritten_name_of_a_file_matches_the_only_name_of_the_same_letters(tmp_path: Path) -> None:
    """Names of Quark's ``dump_model``: ``_conv1_Conv_output_0_float`` is ``/conv1/Conv_output_0``."""
    arrays = {"_a_Conv_output_0_float": np.ones(2, np.float32), "b_float": np.ones(3, np.float32)}
    save_dump(arrays, tmp_path / "a.npz")
    others = {"/a/Conv_output_0": np.ones(2, np.float32), "b": np.ones(3, np.float32), "b_": np.ones(3, np.float32)}
    save_dump(others, tmp_path / "b.npz")
    sources = NameSources({}, rules=(rule_of("_float$="),))
    found = pairs_by_map(open_dump(tmp_path / "a.npz"), open_dump(tmp_path / "b.npz"), sources)
    assert {pair.sample.name: pair.benchmark.name for pair in found.pairs} == {
        "_a_Conv_output_0_float": "/a/Conv_output_0",
        "b_float": "b",
    }
