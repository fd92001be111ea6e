"""Dumps split into folders and read back."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump import Dump, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.sigmastar.dump_tree import read_tree, write_tree
from sgsdump.errors import FormatError

SIMULATORS = ["tiny_float_a_full", "tiny_fixed_a_elim_dequant", "tiny_fixed_d_plain", "tiny_nofuse_elim_dequant"]


@pytest.mark.parametrize("name", SIMULATORS)
def test_a_genuine_dump_comes_back_byte_for_byte(name: str, shared: Path, tmp_path: Path) -> None:
    genuine = shared / "sigmastar/dumps" / name / "sigma_outtensor_dump.bin"
    write_tree(open_dump(genuine), tmp_path / "tree")
    save_dump(read_tree(tmp_path / "tree"), tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == genuine.read_bytes()


def test_places_and_bytes_are_the_sdk_s(shared: Path, tmp_path: Path) -> None:
    genuine = shared / "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin"
    write_tree(open_dump(genuine), tmp_path / "tree")
    data = genuine.read_bytes()
    start = data.index(b"//out 0 s: 0.000000 z: 0 type: float name: block/dw ")
    payload = data.index(b"//buffer data size: 4800\n", start) + len(b"//buffer data size: 4800\n")
    file = tmp_path / "tree/2.block_dw.xx.output0/output"
    assert file.read_bytes() == b"isFloat: 1\n" + data[start : payload + 4800]
    assert (tmp_path / "tree/0.conv1_filter.xx.inputs/input1").is_file()
    assert (tmp_path / "tree/8.cat.xx.output0/output").is_file()


def records(*names: str) -> list[Record]:
    made = [Tensor.of(name, np.full(16, i, np.float32)) for i, name in enumerate(names)]
    return [Record("out", 0, 7, "RELU", tensor) for tensor in made]


def test_long_and_hostile_names_stay_inside_and_apart(tmp_path: Path) -> None:
    names = [
        "../../up",
        "cat two",
        "cat three",
        "a/b",
        "a_b",
        "..",
        "",
        "y" * 3000,
        "y" * 3000 + "z",
        "nul\0",
        "/etc/x",
    ]
    assert write_tree(Dump(records(*names)), tmp_path / "tree") == len(names)
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    files = [path for path in (tmp_path / "tree").rglob("*") if path.is_file()]
    assert len(files) == len(names)
    assert {path.relative_to(tmp_path).parts[0::2] for path in files} == {("tree", "output")}
    assert {record.name for record in read_tree(tmp_path / "tree").records} == set(names)


RECORDS = st.builds(
    lambda io, slot, op, name, values, constant: Record(
        io, slot, op, "ADD", Tensor.of(name, np.array(values, np.float32)), constant
    ),
    st.sampled_from(["in", "out"]),
    st.integers(0, 3),
    st.integers(0, 20),
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=300),
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
    st.booleans(),
)


@settings(max_examples=40)
@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_any_dump_comes_back(records: list[Record]) -> None:
    with TemporaryDirectory() as made:
        write_tree(Dump(records), Path(made, "tree"))
        back = read_tree(Path(made, "tree"))
        assert sorted(map(facts, back.records)) == sorted(map(facts, records))


def facts(record: Record) -> tuple:
    values = record.tensor.stored().tolist()
    return record.op_index, record.io, record.slot, record.name, record.constant, values


def test_more_tensors_than_files_may_be_open(tmp_path: Path) -> None:
    """The SDK's splitter leaves its files open and stops at the 1019th."""
    names = [f"layer{i}" for i in range(300)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 50, hard))
    try:
        for text in (False, True):
            write_tree(Dump(records(*names)), tmp_path / "tree", text)
            assert len(read_tree(tmp_path / "tree").records) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_text(shared: Path, tmp_path: Path) -> None:
    dump = open_dump(shared / "sigmastar/newstyle/fixed_new.bin")
    write_tree(dump, tmp_path / "tree", text=True)
    text = (tmp_path / "tree/0.relu1.xx.output0/_data").read_text()
    values = np.array(text.split("= {\n")[1].split("}")[0].replace("\n", "").split(", ")[:-1], np.float32)
    assert np.abs(values - dump["relu1"].real().reshape(-1)).max() <= 5e-7
    assert len(read_tree(tmp_path / "tree").records) == len(dump.records)


def test_bad_trees(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no split dump"):
        read_tree(tmp_path)
    write_tree(Dump(records("a")), tmp_path / "tree")
    file = tmp_path / "tree/7.a.xx.output0/output"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FormatError, match="cut off"):
        read_tree(tmp_path / "tree")
