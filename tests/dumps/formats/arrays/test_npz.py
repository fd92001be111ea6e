"""numpy's archives, ours and anybody's; bombs, damage and odd members."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.conformance import Conformance
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump import Record, Tensor, open_dump, save_dump
from sgsdump.errors import FormatError, SgsdumpError


class TestConformance(Conformance):
    format = "npz"


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpys_own_archives_are_read(save: object, tmp_path: Path) -> None:
    arrays = {"conv1/Relu:0": np.random.default_rng(1).normal(size=(3, 40, 50)), "b": np.arange(5), "c": np.float32(3)}
    save(tmp_path / "x.npz", **arrays)  # type: ignore[operator]
    dump = open_dump(tmp_path / "x.npz")
    assert dump.format == "npz" and list(dump) == list(arrays) and dump.notes == ()
    for name, array in arrays.items():
        assert dump[name].info.dtype == array.dtype
        np.testing.assert_array_equal(dump[name].stored(), array)


def test_numpy_reads_ours(tmp_path: Path) -> None:
    array = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    save_dump([Tensor.of("/conv1/Relu:0", array), Tensor.of("/conv1/Relu:0", array)], tmp_path / "x.npz", "npz")
    with np.load(tmp_path / "x.npz") as found:
        assert found.files == ["/conv1/Relu:0", "/conv1/Relu:0~2", "sgsdump.json"]
        np.testing.assert_array_equal(found["/conv1/Relu:0"], array)
        shapes = {name: values.shape for name, values in found.items()}
        assert shapes.pop("sgsdump.json") and shapes == dict.fromkeys(found.files[:2], (2, 3))


def test_archives_of_the_first_versions_are_read(tmp_path: Path) -> None:
    """They hold the manifest as raw JSON, and a tensor may have the name that it has now."""
    records = [Record("out", 1, 5, "CONV", Tensor.of("sgsdump.json", np.float32([1, 2])))]
    save_dump(records, tmp_path / "new.npz", "npz")
    with zipfile.ZipFile(tmp_path / "new.npz") as new, zipfile.ZipFile(tmp_path / "old.npz", "w") as old:
        tensor, listing = new.namelist()
        text = np.load(io.BytesIO(new.read(listing))).tobytes().replace(tensor.encode(), b"sgsdump.json.npy")
        old.writestr("sgsdump.json.npy", new.read(tensor))
        old.writestr("sgsdump.json", text)
    (record,) = open_dump(tmp_path / "old.npz").records
    assert (record.slot, record.op_index, record.op_type) == (1, 5, "CONV")
    np.testing.assert_array_equal(record.tensor.stored(), [1, 2])


def test_hostile_names_come_back_and_lead_nobody_out(tmp_path: Path) -> None:
    names = ["../../x", "a/../../b", "a" * 70_000, "x\0y", "\ud800", "..", "sgsdump.json", "sgsdump.json.npy"]
    records = [Record("out", 0, i, "", Tensor.of(name, np.full(1, i, np.float32))) for i, name in enumerate(names[:2])]
    records += [Record("out", 0, i, "", Tensor.of(n, np.full(1, i, np.float32))) for i, n in enumerate(names[3:], 3)]
    save_dump(records, tmp_path / "x.npz", "npz")
    dump = open_dump(tmp_path / "x.npz")
    assert [(r.name, r.tensor.real()[0]) for r in dump.records] == [(r.name, r.tensor.real()[0]) for r in records]
    with zipfile.ZipFile(tmp_path / "x.npz") as file:
        assert not [name for name in file.namelist() if ".." in name.split("/")]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros, as much of them as deflate can do; small ones are what a dump of a dead layer looks like."""
    path = archive(tmp_path / "x.npz", {"x.npy": npy(np.zeros(2**20, np.uint8))})
    assert not open_dump(path)["x"].stored().any()
    monkeypatch.setattr("sgsdump.dumps.formats.shared.zip_member._LARGE", 2**19)
    with pytest.raises(FormatError, match="decompression bomb"):
        open_dump(path)


def test_a_size_that_no_packing_gives_is_a_bomb(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"x.npy": npy(np.zeros(1000))})
    data, size = path.read_bytes(), (1000 * 8 + 128).to_bytes(4, "little")
    assert data.count(size) == 2
    path.write_bytes(data.replace(size, (2**31).to_bytes(4, "little")))
    with pytest.raises(FormatError, match="decompression bomb"):
        open_dump(path)


def test_a_member_that_unpacks_to_more_or_less_than_it_says_is_told(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"x.npy": npy(np.random.default_rng(1).normal(size=1000))})
    data, size = path.read_bytes(), (1000 * 8 + 128).to_bytes(4, "little")
    for other, said in ((1001 * 8 + 128, "checksum or size"), (900 * 8 + 128, "declares")):
        path.write_bytes(data.replace(size, other.to_bytes(4, "little")))
        with pytest.raises(FormatError, match=said):
            open_dump(path)["x"].stored()


def test_values_that_were_damaged_are_told_by_their_checksum(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"x.npy": npy(np.random.default_rng(1).normal(size=1000))})
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"x\.npz.*damaged"):
        open_dump(path)["x"].stored()


def test_members_that_are_no_tensors_are_left_out_and_told(tmp_path: Path) -> None:
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    members = {"a.npy": npy(np.zeros(2)), "readme.txt": b"hello", "pickled.npy": pickled.getvalue()}
    dump = open_dump(archive(tmp_path / "x.npz", members))
    assert list(dump) == ["a"]
    assert len(dump.notes) == 2 and "readme.txt" in dump.notes[0] and "never loaded" in dump.notes[1]


def test_a_member_without_a_name_is_a_tensor_without_one(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(2)), "b.npy": npy(np.zeros(2))})
    data = path.read_bytes()
    place = data.rindex(b"b.npy")
    path.write_bytes(data[:place] + b"\0" + data[place + 1 :])
    assert list(open_dump(path)) == ["a", ""]


def test_another_packing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="Unpack the archive first"):
        open_dump(archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(2))}, zipfile.ZIP_BZIP2))


@settings(max_examples=150)
@given(data=st.data())
def test_mutations_never_escape_the_error_tree(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("mutated")
    arrays = {"a": np.arange(20, dtype=np.float32), "b": np.zeros((2, 3), np.int8)}
    if data.draw(st.booleans()):
        np.savez_compressed(root / "x.npz", **arrays)
    else:
        save_dump([Tensor.of(name, array) for name, array in arrays.items()], root / "x.npz", "npz")
    found = bytearray((root / "x.npz").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        found[data.draw(st.integers(0, len(found) - 1))] = data.draw(st.integers(0, 255))
    (root / "x.npz").write_bytes(found)
    try:
        for record in open_dump(root / "x.npz").records:
            record.tensor.stored()
    except SgsdumpError as error:
        assert "\n" not in str(error)


def test_the_checksum_of_a_stored_member_is_compared(tmp_path: Path) -> None:
    values = np.arange(1000, dtype=np.float32)
    np.savez(tmp_path / "x.npz", good=values, bad=values + 5000)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[content.index((values + 5000).tobytes()) + 1234] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    dump = open_dump(tmp_path / "x.npz")
    np.testing.assert_array_equal(dump["good"].stored(), values)
    with pytest.raises(
        FormatError, match=r"x\.npz: member 'bad\.npy' is damaged: its content does not match its checksum"
    ):
        dump["bad"].stored()
