"""Folders of one tensor a file: names and lists that tell type and shape, numbers as text, and what is ambiguous."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sgsdump import list_runs, open_dump, save_dump
from sgsdump.cli import main
from sgsdump.dumps.formats.shared.raw_facts import fitting, named, type_of
from sgsdump.errors import ConfigError, FormatError

SIX = np.arange(6, dtype=np.float32)

NAMED = {
    "conv1_1x2x3_float32": ("conv1", (1, 2, 3), "float32", 24),
    "conv1.2x3.fp16": ("conv1", (2, 3), "float16", 12),
    "a/b-2x3-int8": ("a/b", (2, 3), "int8", 6),
    "conv1_float32_2x3": ("conv1", (2, 3), "float32", 24),
    "conv1_2,3_f32": ("conv1", (2, 3), "float32", 24),
    "conv_3x3_2x3_bf16": ("conv_3x3", (2, 3), "bfloat16", 12),
    "net.txt_0002_00064_00002x00003_float": ("net.txt_0002", (1, 64, 3, 2), "float32", 1536),
    "x_00001_00002_00002x00003_float": ("x", (1, 2, 3, 2), "float32", 48),
}


@pytest.mark.parametrize("stem", NAMED)
def test_names_that_tell_type_and_shape(stem: str) -> None:
    name, shape, dtype, size = NAMED[stem]
    facts = fitting(stem, size)
    assert facts is not None and facts.dtype is not None
    assert (facts.name, facts.shape, facts.dtype.name) == (name, shape, dtype)
    assert fitting(stem, size + 1) is None


@pytest.mark.parametrize("stem", ["conv1", "conv1_float32", "conv1_64_56", "x_2x3y", "9" * 300, "_2x3_float32"])
def test_names_that_do_not(stem: str) -> None:
    assert not [facts for facts in named(stem) if facts.dtype is not None]


def test_words_for_types() -> None:
    words = {"torch.float32": "float32", "QNN_DATATYPE_UFIXED_POINT_8": "uint8", "QNN_DATATYPE_FLOAT_16": "float16"}
    words |= {"DT_BF16": "bfloat16", "<f4": "float32", "np.int64": "int64", "half": "float16", "FLOAT": "float32"}
    assert {word: getattr(type_of(word), "name", None) for word in words} == words
    assert [type_of(word) for word in ("", "int4", "tensor", "object", "complex64")] == [None] * 5


LISTS = {
    "shapes.json": json.dumps({"x": [2, 3]}),  # the type comes from the name of the file
    "a.json": json.dumps({"tensors": [{"name": "x", "dims": [2, 3], "data_type": "FLOAT"}]}),
    "b.json": json.dumps([{"file": "x_float32.raw", "shape": "2x3", "dtype": "fp32"}]),
    "c.txt": "# made by hand\nx_float32: [2, 3] float32\n",
    "d.csv": "name;shape;type\nx_float32;2 3;float32\n",
    "e.txt": "x_float32.raw\t2\t3\tfloat32\n",
    "f.yaml": "- name: x_float32\n  dims:\n  - 2\n  - 3\n  dtype: float32\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name: str, tmp_path: Path) -> None:
    by_word = name in ("shapes.json", "a.json")
    SIX.tofile(tmp_path / ("x.raw" if by_word else "x_float32.raw"))
    (tmp_path / name).write_text(LISTS[name])
    if name == "shapes.json":
        with pytest.raises(FormatError, match="--raw-dtype float32"):
            open_dump(tmp_path)
        return
    (tensor,) = open_dump(tmp_path).values()
    assert tensor.shape == (2, 3) and tensor.real().ravel().tolist() == SIX.tolist()


def test_a_list_in_a_subfolder_and_files_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("x", "deep/x", "deep/y"):
        SIX.tofile(tmp_path / f"{name}.raw")
    (tmp_path / "deep/list.txt").write_text("x 3x2 float32\ny 7 float32\n")
    np.save(tmp_path / "z.npy", SIX)
    dump = open_dump(tmp_path)
    assert {name: tensor.shape for name, tensor in dump.items()} == {"deep/x": (3, 2), "x": (3, 2), "z": (6,)}
    assert len(dump.damage) == 1 and "y.raw has 24 bytes, which do not fit float32 [7]" in dump.notes[0]


def test_results_of_qnn_are_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (tmp_path / f"Result_{number}").mkdir()
        np.full((1, 4), number, np.uint8).tofile(tmp_path / f"Result_{number}/prob_native.raw")
    facts = (
        "  - tensor_name: prob_native\n    datatype: QNN_DATATYPE_UFIXED_POINT_8\n    dimensions:\n    - 1\n    - 4\n"
    )
    (tmp_path / "execution_metadata.yaml").write_text(f"graphs:\n- graph_name: net\n  output_tensors:\n{facts}")
    assert [run.step for run in list_runs(tmp_path)] == [0, 1, 2]
    dump = open_dump(tmp_path, step=2)
    assert dump["prob_native"].dtype == np.uint8 and dump["prob_native"].real().tolist() == [[2, 2, 2, 2]]
    with pytest.raises(ConfigError, match="3 runs"):
        open_dump(tmp_path)
    assert main(["compare", str(tmp_path), str(tmp_path), "--max-mse", "0"]) == 0


TEXTS = {
    "rows": ("1 2 3\n4 5 6\n", (2, 3), [1, 2, 3, 4, 5, 6]),
    "windows": ("\ufeff1,2\r\n3,4\r\n", (2, 2), [1, 2, 3, 4]),
    "flat": ("1\n-2.5e-1\nnan\n+inf\n", None, [1, -0.25, np.nan, np.inf]),
    "uneven": ("1 2 3\n4 5\n", None, [1, 2, 3, 4, 5]),
    "comment": ("# Array shape: (2, 1, 2)\n1 2\n# slice\n3 4\n", (2, 1, 2), [1, 2, 3, 4]),
    "type": ("# dtype: int64\n9007199254740993\n", None, [9007199254740993]),
    "header": ("a,b\n1,2\n3,4\n", (2, 2), [1, 2, 3, 4]),
    "pandas": (",a,b\n0,1,2\n1,3,4\n", (2, 2), [1, 2, 3, 4]),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_numbers_as_text(kind: str, tmp_path: Path) -> None:
    text, shape, values = TEXTS[kind]
    (tmp_path / "x.csv").write_bytes(text.encode())
    for path in (tmp_path, tmp_path / "x.csv"):
        tensor = open_dump(path)["x"]
        np.testing.assert_array_equal(tensor.stored().ravel(), values)
        assert tensor.shape == shape


def test_a_shape_in_the_name_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "x_1x2x3.txt").write_text("1 2 3 4 5 6")
    (tmp_path / "y_7x7.txt").write_text("1\n2\n")
    assert {name: tensor.shape for name, tensor in open_dump(tmp_path).items()} == {"x": (1, 2, 3), "y_7x7": None}


@pytest.mark.parametrize(
    "text", ["hello", "1 2 x\n", "layer,ms\nconv1,0.5\n", "", "1\n2\nthree\n", "a,b\n1,2,3\n", "\0"]
)
def test_other_text_is_no_tensor(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(FormatError):
        open_dump(tmp_path)
    np.save(tmp_path / "y.npy", SIX)
    assert list(open_dump(tmp_path)) == ["y"]


@pytest.mark.parametrize(
    ("text", "said"), [("1 2\n2-3 4\n", "is not a number of type float32"), ("# shape: 3\n1 2\n", "its comment")]
)
def test_damaged_text_is_told(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(FormatError, match=said):
        open_dump(tmp_path / "x.txt")["x"].real()


def test_two_files_of_one_name_are_refused_with_the_option(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", SIX)
    SIX.tofile(tmp_path / "x_6x1_float32.bin")
    with pytest.raises(
        ConfigError, match=r"2 files hold the tensor 'x': x\.npy, x_6x1_float32\.bin\. .*--files '\*\.npy'"
    ):
        open_dump(tmp_path)
    assert open_dump(tmp_path, files=["*.bin"])["x"].shape == (6, 1)
    with pytest.raises(ConfigError, match="matches none of 2"):
        open_dump(tmp_path, files=["*.pt"])


def test_dumps_of_sgsdump_are_no_tensors_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save_dump({"a": SIX}, tmp_path / "in/1.npz")
    with pytest.raises(FormatError, match=r"a dump of format npz below it"):
        open_dump(tmp_path / "in")
    np.save(tmp_path / "in/b.npy", SIX)
    dump = open_dump(tmp_path / "in")
    assert list(dump) == ["b"] and dump.notes == ("1.npz is a complete dump; open it separately",)
