"""The hooks' session in one process: what it asks for, what it writes, and when it stops."""

import os
import struct
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from platforms import unix_only

from sgsdump import open_dump
from sgsdump.capture.programs.control import DISK_FULL, DumpControl, Steps, dump_control, to_json
from sgsdump.capture.programs.operator_names import names_in, unmatched
from sgsdump.capture.programs.process_index import lines_of, read_process, steps_of
from sgsdump.capture.programs.tensor_tree import TensorTree
from sgsdump.dumps.formats.shared.ascend_types import acl_number_of
from sgsdump.tensors.dtypes import KNOWN

DATA = struct.pack("<4f", 1, 2, 3, 4)


def save(hook, session, step=0, data=DATA, ids=("0_Linear", "1_addmm"), values=None, weight="", **more):
    """Let the session have an operator's input; its file in the tree, None where it has none."""
    operator = hook.records.Operator(ids, op_type="aten.addmm", module="root.fc", model="Net")
    values = values or hook.records.Values(**{"dtype": "float32", "shape": (2, 2), **more})
    values.belong(weight)
    before = len(lines(session))
    session.wants(step, operator)
    told = session.tensor((step, operator, "in", 0, "before"), values, data)
    session.say([session.tensors(step, operator, "in", "before", [told])], step)
    TensorTree(Path(session.root)).advance()
    return next((line["file"] for line in lines(session)[before:] if "side" in line), None)


def lines(session):
    folder = Path(session.out)
    return list(lines_of(folder)) if (folder / "index.jsonl").exists() else []


def test_a_tensor_is_an_atb_file_in_its_place_and_a_line(hook, start, tmp_path):
    session = start()
    path = save(hook, session, number=7, weight="root.fc.weight")
    assert path == f"tensors/0_{os.getpid()}/0/0_Linear/1_addmm/before/intensor0.bin"
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


def test_data_may_be_a_function_that_is_called_only_when_needed(hook, start):
    calls = []

    def data():
        calls.append(1)
        return np.arange(4, dtype=np.float32)

    save(hook, start(content="structure"), data=data)
    assert not calls
    assert save(hook, start(), data=data) and calls


def test_the_numbers_of_types_are_atbs(hook):
    assert {name: acl_number_of(KNOWN[name]) for name in hook.records.ATB_TYPES if name in KNOWN} | {
        "complex32": 33
    } == hook.records.ATB_TYPES


def test_statistics_are_a_header_of_exactly_msits_seven(hook, start, tmp_path):
    session = start(content="stats")
    stats = {"max": 4.0, "min": 1.0, "mean": 2.5, "l2norm": 5.477, "nan": 0}
    text = (tmp_path / save(hook, session, data=None, stats=stats)).read_text()
    names = [line.partition("=")[0] for line in text.splitlines()]
    assert names == [
        *("$Version", "$Object.Count", "$Object.Length"),
        *("format", "dtype", "dims", "max", "min", "mean", "l2norm"),
        "$End",
    ]
    assert open_dump(tmp_path).records[0].tensor.statistics.l2norm == 5.477
    assert save(hook, session, dtype="bool", stats=None) is None  # nothing to compute from


def test_a_sum_of_squares_beyond_a_double_is_told(hook, start):
    session = start(content="stats")
    inf = float("inf")
    save(hook, session, data=None, stats={"max": 1e200, "min": 0.0, "mean": 1e199, "l2norm": inf})
    save(hook, session, data=None, stats={"max": inf, "min": 0.0, "mean": inf, "l2norm": inf})
    expected = "addmm: the sum of squares of a tensor exceeds a double; its l2norm is inf"
    assert read_process(Path(session.out)).troubles == (expected,)


@unix_only
def test_values_are_described_once_in_a_step_and_an_operator_once(hook, start, tmp_path):
    session, values = start(content="description"), hook.records.Values("float32", (2, 2), number=7)
    operator = hook.records.Operator(("0_add",), "aten.add", model="Net")
    others = [hook.records.Values("int64", (number,)) for number in range(1500)]
    for step in (0, 1):
        session.wants(step, operator)
        for side, of_it in (("in", [values, values]), ("out", [*others, values])):
            told = [session.tensor((step, operator, side, slot, "before"), one) for slot, one in enumerate(of_it)]
            session.say([session.tensors(step, operator, side, "before", told)], step)
    text = Path(session.out, "index.jsonl").read_text()
    assert (text.count('"place"'), text.count('"value": 7'), text.count('"aten.add"')) == (1, 2, 1)
    assert max(map(len, text.splitlines())) < 1 << 18
    expected = [("in", 0), ("in", 1), *[("out", slot) for slot in range(1501)]]
    found = lines(session)
    assert [(line["step"], line["side"], line["slot"]) for line in found] == [
        (step, *one) for step in (0, 1) for one in expected
    ]
    for line in found:
        shape = [line["slot"]] if line["side"] == "out" and line["slot"] < 1500 else [2, 2]
        assert (line["shape"], line["type"], line["model"]) == (shape, "aten.add", "Net")
        name = f"{line['side']}tensor{line['slot']}.bin"
        assert line["file"] == f"tensors/0_{session.pid}/{line['step']}/0_add/before/{name}"
    forked = os.fork()
    if not forked:
        assert session.tensor((1, operator, "in", 0, "before"), values).startswith("{")
        os._exit(0)
    assert os.waitpid(forked, 0)[1] == 0


def test_a_description_has_type_and_shape_only(hook, start, tmp_path):
    save(hook, start(content="description"), data=None, stats={"max": 1.0})
    (record,) = open_dump(tmp_path).records
    assert (record.tensor.info.shape, str(record.tensor.info.dtype)) == ((2, 2), "float32")
    with pytest.raises(Exception, match="only its type and shape were dumped"):
        record.tensor.stored()


def test_what_cannot_be_a_file_is_told_in_its_line(hook, start):
    session = start()
    assert save(hook, session, dtype="quint4x2") is None
    assert save(hook, session, data=b"", shape=(0,)) is None
    assert save(hook, session, data=lambda: 1 / 0) is None
    assert [line["why"] for line in lines(session)] == [
        "ATB has no number for quint4x2",
        "it has no elements",
        "ZeroDivisionError: division by zero",
    ]


def test_values_are_stored_once_without_being_asked_for_again(hook, start, tmp_path):
    session, values = start(), hook.records.Values("float32", (2, 2))
    first = save(hook, session, values=values)
    second = save(hook, session, step=1, values=values, data=lambda: pytest.fail("asked for"))
    assert (tmp_path / first).samefile(tmp_path / second) and first != second
    third = save(hook, session, step=2)
    assert not (tmp_path / first).samefile(tmp_path / third)
    assert len(list(Path(session.out, "values").iterdir())) == 2
    TensorTree(tmp_path).finish()
    assert not Path(session.out, "values").exists() and not list(tmp_path.rglob("*.part"))
    assert (tmp_path / second).read_bytes().endswith(DATA)


def test_a_file_that_an_earlier_process_of_this_number_left_is_not_written_over(hook, start, tmp_path):
    session = start()
    left = Path(session.out, "values", "0.bin")
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"of an earlier process")
    assert (tmp_path / save(hook, session)).read_bytes().endswith(DATA)
    assert left.read_bytes() == b"of an earlier process"


def test_equal_payloads_as_symlinks_hardlinks_and_lines(hook, start, tmp_path):
    for links in ("symlink", "hardlink", "index"):
        session = start(links=links)
        paths = [save(hook, session, step=step, ids=(f"0_{links}",)) for step in range(2)]
        other = save(hook, session, step=2, data=DATA[::-1], ids=(f"0_{links}",))
        first, second = (tmp_path / path for path in paths)
        assert second.is_symlink() == (links == "symlink")
        assert second.exists() == (links != "index") and (tmp_path / other).is_file()
        if links != "index":
            assert first.samefile(second)
    assert lines(session)[-2]["same"] == paths[0]
    assert open_dump(tmp_path / Path(paths[1]).parents[2]).records[-1].tensor.stored().tolist() == [[1, 2], [3, 4]]


def test_a_file_system_without_links_gets_copies(hook, start, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    session, values = start(), hook.records.Values("float32", (2, 2))
    first, second = (tmp_path / save(hook, session, step=step, values=values) for step in range(2))
    assert first.read_bytes() == second.read_bytes() and not first.samefile(second)


@pytest.mark.parametrize(
    ("control", "step", "name", "kind", "ids", "wanted"),
    [
        (DumpControl(), 5, "addmm", "aten.addmm", "0_1", True),
        (DumpControl(enabled=False), 0, "a", "a", "0", False),
        (DumpControl(steps=Steps(((3, 5), (7, 7)))), 4, "a", "a", "0", True),
        (DumpControl(steps=Steps(((3, 5), (7, 7)))), 6, "a", "a", "0", False),
        (dump_control(ids=("3",)), 0, "a", "a", "3_1", True),
        (dump_control(ids=("3",)), 0, "a", "a", "30", False),
        (dump_control(ids=("3",), children=False), 0, "a", "a", "3_1", False),
        (dump_control(ids=("3_1",)), 0, "a", "a", "3_1_0", True),
        (dump_control(ids=("3_1",)), 0, "a", "a", "3", False),
        (dump_control(children=False), 0, "a", "a", "3", True),
        (dump_control(children=False), 0, "a", "a", "3_1", False),
        (dump_control(prefixes=("self",)), 0, "x", "SelfAttentionOperation", "0", True),
        (dump_control(prefixes=("add",)), 0, "x", "aten.addmm", "0", True),
        (dump_control(prefixes=("mm",)), 0, "x", "aten.addmm", "0", False),
        (dump_control(names=("addmm",)), 0, "addmm", "x", "0", True),
        (dump_control(names=("add",)), 0, "addmm", "x", "0", False),
        (dump_control(patterns=("^add.*m$",)), 0, "addmm", "x", "0", True),
        (dump_control(names=("a",), prefixes=("b",)), 0, "x", "bmm", "0", True),
        (dump_control(models=(("Net", ("addmm",)),)), 0, "addmm", "x", "0", True),
        (dump_control(models=(("Net", ()),)), 0, "any", "x", "0", True),
        (dump_control(models=(("", ("addmm",)),)), 0, "addmm", "x", "0", True),
        (dump_control(models=(("Other", ("addmm",)),)), 0, "addmm", "x", "0", False),
        (DumpControl(ranks=(1,)), 0, "a", "a", "0", False),
        (DumpControl(ranks=(0,)), 0, "a", "a", "0", True),
    ],
)
def test_which_operators_are_wanted(hook, start, control, step, name, kind, ids, wanted):
    session, folders = start(control), [f"{number}_{name}" for number in ids.split("_")]
    assert session.wants(step, hook.records.Operator(folders, kind, model="Net", name=name)) is wanted


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


def test_rank_and_device_are_the_launchers(hook, start, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    session = start(ranks=(3,), devices=(1,))
    assert (session.rank, session.device) == (3, 1) and session.wants_step(0)
    assert save(hook, session).startswith("tensors/1_")
    assert save(hook, session, device=0) is None
    assert len(lines(session)) == 1  # what another device holds has no line


def test_a_full_disk_stops_the_dump_with_msits_sentence(hook, start, tmp_path):
    session = start(min_free=1 << 62)
    assert save(hook, session) is None and not list(tmp_path.rglob("*.bin"))
    assert session.stopped.startswith(DISK_FULL) and session.stopped.removeprefix(DISK_FULL).strip().isdigit()
    assert not session.wants_step(0)
    assert hook.files.DISK_FULL == DISK_FULL == "Disk space is not enough, it's must more than 2G, free size(MB) is:"
    process = read_process(Path(session.out))
    assert process.stopped == session.stopped and not process.complete


@pytest.mark.parametrize("locks", [True, False], ids=["a file", "no locks, as on Windows"])
def test_the_size_cap_of_one_process(hook, start, tmp_path, monkeypatch, locks):
    (tmp_path / "processes").mkdir()
    if not locks:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    session = start(max_bytes=5 * 4096)
    for step in range(9):
        save(hook, session, step=step)
    assert 2 <= len(list((tmp_path / "tensors").rglob("*.bin"))) <= 5 and "--max-size" in session.stopped


@unix_only
def test_the_size_cap_counts_all_processes_together(hook, start, tmp_path):
    (tmp_path / "processes").mkdir()
    room = 5 * 4096  # each file takes a block of the disk
    session, other = start(max_bytes=room), start(max_bytes=room)
    assert save(hook, session) and save(hook, other, step=1)
    for step in range(2, 9):
        save(hook, session, step=step)
        save(hook, other, step=step + 10)
    assert 2 <= len(list((tmp_path / "tensors").rglob("*.bin"))) <= 5
    assert "--max-size" in session.stopped and "--max-size" in other.stopped


def test_an_unwritable_folder_stops_the_dump_and_never_the_program(hook, start, tmp_path):
    session = start()
    session.begin("torch", "1")
    Path(session.out, "values").write_text("a file where the folder should be")
    assert save(hook, session) is None
    assert session.stopped.startswith("tensors/") and not session.wants_step(0)


def test_a_tree_that_cannot_be_written_is_told_in_the_index(hook, start, tmp_path):
    (tmp_path / "tensors").write_text("a file where the folder should be")
    session = start()
    save(hook, session)
    save(hook, session, step=1)
    session.finish()
    process = read_process(Path(session.out))
    assert process.stopped.startswith("tensors/0_") and process.stopped.endswith("Not a directory")


@pytest.mark.parametrize(
    "damage",
    [
        {"file": "tensors/../../outside.bin"},
        {"file": "/tmp/outside.bin"},
        {"file": "tensors/0_1/x.bin", "stored": "../../secret.bin"},
        {"file": "tensors/0_1/x.bin", "dtype": "no type"},
        {"file": "tensors/0_1/x.bin", "shape": "four"},
    ],
)
def test_a_line_that_no_hook_wrote_makes_no_file(hook, start, tmp_path, damage):
    session = start(content="description")
    session.line(**{"side": "in", "dtype": "float32", "shape": [1], **damage})
    TensorTree(tmp_path).advance()
    assert not [*tmp_path.rglob("*.bin"), *tmp_path.parent.glob("*.bin")]
    assert not read_process(Path(session.out)).stopped


def test_the_control_is_read_again_when_it_is_replaced(start, tmp_path, hook, monkeypatch):
    monkeypatch.setattr(hook.control, "RELOAD_SECONDS", 0)
    session = start(enabled=False)
    assert not session.wants_step(0)
    new = tmp_path / "new"
    new.write_text(to_json(DumpControl(steps=Steps(((4, 4),)))))
    new.replace(tmp_path / "control.json")
    assert session.wants_step(4) and not session.wants_step(0)
    (tmp_path / "control.json").write_text("{")
    assert session.wants_step(4)


def test_an_index_tells_what_ran_and_whether_it_came_to_its_end(hook, start, tmp_path):
    session = start(prefixes=("add",))
    session.begin("torch", "9.9")
    relu = hook.records.Operator(("1_relu",), "aten.relu", model="Net")
    assert not session.wants(0, relu)
    assert save(hook, session)
    session.say([session.operator(0, relu, param={"a": 1}, nanoseconds=7)], 0)
    session.trouble("twice")
    session.trouble("twice")
    assert not read_process(Path(session.out)).complete
    session.finish()
    session.finish()
    process = read_process(Path(session.out))
    assert (process.libraries, process.counts.tensors, process.counts.files, process.steps) == (
        ("torch 9.9",),
        1,
        1,
        (0,),
    )
    assert (process.complete, process.troubles) == (True, ("twice",))
    assert (process.operators.names, process.operators.types) == ({"addmm", "relu"}, {"aten.addmm", "aten.relu"})
    (step,) = steps_of(process)
    assert (step.model, step.number, len(step.tensors), len(step.operators)) == ("Net", 0, 1, 1)
    save(hook, session)
    assert not read_process(Path(session.out)).complete  # it went on after all


def test_what_named_an_operator_is_known_however_many_there_are(hook, start, monkeypatch):
    monkeypatch.setattr(hook.control, "MOST_NAMES", 3)
    session = start(prefixes=("last",), names=("op9",), patterns=("^op7$", "never"))
    session.begin("torch", "9.9")
    operators = [hook.records.Operator(("0_x",), "aten.first", name=f"op{number}") for number in range(10)]
    wanted = [session.wants(0, operator) for operator in operators]
    assert wanted == [False] * 7 + [True, False, True]
    assert session.wants(0, hook.records.Operator(("0_x",), "aten.Last_one"))
    session.finish()
    process = read_process(Path(session.out))
    assert process.operators.matched == {"^op7$", "last", "op9"} and len(process.operators.names) == 3
    control = dump_control(prefixes=("last",), names=("op9",), patterns=("^op7$", "never"))
    assert list(unmatched(control, names_in([process]))) == ["no operator with a name that matches 'never' ran"]


def test_a_cut_off_index_is_read_to_where_it_goes(hook, start):
    session = start()
    save(hook, session)
    path = Path(session.out) / "index.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 1, "side": "in"\n\xff\xfe[1]\n{"step"')
    process = read_process(Path(session.out))
    assert (process.counts.tensors, process.complete) == (1, False)


def test_other_files_go_into_the_processs_folder_whole(start, tmp_path):
    session = start()
    path = session.write("feeds/0.npy", b"ab", memoryview(b"cd"))
    assert path == f"processes/{session.pid}/feeds/0.npy" and (tmp_path / path).read_bytes() == b"abcd"
    assert not list(tmp_path.rglob(".part*"))


def test_a_name_stays_one_folder(hook):
    operator = hook.records.Operator(("0_../../etc", "1_" + "x" * 300))
    assert operator.folders == ("0_.._.._etc", "1_" + "x" * 98) and operator.ids == "0_1"


def test_no_session_without_a_dump(hook, monkeypatch, tmp_path):
    monkeypatch.delenv("SGSDUMP_CAPTURE", raising=False)
    assert hook.session.session() is None
    monkeypatch.setenv("SGSDUMP_CAPTURE", str(tmp_path))
    monkeypatch.setattr(hook.session, "_looked_for", False)
    assert hook.session.session() is None
    assert replace(DumpControl(), enabled=False).enabled is False
