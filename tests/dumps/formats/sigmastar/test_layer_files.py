"""The text output of the framework dumpers, against the SDK's own files.

Dumps split into folders and read back.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from dumps.formats.sigmastar.made import F32, I16, plain_record
from hypothesis import given, settings
from hypothesis import strategies as st
from platforms import unix_only

from sgsdump import Dump, Quant, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.sigmastar import layer_files
from sgsdump.dumps.formats.sigmastar.binary import BinVariant
from sgsdump.dumps.formats.sigmastar.layer_files import read_tree, write_shapes, write_text, write_tree
from sgsdump.errors import FormatError


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


@unix_only  # Windows replaces no file that is open
def test_files_of_one_layer(tmp_path):
    values = np.arange(6, dtype=F32).reshape(1, 1, 2, 3)
    image = plain_record(values, "im/age", "out", 0, 0, "data", layout="NHWC")
    layer = plain_record(values + 1, "b/c:0", "out", 0, 4, "b/c", layout="NHWC")
    layer_files.write_text([layer], tmp_path / "all.txt", [image])
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        *("NCHW/b_c_0#(1, 3, 1, 2)", "NCHW/im_age#(1, 3, 1, 2)", "NHWC/b_c_0#(1, 1, 2, 3)", "NHWC/im_age#(1, 1, 2, 3)"),
        "all.txt",
    ]
    assert b"\ninput[0] data = {\n" in (tmp_path / "NHWC/im_age#(1, 1, 2, 3)").read_bytes()
    assert b"name: b/c:0 " in (tmp_path / "NHWC/b_c_0#(1, 1, 2, 3)").read_bytes()
    assert b"op_out[4] b/c = {" in (tmp_path / "NHWC/b_c_0#(1, 1, 2, 3)").read_bytes()
    assert (tmp_path / "all.txt").read_bytes().count(b"//out") == 1
    nchw = open_dump(tmp_path / "NCHW/b_c_0#(1, 3, 1, 2)")["b/c:0"]
    assert nchw.raw().tolist() == [1, 4, 2, 5, 3, 6] and nchw.info.shape == (1, 3, 1, 2)

    layer_files.write_text([layer], tmp_path / "caffe.txt", [image, image], caffe=True)
    data = (tmp_path / "NHWC/b_c_0#(1, 1, 2, 3)").read_bytes()
    assert b"name: b_c_0 " in data and b"op_out[6] b_c = {" in data
    assert b"\nop_out[0] data = {\n" in (tmp_path / "NHWC/im_age#(1, 1, 2, 3)").read_bytes()
    assert b"name: b/c:0 " in (tmp_path / "caffe.txt").read_bytes()

    layer_files.write_shapes([image, plain_record(np.zeros((2, 3), F32), "x")], tmp_path / "shape.txt")
    assert (tmp_path / "shape.txt").read_text() == "im_age\t(1, 3, 1, 2)\nx\t(2, 3)\n"


def test_where_the_files_of_a_tree_stand_and_their_order(tmp_path):
    records = [
        plain_record(np.array([1], F32), "b/c:0 tail", "in", 1, 10),
        plain_record(np.array([2], F32), "a", "in", 0, 10),
        plain_record(np.array([3], F32), "d", "out", 1, 10),
        plain_record(np.array([4], F32), "e", "out", 0, 2),
    ]
    assert layer_files.write_tree(Dump(records), tmp_path / "t") == 4
    assert sorted(
        path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob("*") if path.is_file()
    ) == [
        *("10.a.xx.inputs/input0", "10.b_c0.xx.inputs/input1", "10.d.xx.output1/output", "2.e.xx.output0/output"),
    ]
    tree = layer_files.read_tree(tmp_path / "t")
    assert [(r.op_index, r.io, r.slot, r.name) for r in tree.records] == [
        *((2, "out", 0, "e"), (10, "in", 0, "a"), (10, "in", 1, "b/c:0 tail"), (10, "out", 1, "d")),
    ]
    assert [r.tensor.raw().tolist() for r in tree.records] == [[4], [2], [1], [3]]
    assert tree.format == "sigmastar_bin" and tree.variant == BinVariant(True, True)
    assert layer_files.write_tree(Dump(records), tmp_path / "u", text=True) == 4
    printed_tree = layer_files.read_tree(tmp_path / "u")
    assert (tmp_path / "u/10.d.xx.output1/_data").is_file() and (tmp_path / "u/10.a.xx.inputs/input0").is_file()
    assert [r.tensor.raw().tolist() for r in printed_tree.records] == [[4], [2], [1], [3]]


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"1", lambda data: data[:30]])
def test_a_file_of_a_tree_is_one_whole_tensor(tmp_path, change):
    layer_files.write_tree(Dump([plain_record(np.arange(3, dtype=F32))]), tmp_path / "t")
    file = tmp_path / "t/0.x.xx.output0/output"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(FormatError, match="is not a complete tensor of a split dump"):
        layer_files.read_tree(tmp_path / "t")


def test_a_tree_of_integers_keeps_them(tmp_path):
    variant = BinVariant(is_float=False, shaped=False)
    made = plain_record(np.array([-5, 7], I16), quant=Quant(I16, 0.5, 1))
    layer_files.write_tree(Dump([made], "sigmastar_bin", variant), tmp_path / "t")
    assert (tmp_path / "t/0.x.xx.output0/output").read_bytes() == (
        b"isFloat: 0\n//out 0 s: 0.500000 z: 1 type: SGS_S16 name: x bConstant:0\nop_out[0] ADD = {\n"
        b"//buffer data size: 4\n\xfb\xff\x07\x00"
    )
    assert layer_files.read_tree(tmp_path / "t").variant == variant


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


def tree_records(*names: str) -> list[Record]:
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
    assert write_tree(Dump(tree_records(*names)), tmp_path / "tree") == len(names)
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
    resource = pytest.importorskip("resource")
    names = [f"layer{i}" for i in range(300)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 50, hard))
    try:
        for text in (False, True):
            write_tree(Dump(tree_records(*names)), tmp_path / "tree", text)
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
    write_tree(Dump(tree_records("a")), tmp_path / "tree")
    file = tmp_path / "tree/7.a.xx.output0/output"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FormatError, match="cut off"):
        read_tree(tmp_path / "tree")
