"""sgsdump compare and report of dumps of the SDK's tools and of a Caffe network: stages and blobs."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from sgsdump.cli import main
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.io import save_dump
from sgsdump.tensors.stages import KEY
from sgsdump.tensors.tensor import Tensor

# The first block of the two tables in the SDK's manual, "3.conv1_xx_xx_xx.xx.output0 OP_TYPE:CONV_2D …": fused …
FUSED = ["conv1_xx_xx_xx", "pool1", "res2a_branch1_xx_xx", "res2a_branch2a_xx_xx_xx", "res2a_xx"]
# … and with disableDomainFuseOps.
NOT_FUSED = [
    *("conv1", "conv1_xx", "conv1_xx_xx", "conv1_xx_xx_xx", "pool1", "res2a_branch1", "res2a_branch1_xx"),
    *("res2a_branch1_xx_xx", "res2a_branch2a", "res2a_branch2a_xx", "res2a_branch2a_xx_xx"),
    *("res2a_branch2a_xx_xx_xx", "res2a_branch2b", "res2a_branch2b_xx", "res2a_branch2b_xx_xx", "res2a", "res2a_xx"),
]
BLOBS = {"conv1": 3, "pool1": 0, "res2a_branch1": 2, "res2a_branch2a": 3, "res2a_branch2b": 2, "res2a": 1}


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {name: rng.standard_normal((1, 5, 5, 4)).astype(np.float32) for name in ["data", *NOT_FUSED]}


def sdk(arrays: dict[str, np.ndarray], names: list[str], error: float = 0.0) -> Dump:
    """Operator by operator; what each reads is the one before, and a BatchNorm's product and sum read a constant."""
    records, before = [], "data"
    for index, name in enumerate(names):
        blob, number = name.partition("_xx")[0], name.count("_xx")
        word = "MAX_POOL_2D" if name == "pool1" else "CONV_2D"
        if len(names) == len(NOT_FUSED) and number:
            word = ["MUL", "ADD", "RELU"][number - 1] if BLOBS[blob] > 1 else "RELU"
        records.append(Record("in", 0, index, word, Tensor.of(before, arrays[before])))
        if word in ("MUL", "ADD"):
            records.append(Record("in", 1, index, word, Tensor.of(f"bn_{blob}", np.ones(4, np.float32)), constant=True))
        array = (arrays[name] * np.float32(1 + error)).reshape(-1)
        records.append(Record("out", 0, index, word, Tensor.of(name, array)))
        before = name
    return Dump(records)


def caffe(arrays: dict[str, np.ndarray]) -> Dump:
    shown = {blob: arrays[blob + "_xx" * number] for blob, number in BLOBS.items()}
    return Dump([Record("out", 0, i, name, Tensor.of(name, array)) for i, (name, array) in enumerate(shown.items())])


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = values()
    made = {
        "fixed.bin": sdk(arrays, FUSED, 0.01),
        "nofuse.bin": sdk(arrays, NOT_FUSED, 0.01),
        "float.bin": sdk(arrays, NOT_FUSED),
        "caffe_NHWC_outtensor_dump.bin": caffe(arrays),
    }
    for name, dump in made.items():
        save_dump(dump, tmp_path / name)
    return arrays


def lines_of(text: str) -> list[str]:
    return re.findall(r"(?m)^\d+\.(\S+)\.xx\.output0 +OP_TYPE:", text)


LASTS = [blob + "_xx" * number for blob, number in BLOBS.items()]


@pytest.mark.parametrize(
    ("sample", "benchmark", "names"),
    [
        ("fixed.bin", "float.bin", FUSED),
        ("nofuse.bin", "float.bin", NOT_FUSED),
        ("fixed.bin", "caffe_NHWC_outtensor_dump.bin", FUSED),
        ("nofuse.bin", "caffe_NHWC_outtensor_dump.bin", LASTS),
        ("float.bin", "caffe_NHWC_outtensor_dump.bin", LASTS),
        ("caffe_NHWC_outtensor_dump.bin", "float.bin", LASTS),
    ],
)
def test_names_and_order_of_the_manuals_tables(dumps, capsys, sample, benchmark, names):
    assert main(["compare", sample, benchmark, "--max-rmse", "0.02", "--format", "sdk"]) == 0
    assert lines_of(capsys.readouterr().out) == names


def test_the_rule_is_named_and_nothing_is_said_to_be_missing(dumps, capsys):
    assert main(["compare", "float.bin", "caffe_NHWC_outtensor_dump.bin"]) == 0
    said = capsys.readouterr().out
    assert "\nCompared: 6 of 6 layers; " in said and "\nPaired tensors: 5 by stage, 1 by name.\n" in said
    assert "paired by stage: 'conv1_xx_xx_xx' of the sample, 'conv1' of the benchmark" in said
    assert "Not compared" not in said and "Without a counterpart by design, so not missing: 11" in said
    main(["compare", "float.bin", "caffe_NHWC_outtensor_dump.bin", "--json", "c.json", "--html", "c.html"])
    document = json.loads(Path("c.json").read_text(encoding="utf-8"))
    assert all(one["expected"] for one in document["only_in_sample"])
    assert {row["name"]: row["stage"] for row in document["rows"]}["conv1"] == "conv1_xx_xx_xx"
    assert "Without a counterpart by design, so not missing: 11" in Path("c.html").read_text(encoding="utf-8")


def test_a_limit_may_name_the_blob_or_its_stage(dumps, capsys):
    for name in ("conv1", "conv1_xx_xx_xx"):
        assert main(["compare", "fixed.bin", "caffe_NHWC_outtensor_dump.bin", "--limit", f"{name}:rmse=0.005"]) == 1
        assert main(["compare", "fixed.bin", "caffe_NHWC_outtensor_dump.bin", "--limit", f"{name}:rmse=0.02"]) == 0
    assert main(["compare", "fixed.bin", "caffe_NHWC_outtensor_dump.bin", "--exclude", "conv1_xx_xx_xx"]) == 0
    assert "Excluded: 1 (conv1_xx_xx_xx)." in capsys.readouterr().out


def test_another_tensor_of_one_name_passes_no_threshold(dumps, tmp_path, capsys):
    """conv1 is written with the values of pool1, as when one side folds a layer into the other."""
    arrays = dict(dumps, conv1=dumps["pool1"])
    save_dump(sdk(arrays, NOT_FUSED[:5]), tmp_path / "folded.bin")
    lenient = ["--min-cos", "-1", "--max-rmse", "1000"]
    assert main(["compare", "folded.bin", "float.bin", *lenient, "--junit", "j.xml", "--json", "c.json"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"(?m)^Largest error: 0\.conv1 \(CONV_2D\), COS -?0\.\d+, RMSE 1\.\d+\.$", said)
    assert "Layers with COS < -1 or RMSE > 1000: 1 of 5; the first is 0.conv1 (CONV_2D)" in said
    assert "values is pool1, the output of MAX_POOL_2D (COS 1.000000, RMSE 0.000000)" in said
    document = json.loads(Path("c.json").read_text(encoding="utf-8"))
    (row,) = [row for row in document["rows"] if row["name"] == "conv1"]
    assert row["verdict"] == "warn" and not row["within"] and document["verdict"]["worst"] == "conv1"
    # conv1, the twelve layers that were not dumped, and that they are most
    assert 'failures="14"' in Path("j.xml").read_text(encoding="utf-8")


def model(path, table) -> None:
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("data", "conv1")]
    graph = helper.make_graph([helper.make_node("Relu", ["data"], ["conv1"])], "net", ends[:1], ends[1:])
    proto = helper.make_model(graph)
    if table is not None:
        helper.set_model_props(proto, {KEY: table})
    onnx.save(proto, path)


def test_the_table_of_a_model(dumps, capsys, tmp_path):
    table = [["pool1", "pool1", "pool1"], ["conv1_xx_xx", "conv1", "scale"], ["res2a_xx", "res2a", "res2a_relu"]]
    model(tmp_path / "net.onnx", json.dumps(table))
    for command in ("compare", "report"):
        assert main([command, "float.bin", "caffe_NHWC_outtensor_dump.bin", "--stages", "net.onnx"]) == 0
    said = capsys.readouterr().out
    assert "by the model's stages: 'conv1_xx_xx' of the sample, 'conv1' of the benchmark" in said
    assert "Paired tensors: 4 by name, 2 by the model's stages." in said


@pytest.mark.parametrize(
    ("table", "error"),
    [(None, "net.onnx has no table of Caffe stages"), ("{}", "is not a list of [stage, blob, layer]")],
)
def test_a_model_without_a_table_of_stages(dumps, capsys, tmp_path, table, error):
    model(tmp_path / "net.onnx", table)
    assert main(["compare", "float.bin", "caffe_NHWC_outtensor_dump.bin", "--stages", "net.onnx"]) == 2
    said = capsys.readouterr().err
    assert error in said and said.count("\n") == 1
