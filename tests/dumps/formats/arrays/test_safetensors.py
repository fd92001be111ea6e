"""safetensors, against its own library; damage, and types the library cannot give to numpy."""

from __future__ import annotations

import builtins
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.conformance import Conformance
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump import Record, Tensor, open_dump, save_dump
from sgsdump.errors import FormatError, MissingExtra, SgsdumpError
from sgsdump.tensors.dtypes import KNOWN

library = pytest.importorskip("safetensors.numpy", reason="safetensors (the extra safetensors) is not installed")


class TestConformance(Conformance):
    format = "safetensors"


def file_of(path: Path, header: dict[str, Any], values: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)
    return path


def test_the_librarys_own_files_are_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    arrays = {
        f"layer.{n}": generator.normal(size=(n, 3)).astype(t) for n, t in enumerate(["<f4", "<f2", "<i8", "?"], 1)
    }
    library.save_file(arrays, tmp_path / "x.safetensors")
    dump = open_dump(tmp_path / "x.safetensors")
    assert dump.format == "safetensors" and sorted(dump) == sorted(arrays) and dump.notes == ()
    for name, array in arrays.items():
        assert dump[name].info.dtype == array.dtype
        np.testing.assert_array_equal(dump[name].stored(), array)


def test_the_library_reads_ours(tmp_path: Path) -> None:
    arrays = {"a/b:0": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.zeros((2, 0), np.int8), "d": np.float64(3)}
    records = [Tensor.of(name, np.asarray(array)) for name, array in arrays.items()]
    bf16 = np.array([1, 2], KNOWN["bfloat16"])
    save_dump([*records, Tensor.of("e", bf16)], tmp_path / "x.safetensors", "safetensors")
    found = library.load_file(tmp_path / "x.safetensors")
    assert sorted(found) == ["a/b:0", "c", "d", "e"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    assert found["e"].tobytes() == bf16.tobytes()


@pytest.mark.parametrize(
    "code, values, expected",
    [
        ("BF16", b"\x80\x3f\x00\x40", [1, 2]),
        ("F8_E4M3", b"\x38\x40", [1, 2]),
        ("F8_E5M2", b"\x3c\x40", [1, 2]),
        ("F8_E8M0", b"\x7f\x80", [1, 2]),
        ("F4", b"\x42", [1, 2]),
    ],
)
def test_small_floats_are_the_numbers_they_mean(
    code: str, values: bytes, expected: list[float], tmp_path: Path
) -> None:
    header = {"x": {"dtype": code, "shape": [2], "data_offsets": [0, len(values)]}}
    dump = open_dump(file_of(tmp_path / "x.safetensors", header, values))
    assert dump["x"].real().tolist() == expected


def test_a_type_that_numbers_cannot_be_had_of_is_left_out_and_told(tmp_path: Path) -> None:
    header = {
        "x": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]},
        "y": {"dtype": "U8", "shape": [1], "data_offsets": [3, 4]},
    }
    dump = open_dump(file_of(tmp_path / "x.safetensors", header, b"1234"))
    assert dump["y"].stored().tolist() == [ord("4")] and len(dump) == 1 and "'x'" in dump.notes[0]


@pytest.mark.parametrize(
    "header",
    [
        {"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}},
        {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"x": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 4]}},
        {"x": 3},
    ],
    ids=str,
)
def test_a_damaged_file_is_told(header: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"x\.safetensors is a damaged"):
        open_dump(file_of(tmp_path / "x.safetensors", header, b"1234"))


def test_a_manifest_that_names_another_tensor_or_type_is_refused(tmp_path: Path) -> None:
    save_dump([Tensor.of("x", np.zeros(1, np.complex64))], tmp_path / "x.safetensors", "safetensors")
    data = (tmp_path / "x.safetensors").read_bytes()
    for old, new, said in (
        (b'values\\": \\"x', b'values\\": \\"y', "missing"),
        (b"complex64", b"float32  ", "damaged"),
    ):
        assert data.count(old) == 1
        (tmp_path / "x.safetensors").write_bytes(data.replace(old, new))
        with pytest.raises(FormatError, match=said):
            open_dump(tmp_path / "x.safetensors")


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_dump([Tensor.of("x", np.zeros(1))], tmp_path / "x.safetensors", "safetensors")
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "safetensors":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"sgsdump\[safetensors\]"):
        open_dump(tmp_path / "x.safetensors")


def test_awkward_names_come_back(tmp_path: Path) -> None:
    names = ["__metadata__", "../../x", "", "\udce9", "\ud800", "x", "x", "a" * 300]
    records = [Record("out", 0, i, "", Tensor.of(name, np.full(1, i, np.float32))) for i, name in enumerate(names)]
    save_dump(records, tmp_path / "x.safetensors", "safetensors")
    dump = open_dump(tmp_path / "x.safetensors")
    assert [(r.name, r.tensor.real()[0]) for r in dump.records] == list(zip(names, range(len(names))))


@settings(max_examples=150)
@given(data=st.data())
def test_mutations_never_escape_the_error_tree(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("mutated")
    tensors = [Tensor.of("a", np.arange(5, dtype=np.float32)), Tensor.of("b", np.zeros((2, 3), KNOWN["int4"]))]
    save_dump(tensors, root / "x", "safetensors")
    found = bytearray((root / "x").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        found[data.draw(st.integers(0, len(found) - 1))] = data.draw(st.integers(0, 255))
    (root / "x").write_bytes(found)
    try:
        for record in open_dump(root / "x").records:
            record.tensor.stored()
    except SgsdumpError as error:
        assert "\n" not in str(error)
