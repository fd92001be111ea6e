"""A program that is killed at any moment leaves whole tensors, and a dump that opens and says it is not complete.

The program kills itself with SIGKILL at its n-th action on files (it opens, writes, renames or links one, or makes a
folder), for 20 n from the first to the last, in 20 forks of one warm process. A fork that is not killed is the oracle.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from capture.torchair.test_program import COMPILE, LINES, PROGRAM, ROOT

from sgsdump import Dump, open_dump
from sgsdump.dumps.formats.ascend.ascend_dir import CUT_OFF
from sgsdump.dumps.formats.ascend.file_names import parse
from sgsdump.dumps.trees import list_runs

KILLS = 20
LATER = (
    "config.dump_config.dump_step = '1-9'\ntorch.set_num_threads(1)  # threads of a pool do not come along in a fork\n"
)
FORKS = f"""
import signal
inputs = [torch.tensor([1, 2, 3]), torch.tensor([7, 8, 9])]
moments = 0

def watched(frame, event, function):
    global moments
    if event == "c_call" and (function in (open, os.replace, os.link, os.mkdir) or function.__name__ == "write"):
        moments += 1
        if moments == last:
            os.kill(os.getpid(), signal.SIGKILL)

def forked(killed_at):
    global last
    read, write = os.pipe()
    child = os.fork()
    if not child:
        last = killed_at
        sys.setprofile(watched)
        for one in inputs:
            model(one)
        sys.setprofile(None)
        os.write(write, str(moments).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    return status, os.read(read, 20)

with torch.no_grad():
    model(inputs[0])  # compiles, in step 0, which is not dumped
    status, told = forked(0)
    assert status == 0
    for number in range({KILLS}):
        killed_at = 1 + number * (int(told) - 1) // {KILLS - 1}
        status, _ = forked(killed_at)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (killed_at, status)
"""


def dumps_in(folder: Path) -> list[Dump]:
    """Those of a process's steps; none where it was killed before its first file."""
    if not any(parse(path.name) for path in folder.rglob("*.*")):
        return []
    return [open_dump(folder / run.place) for run in sorted(list_runs(folder), key=lambda run: run.order)]


def test_twenty_kills(tmp_path: Path) -> None:
    head, _, _ = PROGRAM.format(lines=LINES + LATER, compile=COMPILE, each="").partition("tokens = ")
    (tmp_path / "infer.py").write_text(head + FORKS)
    (tmp_path / "out").mkdir()
    command = [sys.executable, "infer.py", "out"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    whole, *killed = map(dumps_in, sorted((tmp_path / "out" / "worldsize1_global_rank0").iterdir()))
    total = sum(len(dump.records) for dump in whole)
    assert len(whole) == 2 and not any(dump.notes for dump in whole)
    there = []
    for dumps in killed:
        there.append(sum(len(dump.records) for dump in dumps))
        for number, (dump, oracle) in enumerate(zip(dumps, whole)):
            may_be_whole = number + 1 < len(dumps) or len(dump.records) == len(oracle.records)
            assert dump.notes == (CUT_OFF,) if dump.notes else may_be_whole
            assert not dump.notes or number + 1 == len(dumps)
            for name, tensor in dump.items():
                assert np.array_equal(tensor.stored(), oracle[name].stored())
    assert there == sorted(there) and len(set(there)) > KILLS // 2
    assert total * 0.9 < there[-1] <= total and killed[-1][-1].notes == (CUT_OFF,)
