"""Trees of several runs in every command that opens a dump."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sgsdump import open_dump, save_dump
from sgsdump.cli import main


def array(step: int, rank: int) -> np.ndarray:
    return np.float32([[1 + step, 2 + rank], [3, 4]])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Steps 0 and 2 of ranks 0 and 1, an ATB tree."""
    for step in (0, 2):
        for rank in (0, 1):
            save_dump({"0_Add/output.0": array(step, rank)}, tmp_path / "one", "atb_tree")
            (tmp_path / "one/sgsdump.json").unlink()
            target = tmp_path / f"tree/tensors/{rank}_4711/{step}"
            target.parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "one/0_0/0").rename(target)
            shutil.rmtree(tmp_path / "one")
    return tmp_path / "tree"


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_show_lists_the_runs_and_shows_the_one_that_is_chosen(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "show", tree)
    assert status == 0
    assert [line.split() for line in out.splitlines()[:5]] == [
        ["step", "rank", "graph", "folder"],
        *[[str(step), str(rank), "-", f"tensors/{rank}_4711/{step}"] for step in (0, 2) for rank in (0, 1)],
    ]
    assert out.splitlines()[5].startswith("4 runs;")
    status, out, _ = said(capsys, "show", tree, "--step", 2)
    assert status == 0 and "2 runs;" in out
    for words in (["--step", 2, "--rank", 1, tree], [f"{tree}@step=2,rank=1"], [f"{tree}@step=2", "--rank", 1]):
        status, out, _ = said(capsys, "show", *words, "0_Add/output.0")
        assert status == 0 and "3" in out and "float32, [2, 2]" in out
    status, _, err = said(capsys, "show", tree, "0_Add/output.0")
    assert status == 2 and err.count("\n") == 1 and "choose one run with --step and --rank" in err
    status, _, err = said(capsys, "show", tree, "--csv", tree.parent / "x.csv")
    assert status == 2 and "holds 4 runs" in err and not (tree.parent / "x.csv").exists()


def test_convert_split_merge_and_histogram_take_one_run(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [
        ["convert", tree, tmp_path / "x.npz"],
        ["split", tree, tmp_path / "parts", "--to", "npz"],
        ["merge", f"{tree}@rank=1", tmp_path / "merged.npz"],
        ["histogram", tree, "-o", tmp_path / "pictures"],
    ]
    for words in commands:
        status, _, err = said(capsys, *words)
        assert status == 2 and err.count("\n") == 1 and "runs" in err
        hint = f"write {tree}@rank=1,step=…\n" if "@" in str(words[1]) else f"--rank, or write {tree}@step=…,rank=…\n"
        assert err.endswith(hint)
        assert not Path(words[-1] if words[0] != "split" else words[2]).exists()
    for words in commands[:2] + commands[3:]:
        assert said(capsys, *words, "--step", 2, "--rank", 1)[0] == 0
    assert open_dump(tmp_path / "x.npz")["0_Add/output.0"].stored().tolist() == array(2, 1).tolist()
    words = [f"{tree}@step={step},rank=1" for step in (0, 2)]
    assert said(capsys, "merge", *words, tmp_path / "merged.npz", "--prefix")[0] == 0
    assert len(open_dump(tmp_path / "merged.npz")) == 2
    assert (
        said(capsys, "merge", tree, tmp_path / "x.npz", tmp_path / "m.npz", "--step", 2, "--rank", 0, "--prefix")[0]
        == 0
    )
    assert list(open_dump(tmp_path / "m.npz")) == ["tree/0_Add/output.0", "x/0_Add/output.0"]
    status, _, err = said(capsys, "merge", tmp_path / "x.npz", tmp_path / "n.npz", "--step", 2)
    assert status == 2 and "none of these dumps is a tree" in err
    status, _, err = said(capsys, "convert", f"{tree}@step=0,rank=0", tree)
    assert status == 2 and "this command reads or writes that file already" in err and list(tree.iterdir())


def changed(tree: Path, step: int, rank: int, value: float) -> None:
    values = array(step, rank)
    values[1, 1] = value
    save_dump({"0_Add/output.0": values}, tree.parent / "two", "atb_tree")
    source = tree.parent / "two/0_0/0/0_Add/after/outtensor0.bin"
    source.replace(tree / f"tensors/{rank}_4711/{step}/0_Add/after/outtensor0.bin")
    shutil.rmtree(tree.parent / "two")


def test_trees_are_compared_run_by_run(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    status, out, _ = said(capsys, "compare", tree, other)
    assert status == 0 and out.endswith("Runs compared: 4; different: 0.\n")
    changed(other, 2, 1, 40)
    changed(other, 2, 0, 5)
    words = ["--max-rmse", 0.5, "--csv", tmp_path / "r.csv", "--json", tmp_path / "r.json"]
    words += ["--junit", tmp_path / "r.xml", "--markdown", tmp_path / "r.md"]
    status, out, _ = said(capsys, "compare", tree, other, *words)
    titles = [line for line in out.splitlines() if line.startswith("== ")]
    assert titles == [f"== step {step}, rank {rank}" for step in (0, 2) for rank in (0, 1)]
    assert out.splitlines()[-2:] == [
        "Runs compared: 4; different: 2.",
        "The first run that differs is step 2, rank 0: 1 of 1 layers, first 0_Add/output.0",
    ]
    assert status == 1
    names = [f"r.step{step}-rank{rank}" for step in (0, 2) for rank in (0, 1)]
    for ending in ("csv", "json", "xml", "md"):
        assert sorted(path.stem for path in tmp_path.glob(f"r.*.{ending}")) == names
    with open(tmp_path / "r.step2-rank0.csv", newline="") as file:
        row = next(csv.DictReader(file))
    assert row["name"] == "0_Add/output.0" and float(row["mse"]) == 0.25
    assert json.loads((tmp_path / "r.step0-rank1.json").read_text())
    status, out, _ = said(capsys, "compare", tree, other, "--rank", 1, "--step", 0)
    assert status == 0 and "==" not in out


def test_runs_without_a_partner_and_other_trouble_are_told(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    shutil.rmtree(other / "tensors/1_4711/2")
    (other / "tensors/0_4711/2/0_Add").rename(other / "tensors/0_4711/2/0_Mul")
    status, out, _ = said(capsys, "compare", tree, other)
    assert status == 2 and "not compared: no layer in common" in out
    assert "Only in the sample: step 2, rank 1" in out
    assert "Runs compared: 3; different: 0; with layers that cannot be compared: 1." in out
    status, _, err = said(capsys, "compare", tree, other, "--write-name-map", tmp_path / "names.json")
    assert status == 2 and "--write-name-map is for one run" in err
    status, _, err = said(capsys, "judge", tree, tree, tree)
    assert status == 2 and "holds 4 runs" in err
    status, out, _ = said(capsys, "compare", f"{tree}@step=0", f"{other}@step=2")
    assert "== step 0, rank 0 against step 2, rank 0\n" in out and "Only in the sample: step 0, rank 1" in out
    shutil.rmtree(other / "tensors/0_4711")
    shutil.copytree(other / "tensors/1_4711/0", other / "tensors/1_4711/5")
    status, _, err = said(capsys, "compare", f"{tree}@rank=0", f"{other}@rank=1", "--step", 0)
    assert status == 0 and not err
    shutil.rmtree(other / "tensors/1_4711/0")
    (other / "tensors/1_4711/5").rename(other / "tensors/1_4711/6")
    status, _, err = said(capsys, "compare", tree, other)
    assert status == 2 and err.count("\n") == 1 and "has the same step and rank as a run of" in err


def test_a_missing_run_is_in_the_first_line_and_has_files_of_its_own(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    shutil.rmtree(other / "tensors/1_4711/2")
    words = ["--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml", "--markdown", tmp_path / "r.md"]
    status, out, _ = said(capsys, "compare", other, tree, *words)
    assert status == 0 and out.splitlines()[0] == "Missing in the sample: 1 run: step 2, rank 1"
    assert said(capsys, "compare", other, tree, "--max-rmse", 0.5)[0] == 1
    assert said(capsys, "compare", other, tree, "--max-rmse", 0.5, "--allow-missing")[0] == 0
    document = json.loads((tmp_path / "r.step2-rank1.json").read_text())
    assert document["findings"][0] | {"kind": "missing", "names": ["step 2, rank 1"]} == document["findings"][0]
    assert document["completeness"]["runs"] == ["step 2, rank 1"] and not document["completeness"]["is_complete"]
    assert 'failures="1"' in (tmp_path / "r.step2-rank1.xml").read_text()
    assert "INCOMPLETE: the sample lacks 1 run" in (tmp_path / "r.step2-rank1.md").read_text()
    (other / "tensors/0_4711/2/0_Add/after/outtensor0.bin").write_bytes(b"$Version=")
    status, _, err = said(capsys, "compare", other, tree)
    assert status == 2 and "step 2, rank 0" in err


def test_a_run_is_held_against_a_dump_that_is_no_tree(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_dump({"0_Add/output.0": array(2, 1)}, tmp_path / "golden.npz")
    status, out, _ = said(capsys, "compare", tree, tmp_path / "golden.npz", "--step", 2, "--rank", 1)
    assert status == 0 and out.startswith("EQUAL: the only layer is equal.\n")
    status, _, err = said(capsys, "compare", tree, tmp_path / "golden.npz")
    assert status == 2 and "holds 4 runs" in err
    status, _, err = said(capsys, "compare", tmp_path / "golden.npz", tmp_path / "golden.npz", "--step", 2)
    assert status == 2 and "is a single dump, not a tree of runs" in err


def test_a_genuine_tree_of_statistics_is_held_against_one_of_values(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its integers without values were asked for their padding, and the whole comparison ended there."""
    trees = shared / "ascend/atb_dump_tree"
    status, out, err = said(capsys, "compare", trees / "stats", trees / "all_f0")
    assert status == 0 and not err
    assert "== step 1, rank 0" in out and "Runs compared: 2; different: " in out
    assert out.count("Compared: ") == 2


def test_runs_known_by_the_same_have_files_by_their_folders(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tensors/1_4711").rename(tree / "tensors/0_4712")
    status, out, _ = said(capsys, "compare", tree, tree, "--json", tmp_path / "r.json")
    assert status == 0 and "Runs compared: 4; different: 0." in out
    assert sorted(path.name for path in tmp_path.glob("r.*.json")) == [
        f"r.tensors_0_471{process}_{step}.json" for process in (1, 2) for step in (0, 2)
    ]


def test_the_names_of_folders_do_not_reach_the_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        save_dump({"0_Add/output.0": array(0, 0)}, tmp_path / "one", "atb_tree")
        (tmp_path / "one/sgsdump.json").unlink()
        (tmp_path / f"tree/a\x1b[31m\nb{number}").mkdir(parents=True)
        (tmp_path / "one/0_0/0").rename(tmp_path / f"tree/a\x1b[31m\nb{number}/{number}")
        shutil.rmtree(tmp_path / "one")
    status, out, _ = said(capsys, "show", tmp_path / "tree")
    assert status == 0 and "\x1b" not in out and len(out.splitlines()) == 4
    status, out, _ = said(capsys, "compare", tmp_path / "tree", tmp_path / "tree")
    assert status == 0 and "\x1b" not in out


def test_the_runs_of_trees_are_merged_as_folders_of_dumps_are(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    changed(other, 2, 1, 40)
    status, out, _ = said(capsys, "compare", tree, other, "--runs", "--rank", 1, "--format", "sdk")
    assert status == 0 and "Runs compared: 2." in out and "step 2, rank 1" in out
    rows = [line for line in out.splitlines() if "OP_TYPE" in line]
    assert len(rows) == 1 and "MSE:162.000000" in rows[0]  # 36 * 36 in one of the 8 values of both runs


def test_the_worst_values_are_those_of_the_chosen_run(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["0_Add/output.0", "--against", tree, "--worst", 1]
    assert said(capsys, "show", f"{tree}@rank=0,step=2", *words[:2], f"{tree}@rank=1,step=2", *words[3:])[0] == 0
    assert said(capsys, "show", tree, *words, "--step", 2, "--rank", 1)[0] == 0
    status, _, err = said(capsys, "show", tree, *words)
    assert status == 2 and "holds 4 runs" in err
