"""What the shell is told, and what a mistyped command line says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sgsdump.cli import main
from sgsdump.commands import HELP
from sgsdump.commands.completion import SHELLS

pytest.importorskip("argcomplete")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_function(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "_ARGCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sgsdump comp", {"compare", "completion"}),
        ("sgsdump calibrate --quant-level ", {"L1", "L2", "L3", "L4", "L5"}),
        ("sgsdump pipeline full --sha", {"--shape"}),
    ],
)
def test_what_the_shell_asks_is_answered(line, expected, tmp_path):
    assert set(answer_to(line, tmp_path / "answer", _ARGCOMPLETE_IFS=" ").split()) == expected


def test_the_shells_that_show_them_get_what_commands_are_for(tmp_path):
    told = answer_to(
        "sgsdump comp", tmp_path / "answer", _ARGCOMPLETE_SHELL="fish", _ARGCOMPLETE_IFS="\n", _ARGCOMPLETE_DFS="\t"
    )
    assert dict(line.split("\t") for line in told.splitlines()) == {
        name: HELP[name] for name in ("compare", "completion")
    }


def answer_to(line, path, **asked):
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1"}
    environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(path)}
    subprocess.run([sys.executable, "-c", "from sgsdump.cli import main; main()"], env=environment, check=True)
    return path.read_text()


def test_without_argcomplete_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'sgsdump[completion]'" in capsys.readouterr().err
