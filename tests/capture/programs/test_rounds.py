"""A program dumped as rounds: the same records as in the vendor's tree of the same program, in two files a round.
Killed at any moment, out of room, on a full disk, what is there opens and says that it is not whole."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hooked_programs import program, sgsdump, trees
from platforms import unix_only
from torch_runs import runner

from sgsdump import open_dump
from sgsdump.capture.programs.process_index import lines_of, processes_of, read_process, steps_of
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import FormatError

DATA = np.float32([1, 2, 3, 4]).tobytes()


def save(hook, session, step=0, data=DATA, number=None, **more):
    """Let the session have an operator's input in a round."""
    operator = hook.records.Operator(("0_Linear", "1_addmm"), op_type="aten.addmm", module="root.fc", model="Net")
    values = hook.records.Values(**{"dtype": "float32", "shape": (2, 2), "number": number, **more})
    session.begins(step)
    told = session.tensor((step, operator, "in", 0, "before"), values, data)
    session.say([session.tensors(step, operator, "in", "before", [told])], step)
    session.say([session.operator(step, operator, param={"alpha": 1})], step)
    return values


def test_a_round_is_two_files_and_opens_while_the_program_runs(hook, start, tmp_path):
    session = start(layout="rounds")
    values = save(hook, session, step=4, number=7)
    place = f"rounds/0_{os.getpid()}/4"
    dump = open_dump(tmp_path / f"{place}.round")
    assert dump.records[0].name == "0_Linear/1_addmm/input.0" and any("not complete" in note for note in dump.notes)
    assert dump.records[0].tensor.stored().tolist() == [[1, 2], [3, 4]]
    session.ends(4)
    operator = hook.records.Operator(("0_Linear", "1_addmm"), model="Net")
    told = session.tensor((5, operator, "in", 0, "before"), values, None)
    session.say([session.tensors(5, operator, "in", "before", [told])], 5)
    session.finish()
    assert open_dump(f"{tmp_path}@step=5").records[0].tensor.stored().tolist() == [[1, 2], [3, 4]]
    files = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "rounds").rglob("*") if path.is_file())
    assert files == [f"{place}.round", f"{place}.values", f"rounds/0_{os.getpid()}/5.round"]
    process = read_process(Path(session.out))
    assert (process.counts.tensors, process.counts.files, process.steps) == (2, 2, (4, 5))


def test_rounds_of_one_form_are_summed_up_as_if_read(hook, start, tmp_path):
    session = start(layout="rounds", content="stats")
    for step in range(4):
        save(hook, session, step=step, data=None, why="it is not a tensor" if step else "")
        session.ends(step)
    session.finish()
    process = read_process(Path(session.out))
    assert (process.counts.tensors, process.kinds["operator"], process.steps) == (4, 4, (0, 1, 2, 3))
    assert process.counts.unreadable == {"it is not a tensor": (3, "addmm, input 0")}
    assert [step.number for step in steps_of(process)] == [0, 1, 2, 3]
    assert [step.number for step in steps_of(process, one_of_each=True)] == [0]


def test_the_size_cap_counts_the_files_as_they_grow(hook, start, tmp_path):
    room = 1 << 16
    session = start(layout="rounds", max_bytes=room)
    data = bytes(9000)
    for step in range(20):
        save(hook, session, step=step, data=data)
    assert "--max-size" in session.stopped
    held = sum(path.stat().st_blocks * 512 for path in (tmp_path / "rounds").rglob("*") if path.is_file())
    assert room // 2 < held <= room
    assert len(list_runs(tmp_path)) >= 2
    for run in list_runs(tmp_path):
        dump = open_dump(tmp_path / run.place)
        assert any("not complete" in note for note in dump.notes)


@unix_only
def test_a_write_that_fails_leaves_whole_frames_and_stops_the_dump(hook, start, tmp_path, monkeypatch):
    session = start(layout="rounds")
    save(hook, session)
    write = os.write

    def five_bytes(number, chunks):
        return write(number, bytes(chunks[0])[:5])

    def full(number, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hook.files.os, "writev", five_bytes)
    monkeypatch.setattr(hook.files.os, "write", full)
    save(hook, session)
    monkeypatch.undo()
    assert "No space left" in session.stopped
    dump = open_dump(tmp_path)
    assert len(dump.records) == 1 and dump.records[0].tensor.stored().tolist() == [[1, 2], [3, 4]]
    assert not any("damaged" in note for note in dump.notes)


def test_nothing_follows_lines_that_were_lost(hook, start, tmp_path):
    """A line that would fit still may refer to one that did not."""
    session = start(layout="rounds", content="stats", max_bytes=1 << 13)
    operator = hook.records.Operator(("0_Linear",), op_type="aten.addmm", module="root.fc", model="Net")
    session.begins(0)
    session.say([session.operator(0, operator)], 0)
    session.say(["x" * 9000, "\n"], 0)
    assert "--max-size" in session.stopped
    size = (path := next(tmp_path.glob("rounds/*/0.round"))).stat().st_size
    session.say([session.operator(0, operator)], 0)
    session.ends(0)
    session.finish()
    assert path.stat().st_size == size
    assert not any(line.get("event") == "round" for line in lines_of(Path(session.out)))


def test_exec_writes_rounds_and_with_tree_the_vendors(tmp_path):
    path = program(tmp_path / "code")
    for words, folder in ((), "rounds"), (("--tree",), "tensors"), (("-symlink",), "tensors"):
        done = sgsdump("exec", *words, "-er", "0,1", "-o", folder, "--", "python", path, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        tree = trees(tmp_path / folder)[-1]
        assert {path.name for path in tree.iterdir()} >= {folder, "model", "index.json"}
        (process,) = processes_of(tree)
        assert (process.counts.tensors, process.complete) == (14, True)
    first, second = trees(tmp_path / "rounds")[0], trees(tmp_path / "tensors")[0]
    for step in (0, 1):
        one, other = (open_dump(f"{tree}@step={step}") for tree in (first, second))
        assert [(r.name, r.io, r.slot, r.op_index, r.op_type, r.tensor.info) for r in one.records] == [
            (r.name, r.io, r.slot, r.op_index, r.op_type, r.tensor.info) for r in other.records
        ]
        assert all((a.tensor.stored() == b.tensor.stored()).all() for a, b in zip(one.records, other.records))
        assert one.network() == other.network() and len(one.network()) == 3
    layers = [sorted(path.name for path in (tree / "layer").rglob("*.json")) for tree in (first, second)]
    assert layers[0] == layers[1]
    done = sgsdump("convert", f"{first}@step=1", "vendor", "--to", "atb_tree", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "vendor/0_0/0/0_Linear/0_addmm/before/intensor1.bin").is_file()
    done = sgsdump("convert", "vendor", "back", "--to", "rounds", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(open_dump(tmp_path / "back").records[1].tensor.stored(), one.records[1].tensor.stored())


KILLED = """
import os, signal, sys, time

net, x = Net().eval(), torch.randn(4, 3, 32, 32)
for number in range(8):
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
    time.sleep(0.007 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print("killed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_killed_at_any_moment(tmp_path, capfd, content):
    pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
    result = runner(tmp_path, capfd)(KILLED, content=content, layout="rounds")
    assert result.text.split() == ["killed"]
    killed = [process for process in result.captured.processes if process.begun is None]
    assert len(killed) == 8 and all(process.complete != process.broken_off for process in killed)
    opened = 0
    for run in list_runs(result.root):
        try:
            dump = open_dump(result.root / run.place)
        except FormatError as error:  # killed before its first operator
            assert "has no tensors" in str(error) and "not complete" in str(error)
            continue
        opened += 1
        assert any("not complete" in note for note in dump.notes)
        assert not [note for note in dump.notes if "not complete" not in note and "cut off" not in note]
        for record in dump.records:
            if content == "tensor":
                assert record.tensor.stored().shape == record.tensor.info.shape
            else:
                assert record.tensor.statistics.l2norm is not None
    assert opened >= 8
    broken = [process for process in killed if process.broken_off]
    for process in broken:
        last = max(step for run in list_runs(result.root) if f"_{process.pid}/" in run.place for step in [run.step])
        lines = [line for line in lines_of(process.folder) if line.get("step") == last]
        assert not any(line.get("event") == "round" for line in lines)


WEIGHTS = """
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(65536.0).view(256, 256) / 65536)
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        self.inner(x[:4])
        return x @ self.weight.t()

net = Weighted()
changes = [lambda: None, lambda: None, lambda: net.weight.data.mul_(2), lambda: net.weight.mul_(2)]
with torch.no_grad():
    for change in changes:
        change()
        net(torch.ones(256))
"""


@pytest.mark.parametrize("kernel", [True, False])
def test_statistics_of_weights_and_their_views_follow_what_is_written_to_them(tmp_path, capfd, monkeypatch, kernel):
    pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
    if not kernel:
        monkeypatch.setenv("SGSDUMP_NO_KERNEL", "1")
    result = runner(tmp_path, capfd)(WEIGHTS, content="stats", layout="rounds")
    for step, largest in enumerate([1, 1, 2, 4]):
        dump = open_dump(f"{result.root}@step={step}")
        views = [record.tensor for record in dump.records if record.tensor.shape == (256, 256)]
        assert len(views) >= 3
        expected = np.arange(65536.0) / 65536 * largest
        for tensor in views:
            found = tensor.statistics
            assert (found.max, found.min) == (expected.max(), 0)
            assert found.l2norm == pytest.approx(np.linalg.norm(expected), rel=1e-12)


def test_layers_alone_have_their_operators_in_the_first_round(tmp_path, capfd):
    pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
    result = runner(tmp_path, capfd)(WEIGHTS, content="stats", layout="rounds", children=False)
    steps = list(steps_of(result.process))
    inside = [[line for line in step.operators if "_" in str(line["id"])] for step in steps]
    assert inside[0] and not any(inside[1:])
    names = [[record.name for record in open_dump(f"{result.root}@step={step}").records] for step in range(4)]
    assert names[0] == names[1] == names[3] and any(name.endswith("_inner/output.0") for name in names[0])
