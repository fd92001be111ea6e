"""Names of fused layers, as TensorRT makes them, against the operators of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, compare, open_dump
from sgsdump.cli import main
from sgsdump.comparison.naming.pairs_by_fusion import is_fused, last_part
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.reports.comparison import REPORTS

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "vendors"
FUSED = {
    "/conv1/Conv + /relu1/Relu": "/relu1/Relu_output_0",
    "/block/conv2/Conv + /block/Add + /block/relu/Relu": "/block/relu/Relu_output_0",
    "PWN(/fc/Gemm + /Softmax)": "prob",
}


def values(changed: str = "") -> list[Record]:
    made = []
    for index, name in enumerate(FUSED):
        array = np.random.default_rng(index).normal(size=(1, 8, 4, 4)).astype(np.float32)
        array += name == changed
        made.append(Record("out", 0, index, "", Tensor.of(name, array)))
    return made


def unfused() -> Dump:
    tensors = [Tensor.of(FUSED[record.name], record.tensor.real()) for record in values()]
    types = [name.rpartition(" + ")[2].strip("()") for name in FUSED]
    return Dump([Record("out", 0, index, kind, tensor) for index, (kind, tensor) in enumerate(zip(types, tensors))])


@pytest.mark.parametrize(
    "name, part",
    [
        ("/conv/Conv + /relu/Relu", "/relu/Relu"),
        ("PWN(/sig/Sigmoid, /Mul)", "/Mul"),
        ("PWN(PWN(/sig/Sigmoid), PWN(/Mul))", "/Mul"),
        ("/conv/Conv + PWN(PWN(/sig/Sigmoid), /Mul)", "/Mul"),
        ("{ForeignNode[/a/MatMul.../a/Softmax]}", "/a/Softmax"),
        ("{ForeignNode[/a/MatMul + /a/Add.../b/Add + /b/Relu]}", "/b/Relu"),
        ("/left/Conv || /right/Conv", ""),
        ("/left/Conv + /left/Relu || /right/Conv + /right/Relu", ""),
        ("Reformatting CopyNode for Input Tensor 0 to /conv/Conv + /relu/Relu", ""),
    ],
)
def test_the_last_part_of_a_name(name: str, part: str) -> None:
    assert is_fused(name) and last_part(name) == part


def test_a_copy_and_layers_side_by_side_pair_with_nothing() -> None:
    """Their names end in the name of a tensor whose values they do not hold."""
    relu, other = (np.random.default_rng(seed).normal(size=(1, 4, 3, 3)).astype(np.float32) for seed in range(2))
    fused = {
        "Reformatting CopyNode for Input Tensor 0 to /conv/Conv + /relu/Relu": other,
        "/conv/Conv + /relu/Relu": relu,
        "/relu/Relu || /right/Conv": np.concatenate([relu, other], 1),
    }
    sides = [{"/relu/Relu_output_0": relu, "/right/Conv_output_0": other + 1}, fused]
    dumps = [
        Dump([Record("out", 0, n, "", Tensor.of(name, value)) for n, (name, value) in enumerate(side.items())])
        for side in sides
    ]
    (row,) = compare(dumps[1], dumps[0]).rows
    assert (row.sample_name, row.name) == ("/conv/Conv + /relu/Relu", "/relu/Relu_output_0") and row.mse == 0


@pytest.mark.parametrize("swap", [False, True])
def test_a_fused_name_is_paired_with_its_last_operator(swap: bool) -> None:
    sides = [Dump(values()), unfused()]
    found = compare(*(sides[::-1] if swap else sides))
    assert REPORTS["verdict"](found, Thresholds()).startswith("EQUAL")
    assert len(found.rows) == 3 and all("last part" in row.note for row in found.rows)


def test_a_planted_difference_is_named_with_the_figures_of_numpy() -> None:
    changed = list(FUSED)[1]
    found = compare(Dump(values(changed)), unfused())
    verdict = REPORTS["verdict"](found, Thresholds())
    assert verdict.startswith("DIFFERS") and FUSED[changed] in verdict.splitlines()[1]
    assert next(row for row in found.rows if row.name == FUSED[changed]).mse == pytest.approx(1, rel=1e-5)


def test_an_onnx_model_of_torch_pairs(tmp_path: Path) -> None:
    """The float dump that sgsdump makes has the names of the nodes as types."""
    target = ["-i", str(GOLDEN / "input.npy"), "-o", str(tmp_path / "float.npz")]
    assert main(["dump", "-m", str(GOLDEN / "net.onnx"), *target]) == 0
    float_dump = open_dump(tmp_path / "float.npz")
    records = [
        Record("out", 0, index, "", Tensor.of(fused, float_dump[name].real("NCHW" if index < 2 else None)))
        for index, (fused, name) in enumerate(FUSED.items())
    ]
    found = compare(Dump(records), float_dump)
    assert {row.sample_name: row.name for row in found.rows} == FUSED


def test_ambiguous_and_unknown_parts_are_left_alone() -> None:
    twice = [Record("out", 0, i, "", Tensor.of(f"{part} + b", np.ones(3, np.float32))) for i, part in enumerate("xy")]
    other = Dump([Record("out", 0, 0, "", Tensor.of("b", np.ones(3, np.float32)))])
    assert not compare(Dump(twice), other).rows
    assert not compare(Dump(twice[:1]), Dump([Record("out", 0, 0, "", Tensor.of("c", np.ones(4)))])).rows
