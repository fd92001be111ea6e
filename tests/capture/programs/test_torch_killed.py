"""A program that is killed at any moment leaves whole tensors, and a dump that opens and says it is not complete."""

import os

import pytest
from torch_runs import runner

from sgsdump import open_dump
from sgsdump.capture.programs.process_index import read_process

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

KILLS = 20
PROGRAM = """
import os, signal, sys, time

net, x = Net().eval(), torch.randn(4, 3, 32, 32)
for number in range(20):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with torch.no_grad():
            net(x)
            os.write(write, b".")
            while True:
                x = x + 1
                net(x)
    os.read(read, 1)
    time.sleep(0.003 * number)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
print("killed")
"""


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_twenty_kills(tmp_path, capfd, content):
    result = runner(tmp_path, capfd)(PROGRAM, content=content)
    assert result.text.split() == ["killed"] and result.captured.status == 0
    assert not result.captured.complete
    killed = [process for process in result.captured.processes if not process.complete]
    assert len(killed) == KILLS
    told = [note for note in result.captured.notes if "did not come to its end" in note or "between two steps" in note]
    assert len(told) == KILLS
    broken = {process.pid for process in killed if process.broken_off}
    assert broken == {int(note.split()[1]) for note in told if "did not come to its end" in note}
    for process in killed:
        tree = result.root / "tensors" / f"0_{process.pid}"
        for step in sorted(os.listdir(tree)):
            dump = open_dump(tree / step)
            assert not [note for note in dump.notes if "complete" not in note]
            for record in dump.records:
                if content == "tensor":
                    assert record.tensor.stored().shape == record.tensor.info.shape
                else:
                    assert record.tensor.statistics is not None
        assert read_process(process.folder).steps[0] == 0
        assert all(
            (result.root / line["file"]).is_file() for line in result.lines() if line["file"] and line["step"] == 0
        )
