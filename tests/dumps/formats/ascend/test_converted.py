"""Operator dumps that msaccucmp converted to .bin, whose names have shape, type and format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import open_dump
from sgsdump.dumps.formats.ascend.converted import named
from sgsdump.errors import FormatError

DUMP = "Add.net_add.3.7.1700000000123456"
LATER = "Relu.net_relu.4.7.1700000000123457"


def written(folder: Path, **arrays: tuple[str, np.ndarray]) -> Path:
    """Each array under a name, by its keyword's dump and the rest of the file's name."""
    folder.mkdir(exist_ok=True)
    for rest, array in arrays.values():
        array.tofile(folder / rest)
    return folder


def test_a_folder_of_them(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float16).reshape(1, 2, 3, 4)
    folder = written(
        tmp_path / "converted",
        relu=(f"{LATER}.output.0.1_2_3_4.float16.NCHW.bin", values),
        wide=(f"{DUMP}.output.1.1_1_2_2_16.int8.NC1HWC0.bin", np.zeros(64, np.int8)),
        add=(f"{DUMP}.output.0.24.float16.ND.bin", values),
        fed=(f"{DUMP}.input.0..float64.ND.bin", np.float64(3)),
        space=(f"{DUMP}.space.0.bin", np.zeros(4, np.int8)),
    )
    dump = open_dump(folder)
    assert dump.format == "msaccucmp_bin"
    assert [(r.name, r.io, r.op_index, r.op_type, r.tensor.shape, r.tensor.layout) for r in dump.records] == [
        ("net_add:input:0", "in", 0, "Add", (), None),
        ("net_add:output:0", "out", 0, "Add", (24,), None),
        ("net_add:output:1", "out", 0, "Add", (1, 1, 2, 2, 16), "NC1HWC0"),
        ("net_relu:output:0", "out", 1, "Relu", (1, 2, 3, 4), "NCHW"),
    ]
    np.testing.assert_array_equal(dump["net_relu:output:0"].stored(), values)
    assert dump.notes == (f"left out: 1 files without a type in their names: {DUMP}.space.0.bin",)
    one = open_dump(folder / f"{DUMP}.output.0.24.float16.ND.bin")
    assert one["net_add:output:0"].stored().tolist() == list(range(24))


def test_two_runs_of_one_operator_are_told_apart(tmp_path: Path) -> None:
    other = DUMP.replace("456", "999")
    parts = {
        "a": (f"{DUMP}.output.0.1.int8.ND.bin", np.int8([1])),
        "b": (f"{other}.output.0.1.int8.ND.bin", np.int8([2])),
    }
    assert list(open_dump(written(tmp_path / "x", **parts))) == [f"{DUMP}:output:0", f"{other}:output:0"]


def test_a_file_of_another_size_is_told(tmp_path: Path) -> None:
    name = f"{DUMP}.output.0.3.float32.ND.bin"
    folder = written(tmp_path / "x", a=(name, np.zeros(2, np.float32)))
    with pytest.raises(FormatError, match="has 8 bytes, which do not fit the shape"):
        open_dump(folder / name)
    with pytest.raises(FormatError, match="no file of"):
        open_dump(folder)
    np.zeros(1, np.int8).tofile(folder / f"{DUMP}.output.1.1.int8.ND.bin")
    assert list(open_dump(folder)) == ["net_add:output:1"] and "left out" in open_dump(folder).notes[0]


@pytest.mark.parametrize(
    "name",
    [
        "conv.bin",
        f"{DUMP}.output.0.3.float5.ND.bin",
        f"{DUMP}.output.0.3.int4.ND.bin",
        "Add.net.output.0.3.float32.ND.bin",
        f"{DUMP}.output.0.3__4.float32.ND.bin",
        f"{'x' * 300}{DUMP}.output.0.3.float32.ND.bin",
    ],
)
def test_other_names_are_not_taken(name: str) -> None:
    assert named(name) is None
