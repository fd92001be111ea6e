"""Fixtures of the tests of ``tools/``."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from in_process import called


@pytest.fixture
def plants_in_process(monkeypatch):
    """``plants`` runs its sgsdump commands in this process: a plant starts up to a dozen of them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    from plants import outcome

    from sgsdump.cli import main

    def run(command, cwd, **_):
        assert command[:3] == [sys.executable, "-m", "sgsdump"]
        return called(lambda: main(command[3:]), cwd, dict(os.environ), command)

    monkeypatch.setattr(outcome, "subprocess", SimpleNamespace(run=run))
