"""``sgsdump.capture``: the same tree as exec writes, made from within the program, which is afterwards as it was."""

import os
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from torch_runs import NETS, runner

import sgsdump
from sgsdump import DumpControl, capture, compare, open_dump
from sgsdump.capture.programs.control import OperatorFilter, Steps, Storage
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError, ValuesError

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
PROGRAM = """
net, x = Net().eval(), image()
with torch.no_grad():
    for step in range(2):
        net(x + step)
"""


@pytest.fixture(scope="module")
def names():
    """The nets of the programs, in this process."""
    found = {}
    exec(NETS, found)
    return found


@pytest.fixture
def two_rounds(names):
    net, x = names["Net"]().eval(), names["image"]()

    def run():
        with torch.no_grad():
            return [net(x + step) for step in range(2)]

    return run


def facts(dump):
    return [(r.name, r.io, r.slot, r.op_index, r.op_type, r.tensor.info) for r in dump.records]


def test_the_tree_is_that_of_exec(tmp_path, capfd, two_rounds):
    alone = two_rounds()
    with capture(tmp_path / "tree") as tree:
        captured = two_rounds()
    assert all(map(torch.equal, alone, captured))
    assert {path.name for path in tree.iterdir()} == {
        *("control.json", "processes", "rounds", "model", "layer", "index.json")
    }
    other = runner(tmp_path, capfd)(PROGRAM, layout="rounds")
    for step in (0, 1):
        one, two = open_dump(f"{tree}@step={step}"), open_dump(f"{other.root}@step={step}")
        assert facts(one) == facts(two)
        assert all((a.tensor.stored() == b.tensor.stored()).all() for a, b in zip(one.records, two.records))
        networks = [[replace(operator, source="") for operator in dump.network().values()] for dump in (one, two)]
        assert not one.notes and networks[0] == networks[1]


def test_the_process_is_as_before_when_the_block_has_ended(tmp_path, two_rounds):
    def state():
        return torch.nn.Module.__call__, torch.compile, torch.jit.trace

    before = state()
    with capture(tmp_path / "tree"):
        assert state() != before
        two_rounds()
    assert state() == before
    two_rounds()
    assert len(list_runs(tmp_path / "tree")) == 2


def test_one_capture_after_another_and_the_control_says_what(tmp_path, two_rounds):
    with capture(tmp_path / "all"):
        two_rounds()
    with capture(tmp_path / "statistics", statistics=True):
        two_rounds()
    chosen = DumpControl(steps=Steps(((1, 1),)), operators=OperatorFilter(prefixes=("conv",)), storage=Storage())
    with capture(tmp_path / "chosen", chosen):
        two_rounds()
    kinds = {operator.kind for operator in open_dump(tmp_path / "chosen").network().values()}
    assert kinds == {"Conv2d", "aten.convolution"}
    record = open_dump(f"{tmp_path}/statistics@step=0").records[0]
    with pytest.raises(ValuesError, match="statistics"):
        record.tensor.stored()
    whole = f"{tmp_path}/all@step=0"
    assert compare(whole, whole).rows and [run.step for run in list_runs(tmp_path / "chosen")] == [1]


def test_the_same_folder_again_and_one_of_something_else(tmp_path, two_rounds):
    for _ in range(2):
        with capture(tmp_path / "tree"):
            two_rounds()
        numbers = Path("/proc/self/fd")
        opened = [os.path.realpath(number) for number in (numbers.iterdir() if numbers.is_dir() else ())]
        assert not [path for path in opened if path.startswith(str(tmp_path))]  # Windows deletes no open file
    assert len(list_runs(tmp_path / "tree")) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="do not belong to a capture"), capture(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine" / "thesis.txt").is_file()


def test_what_the_block_raises_goes_on_and_the_tree_has_what_ran(tmp_path, two_rounds):
    with pytest.raises(KeyError, match="mine"), capture(tmp_path / "tree"):
        two_rounds()
        raise KeyError("mine")
    assert len(list_runs(tmp_path / "tree")) == 2


def test_errors_of_one_line(tmp_path, monkeypatch, two_rounds):
    with pytest.raises(ConfigError, match="no module was called"), capture(tmp_path / "nothing"):
        torch.ones(2) + 1
    assert not (tmp_path / "nothing").exists()
    with capture(tmp_path / "outer"):
        two_rounds()
        with pytest.raises(ConfigError, match="outer is active"), capture(tmp_path / "inner"):
            pass
    monkeypatch.setenv("SGSDUMP_CAPTURE", str(tmp_path))
    with pytest.raises(ConfigError, match="sgsdump exec"), capture(tmp_path / "inner"):
        pass


def test_notes_are_warnings_and_threads_are_seen(tmp_path, names):
    net, x = names["Net"]().train(), names["image"]()
    with pytest.warns(UserWarning, match="the program trains"), capture(tmp_path / "tree"):
        net(x).sum().backward()
        thread = threading.Thread(target=net, args=(x,))
        thread.start()
        thread.join()
    assert len(list_runs(tmp_path / "tree")) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_is_forked_later_writes_nothing(tmp_path, two_rounds):
    with capture(tmp_path / "tree"):
        two_rounds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            torch.nn.Identity()(torch.ones(1))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert len(list((tmp_path / "tree" / "processes").glob("[0-9]*"))) == 1


def test_the_public_names():
    assert {"capture", "DumpControl"} <= set(sgsdump.__all__) <= set(dir(sgsdump))
