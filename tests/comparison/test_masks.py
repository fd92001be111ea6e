"""Attention with masks of every kind, dumped and compared as a user does: masked values never make a layer bad, and
what is wrong beside them is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from sgsdump import Comparison, Dump, Record, Tensor, compare
from sgsdump.cli import main
from sgsdump.comparison.masks import values_for_softmax
from sgsdump.dumps.dump import Call, Operator

HEADS, LENGTH, MASKED = 2, 6, 3
LOWEST = float(np.finfo(np.float32).min)


def save(path: str, mask: float, shift: float = 0.0, how: str = "Add", of: int = MASKED) -> None:
    """Scores of a matrix product, masked, a Softmax and what it weighs; ``shift`` is added to all scores of a key."""
    draw = np.random.default_rng(0)
    keys = draw.normal(0, 1, (HEADS, 8, LENGTH)).astype(np.float32)
    keys[:, 0, 1] += shift
    masked = np.zeros((1, 1, 1, LENGTH), np.float32)
    masked[..., LENGTH - of :] = mask
    constants = {"keys": keys, "mask": masked, "is": np.isfinite(masked) & (masked == 0), "low": np.float32(mask)}
    constants["values"] = draw.normal(0, 1, (HEADS, LENGTH, 8)).astype(np.float32)
    reads = {"Add": ["scores", "moved"], "Where": ["is", "scores", "low"]}[how]
    nodes = [
        helper.make_node("MatMul", ["x", "keys"], ["scores"]),
        *([helper.make_node("Identity", ["mask"], ["moved"])] if how == "Add" else []),
        helper.make_node(how, reads, ["biased"]),
        helper.make_node("Softmax", ["biased"], ["weights"]),
        helper.make_node("MatMul", ["weights", "values"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(name, 1, [1, HEADS, LENGTH, 8]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "attention", info[:1], info[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def compared(names: tuple[str, str] = ("sample", "float")) -> Comparison:
    np.save("x.npy", np.random.default_rng(1).normal(0, 1, (1, HEADS, LENGTH, 8)).astype(np.float32))
    for name in names:
        assert main(["dump", "-m", f"{name}.onnx", "-i", "x.npy", "-o", f"{name}.bin"]) == 0
    return compare(f"{names[0]}.bin", f"{names[1]}.bin")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("how", ["Add", "Where"])
@pytest.mark.parametrize(
    ("ours", "theirs"), [(-27, -1e9), (-27, LOWEST), (-27, -np.inf), (-1e4, -np.inf), (LOWEST, -1e9)]
)
def test_masks_of_another_depth_are_no_error(how, ours, theirs):
    save("float.onnx", theirs, how=how)
    save("sample.onnx", ours, how=how)
    comparison = compared()
    assert comparison.passes() and max(row.error for row in comparison) < 1e-6
    assert "without 36 of 72 values, which both sides mask" in comparison["biased"].note
    assert comparison["biased"].count == 36 and comparison["scores"].count == 72 and not comparison["scores"].note


@pytest.mark.parametrize("theirs", [-1e9, LOWEST, -np.inf])
def test_an_error_beside_the_mask_is_measured(theirs):
    save("float.onnx", theirs)
    save("sample.onnx", -27, shift=0.5)
    comparison = compared()
    scores, biased = comparison["scores"], comparison["biased"]
    assert biased.errors.sums.d1 == pytest.approx(scores.errors.sums.d1, rel=1e-5) and biased.rmse > 0.02


def test_equal_minus_infinities_are_left_out_without_a_graph():
    b = np.array([1.0, 2.0, -np.inf, -np.inf], np.float32)
    runs = [Dump([Record("out", 0, 0, "Add", Tensor.of("a", b + add))]) for add in (np.float32(0.5), np.float32(0))]
    row = compare(*runs)["a"]
    assert row.rmse == pytest.approx(1 / 3) and row.finite and "without 2 of 4 values" in row.note


@pytest.mark.parametrize("odd", [np.nan, np.inf, 0.0])
def test_what_only_one_side_masks_is_an_error(odd):
    save("float.onnx", -np.inf)
    save("sample.onnx", -27)
    with_odd = compared()["biased"]
    assert with_odd.error < 1e-6
    dump = {record.name: record.tensor.real() for record in _records("sample.bin")}
    dump["biased"] = dump["biased"].copy()
    dump["biased"][np.unravel_index(np.argmin(dump["biased"]), dump["biased"].shape)] = odd
    sample = Dump([Record("out", 0, i, "", Tensor.of(name, array)) for i, (name, array) in enumerate(dump.items())])
    row = compare(sample, "float.bin")["biased"]
    assert row.error == np.inf and not row.passes()


def test_a_tensor_that_others_read_too_keeps_its_values():
    save("float.onnx", -1e9)
    proto = onnx.load("float.onnx")
    proto.graph.node.append(helper.make_node("Relu", ["biased"], ["other"]))
    proto.graph.output.append(helper.make_tensor_value_info("other", 1, None))
    onnx.save(proto, "float.onnx")
    save("sample.onnx", -27)
    assert compared()["biased"].rmse > 0.9


def _records(path: str):
    from sgsdump import open_dump

    return [record for record in open_dump(path).records if record.io == "out"]


def of_torch(*calls: tuple[str, list[int], int]) -> dict[int, Operator]:
    return {
        index: Operator(
            "", f"aten.{kind}", values={("in", slot): n for slot, n in enumerate(reads)} | {("out", 0): made}
        )
        for index, (kind, reads, made) in enumerate(calls)
    }


def test_of_a_program_only_what_every_reader_brings_to_a_softmax_is_masked() -> None:
    attention = of_torch(
        ("div", [0], 1), ("add", [1, 2], 3), ("_to_copy", [3], 4), ("_softmax", [4], 5), ("bmm", [5, 6], 7)
    )
    assert values_for_softmax(attention) == {1, 2, 3, 4}
    also_summed = {**attention, 9: of_torch(("sum", [3], 8))[0]}
    assert values_for_softmax(also_summed) == {4}
    filled = of_torch(("masked_fill", [1, 2], 3), ("_softmax", [3], 4))
    named = replace(filled[0], call=Call("Scalar", ("self", "mask")))
    assert values_for_softmax({**filled, 0: named}) == {1, 3}
    assert values_for_softmax(of_torch(("gelu", [1], 2), ("mm", [2, 3], 4))) == frozenset()
