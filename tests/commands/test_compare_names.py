"""compare with mapping files and rules: the command, its exit status, and what the reports say of the pairs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgsdump import Tensor, save_dump
from sgsdump.cli import main


def dumped(path: Path, *names: str) -> str:
    tensors = [Tensor.of(name, np.arange(8, dtype=np.float32) + len(name)) for name in names]
    save_dump(tensors, path, "npz")
    return str(path)


def written(path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def rows(path: Path) -> dict[str, dict[str, str]]:
    with open(path, newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_files_and_rules_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = dumped(tmp_path / "a.npz", "AB:output:0", "one", "npu_c", "npu_d", "e")
    theirs = dumped(tmp_path / "b.npz", "layer1.relu", "eins", "c", "f", "e")
    torch = [{"jit_node": f"%{i} : x, scope: __module.layer1/__module.layer1.{n} # f", "rt_layer": str(i)}
             for i, n in enumerate(["conv", "relu"])]  # fmt: skip
    fused = {"fusion_op": "AB", "fusion_ops": ["A", "B"], "ge_op": "A"}
    options = [
        *("--name-map", written(tmp_path / "torch.json", torch)),
        *("--name-map", written(tmp_path / "rt.json", [{"id": i, "rt_layer": str(i), **fused} for i in range(2)])),
        *("--name-map", written(tmp_path / "names.yaml", "eins: one\n")),
        *("--name-rule", "^npu_=", "--csv", str(tmp_path / "out.csv")),
    ]
    assert main(["compare", ours, theirs, *options]) == 0
    said = capsys.readouterr().out
    assert "Paired tensors: 1 by MindIE map, 1 by map, 1 by rule ^npu_=, 1 by name." in said
    assert "npu_d: rule ^npu_= turns the name into 'd', which is not in the benchmark" in said
    found = rows(tmp_path / "out.csv")
    assert {name: row["paired"] for name, row in found.items()} == {
        "layer1.relu": "MindIE map",
        "eins": "map",
        "c": "rule ^npu_=",
        "e": "name",
        "f": "",
        "npu_d": "",
    }
    assert "paired by MindIE map with 'AB:output:0' of the sample" in found["layer1.relu"]["remark"]


def test_an_ambiguous_name_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = dumped(tmp_path / "a.npz", "a1", "a2", "b"), dumped(tmp_path / "b.npz", "a", "b")
    command = ["compare", ours, theirs, "--name-rule", r"\d=", "--min-cos", "0.5"]
    assert main(command) == 1 and main([*command, "--allow-missing"]) == 0
    assert "a: ambiguous: rule \\d= would pair this tensor with 'a1', 'a2' of the sample" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--name-rule", "x"], "is not PATTERN=REPLACEMENT"),
        (["--name-rule", "(=x"], "is not a regular expression"),
        (["--name-rule", "x=y"], "matches no name of the sample"),
        (["--name-map", "gone.json"], "gone.json"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", dumped(tmp_path / "a.npz", "a"), dumped(tmp_path / "b.npz", "a"), *options]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_an_ambiguous_name_is_reported_where_nothing_else_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = dumped(tmp_path / "s.npz", "a1", "a2"), dumped(tmp_path / "b.npz", "a")
    assert main(["compare", ours, theirs, "--name-rule", r"\d="]) == 2
    said = capsys.readouterr().err
    assert "no layer in common" in said and "a: ambiguous: rule \\d= would pair this tensor with 'a1', 'a2'" in said
