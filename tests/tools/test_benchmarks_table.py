"""The table of benchmarks knows every file beside it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_every_file_is_a_benchmark_or_known_to_be_none(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("benchmarks_table", FOLDER / "table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    assert sorted([*table.BENCHMARKS, *table.OTHERS]) == sorted(path.stem for path in FOLDER.glob("*.py"))


def test_its_help_names_them() -> None:
    command = [sys.executable, str(FOLDER / "table.py"), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "startup" in shown and "ultraface_boxes" not in shown
