"""Trees of torch dumps: runs by token and device, operators in the order they ran, types of modules, statistics."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.torch import hand_made

from sgsdump import compare, list_runs, open_dump, save_dump
from sgsdump.cli import main
from sgsdump.comparison.dataflow import first_difference
from sgsdump.dumps.formats.torch import run_index
from sgsdump.errors import ConfigError, FormatError

MODULES = {
    "name": "root",
    "type": "Net",
    "children": [
        {"name": "root.z", "type": "Linear", "children": []},
        {"name": "root.a", "type": "ReLU", "children": [{"name": "root.a.inner", "type": "Inner", "children": []}]},
    ],
}


def saved(path: Path, *values: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    of = hand_made.storage("0", elements=len(values))
    body = hand_made.tensor("0", (len(values),), (1,), of=of)
    path.write_bytes(hand_made.archive(body, {"0": struct.pack(f"<{len(values)}f", *values)}))


def run(folder: Path, token: int, *values: float) -> None:
    for name in ("root/input_0", "root.a/output", "root.a.inner/output_0_1", "root.a/input_0", "root.z/output"):
        saved(folder / str(token) / f"{name}.pth", *values)
    saved(folder / str(token) / "root.a.add.1/output.pth", *values)
    saved(folder / str(token) / "root/output.pth", *values)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two devices, two tokens and the weights."""
    for device in ("npu0_71", "npu1_72"):
        folder = tmp_path / "msit_dump_20250220_083154/torch_tensors" / device
        for token in (0, 3):
            run(folder, token, 1, 2, float(token))
        (folder / "model_tree.json").write_text(json.dumps(MODULES))
        saved(folder / "weights/root.z.weight.pth", 5)
    return tmp_path


def test_runs_are_tokens_of_devices_and_weights(tree: Path) -> None:
    found = [(run.step, run.rank, run.graph) for run in list_runs(tree)]
    assert found == [
        *((None, 0, "weights"), (None, 1, "weights")),
        *((0, 0, ""), (0, 1, ""), (3, 0, ""), (3, 1, "")),
    ]
    with pytest.raises(ConfigError, match="6 runs"):
        open_dump(tree)
    assert list(open_dump(f"{tree}@graph=weights,rank=1")) == ["root.z.weight"]
    assert open_dump(tree, 3, 1)["root/output"].stored().tolist() == [1, 2, 3]


def test_operators_stand_in_the_order_in_which_they_ran(tree: Path) -> None:
    """Modules by model_tree.json, inner before outer; what was called in a module just before it."""
    dump = open_dump(tree, 3, 0)
    assert [(record.name, record.op_type, record.io, record.slot) for record in dump.records] == [
        ("root.z/output", "Linear", "out", 0),
        ("root.a.inner/output_0_1", "Inner", "out", 0),
        ("root.a.add.1/output", "add", "out", 0),
        ("root.a/input_0", "ReLU", "in", 0),
        ("root.a/output", "ReLU", "out", 0),
        ("root/input_0", "Net", "in", 0),
        ("root/output", "Net", "out", 0),
    ]
    assert dump.format == "torch_tree" and not dump.notes


@pytest.mark.parametrize(
    "below", ["", "msit_dump_20250220_083154", "msit_dump_20250220_083154/torch_tensors/npu1_72/3"]
)
def test_names_do_not_depend_on_where_the_tree_is_opened(below: str, tree: Path) -> None:
    shutil.rmtree(tree / "msit_dump_20250220_083154/torch_tensors/npu0_71")
    for folder in ("0", "weights"):
        shutil.rmtree(tree / "msit_dump_20250220_083154/torch_tensors/npu1_72" / folder)
    assert list(open_dump(tree / below))[:2] == ["root.z/output", "root.a.inner/output_0_1"]
    assert [(run.step, run.rank) for run in list_runs(tree / below)] == [(3, 1)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 3}', '{"name": "root", "children": 7}', "[" * 100_000])
def test_a_damaged_model_tree_costs_the_types_only(text: str, tree: Path) -> None:
    for path in tree.rglob("model_tree.json"):
        path.write_text(text)
    assert len(open_dump(tree, 3, 0)) == 7


def line(name: str, **more) -> str:
    module, _, side = name.partition("/")
    io = "in" if side.startswith("input") else "out"
    plain = {"name": name, "file": f"{name}.pth", "module": module, "type": "T", "side": io, "slot": 0}
    return json.dumps({**plain, "dtype": "float32", "shape": [3], "stats": None, **more}) + "\n"


def test_an_index_gives_the_order_statistics_and_whether_the_run_is_complete(tree: Path) -> None:
    (folder,) = tree.rglob("npu0_71/3")
    statistics = {"max": 2.0, "min": float("-inf"), "mean": float("nan"), "l2norm": 3}
    lines = [line("root/input_0"), line("root.a/output"), line("root.x/output", file=None, stats=statistics)]
    (folder / "index.jsonl").write_text("".join(lines) + '{"complete": true}\n')
    dump = open_dump(tree, 3, 0)
    assert list(dump) == ["root/input_0", "root.a/output", "root.x/output"]
    assert dump["root.x/output"].statistics.min == float("-inf") and dump["root.x/output"].statistics.l2norm == 3
    assert dump.notes == (
        "left out: 5 files that are not in the index: "
        "root.a.add.1/output.pth, root.a.inner/output_0_1.pth, root.a/input_0.pth",
    )
    (folder / "index.jsonl").write_text("".join(lines)[:-9])
    notes = open_dump(tree, 3, 0).notes
    assert "left out 1 lines that are cut off" in notes[0] and "is not complete" in notes[1]
    (folder / "index.jsonl").write_text("")  # killed before the first file had its line
    begun = open_dump(tree, 3, 0)
    assert "root/input_0" in begun and "is not complete" in begun.notes[0]


@pytest.mark.parametrize("file", ["../0/root/output.pth", "/etc/passwd", "gone.pth", 7, None])
def test_an_index_leads_nowhere_else(file, tree: Path) -> None:
    (folder,) = tree.rglob("npu0_71/3")
    (folder / "index.jsonl").write_text(line("root/output", file=file) + line("root.a/output") + '{"complete": true}\n')
    dump = open_dump(tree, 3, 0)
    assert list(dump) == ["root.a/output"]
    assert dump.notes[0] == "left out: 1 tensors of the index that have neither a file nor statistics"


def test_an_index_that_is_a_link_is_not_read(tree: Path) -> None:
    (folder,) = tree.rglob("npu0_71/3")
    elsewhere = tree.parent / "elsewhere.jsonl"
    elsewhere.write_text(line("root.a/output") + '{"complete": true}\n')
    (folder / "index.jsonl").symlink_to(elsewhere)
    notes: list[str] = []
    assert run_index.read(folder, notes) is None and not notes
    assert len(open_dump(tree, 3, 0)) > 1


def test_statistics_alone_are_a_tree_too(tmp_path: Path) -> None:
    folder = tmp_path / "cpu_9" / "0"
    folder.mkdir(parents=True)
    (folder.parent / "model_tree.json").write_text("{}")
    stats = {"max": 2.0, "min": 1.0, "mean": 1.5, "l2norm": 3.0}
    (folder / "index.jsonl").write_text(line("root/output", file=None, stats=stats) + '{"complete": true}\n')
    for place in (tmp_path, folder):
        assert open_dump(place)["root/output"].statistics.mean == 1.5


def test_any_folder_of_torch_files_is_a_dump(tmp_path: Path) -> None:
    saved(tmp_path / "b/x.pt", 1)
    saved(tmp_path / "a.pth", 2)
    many = hand_made.named({"p": hand_made.tensor(), "q": hand_made.tensor()})
    (tmp_path / "c.pt").write_bytes(hand_made.archive(many, {"0": bytes(16)}))
    (tmp_path / "broken.pt").write_bytes(b"PK\3\4 broken")
    dump = open_dump(tmp_path)
    assert list(dump) == ["a", "c.p", "c.q", "b/x"] and not list_runs(tmp_path)
    assert len(dump.notes) == 1 and "broken.pt" in dump.notes[0]


def test_in_a_plain_folder_an_input_is_an_output_like_any_other(tmp_path: Path) -> None:
    """Only beside an operator of a run a file called input is what it read."""
    for name in ("input", "layer1"):
        (tmp_path / f"{name}.pth").write_bytes(hand_made.archive(hand_made.tensor("0", (4,)), {"0": bytes(16)}))
    dump = open_dump(tmp_path)
    assert [(record.name, record.io) for record in dump.records] == [("input", "out"), ("layer1", "out")]


def test_a_folder_whose_files_are_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(b"import site")
    with pytest.raises(FormatError, match=r"\.pth files of torch_tensors"):
        open_dump(tmp_path)


def test_the_first_operator_that_differs_is_named_with_its_inputs(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree / "msit_dump_20250220_083154", other)
    (changed,) = other.rglob("npu0_71/3/root.a/output.pth")
    saved(changed, 1, 2, 4)
    comparison = compare(open_dump(other, 3, 0), open_dump(tree / "msit_dump_20250220_083154", 3, 0))
    first = first_difference(comparison)
    assert first is not None and first.output.name == "root.a/output"
    assert [row.name for row in first.inputs] == ["root.a/input_0"] and first.own == first.output.rmse == 1 / 6
    assert str(first) == (
        "output RMSE 0.167; all inputs are equal in both dumps (root.a/input_0); the operator's own error is 0.167"
    )
    saved(changed.with_name("input_0.pth"), 1, 2, 3.5)
    first = first_difference(compare(open_dump(other, 3, 0), open_dump(tree / "msit_dump_20250220_083154", 3, 0)))
    assert str(first) == "output RMSE 0.167, inputs root.a/input_0 RMSE 0.0833, own error 0.0833"


def test_the_cards_operators_are_compared_with_the_modules_by_mindies_mapping_files(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "cpu_7/0/root.layer1.0.relu/output.pth", 1, 2, 3)
    save_dump({"Conv2D_5Relu_8:output:0": np.float32([1, 2, 3])}, tmp_path / "card.npz")
    folder = shared / "ascend" / "op_mapping"
    files = [f"--name-map={folder / f'mindie_{side}_op_mapping.json'}" for side in ("torch", "rt")]
    assert main(["compare", str(tmp_path / "card.npz"), str(tmp_path / "cpu_7"), *files, "--max-rmse", "1e-6"]) == 0
    out = capsys.readouterr().out
    assert {"Compared: 1 of 1 layer.", "Paired tensors: 1 by MindIE map."} <= {*out.splitlines()}


def test_no_difference_is_none(tree: Path) -> None:
    assert first_difference(compare(open_dump(tree, 3, 0), open_dump(tree, 3, 1))) is None
