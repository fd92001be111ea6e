"""The hooks' session in the process that runs the tests."""

import importlib
import os
import sys
from types import SimpleNamespace

import pytest

from sgsdump.capture.programs.control import dump_control, to_json
from sgsdump.capture.programs.program import HOOK


@pytest.fixture
def hook(monkeypatch):
    """The hook's modules by name, fresh: ``hook.session``, ``hook.control`` …"""
    monkeypatch.syspath_prepend(str(HOOK))
    names = ("session", "control", "files", "records")
    modules = SimpleNamespace(**{name: importlib.import_module(f"sgsdump_{name}") for name in names})
    yield modules
    for name in [name for name in sys.modules if name.startswith("sgsdump_")]:
        del sys.modules[name]


@pytest.fixture
def start(hook, tmp_path):
    """``start(control)``: a session whose folder is ``tmp_path``."""

    def session(control=None, **fields):
        (tmp_path / "control.json").write_text(to_json(control or dump_control(**{"layout": "files", **fields})))
        return hook.session.Session(str(tmp_path))

    return session


@pytest.fixture
def fake_device(monkeypatch):
    """The device of ``tests/fake_device``: programs that ``import fake`` have it."""
    from fake_device import build

    if reason := build.why_not():
        pytest.skip(reason)
    monkeypatch.setenv("FAKE_DEVICE", str(build.library()))
    monkeypatch.setenv("PYTHONPATH", str(build.HERE), prepend=os.pathsep)
