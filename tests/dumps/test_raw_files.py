"""Raw tensors without a header: types and shapes from the user, the model and the other side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sgsdump import compare, open_dump, save_dump
from sgsdump.cli import main
from sgsdump.dumps.raw_files import RawFacts, is_raw, open_raw
from sgsdump.errors import ConfigError, FileChanged, FormatError

FLOAT32 = RawFacts([("*", np.dtype(np.float32))])
NCHW = np.random.default_rng(0).standard_normal((1, 8, 5, 7)).astype(np.float32)


def written(folder: Path, **arrays: np.ndarray) -> Path:
    """A folder as QNN leaves it; ``__`` in a name is a folder."""
    for name, array in arrays.items():
        path = folder / f"{name.replace('__', '/')}.raw"
        path.parent.mkdir(parents=True, exist_ok=True)
        array.tofile(path)
    return folder


def model(path: Path) -> Path:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 5, 7]) for name in ("x", "/net/relu.0")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["/net/relu.0"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_folder_and_a_file(tmp_path: Path) -> None:
    folder = written(tmp_path / "Result_0", prob=NCHW, Predictions__Reshape_1=np.float32([1, 2]))
    dump = open_raw(folder, FLOAT32)
    assert {name: (tensor.shape, tensor.dtype.name) for name, tensor in dump.items()} == {
        "Predictions/Reshape_1": (None, "float32"),
        "prob": (None, "float32"),
    }
    np.testing.assert_array_equal(dump["prob"].stored(), NCHW.reshape(-1))
    assert open_raw(folder / "prob.raw", FLOAT32)["prob"].stored().size == 280
    assert is_raw(folder) and is_raw(folder / "prob.raw")
    save_dump(dump, tmp_path / "known.npz")
    assert not is_raw(tmp_path / "known.npz")


def test_the_last_pattern_that_fits_gives_type_and_shape(tmp_path: Path) -> None:
    folder = written(tmp_path, a=np.arange(6, dtype=np.uint8), b=np.arange(6, dtype=np.float16))
    types = [("*", np.dtype(np.uint8)), ("b", np.dtype(np.float16))]
    dump = open_raw(folder, RawFacts(types, [("*", (6,)), ("a", (2, 3))]))
    assert dump["a"].stored().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (dump["b"].shape, dump["b"].stored().tolist()) == ((6,), [0, 1, 2, 3, 4, 5])


def test_results_are_chosen_as_steps(tmp_path: Path) -> None:
    for number in (0, 10):
        written(tmp_path / f"Result_{number}", y=np.float32([number]))
    with pytest.raises(ConfigError, match="holds 2 results; choose one with --step N"):
        open_raw(tmp_path, FLOAT32)
    assert open_raw(tmp_path, FLOAT32, 10)["y"].stored().tolist() == [10]
    with pytest.raises(ConfigError, match="has no Result_3; it has 0, 10"):
        open_raw(tmp_path, FLOAT32, 3)


def test_shapes_and_names_of_the_model(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", _net_relu_0=NCHW, other=np.ones(3, np.float32), x=np.ones(2, np.float32))
    shapes = {"/net/relu.0": (1, 8, 5, 7), "x": (1, 8, 5, 7)}
    dump = open_raw(folder, RawFacts(FLOAT32.dtypes, model=shapes))
    np.testing.assert_array_equal(dump["/net/relu.0"].stored(), NCHW)
    assert (dump["other"].shape, dump["x"].shape) == (None, None)
    assert ["do not fit the model's shape" in dump.notes[0], "NHWC" in dump.notes[1]] == [True, True]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (RawFacts([("*", np.dtype(np.float64))]), "not a whole number of float64"),
        (RawFacts(FLOAT32.dtypes, [("y", (2, 2))]), "do not fit the shape"),
        (RawFacts([("z*", np.dtype(np.float32))]), "no raw file matches 'z"),
        (RawFacts([]), "no element type given for raw file 'y'"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, facts: RawFacts, said: str) -> None:
    written(tmp_path, y=np.ones(3, np.float32))
    with pytest.raises((ConfigError, FormatError), match=said) as caught:
        open_raw(tmp_path, facts)
    assert "\n" not in str(caught.value)


def test_a_file_that_changed_is_told(tmp_path: Path) -> None:
    tensor = open_raw(written(tmp_path, y=np.ones(3, np.float32)), FLOAT32)["y"]
    written(tmp_path, y=np.ones(30, np.float32))
    with pytest.raises(FileChanged):
        tensor.stored()


def test_a_comparison_takes_the_shape_from_the_other_side(tmp_path: Path) -> None:
    """Whose NHWC it finds, for these tools put out that."""
    noise = np.random.default_rng(1).standard_normal(NCHW.shape).astype(np.float32) * 1e-3
    folder = written(tmp_path / "out", y=(NCHW + noise).transpose(0, 2, 3, 1), z=NCHW)
    save_dump({"y": NCHW, "z": NCHW}, tmp_path / "reference.npz")
    rows = compare(open_raw(folder, FLOAT32), open_dump(tmp_path / "reference.npz"))
    assert rows["z"].mse == 0 and rows["y"].mse == pytest.approx(float((noise**2).mean()), rel=1e-3)
    assert "NHWC" in rows["y"].note


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "out/Result_0", _net_relu_0=NCHW)
    written(tmp_path / "out/Result_1", _net_relu_0=NCHW)
    model(tmp_path / "net.onnx")
    raw = ["--raw-dtype", "float32"]
    assert main(["show", "out", *raw, "--step", "1"]) == 0
    assert main(["show", "out/Result_0", "_net_relu_0", "[0,0,0]", *raw, "--raw-shape", "*=8x5x7"]) == 0
    assert "[8, 5, 7]" in capsys.readouterr().out
    assert main(["convert", "out/Result_0", "net.npz", *raw, "--raw-shape", "net.onnx"]) == 0
    np.testing.assert_array_equal(open_dump("net.npz")["/net/relu.0"].stored(), NCHW)
    assert main(["compare", "out", "net.npz", *raw, "--step", "0", "--max-mse", "0"]) == 0
    assert "/net/relu.0" in capsys.readouterr().out
    Path("references").mkdir()
    for number in (0, 1):
        save_dump({"_net_relu_0": NCHW}, f"references/Result_{number}.npz")
    assert main(["compare", "out", "references", "--runs", *raw, "--max-mse", "0"]) == 0
    np.save("other_name.npy", NCHW)
    assert main(["compare", "out/Result_0/_net_relu_0.raw", "other_name.npy", *raw, "--max-mse", "0"]) == 0
    capsys.readouterr()
    assert main(["show", "out/Result_0/_net_relu_0.raw"]) == 2
    assert "Give the type: --raw-dtype float32" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["show", "out", "--raw-dtype", "flat32"])
