"""A program as its user has it, two lines changed, run from another folder: results, listing, crashes, kills, forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from capture.torchair.programs import runs_of

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.dumps.formats.ascend.ascend_dir import CUT_OFF

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
import torch
{lines}

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.query, self.key, self.value = (torch.nn.Linear(16, 16) for _ in range(3))
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        x = x + torch.nn.functional.scaled_dot_product_attention(
            self.query(x)[None], self.key(x)[None], self.value(x)[None], is_causal=True)[0]
        return self.head(x)[-1]

torch.manual_seed(0)
model = Attention().eval()
{compile}
tokens = [1, 2, 3]
with torch.no_grad():
    for step in range(4):
        scores = model(torch.tensor(tokens[-3:]))
        tokens.append(int(scores.argmax()))
        print(step, tokens[-1], float(scores.sum()))
        {each}
"""
LINES = """
import sgsdump.capture.torchair as torchair
config = torchair.CompilerConfig()
config.dump_config.enable_dump = True
config.dump_config.dump_path = sys.argv[1]
"""
COMPILE = "model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))"


def program(folder: Path, lines: str = LINES, compile: str = COMPILE, each: str = "") -> Path:
    path = folder / "infer.py"
    path.write_text(PROGRAM.format(lines=lines, compile=compile, each=each))
    return path


def started(script: Path, out: Path, **variables: str) -> subprocess.Popen[str]:
    elsewhere = out.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.Popen(
        [sys.executable, str(script), str(out)],
        cwd=elsewhere, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(script: Path, out: Path, **variables: str) -> tuple[int, str, str]:
    out.mkdir(exist_ok=True)
    process = started(script, out, **variables)
    text, errors = process.communicate()
    return process.returncode, text, errors


def test_the_program_prints_the_same_and_its_operators_can_be_listed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Listed by DUMP_GE_GRAPH, chosen by ``dump_layer``; each decode step of the loop is a run of the tree."""
    plain = run(program(tmp_path, lines="", compile=""), tmp_path / "none")
    script = program(tmp_path, lines=LINES + "config.dump_config.dump_layer = 'linear Linear_3'\n")
    dumped = run(script, tmp_path / "out", DUMP_GE_GRAPH="3", DUMP_GRAPH_PATH=str(tmp_path))
    assert plain[0] == dumped[0] == 0, dumped
    assert plain[1] == dumped[1] and not dumped[2]
    assert [found.step for found in runs_of(tmp_path / "out")] == [0, 1, 2, 3]
    assert set(open_dump(tmp_path / "out", step=3).select("*:output:0")) == {
        "linear:output:0", "linear_3:output:0", "query.weight:output:0", "query.bias:output:0",
        "head.weight:output:0", "head.bias:output:0",
    }  # fmt: skip
    (listing,) = tmp_path.glob("ge_proto_*.txt")
    assert main(["show", "--operators", str(listing)]) == 0
    text = capsys.readouterr().out
    assert "graph Attention" in text and "ScaledDotProductAttention" in text and "infer.py:" in text
    (line,) = [line for line in text.splitlines() if line.startswith("linear_3 ")]
    assert "Linear_3" in line and "head.weight:0" in line


def test_a_program_that_crashes_leaves_a_tree_that_opens_and_says_so(tmp_path: Path) -> None:
    lines = (
        LINES
        + """
from sgsdump.capture.torchair import dumped
whole = dumped.write_operator
def broken(path, name, *rest):
    if name == "linear_1" and path.parent.name == "1":
        raise ValueError("the program's own error")
    return whole(path, name, *rest)
dumped.write_operator = broken
"""
    )
    status, _, errors = run(program(tmp_path, lines=lines), tmp_path / "out")
    assert status == 1 and "the program's own error" in errors
    assert [found.step for found in runs_of(tmp_path / "out")] == [0, 1]
    assert not open_dump(tmp_path / "out", step=0).notes
    last = open_dump(tmp_path / "out", step=1)
    assert last.notes == (CUT_OFF,) and "linear:output:0" in last and "linear_1:output:0" not in last
    assert last["linear:output:0"].stored().size


def test_forked_processes_have_folders_of_their_own(tmp_path: Path) -> None:
    each = "if step == 0: child = os.fork()\n        if step == 3 and child: os.waitpid(child, 0)"
    lines = LINES + "torch.set_num_threads(1)  # threads of a pool do not come along in a fork\n"
    status, _, errors = run(program(tmp_path, lines=lines, each=each), tmp_path / "out")
    assert status == 0, errors
    times = {path.parts[-1] for path in (tmp_path / "out" / "worldsize1_global_rank0").iterdir()}
    assert len(times) == 2
    steps = sorted((len(list(path.rglob("index.jsonl")))) for path in (tmp_path / "out").glob("*/*"))
    assert steps == [3, 4]


def test_a_network_that_is_not_compiled_is_told(tmp_path: Path) -> None:
    status, _, errors = run(program(tmp_path, compile=COMPILE.replace("model =", "other =")), tmp_path / "out")
    assert status == 0 and f"nothing was dumped to {tmp_path / 'out'}: no compiled graph ran" in errors
