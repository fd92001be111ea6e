"""``sgsdump compare`` as a user runs it: output, files, exit status, one line for trouble."""

import json
import sys

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.dumps.dump import Record
from sgsdump.tensors.tensor import Quant, Tensor


@pytest.fixture
def dumps(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((1, 4, 5, 6)).astype(np.float32) for name in ("conv1", "conv2")}

    def save(name: str, factor: float, rename: str = "") -> str:
        path = tmp_path / name
        tensors = [Tensor.of(rename + n, a * np.float32(factor), op_type="Conv") for n, a in arrays.items()]
        sgsdump.save_dump(tensors, path, on_loss="ignore")
        return str(path)

    return {
        "same": save("same.bin", 1),
        "near": save("near.bin", 1.02),
        "far": save("far.bin", 1.5),
        "alien": save("alien.bin", 1, "z"),
    }


def test_prints_table_and_verdict(dumps, capsys):
    assert main(["compare", dumps["near"], dumps["same"], "--format", "sdk"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0.conv1.xx.output0                      OP_TYPE:Conv        MSE:")
    assert "RMSE:0.020000" in lines[0] and lines[2] == ""
    assert lines[3].startswith("DIFFERS: ") and lines[6] == "Compared: 2 of 2 layers."
    assert main(["compare", dumps["near"], dumps["same"]]) == 0
    *block, head, one, two, blank = (said := capsys.readouterr().out.splitlines())[:8]
    assert block[0] == "DIFFERS: layer conv2 RMSE 0.02; 2 of 2 layers differ." and block == lines[3:7] and not blank
    table = [head, one, two]
    assert head.split() == ["#", "layer", "type", "RMSE", "COS", "MSE"] and said[8:] == lines[7:]
    assert table[1].split()[:3] == ["pass", "0", "conv1"] and "0.020000" in table[1].split()


@pytest.mark.parametrize(
    ("sample", "options", "status"),
    [
        ("far", [], 0),  # no threshold given, nothing to be past of
        ("near", ["--max-rmse", "0.1"], 0),
        ("far", ["--max-rmse", "0.1"], 1),
        ("far", ["--min-cos", "0.99"], 0),  # COS is blind to scale
        ("far", ["--min-cos", "0.99", "--max-mse", "1e-3"], 1),
        ("same", ["--min-cos", "0.99", "--max-rmse", "0", "--max-mse", "0"], 0),
        ("far", ["--max-rmse", "0"], 1),
    ],
)
def test_exit_status(dumps, sample, options, status):
    assert main(["compare", dumps[sample], dumps["same"], *options]) == status


def test_not_finite_and_not_compared_are_past_any_threshold(dumps, tmp_path):
    path = tmp_path / "nan.bin"
    array = sgsdump.open_dump(dumps["same"])["conv1"].stored().copy()
    array[0, 0, 0, 0] = np.nan
    sgsdump.save_dump([Tensor.of("conv1", array)], path, on_loss="ignore")
    assert main(["compare", str(path), dumps["same"], "--min-cos", "-1"]) == 1
    sgsdump.save_dump([Tensor.of("conv1", array[:, 1:]), Tensor.of("conv2", array)], path, on_loss="ignore")
    assert main(["compare", dumps["same"], str(path), "--min-cos", "-1"]) == 1


def test_files(dumps, tmp_path, capsys):
    table, document = tmp_path / "a.csv", tmp_path / "a.json"
    assert main(["compare", dumps["far"], dumps["same"], "--csv", str(table), "--json", str(document)]) == 0
    assert len(table.read_text().splitlines()) == 3
    assert json.loads(document.read_text())["verdict"]["past_thresholds"] == ["conv1", "conv2"]
    assert main(["compare", dumps["far"], dumps["same"], "--csv", str(tmp_path / "no" / "a.csv")]) == 2
    assert "no folder" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_progress_of_long_work_goes_to_standard_error_if_that_is_a_terminal(dumps, capsys, monkeypatch):
    main(["compare", dumps["near"], dumps["same"]])
    plain = capsys.readouterr()
    assert not plain.err
    monkeypatch.setattr("sgsdump.progress.DELAY_SECONDS", 0)
    main(["compare", dumps["near"], dumps["same"]])
    assert not capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(["compare", dumps["near"], dumps["same"]])
    captured = capsys.readouterr()
    assert "/2 [" in captured.err and captured.out == plain.out


def test_names_in_another_encoding_are_escaped(tmp_path, capsys):
    path, table = tmp_path / "a.bin", tmp_path / "a.csv"
    sgsdump.save_dump([Tensor.of("x\udcff\u4e2d", np.ones(4, np.float32))], path)
    assert main(["compare", str(path), str(path), "--csv", str(table), "--json", str(tmp_path / "a.json")]) == 0
    assert "x\\udcff\u4e2d" in capsys.readouterr().out
    assert b"x\xff" in table.read_bytes()
    assert json.loads((tmp_path / "a.json").read_text())["rows"][0]["name"] == "x\udcff\u4e2d"


def test_no_layer_in_common_is_one_line(dumps, capsys):
    assert main(["compare", dumps["alien"], dumps["same"]]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("sgsdump: error: no layer in common") and captured.err.count("\n") == 1
    assert not captured.out


def test_bad_files_are_one_line(dumps, tmp_path, capsys):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    for bad in ("text", "empty", "absent", ""):
        assert main(["compare", str(tmp_path / bad), dumps["same"]]) == 2
        captured = capsys.readouterr()
        error, *hints = captured.err.splitlines()
        assert error.startswith("sgsdump: error: ") and not captured.out
        assert all(hint.startswith("  ") for hint in hints) and bool(hints) == (bad in ("text", ""))


def test_integers_need_their_ranges(tmp_path, capsys):
    """What the header rounds to 0.000031 is refused, and read with the ranges that made it."""
    real = np.linspace(-0.99, 0.99, 64, dtype=np.float32).reshape(1, 64)
    stored = np.round(real / np.float32(0.99 / 32767)).astype(np.int16)
    quant = Quant(np.dtype(np.int16), 0.99 / 32767)
    integers, floats, ranges = tmp_path / "i.bin", tmp_path / "f.bin", tmp_path / "tensor_min_max.txt"
    sgsdump.save_dump([Record("out", 0, 0, "ADD", Tensor.of("x", stored, quant=quant))], integers, on_loss="ignore")
    sgsdump.save_dump([Record("out", 0, 0, "ADD", Tensor.of("x", real))], floats, on_loss="ignore")
    assert main(["compare", str(integers), str(floats)]) == 2
    captured = capsys.readouterr()
    assert "x: holds integers whose true scale" in captured.out
    assert captured.err == "sgsdump: error: none of 1 layers could be compared; the reasons are listed above\n"
    ranges.write_text("Name:x, min: -0.990000, max: 0.990000;\n")
    options = ["--ranges", str(ranges), "--max-rmse", "0.0001"]
    assert main(["compare", str(integers), str(floats), *options]) == 0
    ranges.write_text("Name:x, min: -0.590000, max: 0.590000;\n")
    assert main(["compare", str(integers), str(floats), *options]) == 2
    assert "Check that both are of the same model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "at", "past"),
    [
        ("--max-rmse", "0.5", "0.49999"),
        ("--max-mse", "4", "3.99999"),
        ("--limit", "mae=2", "mae=1.99999"),
        ("--min-cos", "0.8", "0.80001"),
    ],
)
def test_exit_status_at_the_limit_and_just_past_it(tmp_path, option, at, past):
    """Of numbers that float64 has exactly, so that a limit can be met to the bit."""
    far = option != "--min-cos"
    sample, benchmark = ([6, 6], [4, 4]) if far else ([4, 3, 0], [5, 0, 0])
    for name, values in (("a.bin", sample), ("b.bin", benchmark)):
        sgsdump.save_dump([Tensor.of("x", np.array([values], np.float32))], tmp_path / name)
    command = ["compare", str(tmp_path / "a.bin"), str(tmp_path / "b.bin"), option]
    assert main([*command, at]) == 0 and main([*command, past]) == 1


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 0),
        (["--min-cos", "-1"], 1),
        (["--max-rmse", "1e300"], 1),
        (["--max-mse", "1e300"], 1),
        (["--limit", "mae=inf"], 1),
    ],
)
def test_a_layer_that_could_not_be_compared_is_past_every_limit_given(dumps, tmp_path, capsys, options, status):
    good = sgsdump.open_dump(dumps["same"])["conv1"].stored()
    sgsdump.save_dump(
        [Tensor.of("conv1", good), Tensor.of("conv2", good[:, 1:])], tmp_path / "short.bin", on_loss="ignore"
    )
    assert main(["compare", str(tmp_path / "short.bin"), dumps["same"], *options]) == status
    out = capsys.readouterr().out
    assert "Compared: 1 of 2 layers" in out and "conv2: sizes differ" in out
