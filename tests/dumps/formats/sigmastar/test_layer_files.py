"""The text output of the framework dumpers, against the SDK's own files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import Record, Tensor, open_dump
from sgsdump.dumps.formats.sigmastar.layer_files import write_shapes, write_text


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["onnx", "caffe"])
def test_bytes_are_the_sdk_s_own(kind: str, shared: Path, tmp_path: Path) -> None:
    genuine = shared / "sigmastar/reference_dumps" / kind
    dump = open_dump(genuine / f"dump_bin_True/{kind}_NHWC_outtensor_dump.bin")
    # The binary dump leaves the input out; its values are taken from one text file and have to give all of them.
    data = open_dump(genuine / "dump_bin_False/NHWC/data#(1, 20, 24, 3)").records
    write_text(dump.records, tmp_path / f"{kind}_NHWC_outtensor_dump.txt", data, caffe=kind == "caffe")
    if kind == "caffe":
        write_shapes([*data, *dump.records], tmp_path / "shape.txt")
    ours, theirs = contents(tmp_path), contents(genuine / "dump_bin_False")
    assert set(ours) == set(theirs)
    assert [name for name in theirs if ours[name] != theirs[name]] == []


def records(*names: str) -> list[Record]:
    array = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    return [Record("out", 0, i, "Relu", Tensor.of(n, array + i, layout="NCHW")) for i, n in enumerate(names)]


def test_hostile_names_stay_in_the_folders_and_apart(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    names = ["../../up", "a/b", "a_b", "a:b", "..", "x" * 400, "x" * 400 + "y", "tab\tname"]
    write_text(records(*names), out / "all.txt")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert {path.name for path in out.iterdir()} == {"all.txt", "NHWC", "NCHW"}
    for layout, shape in (("NHWC", "(1, 3, 4, 2)"), ("NCHW", "(1, 2, 3, 4)")):
        files = list((out / layout).iterdir())
        assert len(files) == len(names)
        assert all(file.name.endswith(f"#{shape}") for file in files)
        assert {open_dump(file).records[0].name for file in files} == set(names)
    assert [record.name for record in open_dump(out / "all.txt").records] == names


def test_a_failing_run_leaves_nothing(tmp_path: Path) -> None:
    def failing():
        yield from records("a")
        raise RuntimeError("out of power")

    with pytest.raises(RuntimeError):
        write_text(failing(), tmp_path / "all.txt")
    assert list(tmp_path.iterdir()) == []


def test_older_folders_are_set_aside(tmp_path: Path) -> None:
    write_text(records("first"), tmp_path / "all.txt")
    write_text(records("second"), tmp_path / "all.txt")
    assert [path.name for path in (tmp_path / "NHWC").iterdir()] == ["second#(1, 3, 4, 2)"]
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("NHWC_")]) == 1
