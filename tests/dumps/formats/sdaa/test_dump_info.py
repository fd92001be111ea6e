"""dump_info.json and the file names: the SDAA tool's own layout, strict JSON, names that come back.

Dump folders of the ONNX pipeline and of the SDAA tool: what the JSON lists, what it does not, and hostile ones.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.conformance import Conformance, plain_records
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sgsdump import Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import DumpInfo, InputEntry, OutputEntry, TensorFacts, facts_of, outputs_file
from sgsdump.dumps.targets import losses
from sgsdump.errors import FormatError, LossWarning, OutputError
from sgsdump.tensors.dtypes import KNOWN

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=40)


@pytest.mark.parametrize(
    "index, name, file",
    [
        (12, "relu_1.tmp_0", "topoidx_00012__relu_1.tmp_0.npy"),
        (None, "relu_3.tmp_0", "relu_3.tmp_0.npy"),
        (0, "/model/conv 1/Add", "topoidx_00000__%2Fmodel%2Fconv 1%2FAdd.npy"),
        (None, "/a/b", "%2Fa%2Fb.npy"),
        (None, "..", "%2E..npy"),
        (None, "../../etc/x", "%2E.%2F..%2Fetc%2Fx.npy"),
        (7, "100%", "topoidx_00007__100%25.npy"),
        (123456, "big", "topoidx_123456__big.npy"),
    ],
)
def test_a_file_name_says_its_tensor(index, name, file):
    assert dump_info.outputs_file(index, name) == file
    assert dump_info.named(file) == (index, name)


@given(st.none() | st.integers(0, 10**6), TEXT)
def test_any_name_comes_back(index, name):
    file = dump_info.outputs_file(index, name)
    assert not set(file) & set('/\\:*?"<>|\0') and not file.startswith(".")
    if index is None and name.startswith("topoidx_"):
        return
    assert dump_info.named(file) == (index, name) or len(name.encode()) > 70


def test_long_names_are_cut_and_stay_apart():
    names = ["x" * 400 + end for end in "ab"]
    files = [dump_info.outputs_file(3, name) for name in names]
    assert files[0] != files[1] and all(len(file) <= 255 and file.endswith(".npy") for file in files)


FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(max_dims=3, max_side=5),
    elements=st.floats(width=16, allow_nan=True, allow_infinity=True),
)


@given(FLOATS)
def test_statistics_are_numpys(array):
    found = facts_of(array)
    with np.errstate(all="ignore"):
        expected = [float(figure) for figure in (np.mean(array), np.median(array), np.min(array), np.max(array))]
    np.testing.assert_array_equal([found.mean, found.median, found.min, found.max], expected)
    assert found.has_nan == np.isnan(array).any() and found.has_inf == np.isinf(array).any()
    assert (found.dtype, found.shape) == (array.dtype.name, array.shape)


def test_statistics_of_other_types():
    assert facts_of(np.array([1, 2, 4, 9])) == TensorFacts("int64", (4,), False, False, 4.0, 3.0, 1, 9)
    assert facts_of(np.array([True, False, True])) == TensorFacts("bool", (3,), False, False, 2 / 3, 1.0, False, True)
    assert facts_of(np.zeros((2, 0), np.float32)) == TensorFacts("float32", (2, 0))
    assert facts_of(np.array(3, np.uint8)) == TensorFacts("uint8", (), False, False, 3.0, 3.0, 3, 3)
    import ml_dtypes

    half = facts_of(np.array([1, 2, np.nan], ml_dtypes.bfloat16))
    assert half.dtype == "bfloat16" and half.has_nan and math.isnan(half.mean)
    small = facts_of(np.array([1, -2, 4], ml_dtypes.int4))
    assert small == TensorFacts("int4", (3,), False, False, 1.0, 1.0, -2.0, 4.0)


def example() -> DumpInfo:
    return DumpInfo(
        {"date_time": "2024-01-02 03:04:05", "default_seed": 42, "node_output_names": ["a", "b"]},
        (InputEntry("x", facts_of(np.arange(3.0)), 42, 0.0, 1.0, False, "inputs/x.npy"), InputEntry("y", None)),
        (
            OutputEntry("a", facts_of(np.array([np.nan, -np.inf, 1])), "n", "Relu", ("x",), 0, "outputs/a.npy", "NCHW"),
            OutputEntry("b", None, "m", "If", topo_index=1, error="inside a body", failed=False),
        ),
    )


def test_the_json_is_strict_and_comes_back(tmp_path):
    dump_info.write(example(), tmp_path)
    text = (tmp_path / "dump_info.json").read_text()

    def refuse(word):
        raise AssertionError(f"{word} is no strict JSON")

    document = json.loads(text, parse_constant=refuse)
    assert text.startswith('{\n    "meta_info": {')
    assert list(document) == ["meta_info", "input_info", "node_output_info"]
    assert document["input_info"][0]["tensor_info"]["shape"] == [3]
    assert set(document["input_info"][0]) >= {"input_name", "seed", "low", "high", "use_external", "tensor_info"}
    output = document["node_output_info"][0]
    assert set(output) >= {"node_output_name", "node_name", "node_type", "node_input_name", "tensor_info"}
    assert list(output["tensor_info"]) == "dtype shape has_nan has_inf mean median min max".split()
    assert output["tensor_info"]["mean"] == "nan" and output["tensor_info"]["has_nan"] is True
    assert document["node_output_info"][1]["error"] == "inside a body"
    for found in (dump_info.read(tmp_path), dump_info.read(tmp_path / "dump_info.json")):
        assert found.meta == example().meta and found.inputs == example().inputs
        assert found.outputs[1] == example().outputs[1]
        assert str(found.outputs[0]) == str(example().outputs[0])


def test_the_tools_own_json_is_read(tmp_path):
    """As the SDAA tool writes it: bare NaN and Infinity, no keys of ours."""
    (tmp_path / "dump_info.json").write_text(
        """{"meta_info": {"model_name": "m", "default_seed": 42},
        "input_info": [{"input_name": "x", "seed": 42, "low": 0, "high": 1, "use_external": false, "tensor_info":
          {"dtype": "float32", "shape": [1, 3], "has_nan": false, "has_inf": false, "mean": 0.5, "median": 0.5,
           "min": 0.1, "max": 0.9}}],
        "node_output_info": [{"node_output_name": "a", "node_name": "", "node_type": "Relu", "node_input_name": ["x"],
          "tensor_info": {"dtype": "float16", "shape": [1], "has_nan": true, "has_inf": true, "mean": NaN,
            "median": NaN, "min": -Infinity, "max": Infinity}},
          {"node_output_name": "b", "error": "boom"}]}"""
    )
    found = dump_info.read(tmp_path)
    assert found.inputs[0] == InputEntry(
        "x", TensorFacts("float32", (1, 3), False, False, 0.5, 0.5, 0.1, 0.9), 42, 0, 1
    )
    first, second = found.outputs
    assert first.facts and first.facts.max == math.inf and math.isnan(first.facts.mean) and first.file is None
    assert second.error == "boom" and second.failed


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "not JSON"),
        ("[1]", "not a dump_info.json"),
        ('{"meta_info": {}}', "not a dump_info.json"),
        ('{"meta_info": {}, "input_info": [3], "node_output_info": []}', "not a dump_info.json"),
        (
            '{"meta_info": {}, "input_info": [{"input_name": "x", "file": "../x.npy"}], "node_output_info": []}',
            "not in",
        ),
        (
            '{"meta_info": {}, "input_info": [{"input_name": "x", "file": "inputs/.."}], "node_output_info": []}',
            "not in",
        ),
        ("[" * 100000, "not JSON"),
        ('{"meta_info": {}, "node_output_info": []}', "missing key 'input_info'"),
        (
            '{"meta_info": {}, "input_info": [{"input_name": "x", "seed": 4.7}], "node_output_info": []}',
            "the seed 4.7 is not a whole number",
        ),
    ],
)
def test_what_is_none_is_one_line(tmp_path, text, message):
    (tmp_path / "dump_info.json").write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        dump_info.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_json_is_one_line(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        dump_info.read(tmp_path)


class TestConformance(Conformance):
    format = "dump_info_dir"
    listing = "dump_info.json"

    def records(self) -> list[Record]:
        return [replace(record, slot=0, op_index=index) for index, record in enumerate(plain_records())]


def seeds_folder(root: Path, **more: Any) -> Path:
    """A folder as the SDAA tool writes it: no file names, no layout; ``more`` are further arrays, by file name."""
    arrays = {
        "inputs/x.npy": np.ones((1, 3), np.float32),
        "outputs/topoidx_00012__relu_1.tmp_0.npy": np.arange(6, dtype=np.float32).reshape(1, 6),
        "outputs/topoidx_00020__relu_3.tmp_0.npy": np.zeros((1, 2), np.float16),
        **more,
    }
    for name, array in arrays.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(root / name, array)

    def facts(dtype: str, *shape: int) -> dict[str, Any]:
        return {"dtype": dtype, "shape": list(shape), "has_nan": False, "has_inf": False, "mean": 1.0, "median": 1.0}

    document = {
        "meta_info": {"date_time": "2024-05-01 10:00:00", "model_name": "m"},
        "input_info": [
            {
                "input_name": "x",
                "seed": 42,
                "low": 0,
                "high": 1,
                "use_external": False,
                "tensor_info": facts("float32", 1, 3),
            }
        ],
        "node_output_info": [
            {
                "node_output_name": "relu_1.tmp_0",
                "node_name": "Relu_0",
                "node_type": "Relu",
                "node_input_name": ["a"],
                "tensor_info": facts("float32", 1, 6),
            },
            {"node_output_name": "a/b", "error": "[Errno 2] No such file\nor directory"},
            {
                "node_output_name": "relu_3.tmp_0",
                "node_name": "",
                "node_type": "Relu",
                "node_input_name": ["b"],
                "tensor_info": facts("float16", 1, 2),
            },
        ],
    }
    (root / "dump_info.json").write_text(json.dumps(document, indent=4))
    return root


def test_a_folder_of_the_tool_itself_is_read(tmp_path: Path) -> None:
    dump = open_dump(seeds_folder(tmp_path))
    assert dump.format == "dump_info_dir"
    assert [(r.io, r.slot, r.op_index, r.op_type, r.name) for r in dump.records] == [
        ("in", 0, 0, "", "x"),
        ("out", 0, 12, "Relu_0", "relu_1.tmp_0"),
        ("out", 0, 20, "Relu", "relu_3.tmp_0"),
    ]
    assert dump["relu_1.tmp_0"].real().tolist() == [[0, 1, 2, 3, 4, 5]]
    assert dump["relu_3.tmp_0"].info.dtype == np.float16
    assert dump.notes == ("not dumped: a/b: [Errno 2] No such file or directory",)


def test_files_of_an_earlier_run_are_left_out_and_told(tmp_path: Path) -> None:
    older = {"outputs/topoidx_00003__old.npy": np.zeros(2), "outputs/relu_3.tmp_0.npy": np.ones((1, 2), np.float16)}
    dump = open_dump(seeds_folder(tmp_path, **older))
    assert len(dump.records) == 3 and not dump["relu_3.tmp_0"].real().any()
    assert dump.notes[-1].startswith("left out: 2 files of another run") and "__old.npy" in dump.notes[-1]


def test_without_the_json_it_is_a_folder_of_arrays(tmp_path: Path) -> None:
    (seeds_folder(tmp_path) / "dump_info.json").unlink()
    dump = open_dump(tmp_path)
    assert dump.format == "npy_dir"
    assert list(dump) == ["inputs/x", "outputs/topoidx_00012__relu_1.tmp_0", "outputs/topoidx_00020__relu_3.tmp_0"]


def test_saved_again_it_keeps_what_the_json_says_of_the_run(tmp_path: Path) -> None:
    dump = open_dump(seeds_folder(tmp_path / "a"))
    save_dump(dump, tmp_path / "b", dump.format)
    again = json.loads((tmp_path / "b" / "dump_info.json").read_text())
    assert again["meta_info"]["date_time"] == "2024-05-01 10:00:00"
    assert again["input_info"][0]["seed"] == 42
    assert [entry["node_output_name"] for entry in again["node_output_info"] if "error" in entry] == ["a/b"]
    assert open_dump(tmp_path / "b")["relu_1.tmp_0"].real().tolist() == dump["relu_1.tmp_0"].real().tolist()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_a_type_beyond_numpy_as_numpy_saves_it(name: str, tmp_path: Path) -> None:
    array = np.array([[1, 2, 3, 0, 1, 2]]).astype(KNOWN[name])
    seeds_folder(tmp_path, **{"outputs/topoidx_00012__relu_1.tmp_0.npy": array})
    text = (tmp_path / "dump_info.json").read_text()
    (tmp_path / "dump_info.json").write_text(
        text.replace('"float32"', f'"{name}"').replace(f'"{name}"', '"float32"', 1)
    )
    found = open_dump(tmp_path)["relu_1.tmp_0"]
    assert found.info.dtype == KNOWN[name] and found.real().tolist() == [[1, 2, 3, 0, 1, 2]]


def test_a_network_input_stands_once_and_what_operators_read_not_at_all(tmp_path: Path) -> None:
    def record(io: str, name: str, index: int, **facts: Any) -> Record:
        return Record(io, 0, index, "", Tensor.of(name, np.ones(2, np.float32)), **facts)  # type: ignore[arg-type]

    records = [record("in", "x", 0), record("out", "y", 0), record("in", "y", 1), record("in", "w", 1, constant=True)]
    records.append(record("out", "z", 1))
    told = losses(records, "dump_info_dir")
    assert len(told) == 2 and "'y'" in told[0] and "'w'" in told[1]
    with pytest.warns(LossWarning) as caught:
        save_dump(records, tmp_path / "dump", "dump_info_dir")
    assert all(line in str(caught[0].message) for line in told)
    assert [r.name for r in open_dump(tmp_path / "dump").records] == ["x", "y", "z"]


@pytest.mark.parametrize(
    "file", ["../x.npy", "/etc/x.npy", "outputs/../../x.npy", "outputs/..", "inputs\\x.npy", 5, [""]]
)
def test_a_file_elsewhere_is_refused(file: object, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 6), np.float32))
    folder = seeds_folder(tmp_path / "dump")
    document = json.loads((folder / "dump_info.json").read_text())
    document["node_output_info"][0]["file"] = file
    (folder / "dump_info.json").write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"dump_info\.json|missing"):
        open_dump(folder)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = seeds_folder(tmp_path / "dump")
    file = folder / "outputs/topoidx_00012__relu_1.tmp_0.npy"
    file.rename(tmp_path / "elsewhere.npy")
    file.symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(FormatError, match="missing"):
        open_dump(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nonsense", '{"node_output_info": 3, "input_info": [], "meta_info": {}}']
)
def test_a_damaged_json_is_told(text: str, tmp_path: Path) -> None:
    (seeds_folder(tmp_path) / "dump_info.json").write_text(text)
    with pytest.raises(FormatError, match=r"dump_info\.json"):
        open_dump(tmp_path)


def test_a_number_beyond_reason_is_told(tmp_path: Path) -> None:
    path = seeds_folder(tmp_path) / "dump_info.json"
    path.write_text(path.read_text().replace('"shape": [', '"shape": [1e999, '))
    with pytest.raises(FormatError, match=r"dump_info\.json"):
        open_dump(tmp_path)


def test_awkward_names_become_safe_files_and_come_back(tmp_path: Path) -> None:
    names = ["../../x", "/a/b", "a/b", "a%2Fb", "n" * 400, "n" * 401, ".hidden", ""]
    records = [Record("out", 0, i, "", Tensor.of(name, np.full(1, i, np.float32))) for i, name in enumerate(names)]
    save_dump(records, tmp_path / "dump", "dump_info_dir")
    assert [p.name for p in tmp_path.iterdir()] == ["dump"]
    dump = open_dump(tmp_path / "dump")
    assert [(r.name, r.tensor.real()[0]) for r in dump.records] == list(zip(names, range(len(names))))
    assert (tmp_path / "dump/outputs" / outputs_file(2, "a/b")).is_file()


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    records = [Tensor.of("\udce9", np.zeros(1, np.float32))]
    with pytest.raises(OutputError, match="not valid Unicode"):
        save_dump(records, tmp_path / "dump", "dump_info_dir")
