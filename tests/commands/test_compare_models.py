"""``compare`` of two ONNX models: their weights."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import residual_net

from sgsdump.cli import main


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    """one.onnx, and two.onnx, of which two weights are 5 % larger and one has another name."""
    monkeypatch.chdir(tmp_path)
    proto = residual_net().proto
    onnx.save(proto, "one.onnx")
    for tensor in proto.graph.initializer:
        if tensor.name in ("c1.w", "c2.b"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.05), tensor.name))
    for node in proto.graph.node:
        for slot, name in enumerate(node.input):
            node.input[slot] = name.replace("fc.w", "onnx::MatMul_7")
    next(tensor for tensor in proto.graph.initializer if tensor.name == "fc.w").name = "onnx::MatMul_7"
    onnx.save(proto, "two.onnx")


def told(capsys, line):
    status = main(line.split())
    return status, capsys.readouterr().out


def test_which_weights_differ_and_by_how_much(capsys):
    status, out = told(capsys, "compare one.onnx two.onnx --json c.json --csv c.csv")
    assert status == 0 and "2 of 7 weights differ, 5 are equal." in out
    assert "Weights only in two.onnx (1): onnx::MatMul_7" in out and "Weights only in one.onnx (1): fc.w" in out
    assert "sgsdump dump -m one.onnx" in out and "--match-by-value" in out and "diagnose" not in out
    rows = {row["name"]: row for row in json.loads(Path("c.json").read_text())["rows"]}
    # sum |a - b| / sum |b| of a and 1.05 a
    assert {name for name, row in rows.items() if row["rmse"]} == {"c1.w", "c2.b"}
    assert rows["c1.w"]["rmse"] == pytest.approx(0.05 / 1.05, rel=1e-5)
    table = [line.split() for line in out.splitlines()[1:3]]
    assert {words[2] for words in table} == {"c1.w", "c2.b"} and {words[3] for words in table} == {"Conv"}


@pytest.mark.parametrize("shared", [True, False], ids=["a bias", "no weight"])
@pytest.mark.parametrize("order", ["one.onnx q.onnx", "q.onnx one.onnx"])
def test_a_quantised_copy_is_diagnosed(shared, order, capsys):
    proto = onnx.load("one.onnx")
    for tensor in proto.graph.initializer:
        if not (shared and tensor.name == "c1.b"):
            for node in proto.graph.node:
                node.input[:] = [f"{name}_q" if name == tensor.name else name for name in node.input]
            tensor.name += "_q"
    for name, value in (("s", np.float32(0.1)), ("z", np.int8(0))):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    first = proto.graph.node[0]
    pair = [("QuantizeLinear", first.input[0], "xq"), ("DequantizeLinear", "xq", "xd")]
    for place, (kind, taken, made) in enumerate(pair):
        proto.graph.node.insert(place, helper.make_node(kind, [taken, "s", "z"], [made]))
    proto.graph.node[2].input[0] = "xd"
    onnx.save(proto, "q.onnx")
    assert main(["compare", *order.split()]) == (0 if shared else 2)
    said = capsys.readouterr()
    assert "sgsdump diagnose -m one.onnx --fixed q.onnx -i INPUTS" in (said.out if shared else said.err)


def test_what_was_renamed_is_found_by_its_values(capsys):
    assert "2 of 8 weights differ, 6 are equal." in told(capsys, "compare one.onnx two.onnx --match-by-value")[1]


def test_limits_decide_the_status(capsys):
    assert told(capsys, "compare one.onnx one.onnx --max-rmse 0")[0] == 0
    assert told(capsys, "compare one.onnx two.onnx --match-by-value --max-rmse 0.01")[0] == 1
    assert told(capsys, "compare one.onnx two.onnx --match-by-value --max-rmse 0.05")[0] == 0
    assert told(capsys, "compare one.onnx two.onnx --max-rmse 0.05")[0] == 1  # fc.w is missing
    assert told(capsys, "compare one.onnx two.onnx --max-rmse 0.05 --allow-missing")[0] == 0


def test_weights_in_files_bodies_and_constants_are_compared(capsys):
    def saved(path, factor):
        large = np.arange(40_000, dtype=np.float32)
        body = helper.make_graph([helper.make_node("Identity", ["inner"], ["y"])], "then", [],
                                 [helper.make_tensor_value_info("y", 1, [2])],
                                 [numpy_helper.from_array(np.float32([1, 2]) * factor, "inner")])  # fmt: skip
        nodes = [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.float32([3]) * factor)),
            helper.make_node("Mul", ["x", "k"], ["xk"]),
            helper.make_node("Add", ["xk", "large"], ["z"]),
            helper.make_node("If", ["c"], ["o"], then_branch=body, else_branch=body),
        ]
        infos = [
            helper.make_tensor_value_info("x", 1, [40_000]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ]
        outputs = [helper.make_tensor_value_info("z", 1, [40_000]), helper.make_tensor_value_info("o", 1, [2])]
        weights = [numpy_helper.from_array(large * np.float32(factor), "large")]
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", infos, outputs, weights)), path,
                  save_as_external_data=True, location=f"{path}.data")  # fmt: skip

    saved("a.onnx", 1.0)
    saved("b.onnx", 2.0)
    out = told(capsys, "compare a.onnx b.onnx --csv c.csv")[1]
    assert "weights differ, 0 are equal" in out
    with open("c.csv", newline="") as file:
        assert {row["name"] for row in csv.DictReader(file)} == {"k", "large", "inner"}


def test_a_model_and_a_dump_are_refused(capsys):
    assert main(["compare", "one.onnx", "dump.bin"]) == 2
    assert "sgsdump dump -m one.onnx -i INPUT" in capsys.readouterr().err
    assert main("compare one.onnx gone.onnx".split()) == 2
    Path("cut.onnx").write_bytes(Path("one.onnx").read_bytes()[:200])
    capsys.readouterr()
    assert main("compare one.onnx cut.onnx".split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
