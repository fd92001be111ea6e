"""Folders of .npy files, ours and anybody's, and single ones: hostile headers, links, names, changed files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.conformance import Conformance, any_records, assert_equal, content
from hypothesis import given, settings
from hypothesis import strategies as st
from platforms import unix_only

from sgsdump import Dump, Quant, Record, Tensor, TensorInfo, open_dump, save_dump
from sgsdump.dumps.targets import losses
from sgsdump.errors import ConfigError, FormatError, SgsdumpError


class TestConformance(Conformance):
    format = "npy_dir"
    listing = "sgsdump.json"


def npy(descr: str = "'<f4'", shape: str = "(2,)", values: bytes = b"12345678", order: str = "False") -> bytes:
    """A .npy file whose header says anything."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + values


def test_any_folder_of_arrays_is_read_by_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("conv10", "conv2", "b/conv%2F1"):
        np.save(tmp_path / f"{name}.npy", np.full((2, 3), len(name), np.float64))
    np.save(tmp_path / "b/turned.npy", np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)))
    (tmp_path / "readme.txt").write_text("hello")
    dump = open_dump(tmp_path)
    assert dump.format == "npy_dir" and dump.notes == ()
    assert list(dump) == ["b/conv%2F1", "b/turned", "conv2", "conv10"]
    assert dump["conv2"].info == TensorInfo("conv2", (2, 3), np.dtype(np.float64))
    assert dump["b/turned"].stored().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert dump["b/turned"].real().dtype == np.float32


def test_a_single_file_is_a_dump_of_one(tmp_path: Path) -> None:
    np.save(tmp_path / "conv1.npy", np.arange(3))
    dump = open_dump(tmp_path / "conv1.npy")
    assert dump.format == "npy" and dump["conv1"].real().tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="not written"):
        save_dump(dump, tmp_path / "other.npy", dump.format)


HOSTILE = {
    "objects": (npy("'|O'"), "Python objects"),
    "huge": (npy(shape="(1000000000000,)"), "declares 4000000000000 bytes of values, but only 8 bytes follow"),
    "beyond memory": (npy(shape="(0, 4611686018427387904, 8)"), "too large for any memory"),
    "negative": (npy(shape="(-2,)"), "an impossible shape"),
    "not numbers": (npy(shape="('a',)"), "npy header"),
    "true": (npy(shape="(True,)"), "an impossible shape"),
    "rank": (npy(shape="(" + "1," * 40 + ")"), "an impossible shape"),
    "records": (npy("[('a', '<f4')]"), "only plain numbers"),
    "subarray": (npy("'(1000,)f4'"), "only plain numbers"),
    "dates": (npy("'<M8[s]'"), "only plain numbers"),
    "nothing": (npy("'<U0'"), "only plain numbers"),
    "no type": (npy("'nonsense'"), "npy header"),
    "raw": (npy("'|V2'", "(4,)"), "raw bytes"),
    "code": (npy("__import__('os').system('true')"), "npy header"),
    "deep": (npy("(" * 50 + ")" * 50), "npy header"),
    "empty": (b"\x93NUMPY", "not a complete"),
    "version": (b"\x93NUMPY\x07\x00" + bytes(200), "not a complete"),
    "header length": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"(" * 20000, "header"),
    "no header": (b"\x93NUMPY\x01\x00\x00\x00" + b"12345678", "npy header"),
    "cut": (npy()[:60], "cut off in its .npy header"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_alone_and_left_out_of_a_folder(kind: str, tmp_path: Path) -> None:
    data, said = HOSTILE[kind]
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(FormatError, match=said) as caught:
        open_dump(tmp_path / "x.npy")
    assert "x.npy" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(FormatError, match="contains a tensor"):
        open_dump(tmp_path)
    np.save(tmp_path / "y.npy", np.zeros(1))
    dump = open_dump(tmp_path)
    assert list(dump) == ["y"] and len(dump.notes) == 1 and "x.npy" in dump.notes[0]


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(FormatError, match="never loaded"):
        open_dump(tmp_path / "x.npy")


def test_text_is_read_but_means_no_numbers_and_is_told_before_writing(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(["cat", "dog"]))
    dump = open_dump(tmp_path / "x.npy")
    assert dump["x"].stored().tolist() == ["cat", "dog"]
    assert "refused" in losses(dump.records, "npy_dir")[0]
    with pytest.raises(SgsdumpError):
        save_dump(dump, tmp_path / "out", "npy_dir")
    assert not (tmp_path / "out").exists()


def test_bytes_behind_the_values_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy() + npy())
    dump = open_dump(tmp_path)
    assert dump["x"].raw().tobytes() == b"12345678"
    assert "136 bytes more" in dump.notes[0]


def test_a_file_changed_since_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(100))
    dump = open_dump(tmp_path)
    (tmp_path / "x.npy").write_bytes(b"short")
    with pytest.raises(FormatError, match=r"x\.npy"):
        dump["x"].real()


@unix_only
def test_links_that_lead_out_are_skipped_and_told(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "dump"
    outside.mkdir()
    folder.mkdir()
    np.save(outside / "secret.npy", np.zeros(1))
    np.save(folder / "x.npy", np.zeros(1))
    (folder / "file.npy").symlink_to(outside / "secret.npy")
    (folder / "folder").symlink_to(outside)
    (folder / "circle").symlink_to(folder)
    (folder / "dead.npy").symlink_to(folder / "nothing.npy")
    (folder / "same.npy").symlink_to("x.npy")
    os.mkfifo(folder / "pipe.npy")
    dump = open_dump(folder)
    assert list(dump) == ["same", "x"]
    assert sorted(note.split()[0] for note in dump.notes) == ["circle", "dead.npy", "file.npy", "folder"]


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    np.save(tmp_path / "secret.npy", np.zeros(1, np.float32))
    folder = tmp_path / "dump"
    save_dump([Tensor.of("x", np.zeros(1, np.float32))], folder, "npy_dir")
    text = (folder / "sgsdump.json").read_text()
    (folder / "link.npy").symlink_to(tmp_path / "secret.npy")
    names = [
        "../secret.npy",
        str(tmp_path / "secret.npy"),
        "..",
        ".",
        "",
        "a\\b.npy",
        "x\0.npy",
        "n" * 300,
        "link.npy",
        "\ud800",
    ]
    for name in [*names, "\ud800"]:
        (folder / "sgsdump.json").write_text(text.replace('"x.npy"', json.dumps(name)))
        with pytest.raises(FormatError, match="folder"):
            open_dump(folder)


@pytest.mark.parametrize(
    "array, said",
    [
        (np.zeros(1, np.int32), "holds values of type int32, but type float32 is expected"),
        (np.zeros(0, np.float32), "holds 0 values"),
    ],
)
def test_values_that_are_not_what_the_manifest_says_are_refused(array: np.ndarray, said: str, tmp_path: Path) -> None:
    save_dump([Tensor.of("x", np.zeros(1, np.float32))], tmp_path / "dump", "npy_dir")
    np.save(tmp_path / "dump/x.npy", array)
    with pytest.raises(FormatError, match=said):
        open_dump(tmp_path / "dump")


def test_hostile_names_stay_in_the_folder_and_come_back(tmp_path: Path) -> None:
    names = [
        "../../x",
        "/etc/x",
        "..",
        ".",
        "",
        "a" * 300,
        "a" * 301,
        "a/b",
        "a:b",
        "con\x00",
        "\udce9",
        "\ud800",
        "x\ny",
    ]
    records = [Record("out", 0, i, "", Tensor.of(name, np.full(1, i, np.float32))) for i, name in enumerate(names)]
    save_dump(records, tmp_path / "dump", "npy_dir")
    assert [p.name for p in tmp_path.iterdir()] == ["dump"]
    files = content(tmp_path / "dump")
    assert len(files) == len(names) + 1 and all(len(os.fsencode(name)) <= 255 and "/" not in name for name in files)
    dump = open_dump(tmp_path / "dump")
    assert [(r.name, r.tensor.real()[0]) for r in dump.records] == list(zip(names, range(len(names))))


def test_a_buffer_larger_than_its_shape_is_kept_whole(tmp_path: Path) -> None:
    array = np.arange(16, dtype=np.float32)
    tensor = Tensor(TensorInfo("x", (1, 2, 2, 3), array.dtype), lambda: array)
    save_dump([tensor], tmp_path / "dump", "npy_dir")
    found = open_dump(tmp_path / "dump")["x"]
    assert found.raw().tobytes() == array.tobytes() and found.stored().shape == (1, 2, 2, 3)


@settings(max_examples=40)
@given(data=st.data())
def test_through_a_folder_and_back_nothing_is_lost_that_the_other_holds(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A -> folder -> A, for A the binary dump, gives the bytes of A."""
    records = [r for r in data.draw(any_records()) if not losses([r], "sigmastar_bin")]
    if not records:
        return
    root = tmp_path_factory.mktemp("pair")
    save_dump(records, root / "a.bin", "sigmastar_bin")
    save_dump(open_dump(root / "a.bin"), root / "folder", "npy_dir")
    save_dump(open_dump(root / "folder"), root / "b.bin", "sigmastar_bin")
    for found, expected in zip(open_dump(root / "b.bin").records, open_dump(root / "a.bin").records, strict=True):
        assert_equal(found, expected)


def test_genuine_dumps_go_through_every_format_of_ours(shared: Path, tmp_path: Path) -> None:
    for name in ("tiny_fixed_b_elim", "tiny_float_a_full"):
        genuine = shared / f"sigmastar/dumps/{name}/sigma_outtensor_dump.bin"
        dump = open_dump(genuine)
        for format in ("npy_dir", "npz", "safetensors"):
            assert losses(dump.records, format) == []
            save_dump(dump, tmp_path / format, format)
            again = open_dump(tmp_path / format)
            save_dump(Dump(again.records, dump.format, dump.variant), tmp_path / "again.bin")
            assert (tmp_path / "again.bin").read_bytes() == genuine.read_bytes()


MANIFEST: dict[str, Any] = {
    "zero_point": 1.5,
    "axis": True,
    "exact": 1,
    "scale": "big",
    "dtype": "O",
    "type_name": None,
}


@pytest.mark.parametrize("key", MANIFEST)
def test_a_manifest_of_wrong_types_is_refused(key: str, tmp_path: Path) -> None:
    quant = Quant(np.dtype(np.int8), 0.5, 0, 0, True)
    save_dump([Tensor.of("x", np.zeros(1, np.int8), quant=quant)], tmp_path / "dump", "npy_dir")
    path = tmp_path / "dump/sgsdump.json"
    document = json.loads(path.read_text())
    document["records"][0]["quant"][key] = MANIFEST[key]
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"sgsdump\.json is damaged"):
        open_dump(tmp_path / "dump")


@pytest.mark.parametrize(
    "key, value",
    [
        *[("io", "sideways"), ("slot", -1), ("slot", True), ("op_index", 2**60), ("shape", [-1]), ("shape", [1] * 99)],
        *[("shape", [2**40, 2**40]), ("shape", "1"), ("dtype", "float32; import os"), ("name", None), ("values", 7)],
        *[("origin", 3), ("origin", {"shape": [-1], "groups": 1}), ("origin", {"shape": [1], "groups": True})],
        *[("layout", 3), ("quant", []), ("name", "n" * 99999), ("constant", 0), ("slot", 10**400)],
    ],
)
def test_a_record_of_wrong_types_is_refused(key: str, value: object, tmp_path: Path) -> None:
    save_dump([Tensor.of("x", np.zeros(1, np.int8))], tmp_path / "dump", "npy_dir")
    path = tmp_path / "dump/sgsdump.json"
    document = json.loads(path.read_text())
    document["records"][0][key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"sgsdump\.json is damaged") as caught:
        open_dump(tmp_path / "dump")
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"sgsdump": 2, "records": []}', '{"sgsdump": 1}', "\xff", "NaN"]
)
def test_what_is_no_manifest_is_refused(text: str, tmp_path: Path) -> None:
    save_dump([Tensor.of("x", np.zeros(1, np.int8))], tmp_path / "dump", "npy_dir")
    (tmp_path / "dump/sgsdump.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=r"sgsdump\.json"):
        open_dump(tmp_path / "dump")


def test_a_folder_that_is_no_dump_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is a folder, not a dump: it has no files"):
        open_dump(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FormatError, match="pipe"):
            open_dump(tmp_path / "pipe")


def test_a_folder_of_other_things_with_an_array_deep_in_it_is_no_dump(tmp_path: Path) -> None:
    for name in ("setup.py", "src/a.py", "src/b.py", "tests/data/deep/x.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    np.save(tmp_path / "tests/data/deep/x.npy", np.float32([1]))
    told = r"only 1 of the 4 files in this folder and its subfolders are \.npy files\. "
    told += r"Give the folder .*\(tests/data/deep\)$"
    with pytest.raises(FormatError, match=told):
        open_dump(tmp_path)
    assert list(open_dump(tmp_path / "tests")) == ["data/deep/x"]
    for number in range(2):
        np.save(tmp_path / f"src/{number}.npy", np.float32([1]))
    assert len(open_dump(tmp_path)) == 3
    (tmp_path / "src/c.py").touch()
    with pytest.raises(FormatError, match="is not a dump: only 3 of the 7 files"):
        open_dump(tmp_path)
    np.save(tmp_path / "y.npy", np.float32([1]))
    assert len(open_dump(tmp_path)) == 4
