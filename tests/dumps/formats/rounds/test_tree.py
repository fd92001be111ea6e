"""Rounds of a program: what is written reads back, whatever is cut off or damaged is told, and what stands before it
opens."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.conformance import Conformance, content

from sgsdump import Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.rounds.round_file import Index
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import FormatError, SgsdumpError
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.statistics import Statistics


class TestConformance(Conformance):
    format = "rounds"

    def check_cut_folder(self, whole: Path, cut: Path) -> None:
        """Cut anywhere: one clear line, or the records that were written before, and a note that says so."""
        names = [record.name for record in self.records()]
        for name, data in content(whole).items():
            shutil.copytree(whole, cut)
            for length in reversed(range(len(data))):
                os.truncate(cut / name, length)
                try:
                    dump = open_dump(cut)
                except FormatError as error:
                    assert str(cut) in str(error) and "\n" not in str(error)
                    assert name.endswith(".round")
                    continue
                found = [record.name for record in dump.records]
                assert found == names[: len(found)]
                if name.endswith(".round"):
                    assert any("not complete" in note for note in dump.notes)
                if name.endswith(".round") or not dump.notes:  # but for the zeros at the end of the values
                    assert all(record.tensor.stored() is not None for record in dump.records)
            shutil.rmtree(cut)


PLACE = {"model": "Net", "id": "0", "module": "root.fc", "op": "fc", "type": "Linear", "folders": ["0_fc"]}
INNER = {**PLACE, "id": "0_0", "op": "fc.addmm", "type": "aten.addmm", "folders": ["0_fc", "0_addmm"]}
LINES = [
    {"place": 0, **PLACE},
    {"step": 3, "at": 0, "side": "in", "moment": "before", "values": [{"value": 1, "dtype": "float32", "shape": [2]}]},
    {"place": 1, **INNER},
    {"step": 3, "at": 1, "side": "in", "moment": "before", "values": [1]},
    {
        **{"step": 3, "at": 1, "side": "out", "moment": "after"},
        "values": [{"value": 2, "dtype": "bfloat16", "shape": [2], "weight": "root.fc.weight"}],
    },
    {"step": 3, "at": 1, "event": "operator", "param": {"alpha": 1}, "nanoseconds": None},
    {"step": 3, "at": 0, "side": "out", "moment": "after", "values": [2]},
    {"event": "round", "step": 3},
]


def frame(*lines: object) -> bytes:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return struct.pack("<II", len(text), zlib.crc32(text)) + text


def index(*frames: bytes) -> bytes:
    return struct.pack("<8sII", b"SGSROUND", 1, 0) + b"".join(frames)


def put(root: Path, data: bytes, place: str = "0_77/3.round") -> Path:
    path = root / "rounds" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put_values(root: Path, *arrays: np.ndarray) -> list[list[object]]:
    """A values' file by the specification, not by the writer; where each array lies in it."""
    data, places = struct.pack("<8sI", b"SGSVALUE", 1).ljust(64, b"\0"), []
    for array in arrays:
        payload = array.tobytes()
        places.append(["0_77/3", len(data) + 64, len(payload)])
        data += struct.pack("<QI", len(payload), zlib.crc32(payload)).ljust(64, b"\0")
        data += payload + b"\0" * (-len(payload) % 64)
    put(root, data, "0_77/3.values")
    return places


def with_values(places: list[list[object]]) -> list[dict]:
    lines = json.loads(json.dumps(LINES))
    for line, place in zip((lines[1], lines[4]), places):
        line["values"][0]["payload"] = place
    return lines


def test_an_index_written_by_hand_is_read_with_names_values_and_the_network(tmp_path):
    bits = np.uint16([0x3F80, 0x4000])
    lines = with_values(put_values(tmp_path, np.float32([1, 2]), bits))
    dump = open_dump(put(tmp_path, index(*map(frame, lines))))
    assert [(record.name, record.op_index, record.op_type) for record in dump.records] == [
        *[("0_fc/input.0", 0, "fc"), ("0_fc/0_addmm/input.0", 1, "addmm")],
        *[("0_fc/0_addmm/output.0", 1, "addmm"), ("0_fc/output.0", 0, "fc")],
    ]
    assert not dump.notes and dump.format == "rounds"
    assert dump["0_fc/0_addmm/output.0"].dtype == KNOWN["bfloat16"]
    assert dump["0_fc/output.0"].real().tolist() == [1, 2] == dump["0_fc/input.0"].real().tolist()
    layer, inner = dump.network()[0], dump.network()[1]
    assert (layer.module, layer.kind, layer.is_module) == ("fc", "Linear", True)
    assert (inner.arguments, inner.values) == ({"alpha": "1"}, {("in", 0): 1, ("out", 0): 2})
    assert inner.weights == {("out", 0): "fc.weight"}
    assert [(run.step, run.rank, run.place) for run in list_runs(tmp_path)] == [(3, 0, "rounds/0_77/3.round")]
    assert open_dump(tmp_path).records[0].name == open_dump(f"{tmp_path}@step=3").records[0].name == "0_fc/input.0"


def test_statistics_come_as_they_were_written_nan_too(tmp_path):
    lines = json.loads(json.dumps(LINES))
    lines[1]["values"][0]["stats"] = {"max": 4.0, "min": float("nan"), "mean": 2.5, "l2norm": float("inf")}
    dump = open_dump(put(tmp_path, index(frame(*lines))))
    found = dump.records[0].tensor.statistics
    assert (found.max, found.mean, found.l2norm) == (4.0, 2.5, float("inf")) and found.min != found.min
    with pytest.raises(SgsdumpError, match="only its type and shape"):
        dump["0_fc/output.0"].stored()


def test_an_index_cut_at_any_byte_has_what_stands_before(tmp_path):
    frames = list(map(frame, LINES))
    data, whole = index(*frames), open_dump(put(tmp_path, index(*frames)))
    names = [record.name for record in whole.records]
    for length in range(len(data)):
        path = put(tmp_path, data[:length])
        try:
            dump = open_dump(path)
        except FormatError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            assert length < len(index(*frames[:2]))
            continue
        found = [record.name for record in dump.records]
        assert set(found) <= set(names) and any("not complete" in note for note in dump.notes)
        assert len(found) == sum(length >= len(index(*frames[: count + 1])) for count in (1, 3, 4, 6))


def test_a_wrong_bit_ends_the_index_there(tmp_path):
    frames = list(map(frame, LINES))
    data = index(*frames)
    for offset in range(16, len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 4
        before = next(count for count in range(len(frames)) if offset < len(index(*frames[: count + 1])))
        found = Index(put(tmp_path, bytes(damaged)))
        assert list(found.texts()) == [frame[8:] for frame in frames[:before]] and "damaged" in found.cut


@pytest.mark.parametrize("length", [0, 1 << 27, 0xFFFFFFFF])
def test_a_length_beyond_reason_is_damage(tmp_path, length):
    data = index(frame(*LINES[:2]), struct.pack("<II", length, 0) + b"x" * 100)
    dump = open_dump(put(tmp_path, data))
    assert len(dump.records) == 1 and "damaged" in dump.notes[0]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (["../secret", 128, 8], "outside the folder"),
        (["0_77/../0_77/3", 128, 8], "outside the folder"),
        (["0_77/4", 128, 8], "is missing"),
        (["0_77/3", 1 << 40, 8], "cut off"),
        (["0_77/3", 128, 1 << 40], "cut off"),
        (["0_77/3", 130, 8], "damaged"),
        (["0_77/3", 0, 8], "damaged"),
        (["0_77/3", 128, 7], "damaged"),
        (["0_77/3", 128, 4], "damaged"),
        (["0_77/3", -1, 8], "damaged"),
        (["0_77/3", 1 << 70, 8], "damaged"),
        ("0_77/3", "damaged"),
        (None, "damaged"),
    ],
)
def test_values_that_are_not_there_are_told(tmp_path, place, why):
    good = put_values(tmp_path, np.float32([1, 2]), np.uint16([1, 2]))[1]
    dump = open_dump(put(tmp_path, index(frame(*with_values([place, good])))))
    assert any(why in note for note in dump.notes)
    with pytest.raises(SgsdumpError, match=why):
        dump["0_fc/input.0"].stored()
    assert dump["0_fc/output.0"].stored() is not None


def test_a_wrong_bit_in_the_values_is_told_when_they_are_asked_for(tmp_path):
    lines = with_values(put_values(tmp_path, np.float32([1, 2]), np.uint16([1, 2])))
    path = tmp_path / "rounds/0_77/3.values"
    data = bytearray(path.read_bytes())
    data[128] ^= 1
    path.write_bytes(data)
    dump = open_dump(put(tmp_path, index(frame(*lines))))
    with pytest.raises(FormatError, match="wrong checksum"):
        dump["0_fc/input.0"].stored()
    assert dump["0_fc/output.0"].stored().view(np.uint16).tolist() == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        {"step": 3, "at": 0, "side": "in", "values": [{"dtype": "float32", "shape": [10**9] * 9}]},
        {"step": 3, "at": 0, "side": "in", "values": [{"dtype": "float32", "shape": "four"}]},
        {"step": 3, "at": 0, "side": "in", "values": [{"dtype": "no type", "shape": [2]}]},
        {"step": 3, "at": 0, "side": "up", "values": [{"dtype": "float32", "shape": [2]}]},
        {"step": 3, "at": 0, "side": "in", "values": [[]]},
        {"place": 0, "folders": "none"},
        {"record": {"name": 7}},
        {"record": None},
    ],
)
def test_damaged_lines_are_told_or_passed_over(tmp_path, line):
    path = put(tmp_path, index(frame({"place": 0, **PLACE}, line)))
    with pytest.raises(FormatError) as caught:
        open_dump(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_another_version_and_several_rounds_are_told(tmp_path):
    path = put(tmp_path, struct.pack("<8sII", b"SGSROUND", 2, 0))
    with pytest.raises(FormatError, match="Update sgsdump"):
        open_dump(path)
    put(tmp_path, index(frame(*LINES)))
    put(tmp_path, index(frame(*LINES)), "0_77/10.round")
    put(tmp_path, b"", "0_77/x.round")
    assert [run.step for run in list_runs(tmp_path)] == [3, 10]
    with pytest.raises(SgsdumpError, match="2 runs"):
        open_dump(tmp_path)


def test_statistics_and_unwritten_memory_are_kept_when_saved(tmp_path):
    info = Tensor.of("a", np.float32([1])).info
    records = [
        Record("out", 0, 0, "Relu", Tensor.of_statistics(info, Statistics(-1.0, 2.0, 0.5, float("nan")))),
        Record("out", 1, 0, "Relu", Tensor.without_values(info, "x"), unwritten=True),
    ]
    save_dump(records, tmp_path / "out", "rounds", on_loss="raise")
    first, second = open_dump(tmp_path / "out").records
    found = first.tensor.statistics
    assert (found.min, found.max, found.mean) == (-1.0, 2.0, 0.5) and found.l2norm != found.l2norm
    assert second.unwritten
