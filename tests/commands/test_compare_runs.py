"""``sgsdump compare --runs``: two folders of dumps, one for each run, merged."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.tensors.tensor import Tensor


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Four runs in either folder, of one of which the sample has no conv0, and one more in the benchmark's."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for folder in ("fixed", "float"):
        (tmp_path / folder).mkdir()
    for number in range(5):
        values = {name: rng.standard_normal((1, 4, 5, 5)).astype(np.float32) for name in ("conv0", "conv1")}
        off = {name: array + np.float32(0.01 * (number + 1)) for name, array in values.items()}
        if number == 3:
            del off["conv0"]
        sgsdump.save_dump([Tensor.of(name, array) for name, array in values.items()], f"float/p{number}.npz")
        if number < 4:
            sgsdump.save_dump([Tensor.of(name, array) for name, array in off.items()], f"fixed/p{number}.npz")
    return tmp_path


def test_runs_of_one_name_are_merged(folders, capsys):
    assert main("compare fixed float --runs --metrics sqnr --csv t.csv --json t.json".split()) == 0
    out = capsys.readouterr().out
    assert "3 runs, worst in run p2 (COS" in out and "4 runs, worst in run p3 (COS" in out
    assert "Compared: 2 of 2 layers" in out
    assert "conv0: in p3: no output of this name in the sample" in out
    assert "Runs compared: 4.\nRun not compared: p4 of the benchmark is missing from fixed\n" in out
    first, second, missing = csv.DictReader((folders / "t.csv").read_text().splitlines())
    assert (first["runs"], first["worst_run"], second["runs"], second["worst_run"]) == ("3", "p2", "4", "p3")
    rows = [sgsdump.compare(f"fixed/p{n}.npz", f"float/p{n}.npz", metrics=["sqnr"])["conv1"] for n in range(4)]
    assert float(second["mse"]) == pytest.approx(np.mean([row.mse for row in rows]), rel=1e-12)
    assert float(second["mean_rmse"]) == pytest.approx(np.mean([row.rmse for row in rows]), rel=1e-12)
    assert float(second["worst_rmse"]) == rows[3].rmse
    powers = [10 ** (row.extra["sqnr"] / 10) * row.mse for row in rows]
    expected = 10 * np.log10(np.mean(powers) / np.mean([row.mse for row in rows]))
    assert float(second["sqnr"]) == pytest.approx(expected, rel=1e-9)
    assert missing["remark"].startswith("in p3: ")
    document = json.loads((folders / "t.json").read_text())
    assert [row["runs"]["worst"] for row in document["rows"]] == ["p2", "p3"]


def test_a_limit_holds_for_all_runs_together(folders):
    for limit, status in (("0.02", 1), ("0.5", 0)):
        command = ["compare", "fixed", "float", "--runs", "--max-rmse", limit]
        assert main([*command, "--allow-missing"]) == status
    assert main(command) == 1  # a run of the benchmark is missing


def test_a_missing_run_is_said_first_and_is_a_failure(folders, capsys):
    assert main("compare fixed float --runs --junit j.xml --json c.json".split()) == 0
    names = [path.stem for path in (folders / "float").iterdir() if path.stem not in _stems(folders / "fixed")]
    assert f"Missing from the sample: 1 run, {names[0]}.\n" in capsys.readouterr().out
    document = json.loads(Path("c.json").read_text(encoding="utf-8"))
    assert document["completeness"]["runs"] == names and document["findings"][0]["facts"] == {"what": "runs"}
    assert 'message="run missing from the sample"' in Path("j.xml").read_text(encoding="utf-8")


def _stems(folder):
    return {path.stem for path in folder.iterdir()}


def test_endings_do_not_matter_and_folders_are_runs_too(folders, capsys):
    sgsdump.save_dump(sgsdump.open_dump("float/p1.npz"), "other/p1")
    assert main("compare fixed other --runs".split()) == 0
    assert "Runs compared: 1.\n" in capsys.readouterr().out


def test_trouble_is_one_line(folders, capsys):
    (folders / "empty").mkdir()
    (folders / "broken").mkdir()
    (folders / "broken" / "p0.npz").write_bytes(b"nothing")
    for words, said in (
        ("fixed/p0.npz float", "fixed/p0.npz is a file. Give a folder with one dump per run"),
        ("fixed none", "none does not exist"),
        ("fixed empty", "no dump has the same name in both folders (4 dumps in fixed, 0 in empty)"),
        ("broken float", "broken/p0.npz"),
        ("fixed float --metrics msprobe", "a tool's metrics (--metrics TOOL) is for one run"),
        ("fixed float --write-name-map m.json", "--write-name-map is for one run"),
    ):
        assert main(["compare", *words.split(), "--runs"]) == 2
        captured = capsys.readouterr()
        error, *hints = captured.err.splitlines()
        assert said in error and all(hint.startswith("  ") for hint in hints), captured.err
        assert not captured.out
