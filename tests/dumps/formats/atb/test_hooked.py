"""Trees that ``sgsdump exec`` wrote: what is not complete is said wherever they are opened; links lead nowhere else."""

import json

import numpy as np
import pytest

from sgsdump import list_runs, open_dump
from sgsdump.dumps.formats.atb.header import header_bytes
from sgsdump.errors import SgsdumpError

COMPLETE = '{"complete": true}\n'
PLACE = "tensors/0_11/{}/0_Add/after/outtensor0.bin"


@pytest.fixture
def tree(tmp_path):
    """Two steps of one process, complete; ``tree(...)`` writes what is given in place of that."""
    root = tmp_path / "msit_dump_1"

    def write(control="none", lines=(), last=COMPLETE, index=True):
        for step in range(2):
            path = root / PLACE.format(step)
            path.parent.mkdir(parents=True, exist_ok=True)
            values = np.full(4, step, np.float32)
            path.write_bytes(header_bytes(2, 0, (4,), 16) + values.tobytes())
        process = root / "processes" / "11"
        process.mkdir(parents=True, exist_ok=True)
        (root / "control.json").write_text(json.dumps({"links": control}))
        (process / "index.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + last)
        if index:
            document = {"complete": True, "processes": [{"pid": 11, "complete": True, "stopped": ""}]}
            (root / "index.json").write_text(json.dumps(document))
        return root

    return write


def test_a_whole_tree_has_nothing_to_say(tree):
    root, notes = tree(), []
    assert [run.step for run in list_runs(root, notes=notes)] == [0, 1] and notes == []
    assert not open_dump(root, step=1).notes


def test_without_an_index_each_process_is_looked_at(tree):
    root, notes = tree(index=False), []
    list_runs(root, notes=notes)
    assert notes == ["msit_dump_1 has no index.json: it is not complete, for its dump was stopped before the end"]
    tree(index=False, last='{"step": 1, "si')
    for path in (root / "tensors", root / "tensors" / "0_11" / "1", root / "tensors" / "0_11" / "1" / "0_Add"):
        dump = open_dump(path, step=1) if path.name == "tensors" else open_dump(path)
        assert dump.notes[-1] == "it is not complete: process 11 did not come to its end"


def test_what_the_index_says_is_told(tree):
    root = tree()
    stopped = {"pid": 11, "complete": False, "stopped": "the disk is full"}
    (root / "index.json").write_text(json.dumps({"complete": False, "processes": [stopped]}))
    notes = open_dump(root, step=0).notes
    assert notes[0].endswith("process 11 did not come to its end") and notes[1].endswith("the disk is full")


def test_a_file_that_stands_for_another(tree):
    line = {"file": PLACE.format(7), "same": PLACE.format(1)}
    root = tree("index", [line])
    (root / PLACE.format(7)).parent.mkdir(parents=True)
    assert [run.step for run in list_runs(root)] == [0, 1, 7]
    for dump in (open_dump(root, step=7), open_dump(root / "tensors" / "0_11" / "7")):
        assert [record.name for record in dump.records] == ["0_Add/output.0"]
        assert dump.records[0].tensor.stored().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "line",
    [
        {"file": PLACE.format(7), "same": "../secret.bin"},
        {"file": PLACE.format(7), "same": "/etc/hostname"},
        {"file": "../../7/0_Add/after/outtensor0.bin", "same": PLACE.format(1)},
        {"file": PLACE.format(7), "same": "tensors/not/there.bin"},
        {"file": PLACE.format(7), "same": 3},
        {"file": "x" * 100_000, "same": PLACE.format(1)},
    ],
)
def test_lines_that_lead_elsewhere_are_passed_over(tree, line, tmp_path):
    root = tree("index", [line])
    (tmp_path / "secret.bin").write_bytes((root / PLACE.format(1)).read_bytes())
    assert {run.step for run in list_runs(root)} >= {0, 1}
    assert [run.step for run in list_runs(root) if run.step == 7] == []


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, '{"processes": 3}', '{"processes": [3]}', "\xff"])
def test_damaged_side_files_hinder_nothing(tree, text):
    root = tree()
    (root / "index.json").write_text(text)
    (root / "control.json").write_text(text)
    try:
        assert open_dump(root, step=1).records[0].tensor.stored().tolist() == [1, 1, 1, 1]
    except SgsdumpError:
        pytest.fail("the tensors are whole")
