"""``sgsdump pipeline`` as a user types it; the SDAA tool's own spellings are tested in tests/tools."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from models.caffe.nets import save
from onnx import TensorProto, helper
from small_nets import residual_net, run_all, weights

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.pipeline import whole_run

CAFFE_NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
"""
TENSORS = ["c1", "r1", "c2", "add", "r2", "pool", "c3", "sig", "gap", "flat", "fc", "prob"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work folder, with net.onnx and two.onnx."""
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    onnx.save(two_inputs(), "two.onnx")
    return tmp_path


def two_inputs() -> onnx.ModelProto:
    """x float32 [n, 3] and ids int64 [n]: sum = x + float(ids), top = sum > 0, text = inside an If."""
    info = helper.make_tensor_value_info
    then = helper.make_graph(
        [helper.make_node("Neg", ["sum"], ["negated"])], "then", [], [info("negated", TensorProto.FLOAT, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["sum"], ["absolute"])], "else", [], [info("absolute", TensorProto.FLOAT, None)]
    )
    nodes = [
        helper.make_node("Cast", ["ids"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("Unsqueeze", ["cast", "axes"], ["column"]),
        helper.make_node("Add", ["x", "column"], ["a/sum"]),
        helper.make_node("Identity", ["a/sum"], ["sum"]),
        helper.make_node("If", ["flag"], ["chosen"], then_branch=then, else_branch=other),
    ]
    inputs = [
        info("x", TensorProto.FLOAT, ["n", 3]),
        info("ids", TensorProto.INT64, ["n"]),
        info("flag", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "two", inputs, [info("chosen", TensorProto.FLOAT, ["n", 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def pipeline(*words: object, status: int = 0) -> None:
    assert main(["pipeline", *map(str, words)]) == status


def outputs(folder: str = "ort_dump") -> list[str]:
    return sorted(path.name for path in Path(folder, "outputs").iterdir())


def array(name: str, folder: str = "ort_dump") -> np.ndarray:
    (found,) = Path(folder, "outputs").glob(f"*{name}.npy")
    return np.load(found)


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that is said when the command ends with status 2."""
    capsys.readouterr()
    pipeline(*words, status=2)
    said = capsys.readouterr().err
    assert said.startswith("sgsdump: error: ") and said.count("\n") == 1, said
    return said


@pytest.mark.parametrize("mode", ["fast", "isolated"])
@pytest.mark.parametrize("executor", ["ort", "reference"])
def test_full_equals_onnxruntime(folder: Path, capsys: pytest.CaptureFixture[str], executor: str, mode: str) -> None:
    pipeline("full", "-m", "net.onnx", "-f", executor, "--mode", mode)
    printed = capsys.readouterr().out.splitlines()
    where = f"{executor}_dump"
    assert outputs(where) == [f"topoidx_{index:05}__{name}.npy" for index, name in enumerate(TENSORS)]
    feed = {"data": np.load(f"{where}/inputs/data.npy")}
    expected = run_all(residual_net().proto, feed)
    for name in TENSORS:
        np.testing.assert_allclose(array(f"__{name}", where), expected[name], rtol=1e-4, atol=1e-6)
    assert printed[0] == 'input "data", shape [1, 3, 8, 8], dtype float32'
    lines = [line for line in printed if line.startswith("topology index")]
    assert lines[0] == "topology index 0, output c1, shape (1, 8, 8, 8), dtype float32" and len(lines) == 12
    assert printed[-1] == f"{where}: 12 tensors, 12 dumped"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode on other systems")
def test_a_model_whose_file_name_is_not_utf_8(folder: Path) -> None:
    """dump_info.json is JSON all the same, which Python's strict reader takes; it was refused as damaged."""
    (folder / "net.onnx").rename("n\udce9t.onnx")
    pipeline("full", "-m", "n\udce9t.onnx", "--range", "-1", "1", "-o", "o")
    meta = json.loads((folder / "o/dump_info.json").read_bytes().decode("utf-8"))["meta_info"]
    assert meta["model_name"] == "n\udce9t.onnx"
    assert len(open_dump("o").records) == len(outputs("o")) + 1


def test_the_dump_is_one_that_compare_reads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "net.onnx", "-o", "a")
    pipeline("full", "-m", "net.onnx", "-o", "b", "-f", "reference")
    assert list(open_dump("a").outputs) == TENSORS
    capsys.readouterr()
    assert main(["compare", "b", "a", "--min-cos", "0.999"]) == 0
    assert "prob" in capsys.readouterr().out


def test_list_by_name_pattern_and_operator(folder: Path) -> None:
    pipeline("list", "-m", "net.onnx", "--name", "pool", "c1")
    assert outputs() == ["topoidx_00000__c1.npy", "topoidx_00005__pool.npy"]
    pipeline("full", "-m", "net.onnx", "--op-type", "Conv", "--name-pattern", "c[12]", "-o", "b")
    assert outputs("b") == ["topoidx_00000__c1.npy", "topoidx_00002__c2.npy"]
    pipeline("full", "-m", "net.onnx", "--op-type", "Relu", "-o", "c")
    assert outputs("c") == ["topoidx_00001__r1.npy", "topoidx_00004__r2.npy"]


def test_inputs_given_in_five_ways(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ["--shape", "x=4x3", "--shape", "ids=4"]
    pipeline("list", "-m", "two.onnx", "--name", "sum", *shapes, "-o", "default")
    rng = np.random.default_rng
    x = rng(42).uniform(0, 1, (4, 3)).astype(np.float32)
    assert np.array_equal(np.load("default/inputs/x.npy"), x)
    ids = rng(42).integers(0, 100, 4, dtype=np.int64, endpoint=True)
    assert np.array_equal(np.load("default/inputs/ids.npy"), ids)
    assert np.array_equal(array("sum", "default"), x + ids[:, None].astype(np.float32))
    assert "is random: seed 42, from 0" in capsys.readouterr().out

    ranges = ["--seed", "7", "--range", "x", "-1", "1", "--range", "0", "1"]
    pipeline("list", "-m", "two.onnx", "--name", "sum", *shapes, *ranges, "-o", "ranges")
    x = rng(7).uniform(-1, 1, (4, 3)).astype(np.float32)
    assert np.array_equal(np.load("ranges/inputs/x.npy"), x)
    assert np.load("ranges/inputs/ids.npy").max() <= 1

    pipeline("list", "-m", "two.onnx", "--name", "sum", "--inputs-from", "ranges/dump_info.json", "-o", "json")
    assert np.array_equal(np.load("json/inputs/x.npy"), x)
    assert np.array_equal(np.load("json/inputs/ids.npy"), np.load("ranges/inputs/ids.npy"))

    np.save("mine.npy", np.ones((2, 3), np.float32))
    np.save("ids.npy", np.arange(2))
    pipeline("list", "-m", "two.onnx", "--name", "sum", "-i", "x:mine.npy,ids:ids.npy", "-o", "arrays")
    assert np.array_equal(array("sum", "arrays"), [[1, 1, 1], [2, 2, 2]])

    pipeline("list", "-m", "two.onnx", "--name", "sum", "--input-dir", "arrays/inputs", "-o", "folder")
    assert np.array_equal(array("sum", "folder"), array("sum", "arrays"))


def test_a_run_may_take_its_inputs_from_the_folder_it_replaces(folder: Path) -> None:
    pipeline("full", "-m", "net.onnx", "--seed", "5")
    pipeline("full", "-m", "net.onnx", "--input-dir", "ort_dump/inputs")
    (aside,) = folder.glob("ort_dump_*")
    assert np.array_equal(array("prob"), array("prob", aside.name))


def test_names_with_a_slash_and_a_branch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "two.onnx", "--shape", "x=2x3", "--shape", "ids=2")
    assert outputs()[2] == "topoidx_00002__a%2Fsum.npy"
    printed = capsys.readouterr().out
    assert "not dumped" not in printed and "replaced by the branch that the input takes" in printed
    assert "5 dumped" in printed


def test_once_in_a_file_without_an_index(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("once", "-m", "net.onnx", "--name", "add")
    assert outputs() == ["add.npy"]
    assert "output add, shape (1, 8, 8, 8), dtype float32\n" in capsys.readouterr().out


def test_once_prints_the_ir_and_saves_a_test_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("once", "-m", "net.onnx", "--name", "r1", "--print-ir", "--save-test-case", "case")
    printed = capsys.readouterr().out
    assert "Conv" in printed and "Relu" in printed and "Softmax" not in printed
    made = onnx.load("case/model.onnx")
    assert [node.op_type for node in made.graph.node] == ["Conv", "Relu"]
    tensor = onnx.load_tensor("case/test_data_set_0/output_0.pb")
    assert np.array_equal(onnx.numpy_helper.to_array(tensor), array("r1"))


def test_the_last_nodes_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("once", "-m", "net.onnx", "--name", "r2", "--print-ir", "--depth", "2", "--save-test-case", "case")
    printed = capsys.readouterr().out
    assert "Add" in printed and "Conv" not in printed
    assert [info.name for info in onnx.load("case/model.onnx").graph.input] == ["r1", "c2"]


def test_an_option_of_the_executor(folder: Path) -> None:
    pipeline("full", "-m", "net.onnx", "--option", "threads=1", "--option", "optimisation=all", "--mode", "isolated")
    assert len(outputs()) == 12


def test_a_caffe_model(folder: Path) -> None:
    first = weights("c1", (4, 3, 3, 3), 1)
    save(folder, CAFFE_NET, {"conv1": [first["c1.w"], first["c1.b"]]})
    pipeline("full", "-m", "net.prototxt", "--weight-file", "net.caffemodel")
    assert [file.split("__")[1] for file in outputs()] == ["conv1.npy"]


def test_float16_runs_a_float16_copy(folder: Path) -> None:
    pipeline("full", "-m", "net.onnx", "-o", "golden")
    pipeline("full", "-m", "net.onnx", "-mt", "float16", "-o", "half")
    pipeline("full", "-m", "net.onnx", "-mt", "fp16", "-o", "fp16")
    assert open_dump("fp16")["prob"].info.dtype == np.float16
    np.testing.assert_array_equal(open_dump("fp16")["prob"].stored(), open_dump("half")["prob"].stored())
    assert array("__c1", "half").dtype == np.float16
    error = np.abs(array("__c1", "half") - array("__c1", "golden"))
    assert 0 < error.max() < 0.01
    assert json.loads(Path("half/dump_info.json").read_text())["meta_info"]["model_dtype"] == "float16"


def test_an_older_folder_is_moved_aside_and_never_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "net.onnx")
    shutil.copytree("ort_dump", "all")
    capsys.readouterr()
    pipeline("range", "-m", "net.onnx", "-b", "gap", "-cd", "all")
    files = [line.split(" | ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("index:")]
    assert files == outputs() == [f"topoidx_{8 + index:05}__{name}.npy" for index, name in enumerate(TENSORS[8:])]
    assert len(list(folder.glob("ort_dump_*"))) == 1
    assert Path("ort_dump/compare_result.log").read_text().startswith("index: 0 | topoidx_00008__gap.npy")


def test_a_comparison_of_all_tensors_is_a_page_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "net.onnx", "-o", "a")
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "b", "-cd", "a/outputs", status=1)
    assert "b/compare_result.html" in capsys.readouterr().out
    page = Path("b/compare_result.html").read_text()
    assert all(f'"name":"{name}"' in page for name in TENSORS)
    shutil.copytree("a/outputs", "files")  # arrays, and no word on which tensors they are
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "d", "-cd", "files", status=1)
    assert all(
        f"topoidx_{number:05}__{name}" in Path("d/compare_result.html").read_text()
        for number, name in enumerate(TENSORS)
    )
    pipeline("range", "-m", "net.onnx", "-b", "gap", "-o", "c", "-cd", "a")
    assert not Path("c/compare_result.html").exists()


def test_a_threshold_that_was_given_decides_the_status(folder: Path) -> None:
    pipeline("full", "-m", "net.onnx", "-o", "a")
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "b", "-cd", "a", status=1)
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "b", "-cd", "a", "-t1", "1e-6", status=1)
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "b", "-cd", "a", "-t2", "1e-6", status=1)
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "b", "-cd", "a", "-g", "a", "-t", "10", status=1)
    pipeline("full", "-m", "net.onnx", "-o", "b", "-cd", "a", "-g", "a", "-t", "10", "-t1", "1", "-t2", "0")


def test_a_run_on_another_input_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "net.onnx", "-o", "a")
    pipeline("full", "-m", "net.onnx", "-o", "b", "-cd", "a")
    assert "note:" not in capsys.readouterr().out
    pipeline("full", "-m", "net.onnx", "--seed", "1", "-o", "b", "-cd", "a/outputs", status=1)
    assert "note: a/outputs was run with other values of input data\n" in capsys.readouterr().out


def test_a_shape_mismatch_says_so_and_ends_with_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "net.onnx", "-o", "a")
    np.save("a/outputs/topoidx_00003__add.npy", np.zeros((1, 8, 8, 7), np.float32))
    capsys.readouterr()
    pipeline("full", "-m", "net.onnx", "-o", "b", "-cd", "a", status=1)
    printed = capsys.readouterr().out
    assert "index: 3 | topoidx_00003__add.npy | not comparable: shape mismatch" in printed
    assert "index: 4 | topoidx_00004__r2.npy | nan_inf: False | diff2: 0.0 | all_close: True" in printed


def test_a_failed_tensor_is_named_the_rest_is_dumped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = residual_net().proto
    bad = helper.make_node("Reshape", ["r1", "bad.shape"], ["bad"], name="bad")
    proto.graph.node.insert(2, bad)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([7, 7]), "bad.shape"))
    onnx.save(proto, "bad.onnx")
    pipeline("full", "-m", "bad.onnx", status=1)
    printed = capsys.readouterr().out
    assert "\nfailed: bad (Reshape): " in printed
    assert "13 tensors, 12 dumped, 1 failed" in printed
    assert len(outputs()) == 12


def test_not_finite_values_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.zeros((1, 3, 8, 8), np.float32)
    values[0, 0, 0, 0] = np.nan
    np.save("nan.npy", values)
    pipeline("full", "-m", "net.onnx", "-i", "data:nan.npy")
    assert "not finite: c1: holds NaN" in capsys.readouterr().out


def test_a_name_with_control_characters_stays_on_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Log", ["x\n"], ["a\nfailed: b"]), helper.make_node("Neg", ["a\nfailed: b"], ["\x1b[2J"])]
    graph = helper.make_graph(nodes, "net", [info("x\n", 1, [2])], [info("\x1b[2J", 1, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "odd.onnx")
    assert main(["pipeline", "full", "-m", "odd.onnx", "--range", "0", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "topology index 0, output 'a\\nfailed: b', shape (2,), dtype float32"
    assert lines[-2].startswith(r"not finite: '\x1b[2J'") and len(lines) == 7
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("several", [False, True])
def test_a_whole_run_that_alone_disagrees_ends_with_1(folder: Path, monkeypatch, several: bool) -> None:
    for number in range(2):
        np.savez(f"{number}.npz", data=np.full((1, 3, 8, 8), number, np.float32))
    inputs = ["-i", "."] if several else ["-i", "0.npz"]
    pipeline("full", "-m", "net.onnx", *inputs)
    monkeypatch.setattr(whole_run, "check_whole", lambda *_: whole_run.WholeRun({"prob": 0.5}))
    pipeline("full", "-m", "net.onnx", *inputs, status=1)


def test_bisect_finds_no_difference_where_there_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline("full", "-m", "net.onnx", "--bisect", "reference")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("no operator differs beyond rounding") and last.endswith("12 tensors checked (all)")
    assert not Path("ort_dump").exists()
    pipeline("full", "-m", "net.onnx", "--bisect", "reference", "--threshold", "0", status=1)
    assert "\nfirst difference: " in capsys.readouterr().out


def test_bisect_finds_what_only_one_executor_computes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """onnx's evaluator has no operators of onnxruntime's own domain."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("QuickGelu", ["a"], ["b"], domain="com.microsoft"),
        helper.make_node("Neg", ["b"], ["c"]),
    ]
    graph = helper.make_graph(nodes, "net", [info("x", 1, [2])], [info("c", 1, [2])])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "own.onnx")
    pipeline("full", "-m", "own.onnx", "--bisect", "reference", status=1)
    out = capsys.readouterr().out
    assert "first difference: b (QuickGelu): executor reference does not compute this tensor: " in out
    pipeline("full", "-m", "own.onnx", "-f", "reference", "--bisect", "reference", status=1)
    assert "computed by neither executor: c: " in capsys.readouterr().out


def test_an_empty_batch_is_dumped(folder: Path) -> None:
    pipeline("full", "-m", "two.onnx", "--shape", "x=0x3", "--shape", "ids=0", "-f", "reference")
    assert open_dump("reference_dump")["sum"].info.shape == (0, 3)
    pipeline("full", "-m", "two.onnx", "--shape", "x=0x3", "--shape", "ids=0")
    assert open_dump("ort_dump")["sum"].info.shape == (0, 3)


def test_the_provider_is_an_option(folder: Path) -> None:
    pipeline("full", "-m", "net.onnx", "--provider", "CPU")
    assert len(open_dump("ort_dump").outputs) == len(TENSORS)


BAD = {
    "unknown provider": (["full", "--provider", "Abacus"], "has no execution provider 'Abacus'"),
    "provider of another executor": (["full", "-f", "reference", "--provider", "CPU"], "no option 'provider'"),
    "unknown tensor": (["once", "--name", "poool"], "no tensor 'poool'; did you mean 'pool'"),
    "unknown start": (["range", "-bs", "addd"], "no tensor 'addd'; did you mean 'add'"),
    "start after end": (["range", "-b", "prob", "-e", "c1"], "comes after the end"),
    "index too high": (["range", "-b", "12"], "there is no topology index 12; the model's indices are 0 to 11"),
    "negative index": (["range", "-b", "-1"], "there is no topology index -1"),
    "start twice": (["range", "-b", "1", "-bs", "c1"], "as index and as name"),
    "step 0": (["full", "-s", "0"], "the step is 0"),
    "unknown operator": (["full", "--op-type", "Convv"], "no operator 'Convv'; did you mean 'Conv'"),
    "input file missing": (["full", "-i", "data:none.npy"], "no such input file: none.npy"),
    "input misspelt": (["full", "-i", "dta:x.npy"], "no input 'dta'; did you mean 'data'"),
    "input without a name": (["full", "-i", "x.npy"], "NAME:FILE.npy"),
    "input of a wrong shape": (["full", "-i", "data:shape.npy"], "expects float32 [1, 3, 8, 8], got float32 [1, 3]"),
    "input of a wrong dtype": (["full", "-i", "data:dtype.npy"], "got float64"),
    "input that is no array": (["full", "-i", "data:net.onnx"], "not an .npy file"),
    "input folder missing": (["full", "--input-dir", "none"], "no such folder: none"),
    "input folder without it": (["full", "--input-dir", "empty"], "no file data.npy"),
    "inputs from nothing": (["full", "--inputs-from", "none.json"], "no such file: none.json"),
    "inputs from no JSON": (["full", "--inputs-from", "net.onnx"], "not JSON"),
    "inputs in two ways": (["full", "--input-dir", "empty", "-i", "data:x.npy"], "in one way only"),
    "shape malformed": (["full", "--shape", "data=1x3x"], "NAME=SIZExSIZE"),
    "shape that does not fit": (["full", "--shape", "data=2x3x8x8"], "does not fit"),
    "range malformed": (["full", "--range", "1"], "LOW HIGH"),
    "unknown executor": (["full", "-f", "orrt"], "unknown executor 'orrt'; did you mean 'ort'"),
    "missing package": (["full", "-f", "sdaa"], "sdaa"),
    "unknown model type": (["full", "-mt", "float17"], "float17"),
    "compare folder missing": (["full", "-cd", "none"], "does not exist: none"),
    "compare folder empty": (["full", "-cd", "empty"], "the folder empty has no .npy file to compare with"),
    "golden without compare": (["full", "-g", "empty"], "-cd"),
    "compare with what is replaced": (["full", "-cd", "old/outputs", "-o", "old"], "; name another folder"),
    "negative threshold": (["full", "-cd", "old", "-t1", "-1"], "-t1 -1: a threshold must be 0 or more"),
    "output over the inputs": (
        ["full", "--input-dir", "old/outputs", "-o", "old/outputs"],
        "reads or writes that file already",
    ),
    "output in the way": (["full", "-o", "net.onnx"], "select another folder with -o"),
    "output is here": (["full", "-o", "."], "select another folder with -o"),
    "two folders in one": (["once", "--name", "c1", "--save-test-case", "ort_dump"], "cannot be in one folder"),
    "no depth": (["once", "--name", "c1", "--print-ir", "--depth", "0"], "--depth 0"),
    "no option": (["full", "--option", "threads"], "write KEY=VALUE"),
    "unknown option": (["full", "--option", "thread=1"], "thread"),
    "bisect and compare": (["full", "--bisect", "reference", "-cd", "old"], "--compare-dir is for a dump"),
    "passes for another": (["full", "-p", "passes.py"], "passes"),
}


@pytest.mark.parametrize("what", BAD)
def test_trouble_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    words, said = BAD[what]
    Path("empty").mkdir()
    Path("old/outputs").mkdir(parents=True)
    np.save("old/outputs/topoidx_00000__c1.npy", np.zeros(1))
    np.save("x.npy", np.zeros((1, 3, 8, 8), np.float32))
    np.save("shape.npy", np.zeros((1, 3), np.float32))
    np.save("dtype.npy", np.zeros((1, 3, 8, 8)))
    before = sorted(folder.rglob("*"))
    assert said in fails(capsys, words[0], "-m", "net.onnx", *words[1:])
    assert sorted(folder.rglob("*")) == before


def test_a_folder_without_common_files_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other").mkdir()
    np.save("other/unknown.npy", np.zeros(1))
    assert "no file in common" in fails(capsys, "full", "-m", "net.onnx", "-cd", "other")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "no such model file"), (b"", "is empty"), (b"garbage", "not an ONNX file")]
)
def test_models_that_are_none(
    folder: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    if content is not None:
        Path("bad.onnx").write_bytes(content)
    assert said in fails(capsys, "full", "-m", "bad.onnx")


def test_an_open_size_asks_for_a_shape(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = residual_net().proto
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(proto, "open.onnx")
    assert "--shape data=1x3x1x8" in fails(capsys, "full", "-m", "open.onnx")
