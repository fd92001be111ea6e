"""Operators computed again from recorded inputs: errors found where they are made, rounding told from error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from small_nets import model, node, residual_net

from sgsdump.cli import main
from sgsdump.executors.ort import OrtExecutor
from sgsdump.models.feeds.drawn import table_lengths
from sgsdump.pipeline import bisection
from sgsdump.pipeline.bisection import bisect_executors, worst_relative
from sgsdump.pipeline.pipeline import Pipeline
from sgsdump.pipeline.replay import judge
from sgsdump.pipeline.report_lines import bisection_lines, whole_run_lines
from sgsdump.pipeline.run import run
from sgsdump.pipeline.run_job import at_dump
from sgsdump.pipeline.steps import Engine
from sgsdump.pipeline.whole_run import check_whole

FEED = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}


def recorded(executor="ort") -> dict[str, np.ndarray]:
    return FEED | {layer.name: layer.array for layer in run(residual_net(), Engine(executor), FEED)}


def test_an_error_that_a_relu_swallows_is_found_where_it_is_made() -> None:
    right, wrong = recorded(), recorded()
    wrong["c1"] = np.where(wrong["c1"] < 0, wrong["c1"] * 1.01, wrong["c1"])
    for ours, theirs, side in ((wrong, right, "sample"), (right, wrong, "benchmark")):
        judgement = judge(residual_net(), ours, theirs, right.keys())
        assert [(error.name, error.op_type, error.side) for error in judgement.errors] == [("c1", "Conv", side)]


def test_rounding_is_no_error_and_an_inherited_error_is_not_blamed() -> None:
    assert judge(residual_net(), recorded("reference"), recorded(), recorded().keys()).errors == ()
    other = {"data": FEED["data"] * 2}
    wrong = (
        FEED
        | {layer.name: layer.array for layer in run(residual_net(), Engine("ort"), other)}
        | {"c1": recorded()["c1"]}
    )
    assert [error.name for error in judge(residual_net(), wrong, recorded(), wrong.keys()).errors] == ["r1"]


def test_a_nan_is_an_error_of_the_operator_that_makes_it() -> None:
    wrong = recorded()
    wrong["c2"] = wrong["c2"].copy()
    wrong["c2"].flat[3] = np.nan
    (error,) = judge(residual_net(), wrong, recorded(), wrong.keys()).errors
    assert (error.name, error.finite) == ("c2", False)


def test_scores_are_not_measured_by_the_coordinates_beside_them() -> None:
    boxes, scores = np.full((1, 4, 100), 320.0), np.full((1, 3, 100), 0.5)
    both, off = np.concatenate([boxes, scores], 1), np.concatenate([boxes, scores * 1.01], 1)
    assert worst_relative(off, both) > 1e-3
    assert worst_relative(off.transpose(0, 2, 1), both.transpose(0, 2, 1)) > 1e-3


class Spoilt(OrtExecutor):
    """onnxruntime, but for one tensor, where none of ``inner`` is an output beside it."""

    name = "spoilt"

    def __init__(self, tensor: str, operator: str, inner: tuple[str, ...] = ()):
        self.tensor, self.operator, self.inner = tensor, operator, inner

    def on_load(self, model, configs, folder):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        made = {name for each in model.graph.node for name in each.output}
        asked = {info.name for info in model.graph.output}
        if self.tensor in made and all(name in made and name not in asked for name in self.inner):
            index, each = next((i, n) for i, n in enumerate(copy.graph.node) if self.tensor in n.output)
            each.output[0] = "right"
            copy.graph.node.insert(index + 1, helper.make_node(self.operator, ["right"], [self.tensor]))
        super().on_load(copy, configs, folder)


def test_bisect_goes_on_where_none_of_those_tried_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """c1 is wrong below 0 alone, which r1, its Relu, swallows."""
    hidden = Engine(Spoilt("c1", "Relu"))
    result = bisect_executors(residual_net(), hidden, Engine("ort"), FEED)
    assert result.first is not None and (result.first.name, result.looked_at) == ("c1", 12)
    monkeypatch.setattr(bisection, "SECONDS", -1)
    few = bisect_executors(residual_net(), Engine("ort"), Engine("ort"), FEED)
    (line,) = bisection_lines(few, 1e-3)
    assert line.startswith("none of the 5 tensors tried differs") and line.endswith("; 7 not checked")


def test_bisect_never_blames_what_only_moves_data() -> None:
    """The channels of ``both`` are 1e6 and 1: an error of the small one stands out only once they are apart again."""
    nodes = [
        node("Exp", ["x"], "small"),
        node("Mul", ["x", "w"], "large"),
        helper.make_node("Concat", ["small", "large"], ["both"], axis=1),
        helper.make_node("Transpose", ["both"], ["turned"], perm=[1, 0]),
        helper.make_node("Gather", ["turned", "zero"], ["out"]),
    ]
    net = model(nodes, {"w": np.float32([1e6]), "zero": np.array(0)}, {"x": (2, 1)}, ["out"])
    feed = {"x": np.array([[0.5], [1]], np.float32)}
    result = bisect_executors(net, Engine(Spoilt("small", "Sqrt")), Engine("ort"), feed)
    assert result.first is not None and result.first.name == "small"


def test_a_fused_kernel_that_is_wrong_unless_its_inner_tensor_is_asked_for() -> None:
    engine = Engine(Spoilt("r1", "Sqrt", inner=("c1",)))
    dumped = FEED | {layer.name: layer.array for layer in run(residual_net(), engine, FEED)}
    assert np.array_equal(dumped["r1"], recorded()["r1"])  # the dump asks for c1 too
    whole = check_whole(residual_net(), engine, FEED, dumped)
    assert not whole.agrees and [error.name for error in whole.fused][:1] == ["r1"]
    assert whole_run_lines(whole)[1].startswith("wrong only when fused: r1 (Relu)")
    result = bisect_executors(residual_net(), engine, Engine("ort"), FEED)
    assert result.fused and result.first is not None and result.first.name == "r1"
    assert check_whole(residual_net(), Engine("ort"), FEED, recorded()).agrees


def pipeline(*words: str) -> int:
    return main(["pipeline", *words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    assert pipeline("full", "-m", "net.onnx", "-o", "a") == 0
    return tmp_path


def findings(path: str) -> list[dict]:
    return json.loads(Path(path).read_text())["findings"]


def test_a_comparison_tells_rounding_from_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline("full", "-m", "net.onnx", "-f", "reference", "-o", "b", "-cd", "a", "-t1", "0") == 1
    out = capsys.readouterr().out
    assert (
        "no operator is beyond its rounding bound (by type and sum length)" in out
        and findings("b/compare_result.json") == []
    )
    path = next(Path("a/outputs").glob("*__c2.npy"))
    np.save(path, np.load(path) * np.float32(1.01))
    assert pipeline("full", "-m", "net.onnx", "-o", "c", "-cd", "a") == 1
    out = capsys.readouterr().out
    assert "; first c2 (Conv) in a, own error 0.01," in out
    first = findings("c/compare_result.json")[0]
    assert (first["kind"], first["layer"], first["evidence"], first["facts"]["side"]) == (
        "cause",
        "c2",
        "measured",
        "a",
    )
    door = [sys.executable, str(Path(__file__).parents[2] / "tools/dump_tools.py")]
    done = subprocess.run([*door, "dump_full", "-f", "ort", "-d", "net.onnx", "-cd", "a"], check=False, text=True)
    assert done.returncode == 0


def test_an_all_zero_tensor_of_the_other_run_does_not_pass(folder: Path) -> None:
    assert pipeline("full", "-m", "net.onnx", "-o", "half") == 0
    path = next(Path("half/outputs").glob("*__c2.npy"))
    np.save(path, np.zeros_like(np.load(path)))
    assert pipeline("full", "-m", "net.onnx", "-f", "reference", "-o", "b", "-cd", "half", "-g", "a", "-t", "1e9") == 1
    log = Path("b/compare_result.log").read_text()
    line = next(text for text in log.splitlines() if "__c2.npy" in text)
    assert "diff2: inf | diff3_max=pass | diff3_mean=pass" in line
    rows = {row["name"]: row for row in json.loads(Path("b/compare_result.json").read_text())["rows"]}
    assert (rows["c2"]["verdict"], rows["c2"]["zeros"], rows["c1"]["zeros"]) == ("fail", True, False)


def test_a_layer_that_golden_lacks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline("full", "-m", "net.onnx", "-o", "golden") == 0
    next(Path("golden/outputs").glob("*__c2.npy")).unlink()
    capsys.readouterr()
    three = ["full", "-m", "net.onnx", "-o", "b", "-cd", "a", "-g", "golden"]
    assert pipeline(*three) == 0
    assert pipeline(*three, "-t", "10") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("missing: 1 tensor") < next(i for i, line in enumerate(lines) if line.startswith("index: 0"))
    assert findings("b/compare_result.json")[0]["names"] == ["topoidx_00002__c2.npy"]
    assert pipeline(*three, "-t", "10", "--allow-missing") == 0


def test_a_layer_that_golden_lacks_in_compare(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sgsdump import open_dump, save_dump

    save_dump([tensor for name, tensor in open_dump("a").items() if name != "c2"], "golden.npz")
    capsys.readouterr()
    command = ["judge", "a", "a", "golden.npz", "--json", "g.json", "--junit", "g.xml"]
    assert main(command) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("INCOMPLETE: the sample lacks 1 layer (c2.npy);")
    assert findings("g.json")[0] | {"figures": {}} == findings("g.json")[0]
    assert findings("g.json")[0]["names"] == ["c2.npy"]
    assert 'failures="1"' in Path("g.xml").read_text()
    assert main([*command, "--allow-missing"]) == 0


@pytest.mark.parametrize(
    "chosen",
    [["range", "-b", "c2"], ["full", "-s", "3"], ["full", "--op-type", "Conv"], ["list", "--name", "c1", "c3"]],
)
def test_what_an_option_left_out_is_not_missing(folder: Path, chosen: list[str]) -> None:
    kind, *options = chosen
    limits = ["-t", "10", "-t1", "1e-6"]
    assert pipeline(kind, "-m", "net.onnx", *options, "-o", "b", "-cd", "a", "-g", "a", *limits) == 0
    assert pipeline("full", "-m", "net.onnx", "-o", "c", "-cd", "b", "-g", "b", *limits) in (0, 2)
    if Path("c/compare_result.json").exists():
        assert findings("c/compare_result.json") == []


def test_random_integers_are_rows_of_the_table_that_gather_reads(folder: Path) -> None:
    table = np.arange(14, dtype=np.float32).reshape(7, 2)
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=7),
        helper.make_node("Gather", ["table", "wide"], ["rows"]),
    ]
    net = model(nodes, {"table": table}, {"ids": (1, 50)}, ["rows"])
    net.proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    assert table_lengths(net.proto.graph) == {"ids": 7}
    onnx.save(net.proto, "ids.onnx")
    assert pipeline("full", "-m", "ids.onnx", "-o", "d") == 0
    assert set(np.load("d/inputs/ids.npy").flat) == set(range(7))


def test_two_runs_into_one_folder_lose_no_result(folder: Path) -> None:
    command = [sys.executable, "-m", "sgsdump", "pipeline", "full", "-m", "net.onnx", "-o", "both", "--seed"]
    runs = [subprocess.Popen([*command, str(seed)], stdout=subprocess.DEVNULL) for seed in range(3)]
    assert [each.wait() for each in runs] == [0, 0, 0]
    seeds = {json.loads(path.read_text())["input_info"][0]["seed"] for path in folder.glob("both*/dump_info.json")}
    assert seeds == {0, 1, 2}


def test_a_dump_is_judged_where_it_stands_by_now(folder: Path) -> None:
    """Another process sets it aside while it is looked at, and puts its own there."""
    run = Pipeline("net.onnx", "ort", "mine")
    run.dump_full()
    looked_at = []

    def look(path: Path) -> str:
        looked_at.append(path.name)
        if len(looked_at) == 1:
            Path("mine").rename(".mine.1.whole")
            Path("mine").mkdir()
            raise FileNotFoundError
        if len(looked_at) == 2:
            Path(".mine.1.whole").rename("mine_2026")
        return path.name

    assert at_dump(run, look) == "mine_2026" and looked_at == ["mine", ".mine.1.whole", "mine_2026"]


def test_a_plug_in_dumps_isolated_where_no_mode_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    from sgsdump.pipeline import job

    monkeypatch.setattr(job, "is_plug_in", lambda name: name == "own")
    options = job.RunOptions(Path("net.onnx"))
    assert [options.mode_of(name) for name in ("own", "ort")] == ["isolated", "fast"]
    assert job.RunOptions(Path("net.onnx"), mode="fast").mode_of("own") == "fast"
