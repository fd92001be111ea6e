"""sgsdump report and compare --html: one file of the comparison's own numbers."""

import json
import re

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, save_dump
from sgsdump.cli import main


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for run in ("1", "2"):
        benchmark = random.normal(size=(1, 4, 6, 3)).astype(np.float32)
        sample = benchmark + np.float32(0.2) * random.normal(size=benchmark.shape).astype(np.float32)
        for side, values in (("fixed", sample), ("float", benchmark)):
            (tmp_path / side).mkdir(exist_ok=True)
            records = [
                Record("out", 0, 0, "Conv", Tensor.of("conv1", values)),
                Record("out", 0, 1, "Relu", Tensor.of("relu1", np.maximum(values, 0))),
            ]
            save_dump(Dump(records), tmp_path / side / f"{run}.bin")
    return "fixed/1.bin", "float/1.bin"


def layers(path):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    return json.loads(data[1])["layers"]


def test_the_numbers_are_those_of_the_json(dumps, tmp_path, capsys):
    (tmp_path / "ranges.txt").write_text("conv1 min: [-1.500000] max: [2.000000]\n")
    assert main(["report", *dumps, "-o", "r.html"]) == 0
    assert main(["compare", *dumps, "--html", "c.html", "--json", "c.json"]) == 0
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    for page in ("r.html", "c.html"):
        text = (tmp_path / page).read_text()
        assert "made by</dt>" in text and "to reproduce</dt><dd><bdi>sgsdump " in text
        found = layers(tmp_path / page)
        for name in ("name", "mse", "cos", "rmse", "verdict"):
            assert [layer[name] for layer in found] == [row[name] for row in rows]
        assert [layer["rise"] for layer in found] == [row["rise"] for row in rows]
        assert sum(found[0]["details"]["sample"]) == 72
    assert "details" not in rows[0] and "sums" not in rows[0]
    assert "conv1 (Conv)" in capsys.readouterr().out


def test_several_pictures_are_one_report(dumps, tmp_path):
    assert main(["report", "fixed", "float", "--runs"]) == 0
    assert main(["compare", "fixed", "float", "--runs", "--json", "c.json", "--html", "c.html"]) == 0
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    for page in ("report.html", "c.html"):
        found = layers(tmp_path / page)
        assert [layer["rmse"] for layer in found] == [row["rmse"] for row in rows]
        assert [layer["worst"] for layer in found] == [row["runs"]["worst"] for row in rows]
        assert sum(found[0]["details"]["sample"]) == 144
        assert found[0]["details"]["heatOf"] == rows[0]["runs"]["worst"]


def test_the_output_is_not_an_input(dumps, tmp_path, capsys):
    before = (tmp_path / dumps[0]).read_bytes()
    assert main(["report", *dumps, "-o", dumps[0]]) == 2
    assert (tmp_path / dumps[0]).read_bytes() == before


def test_nothing_in_common(dumps, tmp_path, capsys):
    save_dump(Dump([Record("out", 0, 0, "Conv", Tensor.of("other", np.ones(3, np.float32)))]), "o.bin")
    assert main(["report", dumps[0], "o.bin"]) == 2
    assert "no layer in common" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
