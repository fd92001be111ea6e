"""Folders of operator dumps: pairs by name, duplicates, long names, damage, statistics, several runs.

What the names of operator dump files say.

Overflow statuses that are damaged or odd; the genuine ones are in tests/dumps/formats/ascend/test_ascend_dump.py.
"""

from __future__ import annotations

import csv
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.ascend.wire import FLOAT, Item, nano_file, nano_item, operator_file
from platforms import unix_only

from sgsdump import Dump, compare, open_dump, save_dump
from sgsdump.dumps.formats.ascend.file_names import FileName, parse, read_mapping
from sgsdump.dumps.formats.ascend.overflow import parse as parse_status
from sgsdump.dumps.formats.ascend.overflow import summary
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError, FormatError

STATS = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count\n"
STATS += "Output,0,16,DT_FLOAT,ND,4,4,1,2.5,4\n"


def data(values: list[float], name: bytes = b"") -> bytes:
    return operator_file([], [Item(np.array(values, "<f4").tobytes(), FLOAT, (len(values),))], name)


def opened(folder: Path, files: dict[str, bytes]) -> Dump:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return open_dump(folder)


def test_records_come_in_order_of_time_and_task(tmp_path: Path) -> None:
    dump = opened(
        tmp_path,
        {
            "Add.c.3.2.1700000000000300": data([3]),
            "Mul.b.2.2.1700000000000200": data([2]),
            "Mul.a.1.2.1700000000000200": data([1]),
        },
    )
    assert dump.format == "ascend_dir" and not dump.notes
    assert [(r.name, r.op_index, r.op_type) for r in dump.records] == [
        ("a:output:0", 0, "Mul"),
        ("b:output:0", 1, "Mul"),
        ("c:output:0", 2, "Add"),
    ]


def test_of_several_files_of_an_operator_none_is_lost(tmp_path: Path) -> None:
    files = {f"Add.a.1.2.1700000000000{i}00": data([i]) for i in (1, 3, 2)}
    dump = opened(tmp_path, files)
    assert {name: tensor.stored().tolist() for name, tensor in dump.items()} == {
        "a#1:output:0": [1], "a#2:output:0": [2], "a:output:0": [3]
    }  # fmt: skip
    assert dump.notes == ("dumped several times (1), older dumps get the names NAME#1, NAME#2 …: a",)


def test_a_damaged_newer_file_leaves_the_older_one_its_name(tmp_path: Path) -> None:
    files = {"Add.a.1.2.1700000000000100": data([1]), "Add.a.1.2.1700000000000200": data([2])[:-1]}
    dump = opened(tmp_path, files)
    assert dump["a:output:0"].stored().tolist() == [1] and len(dump.notes) == 1


def test_the_genuine_duplicate_is_told_and_the_vendors_has_the_plain_name(shared: Path) -> None:
    dump = open_dump(shared / "ascend/ge_dump/compare/my")
    folder = shared / "ascend/ge_dump/compare/my"
    for name, time in (("twice", 900), ("twice#1", 800)):
        (tensor,) = open_dump(folder / f"Sub.twice.8.1.1700000000000{time}").outputs.values()
        assert np.array_equal(dump[f"{name}:output:0"].stored(), tensor.stored())
    assert len(dump.notes) == 1 and dump.notes[0].endswith("older dumps get the names NAME#1, NAME#2 …: twice")


@pytest.mark.parametrize("header", [b"", b"net/C.1"])
def test_a_watchers_pairs_have_names_of_their_own(tmp_path: Path, header: bytes) -> None:
    """C after itself and after A and B, named as the vendor's writer does it: A_To_C, with A's task and stream."""
    watched = header.decode() or "net_C_1"
    files = {
        "Add.net_C_1.3.2.1700000000000300": data([3], header),
        "Add.A_To_net_C_1.5.2.1700000000000500": data([5], header),
        "Add.B_To_net_C_1.7.2.1700000000000700": data([7], header),
    }
    dump = opened(tmp_path, files)
    assert {name: tensor.stored().tolist() for name, tensor in dump.items()} == {
        f"{watched}:output:0": [3], f"A_To_{watched}:output:0": [5], f"B_To_{watched}:output:0": [7]
    }  # fmt: skip
    assert [record.op_index for record in dump.records] == [0, 1, 2] and not dump.notes


def test_two_genuine_runs_pair_by_name(shared: Path) -> None:
    dumps = [open_dump(shared / "ascend/ge_dump/compare" / side) for side in ("my", "golden")]
    assert set(dumps[0]) ^ set(dumps[1]) == {"only_my:output:0", "only_golden:output:0"}
    rows = compare(*dumps).rows
    assert len(rows) >= 10


def test_names_are_those_of_the_vendors_comparison(shared: Path) -> None:
    folder = shared / "ascend/ge_dump/compare"
    with open(folder / "result_npu_vs_npu/result_20261121033238.csv", newline="") as file:
        compared = {row["TensorIndex"] for row in csv.DictReader(file)} - {"NaN"}
    names = [{record.name for record in open_dump(folder / side).records} for side in ("my", "golden")]
    assert len(compared) == 14 and compared < names[0] & names[1]


def test_damaged_files_cost_only_their_tensors(shared: Path) -> None:
    dump = open_dump(shared / "ascend/ge_dump/schema_written/dump")
    left_out = [note for note in dump.notes if note.startswith("left out")]
    assert len(left_out) == 6 and all("Bad." in note for note in left_out)
    assert len(dump.records) == 46
    assert {"MatMulV2.encoder/layer_0/matmul:output:0", "Bad.encoder/layer_0/matmul:output:0"} < set(dump)


def test_a_folder_of_damaged_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no operator dump in .* can be read"):
        opened(tmp_path, {"Add.a.1.2.1700000000000100": b"123456789", "Add.b.1.2.1700000000000100": b""})


def test_long_names_are_found_in_the_mapping(tmp_path: Path) -> None:
    name = f"Add.{'block_' * 60}add.7.2.1700000000000100"
    files = {
        "90817263541": data([1]),
        "mapping.csv": f"90817263541,{name}\n55,Mul.gone.1.1.1700000000000100\n".encode(),
    }
    dump = opened(tmp_path, files)
    assert list(dump) == [f"{'block_' * 60}add:output:0"]
    assert (dump.records[0].op_type, dump.notes) == ("Add", ("1 files listed in mapping.csv are missing: 55",))


def test_slices_are_tensors_of_their_own(shared: Path, tmp_path: Path) -> None:
    dump = open_dump(shared / "ascend/ge_dump/schema_written/dump")
    assert [name for name in dump.outputs if "ffts" in name] == ["ffts_relu.7.0:output:0", "ffts_relu.7.1:output:0"]


def test_overflow_statuses_are_all_taken_and_told(shared: Path) -> None:
    dump = open_dump(shared / "ascend/ge_dump/overflow/dump")
    statuses = [name for name in dump if "OpDebug" in name]
    assert statuses == [f"Node_OpDebug.{task}.9:output:0" for task in range(1, 7)]
    told = "overflow on AI Core: model 1, stream 2, task 21, status 32; caused by layer_Exp (Exp)"
    assert dump.notes[4].endswith(told) and len(dump.notes) == 6


def test_an_overflow_status_names_the_operator_that_the_vendors_tool_names(shared: Path) -> None:
    folder = shared / "ascend/ge_dump/overflow"
    (summary,) = (folder / "msaccucmp_out").glob("overflow_summary_*.txt")
    theirs = re.findall(r"^\[(\w+)\] (\w+)\n \[[\w ]+\]\[TaskId:(\d+)\]", summary.read_text(), re.MULTILINE)
    assert len(theirs) == 4
    notes = open_dump(folder / "dump").notes
    for op_type, name, task in theirs:
        (note,) = (note for note in notes if f"task {task}, " in note)
        assert note.endswith(f"; caused by {name} ({op_type})")
    assert "it is of" not in notes[5] and notes[5].startswith("Node_OpDebug.6.9:output:0: no overflow")


def opdebug(task: int, stream: int, context: int = 65535, thread: int = 65535, word: int = 8) -> bytes:
    fields = [1, stream, task, 0, context, thread, 0x1000, 0x2000, 3, 5, word]
    status = struct.pack("<6I11Q", 0x5A5A5A5A, 0, 1, 0, 0, 88, *fields)
    return operator_file([], [Item(status, 4, (len(status),))], b"Node_OpDebug")


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (opdebug(7, 2), "; caused by a#1 (Add)"),
        (opdebug(8, 2), "; caused by old (Mul)"),
        (opdebug(9, 2, 3, 1), "; caused by ffts.3.1 (Relu)"),
        (opdebug(9, 2, 3, 2), "; its operator is not in this folder"),
        (opdebug(7, 5), "; its operator is not in this folder"),
        (opdebug(65535, 2), "status 8"),
        (opdebug(7, 2, word=0), "status 0"),
    ],
)
def test_which_operator_an_overflow_is_of(tmp_path: Path, status: bytes, end: str) -> None:
    files = {
        "Add.a.7.2.1700000000000100": data([1]),
        "Add.a.7.2.1700000000000200": data([2]),
        "Mul.old.8.1700000000000300": data([3]),
        "Relu.ffts.9.2.1700000000000400.4.3.0.0": data([4]),
        "Relu.ffts.9.2.1700000000000400.4.3.1.0": data([5]),
        "Opdebug.Node_OpDebug.7.2.1700000000000500": status,
    }
    (note,) = (note for note in opened(tmp_path, files).notes if note.startswith("Node_OpDebug"))
    assert note.endswith(end)


def test_nano_dumps_and_operator_dumps_may_be_together(tmp_path: Path) -> None:
    nano = nano_file([], [nano_item(False, 0, (2,), 8)], np.array([1, 2], "<f4").tobytes())
    dump = opened(tmp_path, {"Add.n.0.0.550288648": nano, "Add.a.1.2.1700000000000100": data([1])})
    assert list(dump) == ["n:output:0", "a:output:0"] and dump["n:output:0"].stored().tolist() == [1, 2]


def test_statistics_stand_where_no_values_are(tmp_path: Path) -> None:
    files = {
        "Add.a.1.2.1700000000000100.csv": STATS.encode(),
        "Add.b.2.2.1700000000000200.csv": STATS.encode(),
        "Add.b.2.2.1700000000000200": data([1, 2, 3, 4]),
        "Add.c.3.2.1700000000000300.csv": b"nothing\n",
    }
    dump = opened(tmp_path, files)
    assert [tensor.statistics is not None for tensor in dump.values()] == [True, False]
    assert [record.name for record in dump.records] == ["a:output:0", "b:output:0"]
    assert len(dump.notes) == 1 and "Add.c.3.2" in dump.notes[0]


def test_a_folder_above_the_dump_will_do_unless_there_are_several(tmp_path: Path) -> None:
    path = "20240101/0/model/1/0/Add.a.1.2.1700000000000100"
    dump = opened(tmp_path, {path: data([1]), "20240101/readme.txt": b"x"})
    assert list(dump) == ["a:output:0"]
    with pytest.raises(ConfigError, match=r"holds 2 runs \(step 0, graph model/1; step 1, graph model/1\); choose one"):
        opened(tmp_path, {path.replace("/0/Add", "/1/Add"): data([1])})


def test_the_runs_of_a_tree_are_chosen_by_step_rank_and_graph(tmp_path: Path) -> None:
    """The folders as the seed prints them: worldsize, time, device, graph, its number, step."""
    place = "worldsize2_global_rank{}/2024112145738/{}/ge_default_20200808163719_{}/1/{}/Add.a.1.2.1700000000000100"
    runs = [(rank, graph, step) for step in (2, 10) for rank in (0, 1) for graph in (11, 121)]
    for number, (rank, graph, step) in enumerate(runs):
        file = tmp_path / place.format(rank, rank + 4, graph, step)
        file.parent.mkdir(parents=True)
        file.write_bytes(data([number]))
    found = list_runs(tmp_path)
    assert [(run.rank, run.graph, run.step) for run in found] == [
        (rank, f"ge_default_20200808163719_{graph}/1", step) for rank, graph, step in runs
    ]
    assert list_runs(tmp_path, step=10, rank=1) == found[6:]
    for number, run in enumerate(found):
        dump = open_dump(f"{tmp_path}@step={run.step},rank={run.rank},graph={run.graph}")
        assert dump["a:output:0"].stored().tolist() == [number]
        same = open_dump(f"{tmp_path}/@graph=ge*_{runs[number][1]}", run.step, run.rank)
        assert same["a:output:0"].stored().tolist() == [number]
    below = list_runs(tmp_path / "worldsize2_global_rank1/2024112145738")
    assert [(run.rank, run.step) for run in below] == [(1, 2), (1, 2), (1, 10), (1, 10)]
    with pytest.raises(ConfigError, match=r"holds 2 runs \(.*\); write .*@step=2,rank=0,graph=…$"):
        open_dump(tmp_path, 2, 0)


def test_dumps_of_single_operators_have_a_device_and_no_step(tmp_path: Path) -> None:
    for device in (0, 3):
        folder = tmp_path / "20240101123000" / str(device)
        folder.mkdir(parents=True)
        (folder / "Add.a.1.2.1700000000000100").write_bytes(data([device]))
    assert [(run.rank, run.step, run.graph) for run in list_runs(tmp_path)] == [(0, None, ""), (3, None, "")]
    assert open_dump(tmp_path, rank=3)["a:output:0"].stored().tolist() == [3]
    folder = tmp_path / "20240101123000"
    assert open_dump(f"{folder}@rank=3")["a:output:0"].stored().tolist() == [3]


def test_a_folder_of_npy_files_above_a_dump_is_its_own(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([1]))
    assert opened(tmp_path, {"below/Add.a.1.2.1700000000000100": data([1])}).format == "npy_dir"


def test_other_folders_are_not_taken_for_it(tmp_path: Path) -> None:
    for name in ("statistic.csv", "mapping.csv", "a.npy", "Add.a.1.2.17000", "intensor0.bin"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(FormatError) as caught:
        open_dump(tmp_path)
    assert "operator dump in" not in str(caught.value)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(data([1]))
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "Add.a.1.2.1700000000000100").symlink_to(tmp_path / "secret")
    dump = opened(folder, {"Add.b.1.2.1700000000000100": data([2])})
    assert list(dump) == ["b:output:0"]


@unix_only
def test_no_file_is_kept_open(tmp_path: Path) -> None:
    files = {f"Add.a{i}.{i}.2.1700000000000100": data([i]) for i in range(50)}
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else None
    dump = opened(tmp_path, files)
    values = [tensor.stored().tolist() for tensor in dump.values()]
    assert values == [[i] for i in range(50)]
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_genuine_folder_becomes_npz_and_comes_back(shared: Path, tmp_path: Path) -> None:
    dump = open_dump(shared / "ascend/ge_dump/schema_written/dump")
    save_dump(dump, tmp_path / "x.npz", "npz")
    again = open_dump(tmp_path / "x.npz")
    assert len(again.records) == len(dump.records)
    for one, other in zip(dump.records, again.records):
        assert (one.name, one.io, one.slot, one.constant) == (other.name, other.io, other.slot, other.constant)
        assert one.tensor.stored().dtype == other.tensor.stored().dtype
        assert one.tensor.stored().tobytes() == other.tensor.stored().tobytes()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Conv2D.conv1.4.2.1700000000123456", FileName("Conv2D", "conv1", 4, 2, 1700000000123456, "")),
        ("Conv2D.conv1.4.1700000000123456", FileName("Conv2D", "conv1", 4, None, 1700000000123456, "")),
        ("Relu.r.2.9.1700000000700001.4.7.1.0", FileName("Relu", "r", 2, 9, 1700000000700001, "7.1")),
        ("ConcatV2D.concatv2.0.0.550288648", FileName("ConcatV2D", "concatv2", 0, 0, 550288648, "")),
        ("Add.a.3.20240102030405678", FileName("Add", "a", 3, None, 20240102030405678, "")),
        ("Add.a.b.5.3.2.1700000000123456", FileName("Add", "a.b.5", 3, 2, 1700000000123456, "")),
        ("Add.a.3.2.1700000000123456.output.0.npy", None),
        ("Add.a.1700000000123456", None),
        ("conv1_relu.0.1700000000000000.npy", None),
        ("a/b.c.1.2.1700000000123456", None),
        ("1." * 3000, None),
    ],
)
def test_names(name: str, parts: FileName | None) -> None:
    assert parse(name) == parts


def test_the_mapping_takes_the_last_row_and_odd_lines(tmp_path: Path) -> None:
    assert read_mapping(tmp_path) == {}
    (tmp_path / "mapping.csv").write_bytes(b"1,Add.a.1.1.1700000000123456\r\n\r\nno comma\n1, Add.b,c \n\xff,\xfe\n")
    assert read_mapping(tmp_path) == {"1": "Add.b,c", "\udcff": "\udcfe"}


MAGIC = 0x5A5A5A5A


def status(acc_type: int, numbers: int, version: int = 0) -> bytes:
    return struct.pack(f"<6I{numbers}Q", MAGIC, version, 1, acc_type, 0, 8 * numbers, *range(1, numbers + 1))


@pytest.mark.parametrize(("acc_type", "numbers", "version"), [(0, 11, 0), (1, 14, 1), (2, 8, 0), (3, 10, 1)])
def test_every_unit_has_its_own_length(acc_type: int, numbers: int, version: int) -> None:
    data = status(acc_type, numbers, version)
    told = parse_status(data + b"more", "x")["acc_list"]["data"]
    assert told["status"] == ([11, 12, 13, 14] if numbers == 14 else numbers)
    for length in range(len(data)):
        with pytest.raises(FormatError, match=r"^x is"):
            parse_status(data[:length], "x")


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(FormatError, match="unit 7"):
        parse_status(status(7, 20), "x")


def test_the_summary_of_the_old_form_names_the_units_that_overflowed() -> None:
    data = bytearray(2048)
    struct.pack_into("<Q", data, 768, 5)
    assert summary(parse_status(bytes(data), "x")) == "overflow on L2 Atomic Add: model 0, stream 0, task 0, status 5"
    assert summary(parse_status(bytes(2048), "x")).count("status 0") == 3


def test_status_words_that_are_all_zero_are_no_overflow() -> None:
    task = struct.pack("<10Q", *range(10))
    head = struct.pack("<6I", 0x5A5A5A5A, 1, 1, 0, 0, 112)
    clean, overflown = head + task + bytes(32), head + task + struct.pack("<4Q", 0, 0, 8, 0)
    assert summary(parse_status(clean, "x")).startswith("no overflow on AIC: model 0, ")
    assert summary(parse_status(overflown, "x")).startswith("overflow on AIC: ")
    assert summary(parse_status(bytes(2048), "x")).startswith("no overflow on DHA Atomic Add: ")
