"""Folders of .npy files against each other: which belong together, and what is said of folders that do not serve."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import facts_of
from sgsdump.errors import ConfigError, ValuesError
from sgsdump.pipeline.compared_files import compare_run, npy_files, other_inputs
from sgsdump.tensors import dtypes

A = np.array([1.0, 2.0], np.float32)


def folder(root: Path, name: str, **arrays: np.ndarray) -> Path:
    """A dump folder without its JSON, one file per keyword."""
    (root / name / "outputs").mkdir(parents=True)
    for file, array in arrays.items():
        np.save(root / name / "outputs" / f"{file}.npy", array)
    return root / name


def test_files_of_one_name_belong_together(tmp_path: Path) -> None:
    ours = folder(tmp_path, "ours", topoidx_00000__a=A, topoidx_00001__b=A)
    theirs = folder(tmp_path, "theirs", topoidx_00000__a=A, topoidx_00001__b=A + 1, topoidx_00002__c=A)
    found = compare_run(ours, theirs)
    assert [(row.file, row.all_close) for row in found.rows] == [
        ("topoidx_00000__a.npy", True),
        ("topoidx_00001__b.npy", False),
    ]
    assert found.only_in_benchmark == ("topoidx_00002__c.npy",)
    assert found.titles == (str(ours), str(theirs), None)
    assert compare_run(ours / "outputs", theirs / "outputs").rows == found.rows


def test_else_the_file_of_the_same_tensor(tmp_path: Path) -> None:
    once = folder(tmp_path, "once", b=A)
    full = folder(tmp_path, "full", topoidx_00000__a=A, topoidx_00001__b=A)
    moved = folder(tmp_path, "moved", topoidx_00001__a=A, topoidx_00002__b=A)
    assert [row.file for row in compare_run(once, full).rows] == ["b.npy"]
    found = compare_run(full, moved, once)
    assert [row.file for row in found.rows] == ["topoidx_00001__b.npy"]
    assert found.not_in_golden == ("topoidx_00000__a.npy",)
    # a file of the very name goes before one of the same tensor
    both = folder(tmp_path, "both", b=A, topoidx_00005__b=A + 1)
    assert compare_run(once, both).passes


def test_types_that_numpy_has_no_name_for(tmp_path: Path) -> None:
    array = A.astype(ml_dtypes.bfloat16)
    ours = folder(tmp_path, "ours", a=dtypes.carried(array))
    theirs = folder(tmp_path, "theirs", a=A)
    entry = dump_info.OutputEntry("a", facts_of(array), file="outputs/a.npy")
    dump_info.write(dump_info.DumpInfo({}, (), (entry,)), ours)
    assert compare_run(ours, theirs).rows[0].diff2 == 0


def test_a_shape_mismatch_and_a_broken_file_are_rows_with_a_reason(tmp_path: Path) -> None:
    ours = folder(tmp_path, "ours", a=A, b=A)
    theirs = folder(tmp_path, "theirs", a=np.zeros(3, np.float32), b=A)
    (theirs / "outputs" / "b.npy").write_bytes(b"nothing")
    reasons = [row.reason for row in compare_run(ours, theirs).rows]
    assert "shape mismatch" in reasons[0] and "(2,)" in reasons[0] and "(3,)" in reasons[0]
    assert "b.npy is not an .npy file" in reasons[1]
    assert not compare_run(ours, theirs).passes


def test_inputs_of_other_values_are_told(tmp_path: Path) -> None:
    runs = [folder(tmp_path, name, a=A) for name in ("ours", "same", "other", "without")]
    for run, values in zip(runs, (A, A, A + 1)):
        (run / "inputs").mkdir()
        np.save(run / "inputs" / "a%2Fb.npy", values)
    ours, same, other, without = runs
    assert other_inputs(ours, same) == other_inputs(ours, without) == []
    assert other_inputs(ours, other) == other_inputs(ours / "outputs", other / "outputs") == ["a/b"]


def test_folders_that_do_not_serve(tmp_path: Path) -> None:
    ours = folder(tmp_path, "ours", a=A)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"does not exist: .*absent"):
        npy_files(tmp_path / "absent")
    with pytest.raises(ConfigError, match="is a file"):
        npy_files(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"empty has no .npy file"):
        npy_files(tmp_path / "empty")
    with pytest.raises(ValuesError, match="no file in common"):
        compare_run(ours, folder(tmp_path, "other", z=A))
