"""Folders of transformers' model debugger: genuine ones with planted faults, what a tree may hold, and damage."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly
from platforms import unix_only

from sgsdump import Dump, compare, list_runs, open_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.statistics import Statistics

pytest.importorskip("safetensors")
FULL = "Net_debug_tree_FULL_TENSORS.json"


def tensor(shape: str = "2, 3", value: Any = None, **more: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("mean", "std", "min", "max"), "tensor(1.5000e+00)")
    return {"shape": f"torch.Size([{shape}])", "dtype": "torch.float32", "value": value, **figures, **more}


def whole(shape: str = "3", lines: str = "tensor([1, 2, 3])") -> dict[str, Any]:
    return {"shape": f"torch.Size([{shape}])", "dtype": "torch.int64", "value": [lines]}


def node(path: str, *children: Any, **sides: Any) -> dict[str, Any]:
    return {"module_path": path, **sides, **({"children": list(children)} if children else {})}


def opened(tmp_path: Path, tree: Any, **files: np.ndarray) -> Dump:
    from safetensors.numpy import save_file

    tmp_path.mkdir(exist_ok=True)
    (tmp_path / FULL).write_text(json.dumps(tree))
    for name, array in files.items():
        save_file({"data": array}, tmp_path / f"{name}.safetensors")
    return open_dump(tmp_path)


def verdict(sample: Path | Dump, benchmark: Path | Dump) -> str:
    return REPORTS["verdict"](compare(sample, benchmark), Thresholds())  # type: ignore[no-any-return]


class TestReadOnly(ReadOnly):
    format = "transformers_debug"
    file_name = FULL
    inner = node("Net.a", inputs={"args": [tensor()]}, outputs=tensor())
    data = json.dumps(node("Net", inner, inputs={"args": [tensor("1")]})).encode()


def test_names_and_places(tmp_path: Path) -> None:
    nested = {"a": tensor(), "b": [tensor(), [tensor(), "None"]]}
    layer = node("Net.layers.0", inputs={"args": ["3"], "kwargs": {"x": tensor(), "flag": "True"}}, outputs=nested)
    tree = node("Net", layer, layer, inputs={"args": [tensor()], "kwargs": {"scale": "2.5", "mode": "'max'"}})
    dump = opened(tmp_path, tree)
    names = ["layers.0/input.x", "layers.0/output.a", "layers.0/output.b.0", "layers.0/output.b.1.0"]
    again = [name.replace("layers.0", "layers.0/call1") for name in names]
    assert list(dump) == ["input.0", *names, *again]
    assert [(r.io, r.slot, r.op_index) for r in dump.records[:5]] == [
        ("in", 0, 0),
        ("in", 1, 1),
        ("out", 0, 1),
        ("out", 1, 1),
        ("out", 2, 1),
    ]
    network = dump.network()
    assert [network[index].module for index in range(3)] == ["", "layers.0", "layers.0"]
    assert network[0].arguments == {"scale": "2.5", "mode": '"max"'}
    assert network[1].arguments == {"0": "3", "flag": "true"} and network[1].is_module


def test_statistics_of_all_kinds(tmp_path: Path) -> None:
    odd = tensor(min="tensor(-inf, dtype=torch.bfloat16)", max="tensor(nan, device='cuda:0')", mean="tensor(inf)")
    single = tensor("", std="tensor(nan)")
    cut, text = whole("9", "tensor([1, ..., 3])"), whole()
    dump = opened(tmp_path, node("Net", inputs={"args": [tensor(), odd, single, cut, text]}))
    found = [record.tensor.statistics for record in dump.records]
    assert found[0] == Statistics(1.5, 1.5, 1.5, count=6, std=1.5, digits=5)
    assert found[1] is not None and (found[1].min, found[1].mean) == (-math.inf, math.inf)
    assert found[1].max is not None and math.isnan(found[1].max)
    assert found[2] == Statistics(1.5, 1.5, 1.5, count=1, digits=5)
    assert found[3] == Statistics()
    assert found[4] is not None and found[4].checksum is not None and found[4].checksum.startswith("text:")
    with pytest.raises(ValuesError, match="only statistics were dumped"):
        dump["input.0"].raw()
    with pytest.raises(ValuesError, match="no numbers of this type"):
        dump["input.3"].raw()


def test_the_last_digit_of_the_text_is_no_difference(tmp_path: Path) -> None:
    def run(folder: str, text: str) -> Dump:
        return opened(tmp_path / folder, node("Net", inputs={"args": [tensor(max=f"tensor({text})")]}))

    near, far = (compare(run(text, text), run("b", "1.2345e+01")).rows[0] for text in ("1.2346e+01", "1.2347e+01"))
    assert near.error == 0 and far.error == pytest.approx(2e-3 / 12.345)


def test_values_come_from_files_except_of_overwritten_ones(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    call = node("Net.fc", outputs=tensor(value="./Net.fc_outputs.safetensors"))
    dump = opened(tmp_path, node("Net", call, call), **{"Net.fc_outputs": array})
    assert list(dump) == ["fc/output.0", "fc/call1/output.0"]
    np.testing.assert_array_equal(dump["fc/call1/output.0"].real(), array)
    assert dump["fc/output.0"].statistics == Statistics(1.5, 1.5, 1.5, count=6, std=1.5, digits=5)
    assert "overwrote" in dump.notes[0] and not dump.damage


@pytest.mark.parametrize(
    "value", ["./../secret.safetensors", "/etc/passwd", "./a/b.safetensors", "./", "./gone", "a\0b"]
)
def test_no_file_outside_the_folder_is_read(value: str, tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(b"x")
    dump = opened(tmp_path / "run", node("Net", outputs=tensor(value=value)))
    assert dump.damage and dump["output.0"].statistics is not None
    with pytest.raises(ValuesError) as caught:
        dump["output.0"].raw()
    assert "\n" not in str(caught.value)


@unix_only
def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    opened(tmp_path / "other", node("Net", outputs=tensor()), x=np.zeros((2, 3), np.float32))
    run = tmp_path / "run"
    opened(run, node("Net", outputs=tensor(value="./x.safetensors")))
    (run / "x.safetensors").symlink_to(tmp_path / "other" / "x.safetensors")
    assert open_dump(run).damage
    (run / FULL).unlink()
    (run / FULL).symlink_to(tmp_path / "other" / FULL)
    with pytest.raises(FormatError):
        open_dump(run)


def test_a_file_of_another_tensor_is_told(tmp_path: Path) -> None:
    facts = tensor(value="./x.safetensors")
    dump = opened(tmp_path, node("Net", outputs=facts), x=np.zeros((3, 3), np.float32))
    with pytest.raises(FormatError, match=r"holds float32 \[3, 3\], but the debug tree declares float32 \[2, 3\]"):
        dump["output.0"].raw()
    for data in (b"", b"abc", b"\xff" * 40):
        (tmp_path / "x.safetensors").write_bytes(data)
        with pytest.raises(FormatError) as caught:
            open_dump(tmp_path)["output.0"].raw()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        (node("Net"), "no tensor"),
        ({"module_path": 3}, "no module_path"),
        (node("Net", 5), "no module_path"),
        ({"module_path": "Net", "children": 5}, "not a list"),
        (node("Net", outputs=tensor("2, -3")), "impossible shape|no tensor"),
        (node("Net", outputs=tensor("9" * 20)), "impossible shape"),
        (node("Net", outputs=tensor(", ".join(["99999999999"] * 4))), "is invalid: numpy cannot make"),
    ],
)
def test_damage_is_told(tree: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=match) as caught:
        opened(tmp_path, tree)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_deep_trees_are_refused(tmp_path: Path) -> None:
    tree = node("Net", outputs=tensor())
    for _ in range(150):
        tree = node("Net", tree)
    with pytest.raises(FormatError, match="levels"):
        opened(tmp_path, tree)


def test_several_models_are_runs(tmp_path: Path, shared: Any) -> None:
    shutil.copytree(shared / "peers/transformers/text_good", tmp_path / "run")
    opened(tmp_path / "one", node("Other", outputs=tensor()))
    shutil.copy(tmp_path / "one" / FULL, tmp_path / "run" / FULL.replace("Net", "Other"))
    assert [run.graph for run in list_runs(tmp_path / "run")] == ["Net", "Other"]
    assert list(open_dump(f"{tmp_path / 'run'}@graph=Other")) == ["output.0"]
    assert len(open_dump(tmp_path / "run" / FULL)) > 20
    with pytest.raises(ConfigError, match="graph"):
        open_dump(tmp_path / "run")


def test_a_tree_that_only_its_summary_replaces_is_noted(tmp_path: Path, shared: Any) -> None:
    source = shared / "peers/transformers"
    folder = next(path.parent for path in sorted(source.rglob("*_debug_tree_SUMMARY.json")))
    shutil.copytree(folder, tmp_path / "tree")
    (file,) = (tmp_path / "tree").glob("*_debug_tree_SUMMARY.json")
    file.with_name(file.name.replace("SUMMARY", "FULL_TENSORS")).write_text("")
    dump = open_dump(tmp_path / "tree")
    assert any("is empty or damaged; the statistics are those of" in note for note in dump.notes)


def test_a_summary_alone_has_the_statistics(tmp_path: Path, shared: Any) -> None:
    folder = tmp_path / "run"
    shutil.copytree(shared / "peers/transformers/text_good", folder)
    complete = {name: tensor.statistics for name, tensor in open_dump(folder).items()}
    (folder / FULL).unlink()
    assert {name: tensor.statistics for name, tensor in open_dump(folder).items()} == complete


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("eps", "layers.1.norm/output.0"), ("weight", "layers.2.fc1/output.0"), ("gelu", "layers.1.act/output.0")],
)
def test_the_cause_names_a_planted_fault(fault: str, cause: str, shared: Any) -> None:
    folder = shared / "peers/transformers"
    found = verdict(folder / f"text_{fault}", folder / "text_good").splitlines()
    assert f"Cause: operator {cause}: all its inputs are equal" in found[1]


def test_values_against_statistics_and_values(shared: Any) -> None:
    folder = shared / "peers/transformers"
    values, text = folder / "files_good", folder / "text_good"
    found = compare(text, values)
    assert len(found.rows) == 30 and max(row.error for row in found.rows) < 1e-4
    assert set(found["layers.0.fc1/output.0"].statistics) == {"min", "max", "mean", "std"}
    assert "Cause: operator layers.1.norm/output.0" in verdict(folder / "files_eps", values)
    assert verdict(values, shared / "peers/debug_mode/full_good.txt").splitlines()[1].startswith("No cause")


@pytest.mark.parametrize("use_repr", [True, False])
def test_runs_of_the_installed_transformers(use_repr: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers.model_debugging_utils")
    from dumps.formats import peer_programs

    def run(name: str, fault: str, dtype: str = "float32") -> Path:
        net, x = peer_programs.network(fault), peer_programs.data()
        element_type = getattr(torch, dtype)
        return peer_programs.debug_tree(net.to(element_type), x.to(element_type), tmp_path / name, use_repr)

    good = run("good", "good")
    assert open_dump(good).format == "transformers_debug"
    assert verdict(run("again", "good"), good).startswith("EQUAL")
    assert verdict(run("half", "good", "bfloat16"), good).splitlines()[1].startswith("No ")
    for fault, module in (("eps", "layers.1.norm"), ("weight", "layers.2.fc1"), ("gelu", "layers.1.act")):
        assert module in verdict(run(fault, fault), good).splitlines()[1]
