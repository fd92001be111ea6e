"""The hooks' session in one process: what it asks for, what it writes, and when it stops."""

import importlib.util
import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sgsdump import open_dump
from sgsdump.capture.control import DumpControl, to_json
from sgsdump.capture.known_names import known_of, unmatched
from sgsdump.capture.process_index import read_process, steps_of
from sgsdump.capture.program import DISK_FULL, HOOK
from sgsdump.capture.steps import Steps
from sgsdump.dumps.formats.ascend.acl_types import number_of
from sgsdump.tensors.dtypes import KNOWN

DATA = struct.pack("<4f", 1, 2, 3, 4)


@pytest.fixture
def spool():
    spec = importlib.util.spec_from_file_location("spool_under_test", HOOK / "sgsdump_spool.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def start(spool, tmp_path):
    """``start(control)``: a session whose folder is ``tmp_path``."""

    def session(control=None, **fields):
        (tmp_path / "control.json").write_text(to_json(control or DumpControl(**fields)))
        return spool.Session(str(tmp_path))

    return session


def save(spool, session, step=0, data=DATA, ids=("0_Linear", "1_addmm"), side="in", moment="before", **more):
    operator = spool.Operator(step, ids, op_type="aten.addmm", module="root.fc", model="Net")
    more = {"dtype": "float32", "shape": (2, 2), **more}
    return session.tensor(operator, side, 0, moment, data, **more)


def lines(session):
    return [json.loads(line) for line in (Path(session.out) / "index.jsonl").read_text().splitlines()]


def test_a_tensor_is_an_atb_file_in_its_place_and_a_line(spool, start, tmp_path):
    session = start()
    path = save(spool, session, label="x", value=7, weight="root.fc.weight")
    assert path == f"tensors/0_{os.getpid()}/0/0_Linear/1_addmm/before/intensor0_x.bin"
    dump = open_dump(tmp_path / path)
    assert dump.records[0].tensor.stored().tolist() == [[1, 2], [3, 4]]
    (line,) = lines(session)
    assert line["file"] == path and line["id"] == "0_1" and line["folders"] == ["0_Linear", "1_addmm"]
    assert (line["model"], line["module"], line["op"], line["type"]) == ("Net", "root.fc", "addmm", "aten.addmm")
    assert (line["side"], line["slot"], line["moment"], line["dtype"], line["shape"]) == (
        *("in", 0, "before"),
        *("float32", [2, 2]),
    )
    assert (line["value"], line["weight"], line["device"], line["stats"]) == (7, "root.fc.weight", 0, None)


def test_data_may_be_a_function_that_is_called_only_when_needed(spool, start):
    calls = []

    def data():
        calls.append(1)
        return np.arange(4, dtype=np.float32)

    save(spool, start(content="structure"), data=data)
    assert not calls
    assert save(spool, start(), data=data) and calls


def test_the_numbers_of_types_are_atbs(spool):
    assert {name: number_of(KNOWN[name]) for name in spool.ATB_TYPES if name in KNOWN} | {
        "complex32": 33
    } == spool.ATB_TYPES


def test_statistics_are_a_header_of_exactly_msits_seven(spool, start, tmp_path):
    session = start(content="stats")
    stats = {"max": 4.0, "min": 1.0, "mean": 2.5, "l2norm": 5.477, "nan": 0}
    text = (tmp_path / save(spool, session, data=None, stats=stats)).read_text()
    names = [line.partition("=")[0] for line in text.splitlines()]
    assert names == [
        *("$Version", "$Object.Count", "$Object.Length"),
        *("format", "dtype", "dims", "max", "min", "mean", "l2norm"),
        "$End",
    ]
    assert open_dump(tmp_path).records[0].tensor.statistics.l2norm == 5.477
    assert save(spool, session, dtype="bool", stats=None) is None  # nothing to compute from


def test_a_sum_of_squares_beyond_a_double_is_told(spool, start):
    session = start(content="stats")
    inf = float("inf")
    save(spool, session, data=None, stats={"max": 1e200, "min": 0.0, "mean": 1e199, "l2norm": inf})
    save(spool, session, data=None, stats={"max": inf, "min": 0.0, "mean": inf, "l2norm": inf})
    expected = "addmm: the sum of squares of a tensor is beyond a double, its l2norm is inf"
    assert read_process(Path(session.out)).troubles == (expected,)


def test_a_description_has_type_and_shape_only(spool, start, tmp_path):
    save(spool, start(content="description"), data=None, stats={"max": 1.0})
    (record,) = open_dump(tmp_path).records
    assert (record.tensor.info.shape, str(record.tensor.info.dtype)) == ((2, 2), "float32")
    with pytest.raises(Exception, match="only its type and shape were dumped"):
        record.tensor.stored()


def test_what_cannot_be_a_file_is_told_in_its_line(spool, start):
    session = start()
    assert save(spool, session, dtype="quint4x2") is None
    assert save(spool, session, data=b"", shape=(0,)) is None
    assert save(spool, session, data=lambda: 1 / 0) is None
    assert [line["why"] for line in lines(session)] == [
        "ATB has no number for quint4x2",
        "it has no elements",
        "ZeroDivisionError: division by zero",
    ]


def test_values_of_one_key_are_stored_once_without_being_asked_for_again(spool, start, tmp_path):
    session = start()
    first = save(spool, session, key="w")
    second = save(spool, session, step=1, key="w", data=lambda: pytest.fail("asked for"))
    assert (tmp_path / first).samefile(tmp_path / second) and first != second
    third = save(spool, session, step=2, key="other")
    assert not (tmp_path / first).samefile(tmp_path / third)


def test_equal_payloads_as_symlinks_hardlinks_and_lines(spool, start, tmp_path):
    for links in ("symlink", "hardlink", "index"):
        session = start(links=links)
        paths = [save(spool, session, step=step, ids=(f"0_{links}",)) for step in range(2)]
        other = save(spool, session, step=2, data=DATA[::-1], ids=(f"0_{links}",))
        first, second = (tmp_path / path for path in paths)
        assert second.is_symlink() == (links == "symlink")
        assert second.exists() == (links != "index") and (tmp_path / other).is_file()
        if links != "index":
            assert first.samefile(second)
    assert lines(session)[-2]["same"] == paths[0]
    assert open_dump(tmp_path, step=1).records[-1].tensor.stored().tolist() == [[1, 2], [3, 4]]


def test_a_file_system_without_links_gets_copies(spool, start, tmp_path, monkeypatch):
    monkeypatch.setattr(spool.os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    session = start()
    first, second = (tmp_path / save(spool, session, step=step, key="w") for step in range(2))
    assert first.read_bytes() == second.read_bytes() and not first.samefile(second)


@pytest.mark.parametrize(
    ("control", "step", "name", "kind", "ids", "wanted"),
    [
        (DumpControl(), 5, "addmm", "aten.addmm", "0_1", True),
        (DumpControl(enabled=False), 0, "a", "a", "0", False),
        (DumpControl(steps=Steps(((3, 5), (7, 7)))), 4, "a", "a", "0", True),
        (DumpControl(steps=Steps(((3, 5), (7, 7)))), 6, "a", "a", "0", False),
        (DumpControl(ids=("3",)), 0, "a", "a", "3_1", True),
        (DumpControl(ids=("3",)), 0, "a", "a", "30", False),
        (DumpControl(ids=("3",), children=False), 0, "a", "a", "3_1", False),
        (DumpControl(ids=("3_1",)), 0, "a", "a", "3_1_0", True),
        (DumpControl(ids=("3_1",)), 0, "a", "a", "3", False),
        (DumpControl(children=False), 0, "a", "a", "3", True),
        (DumpControl(children=False), 0, "a", "a", "3_1", False),
        (DumpControl(prefixes=("self",)), 0, "x", "SelfAttentionOperation", "0", True),
        (DumpControl(prefixes=("add",)), 0, "x", "aten.addmm", "0", True),
        (DumpControl(prefixes=("mm",)), 0, "x", "aten.addmm", "0", False),
        (DumpControl(names=("addmm",)), 0, "addmm", "x", "0", True),
        (DumpControl(names=("add",)), 0, "addmm", "x", "0", False),
        (DumpControl(patterns=("^add.*m$",)), 0, "addmm", "x", "0", True),
        (DumpControl(names=("a",), prefixes=("b",)), 0, "x", "bmm", "0", True),
        (DumpControl(models=(("Net", ("addmm",)),)), 0, "addmm", "x", "0", True),
        (DumpControl(models=(("Net", ()),)), 0, "any", "x", "0", True),
        (DumpControl(models=(("", ("addmm",)),)), 0, "addmm", "x", "0", True),
        (DumpControl(models=(("Other", ("addmm",)),)), 0, "addmm", "x", "0", False),
        (DumpControl(ranks=(1,)), 0, "a", "a", "0", False),
        (DumpControl(ranks=(0,)), 0, "a", "a", "0", True),
    ],
)
def test_which_operators_are_wanted(start, control, step, name, kind, ids, wanted):
    assert start(control).wants(step, name, kind, ids, "Net") is wanted


@pytest.mark.parametrize(
    ("mode", "when", "before", "after"),
    [
        ("all", "before", ("before",), ("before",)),
        ("all", "after", ("after",), ("after",)),
        ("all", "both", ("before", "after"), ("before", "after")),
        ("all", "inputs-before-outputs-after", ("before",), ("after",)),
        ("input", "inputs-before-outputs-after", ("before",), ()),
        ("output", "both", (), ("before", "after")),
    ],
)
def test_when_each_side_is_taken(start, mode, when, before, after):
    session = start(mode=mode, when=when)
    assert (session.moments("in"), session.moments("out")) == (before, after)


def test_rank_and_device_are_the_launchers(spool, start, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    session = start(ranks=(3,), devices=(1,))
    assert (session.rank, session.device) == (3, 1) and session.wants(0)
    assert save(spool, session).startswith("tensors/1_")
    assert save(spool, session, device=0) is None
    assert len(lines(session)) == 1  # what another device holds has no line


def test_a_full_disk_stops_the_dump_with_msits_sentence(spool, start, tmp_path):
    session = start(min_free=1 << 62)
    assert save(spool, session) is None and not list(tmp_path.rglob("*.bin"))
    assert session.stopped.startswith(DISK_FULL) and session.stopped.removeprefix(DISK_FULL).strip().isdigit()
    assert not session.wants(0)
    assert spool.DISK_FULL == DISK_FULL == "Disk space is not enough, it's must more than 2G, free size(MB) is:"
    process = read_process(Path(session.out))
    assert process.stopped == session.stopped and not process.complete


def test_the_size_cap_counts_all_processes_together(spool, start, tmp_path):
    (tmp_path / "processes").mkdir()
    room = 300
    session, other = start(max_bytes=room), start(max_bytes=room)
    assert save(spool, session) and save(spool, other, step=1)
    for step in range(2, 9):
        save(spool, session, step=step)
        save(spool, other, step=step + 10)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.bin")) <= room
    assert "--max-size" in session.stopped and "--max-size" in other.stopped


def test_an_unwritable_folder_stops_the_dump_and_never_the_program(spool, start, tmp_path):
    session = start()
    session.begin("torch", "1")
    (tmp_path / "tensors").write_text("a file where the folder should be")
    assert save(spool, session) is None
    assert session.stopped.startswith("tensors/") and not session.wants(0)


def test_the_control_is_read_again_when_it_is_replaced(start, tmp_path, spool, monkeypatch):
    monkeypatch.setattr(spool, "RELOAD_SECONDS", 0)
    session = start(enabled=False)
    assert not session.wants(0)
    new = tmp_path / "new"
    new.write_text(to_json(DumpControl(steps=Steps(((4, 4),)))))
    new.replace(tmp_path / "control.json")
    assert session.wants(4) and not session.wants(0)
    (tmp_path / "control.json").write_text("{")
    assert session.wants(4)


def test_an_index_tells_what_ran_and_whether_it_came_to_its_end(spool, start, tmp_path):
    session = start(prefixes=("add",))
    session.begin("torch", "9.9")
    assert session.wants(0, "addmm", "aten.addmm", "0_1") and not session.wants(0, "relu", "aten.relu", "1")
    save(spool, session)
    session.operator(spool.Operator(0, ("1_relu",), model="Net"), param={"a": 1}, nanoseconds=7)
    session.trouble("twice")
    session.trouble("twice")
    assert not read_process(Path(session.out)).complete
    session.finish()
    session.finish()
    process = read_process(Path(session.out))
    assert (process.libraries, process.tensors, process.files, process.steps) == (("torch 9.9",), 1, 1, (0,))
    assert (process.complete, process.troubles) == (True, ("twice",))
    assert (process.names, process.types) == (("addmm", "relu"), ("aten.addmm", "aten.relu"))
    (step,) = steps_of(process)
    assert (step.model, step.number, len(step.tensors), len(step.operators)) == ("Net", 0, 1, 1)
    save(spool, session)
    assert not read_process(Path(session.out)).complete  # it went on after all


def test_what_named_an_operator_is_known_however_many_there_are(spool, start, monkeypatch):
    monkeypatch.setattr(spool, "MOST_SEEN", 3)
    session = start(prefixes=("last",), names=("op9",), patterns=("^op7$", "never"))
    session.begin("torch", "9.9")
    wanted = [session.wants(0, f"op{number}", "aten.first") for number in range(10)]
    assert wanted == [False] * 7 + [True, False, True] and session.wants(0, "x", "aten.Last_one")
    session.finish()
    process = read_process(Path(session.out))
    assert process.matched == ("^op7$", "last", "op9") and len(process.names) == 3
    control = DumpControl(prefixes=("last",), names=("op9",), patterns=("^op7$", "never"))
    assert list(unmatched(control, known_of([process]))) == ["no operator ran whose name matches 'never'"]


def test_a_cut_off_index_is_read_to_where_it_goes(spool, start):
    session = start()
    save(spool, session)
    path = Path(session.out) / "index.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 1, "side": "in"\n\xff\xfe[1]\n{"step"')
    process = read_process(Path(session.out))
    assert (process.tensors, process.complete) == (1, False)


def test_other_files_go_into_the_processs_folder_whole(start, tmp_path):
    session = start()
    path = session.write("feeds/0.npy", b"ab", memoryview(b"cd"))
    assert path == f"processes/{session.pid}/feeds/0.npy" and (tmp_path / path).read_bytes() == b"abcd"
    assert not list(tmp_path.rglob(".part*"))


def test_a_name_stays_one_folder(spool):
    operator = spool.Operator(0, ("0_../../etc", "1_" + "x" * 300))
    assert operator.folders == ("0_.._.._etc", "1_" + "x" * 98) and operator.ids == "0_1"


def test_no_session_without_a_dump(spool, monkeypatch, tmp_path):
    monkeypatch.delenv("SGSDUMP_CAPTURE", raising=False)
    assert spool.session() is None
    monkeypatch.setenv("SGSDUMP_CAPTURE", str(tmp_path))
    monkeypatch.setattr(spool, "_made", False)
    assert spool.session() is None
    assert replace(DumpControl(), enabled=False).enabled is False
