"""Files in the form that TensorRT's published sources describe, written by this project's script below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly

from sgsdump import Dump, compare, open_dump, save_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import FormatError
from sgsdump.reports.comparison import REPORTS


def exported(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the text of ``trtexec --exportOutput``: six significant digits."""
    parts = []
    for name, array in tensors.items():
        sizes = "x".join(map(str, array.shape))
        values = ", ".join(f"{value:.6g}" for value in array.ravel().tolist())
        sep = "  " if not parts else ", "
        parts.append(f'{sep}{{ "name" : "{name}"\n  , "dimensions" : "{sizes}"\n  , "values" : [ {values} ]\n  }}\n')
    return f"[\n{''.join(parts)}]\n"


SMALL = {"prob": np.array([[0.25, -1e-7, np.nan]]), "ids": np.array([3, 1]), "s": np.array(2.5), "e": np.zeros((0, 2))}


class TestReadOnly(ReadOnly):
    format = "tensorrt_outputs"
    file_name = "outputs.json"
    data = exported(SMALL).encode()[:-1]


def opened(tmp_path: Path, text: str) -> Dump:
    (tmp_path / "outputs.json").write_text(text)
    return open_dump(tmp_path / "outputs.json")


def test_values_and_shapes(tmp_path: Path) -> None:
    dump = opened(tmp_path, exported(SMALL))
    assert {name: tensor.shape for name, tensor in dump.items()} == {"prob": (1, 3), "ids": (2,), "s": (), "e": (0, 2)}
    for name, array in SMALL.items():
        np.testing.assert_array_equal(dump[name].real(), array.astype(np.float32))
    assert not dump.notes


def test_a_planted_difference_has_the_figures_of_numpy(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    outputs = {"boxes": generator.normal(size=(1, 40, 4)), "scores": generator.normal(size=(1, 40))}
    save_dump({name: array.astype(np.float32) for name, array in outputs.items()}, tmp_path / "onnx.npz")
    good = opened(tmp_path, exported(outputs))
    assert REPORTS["verdict"](compare(good, tmp_path / "onnx.npz"), Thresholds()).startswith("WITHIN ROUNDING")
    outputs["scores"] = outputs["scores"] + 0.5 * generator.normal(size=(1, 40))
    (tmp_path / "bad").mkdir()
    bad = opened(tmp_path / "bad", exported(outputs))
    found = compare(bad, good)
    verdict = REPORTS["verdict"](found, Thresholds())
    assert verdict.startswith("DIFFERS") and "scores" in verdict.splitlines()[1]
    a, b = (dump["scores"].real().astype(float) for dump in (bad, good))
    row = next(row for row in found.rows if row.name == "scores")
    assert row.mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("-1e-07", "minus one", "something other than numbers"),
        ("3, 1", "3, 1, 7", "has 3 values"),
    ],
)
def test_wrong_values_are_refused_when_they_are_read(old: str, new: str, match: str, tmp_path: Path) -> None:
    dump = opened(tmp_path, exported(SMALL).replace(old, new))
    with pytest.raises(FormatError, match=match):
        for tensor in dump.values():
            tensor.real()


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"2"', '"200"', "fewer values"),
        ('"2"', f'"{"x".join(["9" * 12] * 5)}"', "is invalid: numpy cannot make"),
        ('"ids"', '"ids", "more" : 1', "left out"),
    ],
)
def test_a_wrong_tensor_is_left_out(old: str, new: str, match: str, tmp_path: Path) -> None:
    dump = opened(tmp_path, exported(SMALL).replace(old, new))
    assert "ids" not in dump and "prob" in dump and any(match in note for note in dump.damage)
