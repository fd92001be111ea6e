"""What was not compared: damaged, absent and fused layers decide "x of y", exit status and JUnit, in any container."""

import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest
from dumps.formats.ascend.wire import FLOAT, Item, operator_file
from json_documents import checked

import sgsdump
from sgsdump.cli import main
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor

NAMES = ("conv1", "relu1", "conv2", "fc")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of .npy files and an .npz of the same layers."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((1, 4, 4, 8)).astype(np.float32) for name in NAMES}
    np.savez("b.npz", **arrays)
    (tmp_path / "a").mkdir()
    for name, array in arrays.items():
        np.save(f"a/{name}.npy", array)
    return tmp_path


def run(capsys, *words):
    status = main(["compare", *map(str, words)])
    told = capsys.readouterr()
    return status, told.out, told.err


def emptied(place):
    (place / "a/relu1.npy").write_bytes(b"")


def cut(place):
    path = place / "a/relu1.npy"
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize("damage", [emptied, cut])
@pytest.mark.parametrize("limits", [(), ("--max-rmse", "0.1"), ("--max-rmse", "0.1", "--allow-missing")])
def test_a_damaged_file_is_status_2_after_the_rest_was_compared(place, capsys, damage, limits):
    damage(place)
    status, out, err = run(capsys, "a", "b.npz", "--junit", "j.xml", "--json", "c.json", *limits)
    assert status == 2 and "Compared: 3 of 4 layers" in out and "fused" not in out
    assert err.startswith("sgsdump: error: cannot read every tensor of both dumps:") and "relu1.npy" in err
    assert err.count("\n") == 1
    cases = ElementTree.parse("j.xml").getroot().iter("testcase")
    assert sum(case.find("error") is not None for case in cases) == 1
    whole = checked(place / "c.json")["completeness"]
    assert whole["missing"] == ["relu1"] and not whole["is_complete"] and "relu1.npy" in whole["damaged"][0]


def test_a_member_of_an_npz_with_a_wrong_checksum_is_status_2_without_limits(place, capsys):
    data = bytearray((place / "b.npz").read_bytes())
    with zipfile.ZipFile("b.npz") as archive:
        data[archive.getinfo("conv2.npy").header_offset + 400] ^= 0xFF
    (place / "bad.npz").write_bytes(data)
    status, out, err = run(capsys, "bad.npz", "a")
    assert status == 2 and "conv2" in err and "Compared: 3 of 4 layers" in out


@pytest.mark.parametrize("damage", [emptied, cut])
def test_a_damaged_file_of_the_benchmark_counts_as_a_layer(place, capsys, damage):
    damage(place)
    status, out, _ = run(capsys, "b.npz", "a")
    assert status == 2 and "Compared: 3 of 4 layers" in out


def test_absent_layers_are_missing_whatever_the_containers(place, capsys):
    for name in NAMES[:-1]:
        (place / f"a/{name}.npy").unlink()
    status, out, _ = run(capsys, "a", "b.npz", "--max-rmse", "0.1", "--junit", "j.xml")
    assert status == 1 and "Compared: 1 of 4 layers" in out and "fused" not in out
    assert int(ElementTree.parse("j.xml").getroot().get("failures")) >= 3
    assert run(capsys, "a", "b.npz")[0] == 0  # nothing is damaged, and no limit was given
    assert run(capsys, "a", "b.npz", "--max-rmse", "0.1", "--exclude", "conv*", "--exclude", "relu1")[0] == 0


def test_what_is_whole_and_no_tensor_is_no_damage(place, capsys):
    np.save("a/labels.npy", np.array([{"cat": 1}], object), allow_pickle=True)
    status, out, _ = run(capsys, "a", "b.npz", "--max-rmse", "0.1")
    assert status == 0 and "holds Python objects" in out


def test_the_judge_does_not_pass_over_damage_either(place, capsys):
    emptied(place)
    assert main(["judge", "a", "b.npz", "b.npz"]) == 2
    assert "relu1.npy" in capsys.readouterr().err


def test_every_file_of_a_tree_that_is_emptied_cut_or_deleted_is_noticed(place, capsys):
    tree = place / "ge"
    tree.mkdir()
    values = np.random.default_rng(3).standard_normal((4, 2, 4)).astype("<f4")
    for number in range(3):
        items = [[Item(values[side].tobytes(), FLOAT, (2, 4))] for side in (number, number + 1)]
        (tree / f"Relu.layer{number}.{number}.2.170000000{number}123456").write_bytes(operator_file(*items))
    assert main(["convert", "ge", "ge.npz"]) == 0
    assert run(capsys, "ge", "ge.npz", "--max-rmse", "0.1")[0] == 0
    for path in sorted(tree.iterdir()):
        data = path.read_bytes()
        for left in (b"", data[: len(data) // 2], data[:-8]):
            path.write_bytes(left)
            assert run(capsys, "ge", "ge.npz", "--max-rmse", "0.1")[0] == 2, (path, len(left))
            assert run(capsys, "ge", "ge.npz")[0] == 2
        path.unlink()
        assert run(capsys, "ge", "ge.npz", "--max-rmse", "0.1")[0] == 1, path
        path.write_bytes(data)


def test_fusion_is_believed_where_the_samples_own_graph_shows_it(tmp_path):
    """The sample records what its operators read: all of that is there, so what lacks was inside an operator."""
    values = {name: np.random.default_rng(i).random((1, 2, 2, 4), np.float32) for i, name in enumerate(NAMES)}

    def record(io, index, name):
        return Record(io, 0, index, "Conv", Tensor.of(name, values[name]))

    fused = [record("out", 0, "relu1"), record("in", 1, "relu1"), record("out", 1, "conv2")]
    fused += [record("in", 2, "conv2"), record("out", 2, "fc")]
    benchmark = Dump([record("out", i, name) for i, name in enumerate(NAMES)])
    comparison = sgsdump.compare(Dump(fused), benchmark)
    assert comparison.completeness.fused == ("conv1",) and comparison.is_complete and comparison.of == 3
    lost = sgsdump.compare(Dump([r for r in fused if not (r.io == "out" and r.name == "conv2")]), benchmark)
    assert "conv2" in lost.completeness.missing and not lost.is_complete
