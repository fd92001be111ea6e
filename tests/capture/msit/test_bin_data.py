"""msit's functions: its signatures, and what they give with and without torch, for which a stand-in is used."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from sgsdump import Tensor, save_dump
from sgsdump.capture import msit
from sgsdump.errors import ConfigError, FormatError, MissingExtra, OutputError, ValuesError
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
        "atb_json_to_onnx": ["atb_json_path", "target_level=-1", "cache_csv_file=None"],
        "DumpConfig": [
            *("dump_path=None", "token_range=None", "module_list=None", "api_list=None", "tensor_part=2"),
            *("device_id=None", "dump_last_logits=False", "mode=None", "dump_weight=False", "layer_name=None"),
            *("seed=None", "dump_statistics_mode=0", "analyze=False"),
        ],
        "register_hook": ["model", "config", "hook_type=dump_data"],
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
    with pytest.raises(FormatError, match="int4, which torch does not support"):
        msit.read_atb_data(atb_file(tmp_path / "c.bin", np.ones(4, KNOWN["int4"])))


def test_an_alias_has_the_values_of_the_file_it_names(shared: Path, torch: Any) -> None:
    """The probe with filter_level 1 writes aliases, with 0 every tensor: the same run, the same values."""
    trees = [shared / f"ascend/atb_dump_tree/{name}/atb_dump_data/data/0_4711/0" for name in ("tensor_f1", "all_f0")]
    aliases = 0
    for path in msit.get_bin_data_from_dir(str(trees[0])):
        whole = trees[1] / Path(path).relative_to(trees[0].resolve())
        assert msit.read_atb_data(path).array.tobytes() == msit.read_atb_data(str(whole)).array.tobytes()
        aliases += b"\ndata=" in Path(path).read_bytes()[:300]
    assert aliases == 7


def test_an_alias_alone_is_refused(shared: Path, tmp_path: Path, torch: Any) -> None:
    alias = "ascend/atb_dump_tree/tensor_f1/atb_dump_data/data/0_4711/0/1_DecoderLayer/after/outtensor0.bin"
    shutil.copy(shared / alias, tmp_path / "outtensor0.bin")
    with pytest.raises(ValuesError, match=r"1_2_outtensor0\.bin of the same run. Open the folder of the whole dump"):
        msit.read_atb_data(str(tmp_path / "outtensor0.bin"))
    place = tmp_path / "0_1/0/1_DecoderLayer/after"
    place.mkdir(parents=True)
    shutil.copy(shared / alias, place)
    with pytest.raises(ValuesError, match=r"alias of 1_2_outtensor0\.bin, which is missing"):
        msit.read_bin_data(str(place / "outtensor0.bin")).obj_buffer  # noqa: B018


def test_a_bin_tensor_has_the_fields_of_msits(shared: Path) -> None:
    layer = shared / "ascend/atb_dump_tree/all_f0/atb_dump_data/data/0_4711/0/1_DecoderLayer"
    found = msit.read_bin_data(str(layer / "after/outtensor0.bin"))
    head, _, payload = Path(found.file_path).read_bytes().partition(b"$End=1\n")
    lines = dict(line.split("=") for line in head.decode().splitlines())
    assert (found.dtype, found.format) == (int(lines["dtype"]), int(lines["format"]))
    assert found.dims == [int(size) for size in lines["dims"].split(",")]
    assert found.obj_len == int(lines["$Object.Length"]) == len(payload)
    assert found.obj_buffer == payload
    statistics = msit.read_bin_data(str(shared / "ascend/atb_bin_from_tests/msit_stats_only_complete.bin"))
    assert (statistics.dims, statistics.obj_len, statistics.obj_buffer) == ([1, 2, 3], None, b"")


@pytest.mark.parametrize(
    ("source", "level"),
    [*(("layer_DecoderLayer_1", level) for level in (0, 1, -1)), *(("model_LlamaDecoder", level) for level in (1, -1))],
)
def test_topologies_become_the_vendors_graphs(shared: Path, tmp_path: Path, source: str, level: int) -> None:
    folder = shared / "ascend/topology"
    path = tmp_path / f"{source}.json"
    shutil.copy(folder / f"msprobe_probe_{source}.json", path)
    assert msit.atb_json_to_onnx(str(path), level, {}) == ()
    made = onnx.load(path.with_suffix(".onnx"))
    onnx.checker.check_model(made, full_check=True)
    vendors = onnx.load(folder / f"msprobe_probe_{source}_level_{'all' if level < 0 else level}.onnx")
    for ours, theirs in zip(made.graph.node, vendors.graph.node, strict=True):
        assert (ours.name, ours.op_type) == (theirs.name, theirs.op_type)
        assert (ours.input, ours.output) == (theirs.input, theirs.output)
        for mine, its in zip(ours.attribute, theirs.attribute, strict=True):
            # The vendor's floats are lists of one; of a 0 and of false it writes an empty list.
            value = onnx.helper.get_attribute_value(mine)
            assert (mine.name, np.float32(value)) == (its.name, np.float32([*its.floats, 0][0]))
    assert [info.name for info in made.graph.output] == [info.name for info in vendors.graph.output]
    inputs = [info.name for info in made.graph.input]
    assert inputs[: len(vendors.graph.input)] == [info.name for info in vendors.graph.input]


def test_a_topology_takes_its_shapes_from_the_same_process(tmp_path: Path) -> None:
    layer = {"opName": "L_0", "inTensors": ["x"], "outTensors": ["y"], "opType": "L"}
    path = tmp_path / "layer/7/L_0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(layer))
    csv = tmp_path / "operation_io_tensors/7/operation_tensors_0.csv"
    csv.parent.mkdir(parents=True)
    csv.write_text("OpName|InDType|InShape|OutDType|OutShape\nL_0|float16|2,3|float|6\n")

    def input_type(cache: dict | None) -> str:
        assert msit.atb_json_to_onnx(str(path), cache_csv_file=cache) == ()
        return onnx.load(path.with_suffix(".onnx")).graph.input[0].type.WhichOneof("value")

    cache: dict[str, Any] = {}
    assert [input_type(None), input_type(cache)] == ["opaque_type", "tensor_type"]
    csv.write_text("")
    assert input_type(cache) == "tensor_type" and list(cache) == [str(csv)]
    with pytest.raises(FormatError, match=r"does not end in \.json"):
        msit.atb_json_to_onnx(str(path.with_suffix(".onnx")))
    with pytest.raises(ConfigError, match="invalid --level -2"):
        msit.atb_json_to_onnx(str(path), -2, cache)


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
    with pytest.raises(FormatError, match="has the format npy"):
        msit.read_bin_data(str(tmp_path / "y.bin"))


def test_the_depth_of_a_folder_is_bounded(tmp_path: Path) -> None:
    path = atb_file(tmp_path / "a" / "b" / "x.bin", np.ones(3, np.float32))
    assert msit.get_bin_data_from_dir(str(tmp_path), max_depth=3) == [path]
    with pytest.raises(FormatError, match="deeper than max_depth"):
        msit.get_bin_data_from_dir(str(tmp_path), max_depth=2)
    (tmp_path / "/".join("n" * 21)).mkdir(parents=True)
    with pytest.raises(FormatError, match=r"/n lies deeper than max_depth \(40\)"):
        msit.get_bin_data_from_dir(str(tmp_path), max_depth=40)


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
