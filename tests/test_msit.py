"""msit's functions: its signatures, and what they give with and without torch, for which a stand-in is used."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sgsdump import Tensor, msit, save_dump
from sgsdump.errors import ConfigError, FormatError, MissingExtra, OutputError
from sgsdump.tensors.dtypes import KNOWN


class FakeTensor:
    def __init__(self, array: np.ndarray, kind: str = ""):
        assert array.flags.writeable, "torch warns of arrays that cannot be written"
        self.array, self.kind = array, kind

    def view(self, kind: str) -> FakeTensor:
        return FakeTensor(self.array, kind)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    def save(data: Any, file: Any) -> None:
        file.write(repr(data).encode())

    module = SimpleNamespace(from_numpy=FakeTensor, bfloat16="torch.bfloat16", save=save)
    monkeypatch.setitem(sys.modules, "torch", module)  # type: ignore[arg-type]
    return module


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]


def atb_file(path: Path, array: np.ndarray) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_dump([Tensor.of("x", array)], path, "atb_bin")
    return str(path)


def test_signatures_are_msits() -> None:
    expected = {
        "get_bin_data_from_dir": ["dump_data_dir", "max_depth=20"],
        "read_bin_data": ["bin_data_path"],
        "read_dump_data": ["dump_data_path"],
        "convert_bin_data_to_pt": ["bin_tensor"],
        "convert_bin_data_to_npy": ["bin_dump_data", "dtype=uint8"],
        "save_torch_data": ["pt_data", "pt_file_path"],
        "save_npy_data": ["npy_file_path", "npy_data"],
        "read_atb_data": ["file_path"],
    }
    assert set(msit.__all__) == set(expected)
    for name, arguments in expected.items():
        found = inspect.signature(getattr(msit, name)).parameters.values()
        assert [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in found] == arguments


def test_bin_files_become_torch_tensors(tmp_path: Path, torch: Any) -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    path = atb_file(tmp_path / "a" / "intensor0.bin", array)
    assert msit.get_bin_data_from_dir(str(tmp_path)) == [path]
    np.testing.assert_array_equal(msit.read_atb_data(path).array, array)
    bf16 = array.astype(KNOWN["bfloat16"])
    found = msit.convert_bin_data_to_pt(msit.read_bin_data(atb_file(tmp_path / "b.bin", bf16)))
    assert found.kind == "torch.bfloat16"
    np.testing.assert_array_equal(found.array, bf16.view(np.int16))
    with pytest.raises(FormatError, match="int4, which torch has not"):
        msit.read_atb_data(atb_file(tmp_path / "c.bin", np.ones(4, KNOWN["int4"])))


def test_without_torch_the_message_names_the_extra(tmp_path: Path, no_torch: None) -> None:
    path = atb_file(tmp_path / "x.bin", np.ones(3, np.float32))
    assert msit.read_bin_data(path).tensor.real().sum() == 3
    for call in (lambda: msit.read_atb_data(path), lambda: msit.save_torch_data([1], str(tmp_path / "x.pt"))):
        with pytest.raises(MissingExtra, match=r"pip install sgsdump\[torch\]"):
            call()
    assert not (tmp_path / "x.pt").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"")
    np.save(tmp_path / "y.npy", np.ones(3))
    (tmp_path / "y.npy").rename(tmp_path / "y.bin")
    with pytest.raises(FormatError, match=r"does not end in .bin"):
        msit.read_bin_data(str(tmp_path / "x.npy"))
    with pytest.raises(FormatError, match="of the format npy"):
        msit.read_bin_data(str(tmp_path / "y.bin"))


def test_the_depth_of_a_folder_is_bounded(tmp_path: Path) -> None:
    path = atb_file(tmp_path / "a" / "b" / "x.bin", np.ones(3, np.float32))
    assert msit.get_bin_data_from_dir(str(tmp_path), max_depth=3) == [path]
    with pytest.raises(FormatError, match="deeper than max_depth"):
        msit.get_bin_data_from_dir(str(tmp_path), max_depth=2)


def test_operator_dumps_become_arrays(shared: Path) -> None:
    path = shared / "ascend/ge_dump/schema_written/dump/MatMulV2.encoder_layer_0_matmul.12.3.1700000000223456"
    data = msit.read_dump_data(str(path))
    inputs, outputs = msit.convert_bin_data_to_npy(data)
    assert inputs and outputs and all(array.dtype == np.uint8 and array.ndim == 1 for array in inputs + outputs)
    first = data.output_data[0].tensor
    typed = msit.convert_bin_data_to_npy(data, dtype=first.info.dtype)[1][0]
    np.testing.assert_array_equal(typed, first.raw().reshape(-1))


def test_bytes_that_are_no_whole_elements(tmp_path: Path) -> None:
    data = msit.DumpData((msit.Payload(Tensor.of("x", np.ones(3, np.uint8))),), ())
    with pytest.raises(ConfigError, match="cannot be read as 'float32'"):
        msit.convert_bin_data_to_npy(data, "float32")
    with pytest.raises(ConfigError, match="cannot be read as 'nothing'"):
        msit.convert_bin_data_to_npy(data, "nothing")


def test_arrays_are_saved_in_new_folders(tmp_path: Path, torch: Any) -> None:
    target = tmp_path / "new" / "folder" / "x.npy"
    msit.save_npy_data(str(target), [[1.5, 2.5]])
    np.testing.assert_array_equal(np.load(target, allow_pickle=False), [[1.5, 2.5]])
    msit.save_torch_data([1], str(tmp_path / "x.pth"))
    assert (tmp_path / "x.pth").read_bytes() == b"[1]"
    with pytest.raises(OutputError, match=r"must end in .pt or .pth"):
        msit.save_torch_data([1], str(tmp_path / "x.bin"))
    with pytest.raises(OutputError, match=r"must end in .npy"):
        msit.save_npy_data(str(tmp_path / "x.bin"), [1])
    with pytest.raises(OutputError, match="Python objects"):
        msit.save_npy_data(str(tmp_path / "y.npy"), [{}])
