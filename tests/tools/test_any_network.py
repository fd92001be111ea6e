"""Three networks whose data are not pictures through every command; ``tools/any_network.py`` runs them all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import any_network
from any_network import main


def test_the_short_table_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the short ones one, and what its other commands need; test_data_loaders.py has all commands and the three."""
    commands = ["dump", "calibrate", "simulate fixed", "diagnose"]
    assert main(["--only", "tokens", "--commands", ",".join(commands)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "no findings"
    assert said.count("tokens ") == 2 and said.count("ok ") == 2 * len(commands)


def test_a_traceback_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: list[str]) -> int:
        raise KeyError("tensor")

    monkeypatch.setattr("sgsdump.cli.main", fails)
    cell = any_network._run(["dump"])
    assert cell.finding.startswith("KeyError at test_any_network.py:") and not cell.reason


def test_a_refusal_needs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgsdump.cli.main", lambda words: 2)
    assert any_network._run(["dump"]).finding == "status 2 with 0 lines"


def test_cells_that_are_recorded_are_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "cells.jsonl"
    words = ["--only", "tokens", "--records", str(records)]
    records.write_text('{"network": "tokens", "command": "dump", "seconds": 7.5, "reason": "no", "finding": ""}\n')
    assert main([*words, "--commands", "dump,calibrate"]) == 0
    cells = [json.loads(line) for line in records.read_text().splitlines()]
    assert [cell["command"] for cell in cells] == ["dump", "calibrate"] and cells[1]["peak_mb"] > 10
    assert "[1] no" in capsys.readouterr().out
    assert main([*words, "--commands", "simulate fixed"]) == 0  # which needs what calibrate writes
    assert json.loads(records.read_text().splitlines()[2])["reason"] == ""
