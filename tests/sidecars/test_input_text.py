"""The SDK's preprocessed input text, to the byte."""

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
        ("Input_shape=3, 4\n1, x, ", "something other"),
        ("Input_shape=3, 4\n1, , 2", "nothing between two commas"),
        ("Input_shape=3, 4\n1 2, ", "not numbers separated by commas"),
        ("Input_shape=3, 4\n99999999999, ", "beyond 32 bits"),
    ],
)
def test_mistakes(tmp_path, text, message):
    (tmp_path / "x").write_text(text)
    with pytest.raises(FormatError, match=message):
        read(tmp_path / "x")


def test_missing(tmp_path):
    assert not is_input_text(tmp_path / "no")
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "no")
