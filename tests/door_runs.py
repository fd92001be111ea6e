"""The doors in ``tools/``, run as a user runs them: by their paths, from a work folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from in_process import script

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def program(work: Path, *words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(TOOLS / str(words[0])), *map(str, words[1:])]
    environment = door_environment(env)
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=300)


def door(work: Path, *words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """In this process, where no shell and no other modules are asked for."""
    path = TOOLS / str(words[0])
    if path.suffix == ".sh" or not path.is_relative_to(TOOLS) or "PYTHONPATH" in (env or {}):
        return program(work, *words, env=env)
    return script(path, list(map(str, words[1:])), work, door_environment(env))


def door_environment(more: dict[str, str] | None) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **(more or {})}


def succeeds(work: Path, *words: object, env: dict[str, str] | None = None) -> str:
    done = door(work, *words, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(work: Path, *words: object, env: dict[str, str] | None = None) -> str:
    """The one line a door says when it ends with status 2."""
    done = door(work, *words, env=env)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr
