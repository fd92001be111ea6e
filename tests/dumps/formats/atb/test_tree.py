"""Trees of ATB tensors: the vendor's own, with aliases, statistics and files written twice, and crafted ones.

Trees that ``sgsdump exec`` wrote: what is not complete is said wherever they are opened; links lead nowhere else.

What the hooks say once is read as a line for each input and output; damaged lines say nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.conformance import Conformance

from sgsdump import Dump, Record, Tensor, TensorInfo, compare, open_dump, save_dump
from sgsdump.dumps.formats.atb import survey
from sgsdump.dumps.formats.atb.tensor import header_bytes
from sgsdump.dumps.formats.shared.ascend_types import acl_number_of
from sgsdump.dumps.formats.shared.hooked import Lines, lines_in
from sgsdump.dumps.targets import losses
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError, FormatError, SgsdumpError, ValuesError
from sgsdump.tensors.statistics import Statistics

LAYER, LINEAR = "1_DecoderLayer", "1_DecoderLayer/1_LinearOperation"
NOT_IN_THE_CSV = [f"{LAYER}/2_ElewiseOperation/output.0", f"{LAYER}/output.0"]


class TestConformance(Conformance):
    format = "atb_tree"
    listing = "sgsdump.json"


@pytest.fixture
def trees(shared: Path) -> Path:
    return shared / "ascend/atb_dump_tree"


def put(root: Path, path: str, value: float = 0.0, shape: tuple[int, ...] = (2,)) -> Path:
    """A float32 tensor at a path."""
    array = np.full(shape, value, np.float32)
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    number = acl_number_of(array.dtype)
    assert number is not None
    file.write_bytes(header_bytes(2, number, shape, array.nbytes) + array.tobytes())
    return file


def put_alias(root: Path, path: str, target: str, dims: str = "2") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    text = f"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=0\ndims={dims}\ndata={target}\n$End=1\n"
    (root / path).write_text(text)


def tensors(dump: Dump) -> dict[str, Tensor]:
    """Every tensor by name, inputs too."""
    found = {record.name: record.tensor for record in dump.records}
    assert len(found) == len(dump.records)
    return found


def first_values(dump: Dump) -> dict[str, float]:
    return {name: float(tensor.stored().reshape(-1)[0]) for name, tensor in tensors(dump).items()}


def test_a_genuine_tree_in_the_order_it_ran(trees: Path) -> None:
    dump = open_dump(trees / "all_f0/atb_dump_data/data/0_4711/0")
    assert dump.format == "atb_tree"
    rows = [(r.io, r.slot, r.op_index, r.op_type, r.name.rpartition("/")[0]) for r in dump.records]
    assert rows[:5] == [
        ("in", 0, 0, "WordEmbedding", "0_WordEmbedding"),
        ("in", 1, 0, "WordEmbedding", "0_WordEmbedding"),
        ("in", 2, 0, "WordEmbedding", "0_WordEmbedding"),
        ("out", 0, 0, "WordEmbedding", "0_WordEmbedding"),
        ("in", 0, 1, "DecoderLayer", LAYER),
    ]
    assert rows[13:17] == [
        ("in", 0, 4, "MatMulF32Kernel", f"{LINEAR}/0_MatMulF32Kernel"),
        ("in", 1, 4, "MatMulF32Kernel", f"{LINEAR}/0_MatMulF32Kernel"),
        ("out", 0, 4, "MatMulF32Kernel", f"{LINEAR}/0_MatMulF32Kernel"),
        ("out", 0, 3, "LinearOperation", LINEAR),
    ]
    assert rows[-1] == ("out", 0, 1, "DecoderLayer", LAYER)
    assert dump[f"{LAYER}/output.0"].info == TensorInfo(
        f"{LAYER}/output.0", (4, 4), np.dtype(np.float32), "FRACTAL_NZ", op_type="DecoderLayer"
    )
    assert [note for note in dump.notes if "without a row in statistic.csv" in note] == list(dump.notes)
    assert dump.notes[0].startswith("2 files (1_DecoderLayer/2_ElewiseOperation/after/outtensor0.bin")


def test_all_21_tensors_compare_where_the_vendor_reports_17(trees: Path) -> None:
    """The vendor's tool follows its CSV, which has neither the two tensors with -inf nor, for it, the complex ones. A
    value that is -inf on both sides is left out, and the row says so."""
    folder = trees / "all_f0/atb_dump_data/data/0_4711/0"
    comparison = compare(open_dump(folder), open_dump(folder))
    assert len(comparison.rows) == 21
    assert not (comparison.failed or comparison.only_in_sample or comparison.only_in_benchmark)
    rows = {row.name: row for row in comparison.rows}
    for name in NOT_IN_THE_CSV:
        assert (rows[name].benchmark_nan, rows[name].benchmark_inf, rows[name].count) == (1, 0, 15)
        assert "without 1 of 16 values, which both sides mask" in rows[name].note
    for name in (f"{LAYER}/input.3", f"{LAYER}/2_ElewiseOperation/input.1"):
        assert (rows[name].type_name, rows[name].count, rows[name].mse) == ("complex64", 8, 0.0)


def test_each_execution_is_a_run_with_the_names_it_has_alone(trees: Path) -> None:
    tree = trees / "all_f0"
    assert [(run.step, run.rank, run.place) for run in list_runs(tree)] == [
        (step, 0, f"atb_dump_data/data/0_4711/{step}") for step in (0, 1)
    ]
    for step in (0, 1):
        alone = tensors(open_dump(tree / f"atb_dump_data/data/0_4711/{step}"))
        for dump in (open_dump(tree, step), open_dump(f"{tree}@step={step}"), open_dump(tree, step, rank=0)):
            assert list(tensors(dump)) == list(alone) and len(alone) == 21
            assert all(tensors(dump)[name].raw().tobytes() == alone[name].raw().tobytes() for name in alone)
    assert len(compare(open_dump(tree, 0), open_dump(trees / "tensor_f1")).rows) == 21
    first, second = (open_dump(tree, step)["0_WordEmbedding/output.0"].real() for step in (0, 1))
    assert (first != second).all()
    with pytest.raises(
        ConfigError, match=r"holds 2 runs \(step 0, rank 0; step 1, rank 0\); choose one run with --step, or"
    ):
        open_dump(tree)
    with pytest.raises(ConfigError, match=r"has no run with step 2; it has step 0, rank 0; step 1, rank 0$"):
        open_dump(tree, 2)


def test_aliases_have_the_values_that_a_dump_without_them_has(trees: Path) -> None:
    """No vendor's reader follows an alias; all_f0 is the same run with every tensor written out."""
    plain = tensors(open_dump(trees / "all_f0/atb_dump_data/data/0_4711/0"))
    dump = open_dump(trees / "tensor_f1")
    aliases = [path for path in (trees / "tensor_f1").rglob("*.bin") if b"\ndata=" in path.read_bytes()]
    assert len(aliases) == 7 and dump.notes == ()
    found = tensors(dump)
    assert list(found) == list(plain)
    for name, tensor in found.items():
        assert tensor.info == plain[name].info
        assert tensor.stored().tobytes() == plain[name].stored().tobytes(), name
    assert len(compare(dump, open_dump(trees / "all_f0/atb_dump_data/data/0_4711/0")).rows) == 21


def test_files_written_twice(trees: Path) -> None:
    dump, plain = open_dump(trees / "append"), open_dump(trees / "all_f0/atb_dump_data/data/0_4711/0")
    assert len(dump.records) == 4
    assert len(dump.notes) == 1 and dump.notes[0].startswith("4 files: each holds several tensors")
    for name, tensor in tensors(dump).items():
        np.testing.assert_array_equal(tensor.stored(), tensors(plain)[name].stored())


def test_a_run_that_kept_statistics_only(trees: Path) -> None:
    dump = open_dump(trees / "stats", 0)
    plain = tensors(open_dump(trees / "all_f0", 0))
    assert len(dump.records) == 19
    assert dump.notes == ("1 tensor (0_WordEmbedding/input.2) is in statistic.csv, but without statistics",)
    for name, tensor in tensors(dump).items():
        info, statistics = plain[name].info, tensor.statistics
        assert tensor.info == info and statistics is not None
        with pytest.raises(ValuesError, match="has no values"):
            tensor.real()
        if info.dtype == np.bool_:
            assert statistics == Statistics()
            continue
        if info.dtype.kind == "c":
            assert statistics.min is statistics.max is statistics.mean is None
            continue
        values = plain[name].stored().astype(np.float64)
        expected = [values.min(), values.max(), values.mean(), np.linalg.norm(values)]
        np.testing.assert_allclose(
            [statistics.min, statistics.max, statistics.mean, statistics.l2norm], expected, atol=2e-6
        )
    assert tensors(dump)["0_WordEmbedding/input.0"].statistics == Statistics(-4.0, 3.875, -0.0625, 18.479719)


def test_any_folder_below_may_be_opened(trees: Path, shared: Path) -> None:
    folder = trees / "all_f0/atb_dump_data/data/0_4711/0" / LINEAR
    assert list(tensors(open_dump(folder))) == [
        "input.0", "input.1", "0_MatMulF32Kernel/input.0", "0_MatMulF32Kernel/input.1", "0_MatMulF32Kernel/output.0",
        "output.0",
    ]  # fmt: skip
    assert list(tensors(open_dump(folder / "before"))) == ["input.0", "input.1"]
    tests = shared / "ascend/atb_bin_from_tests"
    assert list(tensors(open_dump(tests / "st_compare"))) == ["foo/input.0"]
    linear = [f"0_LinearOperation/{slot}" for slot in ("input.0", "input.1", "output.0")]
    assert list(tensors(open_dump(tests / "st_opcheck"))) == linear
    notes: list[str] = []
    places = [run.place for run in list_runs(tests, notes=notes)]
    assert places == ["st_compare/msit_dump/tensors/0", "st_opcheck/msit_dump/tensors/foo/0"]
    assert (
        len(notes) == 1
        and notes[0].startswith("4 files (mocked_binary_data.bin,")
        and "not part of an execution" in notes[0]
    )


def test_a_genuine_tree_saved_again_has_the_same_files(trees: Path, tmp_path: Path) -> None:
    root = trees / "all_f0/atb_dump_data/data/0_4711/1"
    save_dump(open_dump(trees / "all_f0", 1), tmp_path / "again", "atb_tree")
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.bin")}
    again = {str(p.relative_to(tmp_path / "again")): p.read_bytes() for p in (tmp_path / "again").rglob("*.bin")}
    assert len(files) == 21 and again == files
    assert {path.name for path in (tmp_path / "again").rglob("*") if path.is_file()} == {
        *(Path(name).name for name in files),
        "sgsdump.json",
    }
    assert len(compare(open_dump(tmp_path / "again"), open_dump(root)).rows) == 21


def test_dumps_of_other_processes_pair_by_name(tmp_path: Path) -> None:
    for root, value in (("a/msit_dump_1/tensors/0_11/0", 1), ("b/atb_dump_data/data/1_22/7", 2)):
        put(tmp_path, f"{root}/0_Add/before/intensor0.bin", value)
        put(tmp_path, f"{root}/0_Add/after/outtensor0.bin", value)
    assert {row.name for row in compare(open_dump(tmp_path / "a"), open_dump(tmp_path / "b")).rows} == {
        "0_Add/input.0",
        "0_Add/output.0",
    }


@pytest.mark.parametrize(
    ("places", "choices"),
    [
        (["0_11/0", "1_12/0"], [{"rank": 0}, {"rank": 1}]),
        (["0_11/0", "0_12/0"], None),
        (["0_11/2", "0_11/10"], [{"step": 2}, {"step": 10}]),
        (["0_11/0", "1_12/1"], [{"step": 0}, {"step": 1, "rank": 1}]),
        (["x/tensors/0_1/0", "y/tensors/0_1/0"], None),
        (["0_11", "1_12"], [{"rank": 0}, {"rank": 1}]),
        (["0_11/0", "-1_12/1"], [{"rank": 0}, {"step": 1}]),
    ],
)
def test_no_name_depends_on_what_else_is_there(tmp_path: Path, places: list[str], choices: list[dict] | None) -> None:
    for number, place in enumerate(places):
        put(tmp_path, f"{place}/0_Add/after/outtensor0.bin", number)
    assert sorted(run.place for run in list_runs(tmp_path)) == sorted(places)
    for number, place in enumerate(places):
        assert first_values(open_dump(tmp_path / place)) == {"0_Add/output.0": number}
    if choices is None:
        with pytest.raises(ConfigError, match=rf"holds 2 runs \({places[0]}; {places[1]}\); name the folder of one$"):
            open_dump(tmp_path)
        return
    for number, choice in enumerate(choices):
        assert first_values(open_dump(tmp_path, **choice)) == {"0_Add/output.0": number}


def test_operators_and_slots_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    for path in (
        "10_B/after/outtensor0",
        "2_A/after/outtensor10_y",
        "2_A/after/outtensor2_x",
        "2_A/before/intensor0_q",
    ):
        put(tmp_path, f"0_1/0/{path}.bin")
    dump = open_dump(tmp_path)
    assert list(tensors(dump)) == ["2_A/input.0_q", "2_A/output.2_x", "2_A/output.10_y", "10_B/output.0"]
    assert [(r.op_index, r.slot) for r in dump.records] == [(0, 0), (0, 2), (0, 10), (1, 0)]


def test_dumped_before_and_after_the_copy_that_counts_is_taken(tmp_path: Path) -> None:
    for when, value in (("before", 1), ("after", 2)):
        put(tmp_path, f"0_1/0/0_Add/{when}/intensor0.bin", value)
        put(tmp_path, f"0_1/0/0_Add/{when}/outtensor0.bin", value)
    put(tmp_path, "0_1/0/1_Sub/after/intensor0.bin", 3)
    put(tmp_path, "0_1/0/1_Sub/before/outtensor0.bin", 4)
    dump = open_dump(tmp_path)
    assert first_values(dump) == {
        "0_Add/input.0": 1, "0_Add/output.0": 2, "1_Sub/input.0": 3, "1_Sub/output.0": 4
    }  # fmt: skip
    assert dump.notes == (
        "2 tensors were dumped before and after their operator: inputs are read from before, outputs from after",
        "1 output (0_1/0/1_Sub/before/outtensor0.bin) is dumped only before the operator ran, without its result",
    )
    assert first_values(open_dump(tmp_path / "0_1/0/0_Add/after")) == {"input.0": 2, "output.0": 2}


def test_aliases_lead_on_or_nowhere(tmp_path: Path) -> None:
    run = "0_1/0/1_Layer"
    put(tmp_path, f"{run}/9_Last/after/outtensor0.bin", 7)
    put_alias(tmp_path, f"{run}/0_A/before/intensor0.bin", "1_1_intensor3.bin")
    put_alias(tmp_path, f"{run}/1_B/before/intensor3.bin", "1_9_outtensor0.bin", "1,2")
    put_alias(tmp_path, f"{run}/2_C/before/intensor0.bin", "1_3_intensor0.bin")
    put_alias(tmp_path, f"{run}/3_D/before/intensor0.bin", "1_2_intensor0.bin")
    put_alias(tmp_path, f"{run}/4_E/before/intensor0.bin", "1_8_outtensor0.bin")
    put_alias(tmp_path, f"{run}/5_F/before/intensor0.bin", "1_9_outtensor0.bin", "3")
    put_alias(tmp_path, f"{run}/6_G/before/intensor0.bin", "../../x.bin")
    dump = open_dump(tmp_path)
    found = tensors(dump)
    assert found["1_Layer/0_A/input.0"].stored().tolist() == [7, 7]
    assert found["1_Layer/1_B/input.3"].stored().tolist() == [[7, 7]]
    reasons = {
        "2_C": "cycle", "3_D": "cycle", "4_E": "which is missing", "5_F": "another size", "6_G": "is not an alias",
    }  # fmt: skip
    for operator, why in reasons.items():
        with pytest.raises(ValuesError, match=why):
            found[f"1_Layer/{operator}/input.0"].stored()
        assert any(f"{run}/{operator}/before/intensor0.bin" in note and why in note for note in dump.notes), operator
    failed = compare(dump, dump).failed
    assert len(failed) == 5 and all("has no values" in one.reason for one in failed)


def test_an_alias_stays_in_its_layer_and_execution(tmp_path: Path) -> None:
    put_alias(tmp_path, "0_1/0/1_A/0_X/before/intensor0.bin", "1_intensor0.bin")
    put(tmp_path, "0_1/0/1_A/before/intensor0.bin", 1)
    put(tmp_path, "0_1/0/1_B/before/intensor0.bin", 2)
    put(tmp_path, "0_1/1/1_A/before/intensor0.bin", 3)
    put_alias(tmp_path, "0_1/0/2_C/before/intensor0.bin", "1_intensor0.bin")
    dump = open_dump(tmp_path, step=0)
    assert tensors(dump)["1_A/0_X/input.0"].stored().tolist() == [1, 1]
    with pytest.raises(ValuesError, match="which matches 2 files"):
        tensors(dump)["2_C/input.0"].stored()


def test_rows_and_files_that_lack_each_other(trees: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(trees / "all_f0/atb_dump_data/data/0_4711/0", root)
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    (root / "0_WordEmbedding/after/outtensor0.bin").unlink()
    csv = root / "statistic.csv"
    csv.chmod(0o644)
    header = csv.read_text().splitlines()[0]
    csv.write_text(csv.read_text() + header + "\nsome,broken,row\n")
    dump = open_dump(root)
    assert len(dump.records) == 21
    assert tensors(dump)["0_WordEmbedding/output.0"].statistics == Statistics(-1.75, 2.0, 0.125, 4.636809)
    assert dump.notes[:2] == (
        "statistic.csv has 1 malformed rows",
        "1 tensor (0_WordEmbedding/output.0) is in statistic.csv, but the file is missing",
    )


def test_links_are_followed_only_inside(tmp_path: Path) -> None:
    outside = put(tmp_path, "elsewhere/outtensor0.bin", 9)
    root = tmp_path / "tree"
    inside = put(root, "0_1/0/0_A/after/outtensor0.bin", 1)
    (root / "0_1/0/1_B/after").mkdir(parents=True)
    (root / "0_1/0/1_B/after/outtensor0.bin").symlink_to(inside)
    (root / "0_1/0/1_B/after/outtensor1.bin").symlink_to(outside)
    (root / "0_1/0/2_C").symlink_to(root / "0_1/0")
    dump = open_dump(root)
    assert first_values(dump) == {"0_A/output.0": 1, "1_B/output.0": 1}
    assert len([note for note in dump.notes if "link" in note]) == 2


def test_damaged_files_cost_themselves_only(tmp_path: Path) -> None:
    put(tmp_path, "0_A/after/outtensor0.bin", 1)
    for number in range(25):
        path = put(tmp_path, f"1_B/after/outtensor{number}.bin")
        os.truncate(path, path.stat().st_size - 1)
    (tmp_path / "1_B/kernel_tilingdata.bin").write_bytes(b"\0" * 8)
    dump = open_dump(tmp_path)
    assert list(dump) == ["0_A/output.0"]
    assert len(dump.notes) == 21 and dump.notes[-1] == "left out: 5 more files that cannot be read"
    shutil.rmtree(tmp_path / "0_A")
    with pytest.raises(FormatError, match=r"no file in .* is an ATB tensor"):
        open_dump(tmp_path)


def test_a_folder_of_other_bin_files_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/weights.bin").write_bytes(b"key=value\n" * 9)
    (tmp_path / "statistic.csv").write_text("name,value\n")
    with pytest.raises(FormatError, match=r"is a folder, not a dump: 1 \.bin, 1 \.csv\. .*--raw-dtype"):
        open_dump(tmp_path)
    put(tmp_path, "a/0_A/after/outtensor0.bin")
    dump = open_dump(tmp_path)
    assert list(dump) == ["a/0_A/output.0"] and len(dump.notes) == 2


def test_names_of_a_tree_become_its_paths(tmp_path: Path) -> None:
    names = [("in", f"{LINEAR}/input.1_x"), ("out", f"{LINEAR}/output.0"), ("out", "conv1/Relu:0"), ("out", "../../x")]
    names += [("out", "0_A/../0_B/output.0"), ("in", "0_A/output.0"), ("out", "a" * 300), ("out", "a" * 300)]
    records = [Record(io, 0, 3, "X", Tensor.of(name, np.float32([i]))) for i, (io, name) in enumerate(names)]  # type: ignore[arg-type]
    save_dump(records, tmp_path / "tree", "atb_tree")
    assert sorted(os.listdir(tmp_path)) == ["tree"]
    assert (tmp_path / f"tree/0_0/0/{LINEAR}/before/intensor1_x.bin").is_file()
    assert (tmp_path / f"tree/0_0/0/{LINEAR}/after/outtensor0.bin").is_file()
    assert (tmp_path / "tree/0_0/0/3_conv1_Relu_0/after/outtensor0.bin").is_file()
    dump = open_dump(tmp_path / "tree")
    assert [(r.io, r.name, r.tensor.stored().tolist()) for r in dump.records] == [
        (io, name, [i]) for i, (io, name) in enumerate(names)
    ]
    (tmp_path / "tree/sgsdump.json").unlink()
    assert len(open_dump(tmp_path / "tree").records) == len(names)


def test_a_manifest_leads_nowhere_else(tmp_path: Path) -> None:
    put(tmp_path, "secret.bin", 5)
    save_dump([Tensor.of("x", np.float32([1, 2]))], tmp_path / "tree", "atb_tree")
    listing = tmp_path / "tree/sgsdump.json"
    document = json.loads(listing.read_text())
    for values in ("../secret.bin", str(tmp_path / "secret.bin"), "0_0/0/../../../secret.bin", ""):
        document["records"][0]["values"] = values
        listing.write_text(json.dumps(document))
        with pytest.raises(FormatError, match="missing"):
            open_dump(tmp_path / "tree")
    document["records"][0] |= {"values": "0_0/0/0_x/after/outtensor0.bin", "dtype": "int32"}
    listing.write_text(json.dumps(document))
    with pytest.raises(FormatError, match="does not contain int32 values"):
        open_dump(tmp_path / "tree")


def test_statistics_come_back(trees: Path, tmp_path: Path) -> None:
    dump = open_dump(trees / "stats", 1)
    assert losses(dump.records, "atb_tree") == ["1 tensor has no values: writing is refused: '0_WordEmbedding/input.2'"]
    with pytest.raises(ValuesError, match="has no values"):
        save_dump(dump, tmp_path / "again", dump.format)
    records = [record for record in dump.records if record.tensor.statistics != Statistics()]
    assert losses(records, "atb_tree") == []
    save_dump(records, tmp_path / "again", "atb_tree")
    again = open_dump(tmp_path / "again")
    assert [(r.name, r.tensor.info, r.tensor.statistics) for r in again.records] == [
        (r.name, r.tensor.info, r.tensor.statistics) for r in records
    ]


def test_the_table_of_statistics_may_be_opened_alone(trees: Path, tmp_path: Path) -> None:
    folder = trees / "stats/atb_dump_data/data/0_4711/0"
    table = Path(shutil.copy(folder / "statistic.csv", tmp_path / "renamed.csv"))
    alone, whole = open_dump(table), open_dump(folder)
    assert alone.format == "atb_tree" and len(alone.records) == 19
    assert [(r.name, r.io, r.tensor.statistics) for r in alone.records] == [
        (r.name, r.io, r.tensor.statistics) for r in whole.records
    ]
    table.write_bytes(table.read_bytes()[:170])
    with pytest.raises(FormatError, match="1 malformed rows"):
        open_dump(table)


def test_the_first_of_two_rows_for_a_tensor_counts(tmp_path: Path) -> None:
    rows = [f"npu0_4711,0,Add,Add,0,output,0,float,nd,2,{most},0.0,0.5,1.0,N/A" for most in (3.0, 4.0)]
    (tmp_path / survey.NAME).write_text("\n".join([survey.HEADER, *rows, ""]))
    (record,) = open_dump(tmp_path / survey.NAME).records
    assert record.tensor.statistics is not None and record.tensor.statistics.max == 3.0


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
    assert notes == ["msit_dump_1 is not complete: it has no index.json, because the dump was stopped before its end"]
    tree(index=False, last='{"step": 1, "si')
    for path in (root / "tensors", root / "tensors" / "0_11" / "1", root / "tensors" / "0_11" / "1" / "0_Add"):
        dump = open_dump(path, step=1) if path.name == "tensors" else open_dump(path)
        assert dump.notes[-1] == "the dump is not complete: process 11 did not finish"


def test_what_the_index_says_is_told(tree):
    root = tree()
    stopped = {"pid": 11, "complete": False, "stopped": "the disk is full"}
    (root / "index.json").write_text(json.dumps({"complete": False, "processes": [stopped]}))
    notes = open_dump(root, step=0).notes
    assert notes[0].endswith("process 11 did not finish") and notes[1].endswith("the disk is full")


def test_a_process_that_says_nothing_of_its_end_is_not_complete(tree):
    root = tree()
    (root / "index.json").write_text(json.dumps({"complete": True, "processes": [{"pid": 11}]}))
    assert open_dump(root, step=0).notes == ("the dump is not complete: process 11 did not finish",)


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


LINE_PLACE = {"place": 3, "model": "Net", "id": "0", "op": "add", "folders": ["0_add"]}
VALUE = {"value": 5, "dtype": "float32", "shape": [2], "device": 1}
FIRST = {"step": 2, "at": 3, "side": "in", "moment": "before", "values": [VALUE, 5, None]}


def read(*lines):
    reader = Lines("11")
    return [
        one for line in lines for one in reader.read(line if isinstance(line, bytes) else json.dumps(line).encode())
    ]


def test_numbers_stand_for_what_was_told_before():
    first, second = read(LINE_PLACE, FIRST)
    assert first == {
        **{"model": "Net", "id": "0", "op": "add", "folders": ["0_add"], "step": 2, "side": "in", "slot": 0},
        **{"moment": "before", **VALUE, "file": "tensors/1_11/2/0_add/before/intensor0.bin"},
    }
    assert second == {**first, "slot": 1, "file": "tensors/1_11/2/0_add/before/intensor1.bin"}
    (operator,) = read(LINE_PLACE, {"step": 2, "at": 3, "event": "operator", "param": {"alpha": 1}})
    assert operator["op"] == "add" and operator["param"] == {"alpha": 1}


def test_another_step_knows_nothing_of_the_values_of_this_one():
    later = {**FIRST, "step": 3, "values": [5]}
    assert len(read(LINE_PLACE, FIRST, later)) == 2
    assert read(LINE_PLACE, FIRST, {**later, "step": 2, "slot": 7})[-1]["slot"] == 7


@pytest.mark.parametrize("kind", ["same", "link"])
def test_the_first_file_of_equal_values_stands_for_itself(kind):
    path = "tensors/1_11/2/0_add/before/intensor0.bin"
    first, second = read(LINE_PLACE, {**FIRST, "values": [{**VALUE, "stored": "11/values/0.bin", kind: path}, 5]})
    assert kind not in first and second[kind] == path


def test_what_has_no_file_says_so():
    (line,) = read(LINE_PLACE, {**FIRST, "values": [{**VALUE, "file": None, "why": "it has no elements"}]})
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
        {**LINE_PLACE, "place": []},
    ],
)
def test_a_damaged_line_says_nothing(damaged):
    assert [line for line in read(LINE_PLACE, damaged) if "side" in line] == []


def test_the_lines_of_one_step(tmp_path):
    path = tmp_path / "11" / "index.jsonl"
    path.parent.mkdir()
    others = [{**FIRST, "step": 22}, {"event": "begin"}, FIRST]
    path.write_text("".join(json.dumps(line) + "\n" for line in (LINE_PLACE, *others)) + '{"step": 2, "at"')
    assert [line.get("step") for line in lines_in(path, 2)] == [None, 2, 2]
    assert [line.get("step") for line in lines_in(path)] == [22, 22, None, 2, 2]
