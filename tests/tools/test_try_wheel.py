"""What would be published is built with packages that this environment may lack: tools/try_wheel.py."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import try_wheel


def test_what_is_not_installed_is_one_line_before_anything_is_built(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["try_wheel.py", "--short"])
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(try_wheel, "find_spec", lambda name: None if name == "build" else object())
    monkeypatch.setattr(try_wheel, "built", lambda folder: pytest.fail("nothing can be built"))
    assert try_wheel.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"not installed: build; first run {sys.executable} -m pip install build"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(try_wheel.shutil, "which", lambda name, path: None)
    assert try_wheel.absent() == ["build", "patchelf"]
