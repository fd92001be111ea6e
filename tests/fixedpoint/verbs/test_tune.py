"""``sgsdump.tune``, and pictures that the search does not see, with labels that a data loader gives."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_nets import conv, model, node, weights

import sgsdump
from sgsdump.cli import main
from sgsdump.errors import ConfigError

LOADER = """
import numpy as np

def runs(seed):
    generator = np.random.default_rng(seed)
    for number in range(4):
        yield {"x": generator.normal(size=(1, 3, 8, 8)).astype(np.float32)}, number

def load_data():
    yield from runs(1)

def others():
    yield from runs(2)
"""
METRIC = """
def near(outputs, float_outputs, label, picture):
    assert picture == f"feed {label}", (picture, label)
    return -float(abs(outputs["c"] - float_outputs["c"]).max())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    nodes = [conv("a", "x"), node("Relu", ["a"], "ra"), conv("b", "ra"), node("Relu", ["b"], "rb"), conv("c", "rb")]
    net = model(nodes, constants, {"x": (1, 3, 8, 8)}, ["c"]).proto
    (tmp_path / "net.onnx").write_bytes(net.SerializeToString())
    (tmp_path / "loader.py").write_text(LOADER)
    (tmp_path / "metric.py").write_text(METRIC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_function_does_what_the_command_does(folder: Path) -> None:
    found = sgsdump.tune(
        "net.onnx",
        "loader.py",
        rates=[0.7, 0.9],
        metric="metric.py:near",
        validate="loader.py:others",
        quant_level="L1",
        max_rmse=0.001,
    )
    assert {row.label for row in found.result.rows} >= {"INT8", "INT16", "0.7", "0.9"}
    held = found.result.held_out
    assert held is not None and held.pictures == 4 and held.float_metric == (0.0, 0.0)
    assert found.taken.outputs.held_error is not None and found.taken.outputs.held_metric is not None
    assert "held out: on 4 images" in str(found) and "[CONV_CONFIG]" in found.to_copy
    line = "tune -m net.onnx --data-loader-script loader.py --rates 0.7,0.9 --metric metric.py:near --quant-level L1"
    assert main([*line.split(), "--max-rmse", "0.001", "--validate", "loader.py:others", "-o", "by_command"]) == 0
    document = json.loads((folder / "by_command" / "pareto.json").read_text())
    assert [row["error"] for row in document["rows"]] == [row.error for row in found.result.rows]
    assert [row["held_error"] for row in document["rows"]] == [row.outputs.held_error for row in found.result.rows]
    assert document["held_out"]["pictures"] == 4


def test_feeds_in_memory_may_come_with_labels(folder: Path) -> None:
    generator = np.random.default_rng(3)
    feeds = [({"x": generator.normal(size=(1, 3, 8, 8)).astype(np.float32)}, number) for number in range(3)]

    def labels(outputs, float_outputs, label):
        return label

    found = sgsdump.tune("net.onnx", feeds, rates=[0.9], metric=labels, quant_level="L1")
    assert found.taken.outputs.metric == 1.0


def test_pictures_that_the_search_sees_are_no_judges(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        np.save(f"{number}.npy", np.full((1, 3, 8, 8), number, np.float32))
    np.save("copy_of_0.npy", np.zeros((1, 3, 8, 8), np.float32))
    line = "tune -m net.onnx -i 0.npy -o out --validate"
    for same in ("0.npy", "copy_of_0.npy"):
        assert main([*line.split(), same]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1 and f"--validate contains {same}, which is also in -i." in said[0]
    assert not (folder / "out").exists()
    assert main([*line.split(), "1.npy", "--evaluate", "1.npy"]) == 2
    assert "which is also in --evaluate." in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cost 'time' is unknown; use bytes or macs"):
        sgsdump.tune("net.onnx", "0.npy", cost="time")
