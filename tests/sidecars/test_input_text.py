"""The SDK's preprocessed input text, to the byte."""

import math

import numpy as np
import pytest

from sgsdump.errors import ConfigError, FormatError
from sgsdump.sidecars.input_text import is_input_text, read, write


@pytest.mark.parametrize(("name", "dtype"), [("in_norm.txt", np.float32), ("in_raw.txt", np.int32)])
def test_genuine_files_come_back_byte_for_byte(shared, tmp_path, name, dtype):
    file = shared / "sigmastar/model" / name
    text = read(file)
    assert (text.height, text.width, text.values.shape, text.values.dtype) == (484, 806, (20 * 24 * 3,), dtype)
    oracle = [float(word) for word in file.read_text().split("\n", 1)[1].replace("\n", "").split(",") if word.strip()]
    assert np.array_equal(text.values, np.array(oracle, np.float32))
    write(tmp_path / "again.txt", text.values.reshape(1, 20, 24, 3), 484, 806)
    assert (tmp_path / "again.txt").read_bytes() == file.read_bytes()
    assert is_input_text(file)


def test_short_last_row(tmp_path):
    write(tmp_path / "x", np.arange(17), 3, 5)
    assert (tmp_path / "x").read_text().split("\n")[0::2] == ["Input_shape=3, 5", "16, "]
    assert read(tmp_path / "x").values.tolist() == list(range(17))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not 'Input_shape=H, W'"),
        ("Input_shape=3\n1, ", "is not 'Input_shape=H, W'"),
        ("Input_shape=3, 4\n", "no values"),
        ("Input_shape=3, 4\n1, x, ", "text other"),
        ("Input_shape=3, 4\n1, , 2", "a value is missing before a comma"),
        ("Input_shape=3, 4\n1 2, ", "not numbers separated by commas"),
        ("Input_shape=3, 4\n99999999999, ", "absolute value of 2"),
        ("Input_shape=1234567890, 1\n1", "is not 'Input_shape=H, W'"),
        ("Input_shape=1, 2, 3\n1", "is not 'Input_shape=H, W'"),
        ("input_shape=1, 2\n1", "is not 'Input_shape=H, W'"),
        ("Input_shape=1, 2\n, 1", "a value is missing before a comma"),
        ("Input_shape=1, 2\n1,,2", "a value is missing before a comma"),
        ("Input_shape=1, 2\n1, 2,\n,", "a value is missing before a comma"),
        ("Input_shape=1, 2\n-2147483648, 1, ", "absolute value of 2"),
        ("Input_shape=1, 2\n1 2", "not numbers"),
        ("Input_shape=1, 2\n1\t2", "text other than numbers"),
    ],
)
def test_mistakes(stored, text, message):
    with pytest.raises(FormatError, match=message):
        read(stored(text))


def test_missing(tmp_path):
    assert not is_input_text(tmp_path / "no")
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "no")


@pytest.mark.parametrize(
    ("body", "values", "dtype"),
    [
        ("1, 2, ", [1, 2], "i4"),
        ("1,2", [1, 2], "i4"),
        ("-3, +4, ", [-3, 4], "i4"),
        ("2147483647, -2147483647, ", [2**31 - 1, 1 - 2**31], "i4"),
        ("1., 2, ", [1, 2], "f4"),
        ("1e3, ", [1000], "f4"),
        ("1E3, ", [1000], "f4"),
        ("0.1, \n0.2, \r\n", [np.float32(0.1), np.float32(0.2)], "f4"),
        ("inf, -inf, ", [math.inf, -math.inf], "f4"),
        ("1e39, ", [math.inf], "f4"),
        ("2147483648., ", [2**31], "f4"),
    ],
)
def test_whole_numbers_and_floats(stored, body, values, dtype):
    found = read(stored(f"Input_shape=3, 4\n{body}"))
    assert (found.height, found.width, found.values.dtype) == (3, 4, np.dtype(dtype))
    assert found.values.tolist() == values


def test_nan_is_a_float(stored):
    for word in ("nan", "NaN"):
        assert np.isnan(read(stored(f"Input_shape=3, 4\n1, {word}, ")).values).tolist() == [False, True]


@pytest.mark.parametrize(
    "head", ["Input_shape=3, 4", "Input_shape=3,4,", "Input_shape= 3 , 4 , ", "Input_shape=123456789, 1\r"]
)
def test_first_lines(stored, head):
    assert read(stored(head + "\n1")).values.tolist() == [1]
    assert is_input_text(stored(head))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.arange(16, dtype=np.uint8), "Input_shape=5, 6\n" + "".join(f"{n}, " for n in range(16)) + "\n"),
        (
            np.arange(33, dtype=np.int16),
            "Input_shape=5, 6\n"
            + "".join("".join(f"{n}, " for n in range(start, min(start + 16, 33))) + "\n" for start in (0, 16, 32)),
        ),
        (np.array([[0.1, -2]]), "Input_shape=5, 6\n0.10000000149011612, -2.0, \n"),
        (np.array([0.1], np.float32), "Input_shape=5, 6\n0.10000000149011612, \n"),
        (np.array([]), "Input_shape=5, 6\n"),
        (np.asfortranarray([[1, 2], [3, 4]]), "Input_shape=5, 6\n1, 2, 3, 4, \n"),
    ],
)
def test_sixteen_to_a_row_in_full_digits(tmp_path, values, text):
    write(tmp_path / "x", values, 5, 6)
    assert (tmp_path / "x").read_text() == text


def test_a_folder_is_no_input_text(tmp_path):
    assert not is_input_text(tmp_path)
    (tmp_path / "x").write_bytes(b"Input_shap")
    assert not is_input_text(tmp_path / "x")
