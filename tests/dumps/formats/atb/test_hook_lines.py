"""What the hooks say once is read as a line for each input and output; damaged lines say nothing."""

import json

import pytest

from sgsdump.dumps.formats.atb.hook_lines import Lines, lines_in

PLACE = {"place": 3, "model": "Net", "id": "0", "op": "add", "folders": ["0_add"]}
VALUE = {"value": 5, "dtype": "float32", "shape": [2], "device": 1}
FIRST = {"step": 2, "at": 3, "side": "in", "moment": "before", "values": [VALUE, 5, None]}


def read(*lines):
    reader = Lines("11")
    return [
        one for line in lines for one in reader.read(line if isinstance(line, bytes) else json.dumps(line).encode())
    ]


def test_numbers_stand_for_what_was_told_before():
    first, second = read(PLACE, FIRST)
    assert first == {
        **{"model": "Net", "id": "0", "op": "add", "folders": ["0_add"], "step": 2, "side": "in", "slot": 0},
        **{"moment": "before", **VALUE, "file": "tensors/1_11/2/0_add/before/intensor0.bin"},
    }
    assert second == {**first, "slot": 1, "file": "tensors/1_11/2/0_add/before/intensor1.bin"}
    (operator,) = read(PLACE, {"step": 2, "at": 3, "event": "operator", "param": {"alpha": 1}})
    assert operator["op"] == "add" and operator["param"] == {"alpha": 1}


def test_another_step_knows_nothing_of_the_values_of_this_one():
    later = {**FIRST, "step": 3, "values": [5]}
    assert len(read(PLACE, FIRST, later)) == 2
    assert read(PLACE, FIRST, {**later, "step": 2, "slot": 7})[-1]["slot"] == 7


@pytest.mark.parametrize("kind", ["same", "link"])
def test_the_first_file_of_equal_values_stands_for_itself(kind):
    path = "tensors/1_11/2/0_add/before/intensor0.bin"
    first, second = read(PLACE, {**FIRST, "values": [{**VALUE, "stored": "11/values/0.bin", kind: path}, 5]})
    assert kind not in first and second[kind] == path


def test_what_has_no_file_says_so():
    (line,) = read(PLACE, {**FIRST, "values": [{**VALUE, "file": None, "why": "it has no elements"}]})
    assert line["file"] is None and line["why"] == "it has no elements"


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff{",
        b"[" * 100000,
        b"[1]",
        {**FIRST, "at": 4},
        {**FIRST, "at": [3]},
        {**FIRST, "step": "2"},
        {**FIRST, "values": 5},
        {**FIRST, "values": [[5], "5", 6]},
        {**FIRST, "slot": "0"},
        {**PLACE, "place": []},
    ],
)
def test_a_damaged_line_says_nothing(damaged):
    assert [line for line in read(PLACE, damaged) if "side" in line] == []


def test_the_lines_of_one_step(tmp_path):
    path = tmp_path / "11" / "index.jsonl"
    path.parent.mkdir()
    others = [{**FIRST, "step": 22}, {"event": "begin"}, FIRST]
    path.write_text("".join(json.dumps(line) + "\n" for line in (PLACE, *others)) + '{"step": 2, "at"')
    assert [line.get("step") for line in lines_in(path, 2)] == [None, 2, 2]
    assert [line.get("step") for line in lines_in(path)] == [22, 22, None, 2, 2]
