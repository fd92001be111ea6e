"""Three networks whose data are not pictures through every command; ``tools/any_network.py`` runs them all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import any_network
from any_network import COMMANDS, main


def test_the_short_table_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--short"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "no findings"
    assert all(said.count(f"\n{name} ") == 2 for name in ("tokens", "three_inputs"))
    assert said.count("ok ") == 2 * 3 * len(COMMANDS)


def test_a_traceback_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: list[str]) -> int:
        raise KeyError("tensor")

    monkeypatch.setattr("sgsdump.cli.main", fails)
    cell = any_network._run(["dump"])
    assert cell.finding.startswith("KeyError at test_any_network.py:") and not cell.reason


def test_a_refusal_needs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgsdump.cli.main", lambda words: 2)
    assert any_network._run(["dump"]).finding == "status 2 with 0 lines"
