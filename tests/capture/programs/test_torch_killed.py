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
    told = [note for note in result.captured.notes if "did not end normally" in note or "between two steps" in note]
    assert len(told) == KILLS
    killed = [process for process in result.captured.processes if process.begun is None]
    assert len(killed) == KILLS
    broken = {process.pid for process in killed if process.broken_off}
    assert broken == {process.pid for process in result.captured.processes if not process.complete}
    assert result.captured.complete == (not broken)
    assert broken == {int(note.split()[1]) for note in told if "did not end normally" in note}
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


POOL = """
import multiprocessing

def work(number):
    with torch.no_grad():
        return nn.Linear(2, 2)(torch.ones(1, 2)).shape[0]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(sum(pool.map(work, range(3))))
"""


def test_a_pool_that_ends_its_workers_is_whole(tmp_path, capfd):
    result = runner(tmp_path, capfd)(POOL)
    assert result.text == "3\n" and result.captured.complete
    told = [note for note in result.captured.notes if "was killed" in note]
    assert told and all(note.endswith(". All steps that this process began were dumped completely") for note in told)
    assert not [note for note in result.captured.notes if "incomplete" in note]
