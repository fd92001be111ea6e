"""``sgsdump report DIAGNOSIS --before OLDER``: what has become of each layer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main

VALUES = np.linspace(-1, 1, 50, dtype=np.float32)
MONDAY = {"a": 0.5, "b": 0.02, "c": 0.3, "gone": 0.01}
TUESDAY = {"a": 0.05, "b": 0.2, "c": 0.3, "new": 0.0}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Folders whose layers.json are of dumps made here; the last of these layers are the networks' outputs."""
    monkeypatch.chdir(tmp_path)
    for name, errors in (("monday", MONDAY), ("tuesday", TUESDAY)):
        sgsdump.save_dump(dict.fromkeys(errors, VALUES), "float.npz")
        sgsdump.save_dump({layer: VALUES * (1 + error) for layer, error in errors.items()}, "fixed.npz")
        Path(name).mkdir()
        assert main(["compare", "fixed.npz", "float.npz", "--json", f"{name}/layers.json"]) == 0
        document = json.loads(Path(name, "layers.json").read_text())
        figures = {"rmse": errors["c"], "cos": 1.0}
        document["findings"] = [{"kind": "output", "layer": "c", "figures": figures}]
        document["rows"][0] |= {"bits": 16, "raised_by": "you", "advised_bits": 16}
        document["rows"][1] |= {"bits": 8, "raised_by": "", "advised_bits": 16}
        Path(name, "layers.json").write_text(json.dumps(document))


def page_data(path):
    data = re.search(r'type="application/json"[^>]*>(.*?)</script>', Path(path).read_text(), re.DOTALL)[1]
    return json.loads(data)


def test_what_has_become_of_each_layer(capsys):
    assert main("report tuesday --before monday".split()) == 0
    told = capsys.readouterr().out
    assert "Outputs: c RMSE 0.300000 → 0.300000" in told
    assert "3 common layers: 1 better, 1 worse, 1 unchanged; failing layers: 2 now, 2 before." in told
    assert "Worst regressions: b RMSE 0.020000 → 0.200000." in told
    assert "Largest improvements: a RMSE 0.500000 → 0.050000." in told
    assert "Only in tuesday (1): new." in told and "Only in monday (1): gone." in told
    found = page_data("report.html")
    assert [layer["name"] for layer in found["layers"]] == list(TUESDAY)
    assert found["other"]["label"] == "before: monday"
    bits = [layer.get("bits") for layer in found["layers"]]
    assert bits[0] == {"now": 16, "by": "you", "advised": False, "told": "16, raised by you"} and bits[2] is None
    assert bits[1]["advised"] and bits[1]["now"] == 8
    then = dict(zip(TUESDAY, found["other"]["figures"]))
    assert then["new"] is None
    assert {name: figures[2] for name, figures in then.items() if figures} == pytest.approx(
        {name: MONDAY[name] for name in ("a", "b", "c")}, rel=1e-5
    )
    assert "sgsdump report tuesday --before monday" in Path("report.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tuesday --before none", "none is not a folder of sgsdump diagnose: it has no layers.json"),
        ("float.npz --before monday", "float.npz is not a folder of sgsdump diagnose"),
        (
            "tuesday float.npz --before monday",
            "a second dump applies to dumps, but --before compares two diagnoses",
        ),
        ("tuesday --before monday --step 1", "--step applies to dumps"),
        ("float.npz", "name the benchmark dump, or give --before OLDER_DIAGNOSIS"),
        ("tuesday --before monday -o monday/layers.json", "cannot write monday/layers.json"),
    ],
)
def test_trouble_is_one_line(words, said, capsys):
    assert main(["report", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not Path("report.html").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("rows"),
        lambda d: d["rows"][0].pop("rmse"),
        lambda d: d["rows"].__setitem__(0, 3),
        lambda d: d.update(version=1),
        lambda d: d.update(findings=[3]),
        lambda d: d["rows"][0].update(mse=[]),
    ],
)
def test_a_damaged_diagnosis_is_one_line(change, capsys):
    document = json.loads(Path("monday/layers.json").read_text())
    change(document)
    Path("monday/layers.json").write_text(json.dumps(document))
    assert main("report tuesday --before monday".split()) == 2
    error = capsys.readouterr().err
    assert "monday/layers.json" in error and "diagnose again" in error and error.count("\n") == 1


def test_other_networks_have_nothing_in_common(capsys):
    text = Path("monday/layers.json").read_text()
    Path("monday/layers.json").write_text(re.sub(r'"name": "(\w+)"', r'"name": "other_\1"', text))
    assert main("report tuesday --before monday".split()) == 2
    assert "Check that both are diagnoses of the same model" in capsys.readouterr().err
