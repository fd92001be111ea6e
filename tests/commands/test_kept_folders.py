"""Folders as people keep them: every command opens them at once, or refuses them with the option to type."""

from __future__ import annotations

import json
from pathlib import Path

import kept_folders
import numpy as np
import pytest
from kept_folders import OPENED, REFUSED, SHAPES, WRONG, Kept

from sgsdump import compare, open_dump
from sgsdump.cli import main

pytest.importorskip("safetensors")
ALL = {**OPENED, **REFUSED}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("kept")
    kept_folders.make_all(folder)
    return folder


def names_of(kept: Kept) -> dict[str, str]:
    return {name: kept.names.get(name, name) for name in SHAPES}


@pytest.mark.parametrize("name", OPENED)
def test_names_values_and_shapes(name: str, folders: Path) -> None:
    dump, kept = open_dump(folders / name / "benchmark"), OPENED[name]
    assert sorted(dump) == sorted(names_of(kept).values()) and dump.notes == ()
    for tensor, array in kept_folders.tensors().items():
        found = dump[names_of(kept)[tensor]]
        expected = array.transpose(0, 2, 3, 1) if name == "qnn_results" and array.ndim == 4 else array
        np.testing.assert_array_equal(found.real().ravel(), expected.ravel())
        assert not kept.shaped or found.shape in (expected.shape, (*expected.shape, 1, 1))


@pytest.mark.parametrize("name", OPENED)
def test_commands(name: str, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample, benchmark = str(folders / name / "sample"), str(folders / name / "benchmark")
    wrong = names_of(OPENED[name])[WRONG]
    assert main(["show", sample]) == 0
    assert f"{len(SHAPES)} tensors" in capsys.readouterr().out
    assert main(["show", sample, wrong]) == 0
    assert main(["compare", sample, benchmark, "--max-mse", "0", "--json", str(tmp_path / "c.json")]) == 1
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert len(rows) == len(SHAPES) and [row["name"] for row in rows if row["mse"]] == [wrong]
    assert next(row["mse"] for row in rows if row["mse"]) == pytest.approx(0.25, rel=1e-5)
    assert main(["convert", sample, str(tmp_path / "converted.npz")]) == 0
    assert sorted(open_dump(tmp_path / "converted.npz")) == sorted(names_of(OPENED[name]).values())
    assert main(["report", sample, benchmark, "-o", str(tmp_path / "r.html")]) == 0
    assert wrong in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert main(["histogram", sample, "-o", str(tmp_path / "charts")]) == 0
    assert f"{len(SHAPES)} charts" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in OPENED if name != "nested_npy_npz"])
def test_a_folder_compares_with_a_dump_of_another_format(name: str, folders: Path) -> None:
    """Also where the folder has no shapes, another order of axes, or names in letters, digits and ``_``."""
    comparison = compare(folders / name / "sample", folders / "benchmark.npz")
    assert {row.name: row.mse > 0 for row in comparison} == {each: each == WRONG for each in SHAPES}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, path = REFUSED[name], str(folders / name / "benchmark")
    for command in (["show", path], ["compare", path, path], ["histogram", path]):
        assert main(command) == 2
        error, *hints = capsys.readouterr().err.splitlines()
        assert all(word in error for word in kept.refused) and all(hint.startswith("  ") for hint in hints)
        assert len(hints) < 10
    assert main(["show", path, *kept.then]) == 0
    assert f"{len(SHAPES)} tensors" in capsys.readouterr().out
