"""Ten ordinary programs, each captured twice from one seed: what they print is as ever, and the captures are equal.

They run one after the other in one process, and in those that they start, for importing torch takes longer than all.
"""

import os
import sys
from pathlib import Path

import pytest
from in_process import called, script

from sgsdump.cli import main

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

PROGRAMS = sorted((Path(__file__).parent / "two_captures").glob("*.py"))
ALL = """
import runpy
import sys

import torch

torch.set_num_threads(1)
if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path)
        runpy.run_path(path, run_name="__main__")
"""
CONTENTS = {"tensor": ["tensor"], "stats": ["tensor", "stats"]}


def sgsdump(*words, cwd):
    return called(lambda: main([*map(str, words)]), cwd, os.environ, ["sgsdump", *map(str, words)])


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The program of all ten, and what it prints by itself."""
    program = tmp_path_factory.mktemp("program") / "all.py"
    program.write_text(ALL)
    done = script(program, [str(path) for path in PROGRAMS], program.parent, os.environ)
    assert done.returncode == 0, done.stderr
    return program, done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="the pool of one program forks")
@pytest.mark.parametrize("content", CONTENTS)
def test_two_captures_of_ten_programs_are_equal(tmp_path, printed, content):
    program, text = printed
    for name in ("a", "b"):
        words = "--type", "model", *CONTENTS[content], "-o", name, "-er", "all", "--", sys.executable, program
        done = sgsdump("exec", *words, *PROGRAMS, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, text), done.stderr
        assert "not complete" not in done.stderr
    done = sgsdump("compare", "a", "b", cwd=tmp_path)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and last.endswith("; different: 0."), done.stdout
    assert int(last.split()[2].rstrip(";")) > 60
    for word in ("Only in", "one side", "cannot be compared", "may differ", "arises", "not complete"):
        assert word not in done.stdout, done.stdout
