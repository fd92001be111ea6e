"""`sgsdump tune` as typed, what it leaves behind, and that the other commands take it."""

import csv
import json
import os
import re
from argparse import Namespace

import numpy as np
import onnx
import pytest
from json_documents import checked
from PIL import Image
from small_nets import conv, model, node, run_all, weights

from sgsdump.cli import main
from sgsdump.fixedpoint.commands.tune.search import too_small
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.tuning import plan_scores
from sgsdump.fixedpoint.tuning.pareto import Effort, OutputFigures
from sgsdump.fixedpoint.tuning.plan_scores import load_progress
from sgsdump.fixedpoint.verbs.plan_search import Ending
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import open_model
from sgsdump.sidecars import input_config, quant_param

INI = """; mine
[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = prob;
dequantizations = TRUE;
"""
METRIC = "def same(outputs, floats):\n    return float(outputs['prob'].argmax() == floats['prob'].argmax())\n"


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    constants["a.w"] *= np.float32(10) ** np.linspace(-2, 1, 6, dtype=np.float32).reshape(-1, 1, 1, 1)
    nodes = [conv("a", "data", pads=[1] * 4), node("Relu", ["a"], "ra"), conv("b", "ra", pads=[1] * 4)]
    nodes += [node("Relu", ["b"], "rb"), conv("c", "rb"), node("Softmax", ["c"], "prob", axis=1)]
    proto = model(nodes, constants, {"data": (1, 3, 8, 8)}, ["prob"]).proto
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    (tmp_path / "mine.ini").write_text(INI)
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for index in range(3):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(tmp_path / "pictures" / f"{index}.png")
    (tmp_path / "metric.py").write_text(METRIC)
    return tmp_path


# Of a level that fits no ranges, which is half of what a calibration takes.
TUNE = ["tune", "-m", "net.onnx", "-i", "pictures", "--input-config", "mine.ini", "--quant-level", "L2"]


def facts(path):
    return read_facts(open_model(path))


def test_every_file_and_what_is_in_it(work, capsys):
    given = ["-o", "out", "--rates", "0.6,0.95", "--metric", "metric.py:same", "--json", "t.json"]
    assert main([*TUNE, *given, "--pickle", "--fixed-model"]) == 0
    said = "".join(capsys.readouterr())
    assert "2 groups of convolutions; at most 6 plans on 3 images = 18 runs" in said
    assert "every possible plan tried" in said and "INT16" in said
    names = {path.name for path in (work / "out").iterdir()}
    each = {f"{i}_{rate}" for i, rate in enumerate(("0.6", "0.95"))}
    assert names == {
        *(f"optimized_quant_info_{name}.{ending}" for name in each for ending in ("json", "pkl")),
        *(f"input_config_{name}.ini" for name in each),
        *(f"optimized_{name}.onnx" for name in each),
        *("optimized_quant_info.json", "optimized_quant_info.pkl"),
        *(
            "input_config.ini",
            "optimized.onnx",
            "pareto.csv",
            "pareto.json",
            "pareto.png",
            "progress.json",
            "report.html",
        ),
    }
    document = checked(work / "t.json")
    assert document == json.loads((work / "out" / "pareto.json").read_text())
    assert [row["label"] for row in document["rows"]] == ["INT8", "0.6", "0.95", "INT16"]
    errors = [row["error"] for row in document["rows"]]
    assert errors == sorted(errors, reverse=True) and errors[0] > errors[-1]
    assert all(0 <= row["metric"] <= 1 for row in document["rows"])
    with open("out/pareto.csv", newline="") as file:
        assert [float(row["error"]) for row in csv.DictReader(file)] == errors
    with Image.open("out/pareto.png") as picture:
        assert picture.size in {(1400, 519), (1400, 520)}  # matplotlib 3.7 rounds down
    assert json.loads((work / "out" / "progress.json").read_text())["best"].keys() == {"0.6", "0.95"}


@pytest.mark.usefixtures("no_picture")
def test_its_report_has_the_plan_to_take_and_every_plan_tried(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6"]) == 0
    page = (work / "out" / "report.html").read_text()
    assert page.count('id="tensor-') > 1
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    document = json.loads((work / "out" / "pareto.json").read_text())
    assert [plan["label"] for plan in data["tradeoff"]["plans"]] == [row["label"] for row in document["rows"]]
    taken = data["tradeoff"]["plans"][data["tradeoff"]["taken"]]
    assert taken["error"] == next(row["error"] for row in document["rows"] if row["taken"])
    assert "[CONV_CONFIG]" in page and "in the hardware" in page.lower() and len(data["layers"]) > 3
    assert "made by</dt>" in page and "to reproduce</dt><dd><bdi>sgsdump tune " in page
    assert {layer["bits"]["now"] for layer in data["layers"] if "bits" in layer} <= {8, 16}
    assert main([*TUNE, "-o", "out", "--rates", "0.7"]) == 0  # an older one goes
    assert (work / "out" / "report.html").read_text() != page


@pytest.mark.usefixtures("no_picture")
def test_calibrate_makes_the_same_fixed_model_again(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6", "--fixed-model"]) == 0
    ini = work / "out" / "input_config_0_0.6.ini"
    assert ini.read_text().startswith(INI) and input_config.read(ini).tensor_arrays == ("rb",)
    given = ["--input-config", str(ini), "--quant-level", "L3", "-o", "again.onnx"]
    given += ["--quant-file", "out/optimized_quant_info_0_0.6.json"]
    assert main(["calibrate", *TUNE[1:5], *given]) == 0
    tuned, again = facts("out/optimized_0_0.6.onnx"), facts("again.onnx")
    assert tuned.tensors == again.tensors and tuned.weights == again.weights


@pytest.mark.usefixtures("no_picture")
def test_quant_parameters_are_in_the_sdks_form(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6", "--pickle"]) == 0
    (pickled, plain) = (quant_param.read(f"out/optimized_quant_info_0_0.6.{e}") for e in ("pkl", "json"))
    convolutions = [("data", 8), ("a.w", 8), ("ra", 8), ("b.w", 8), ("rb", 16), ("c.w", 16)]
    assert [(p.name, p.bit) for p in pickled] == [*convolutions, ("c", 16), ("prob", 16), ("a", 16), ("b", 16)]
    assert [p.range.max.size for p in pickled] == [1, 6, 1, 6, 1, 4, 1, 1, 1, 1]
    assert all(a.range.same(b.range) for a, b in zip(pickled, plain))
    assert (work / "out" / "optimized_quant_info_0_0.6.pkl").read_bytes()[:2] == b"\x80\x03"


def error_of(fixed, pictures):
    """What tune prints of a plan, by the fixed model itself: sum((p (fixed - float))^2) / sum((p float)^2) before the
    softmax, p the float model's probabilities (none of these logits is far below the top)."""
    differences = squares = 0.0
    for raw in pictures:
        floats = run_all(onnx.load("net.onnx"), {"data": (raw - 127) / 128})["c"].astype(np.float64)
        simulation = simulate(open_model(fixed), {"data": raw})
        stored = {r.name: r.tensor for r in simulation.records if r.io == "out"}["c"].real()
        away = np.moveaxis(stored, -1, 1) - floats
        exponents = np.exp(floats - floats.max(axis=1, keepdims=True))
        p = exponents / exponents.sum(axis=1, keepdims=True)
        differences += ((p * away) ** 2).sum()
        squares += ((p * floats) ** 2).sum()
    return differences / squares


@pytest.mark.usefixtures("no_picture")
def test_every_file_makes_the_plan_that_was_verified(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6,0.95", "--pickle", "--json", "t.json", "--fixed-model"]) == 0
    rows = json.loads((work / "t.json").read_text())["rows"]
    files = [np.asarray(Image.open(path)) for path in sorted((work / "pictures").iterdir())]
    pictures = [np.moveaxis(array, -1, 0)[None].astype(np.float32) for array in files]
    assert rows[1]["error"] > 3 * rows[2]["error"], "two plans that can be told apart"
    plans = {"_0_0.6": rows[1], "_1_0.95": rows[2], "": next(row for row in rows if row["taken"])}
    for name, row in plans.items():
        kinds = (
            ["--quant-file", f"out/optimized_quant_info{name}.json", "--quant-level", "L5"],
            ["--quant-file", f"out/optimized_quant_info{name}.pkl", "--quant-level", "L1"],
            ["--input-config", f"out/input_config{name}.ini", "--quant-file", f"out/optimized_quant_info{name}.json"],
        )
        for given in kinds if not name else kinds[1:]:
            assert main(["calibrate", *TUNE[1:], *given, "-o", "again.onnx"]) == 0
            assert error_of("again.onnx", pictures) == pytest.approx(error_of(f"out/optimized{name}.onnx", pictures))
            assert error_of("again.onnx", pictures) == pytest.approx(row["error"]), (name, given)
            # The search counts by fake quantisation, which is near.
            assert row["searched"] == pytest.approx(row["error"], rel=0.1)


@pytest.mark.usefixtures("no_picture")
def test_a_second_run_goes_on_from_the_first(work, capsys):
    assert main([*TUNE, "-o", "out", "--budget", "0s"]) == 0
    said = "".join(capsys.readouterr())
    assert "the time ran out" in said and "plans for 7 rates with the chip's integer arithmetic" in said
    assert "warning: --budget 0s leaves no time for the search" in said and "Give at least --budget" in said
    assert main([*TUNE, "-o", "out"]) == 0
    assert "resuming" in "".join(capsys.readouterr())
    assert main([*TUNE, "-o", "out"]) == 0
    assert "0 runs of the model" in capsys.readouterr().out


def test_a_budget_that_is_too_small_says_what_it_should_be():
    said = too_small("5s", 12.0, Ending(verify=10.0, report=4.0))
    assert "Calibration and set-up took 12 s; verification and the report take about 14 s." in said
    assert said.endswith("Give at least --budget 60s")
    assert too_small("1m", 100.0, Ending(verify=300.0, report=10.0)).endswith("--budget 20m")


@pytest.mark.usefixtures("no_picture")
def test_a_target_and_other_pictures_to_judge_by(work, capsys):
    given = ["--target", "output-cos>=0.99", "--evaluate", "pictures/1.png"]
    assert main([*TUNE, "-o", "out", *given]) == 0
    assert "on 1 images" in "".join(capsys.readouterr())
    assert len(list((work / "out").glob("optimized_quant_info_0_*.json"))) == 1


def with_output(path, name):
    proto = onnx.load(path)
    proto.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    onnx.save(onnx.shape_inference.infer_shapes(proto), path)


@pytest.mark.usefixtures("no_picture")
def test_each_outputs_error_is_shown_and_one_can_be_chosen(work, capsys):
    with_output("net.onnx", "rb")
    (work / "mine.ini").write_text(INI.replace("outputs = prob", "outputs = prob,rb").replace("TRUE", "TRUE,TRUE"))
    assert main([*TUNE, "-o", "out", "--rates", "0.6"]) == 0
    table = [line.split("  ") for line in capsys.readouterr().out.splitlines() if "error prob" in line]
    assert [word.strip() for word in table[0] if "error" in word] == ["error", "error prob", "error rb"]
    document = json.loads((work / "out" / "pareto.json").read_text())
    assert document["objective"] == "mean of prob, rb"
    low = document["rows"][0]
    assert low["error"] == pytest.approx((low["errors"]["prob"] + low["errors"]["rb"]) / 2)
    with open("out/pareto.csv", newline="") as file:
        assert [float(row["error:rb"]) for row in csv.DictReader(file)] == [r["errors"]["rb"] for r in document["rows"]]
    assert main([*TUNE, "-o", "out", "--rates", "0.6", "--objective", "rb"]) == 0
    assert "0 runs of the model" in capsys.readouterr().out, "what was measured serves every objective"
    document = json.loads((work / "out" / "pareto.json").read_text())
    assert [row["error"] for row in document["rows"]] == [row["errors"]["rb"] for row in document["rows"]]
    assert document["objective"] == "mean of rb"


def test_an_output_left_worse_than_int8_is_named():
    """The plan to take for one output may cost another."""
    from sgsdump.fixedpoint.reports.pareto_reports import ending_lines

    errors = [{"prob": 0.5, "rb": 0.1}, {"prob": 0.1, "rb": 0.2}]
    rows = [
        Namespace(outputs=OutputFigures(figures, {}, {}), raised=("b",), bytes=9, rate=0.6, macs16=0.25)
        for figures in errors
    ]
    effort = Effort(1, 4, 1, True, False, ("3 of all 4 plans",))
    result = Namespace(
        rows=rows, taken=rows[1], enough=rows[1], left_out=("mask",), effort=effort, held_out=None, limits=None
    )
    said = "\n".join(ending_lines(result))
    assert (
        "warning: with the plan marked *, the error of output rb (0.2) is "
        "larger than with all convolutions at INT8 (0.1)" in said
    )
    assert "plan *: the weights take 9 bytes, 0.600 of their INT16 size; 25% of the multiplications at INT16" in said
    assert "output mask is not counted" in said and "not tried: 3 of all 4 plans" in said


@pytest.mark.parametrize(
    ("metrics", "taken", "told"),
    [
        ((0.9, 0.9), 1, "plan all-8 (0 convolutions at INT16) is as good as any plan by the metric (0.9)"),
        ((0.8, 0.9), 1, None),
        ((0.8, 0.9), 0, "plan some (2 convolutions at INT16) is better than plan * (0.8) by the metric (0.9)"),
        ((0.9, 0.9), 0, None),
        ((None, None), 1, None),
    ],
)
def test_a_plan_that_is_better_by_the_metric_or_smaller_is_named(metrics, taken, told):
    from sgsdump.fixedpoint.reports.pareto_reports import ending_lines

    rows = [
        Namespace(outputs=OutputFigures({"y": error}, {}, {}, metric), raised=("b",) * count, bytes=9, rate=rate,
                  macs16=None, label=label)
        for error, metric, count, rate, label in zip((0.5, 0.1), metrics, (0, 2), (0.5, 0.6), ("all-8", "some"))
    ]  # fmt: skip
    effort = Effort(1, 4, 1, True, False, ())
    result = Namespace(
        rows=rows, taken=rows[taken], enough=None, left_out=(), effort=effort, held_out=None, limits=None
    )
    said = [line for line in ending_lines(result) if " by the metric (" in line]
    assert said == (
        [f'{told}; --target "metric>=0.9" selects the smallest plan that reaches this value'] if told
        else []
    )  # fmt: skip


def test_a_wrong_objective_is_told_before_the_work(work, capsys):
    assert main([*TUNE, "-o", "out", "--objective", "boxes"]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert error == ["sgsdump: error: --objective: 'boxes' is unknown. Use 'mean', 'worst' or names of outputs: prob"]


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize("given", [[], ["--target", "output-cos>=0.1"]])
def test_a_search_cut_short_says_what_it_did_not_look_at(work, capsys, given, monkeypatch):
    from sgsdump.fixedpoint.tuning import search

    for limit in (12, 0):
        monkeypatch.setattr(search, "EXHAUSTIVE", limit)
        assert main([*TUNE, "-o", f"out{limit}", "--budget", "0s", *given]) == 0
        said = capsys.readouterr().out
        assert "the time ran out" in said
        (line,) = [line for line in said.splitlines() if line.startswith("not tried: ")]
        left = ("of all 4 plans", "of the plans for 7 rates") if limit else ("convolution alone on 2 of the 3 images",)
        assert any(text in line for text in left)
        assert limit or "smaller plans as good as the plan marked *" in line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes among files")
@pytest.mark.parametrize("place", ["mine.ini", "metric.py", "out/progress.json"])
def test_a_pipe_in_a_files_place_is_refused_at_once(work, capsys, place):
    (work / "out").mkdir()
    (work / place).unlink(missing_ok=True)
    os.mkfifo(work / place)
    assert main([*TUNE, "-o", "out", "--metric", "metric.py:same"]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1 and place in error[0]


@pytest.mark.usefixtures("no_picture")
def test_a_damaged_progress_file_is_measured_anew(work, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(plan_scores, "load_progress", lambda *of: asked.append(of[1:]) or load_progress(*of))
    assert main([*TUNE, "-o", "out", "--rates", "0.6"]) == 0
    file = work / "out" / "progress.json"
    known = json.loads(file.read_text())
    (first, *_) = known["sensitivities"].values()
    assert load_progress(file, *asked[0]).scores and load_progress(file, *asked[0]).sensitivities
    for damaged in (
        {**known, "plans": {"00": {}}},
        {**known, "plans": {"00": {"pictures": 3, "sums": {}, "metric": 0.0}}},
        {**known, "sensitivities": [1]},
        {**known, "sensitivities": {"7": first}},
        {**known, "sensitivities": {"0": {**first, "grams": [[1.0]]}}},
        {**known, "sensitivities": {"0": {**first, "plans": {}}}},
        [],
        "[" * 100000,
    ):
        file.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
        loaded = load_progress(file, *asked[0])
        assert not loaded.scores and not loaded.sensitivities
    capsys.readouterr()
    assert main([*TUNE, "-o", "out", "--rates", "0.6"]) == 0
    assert "resuming" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rates", "0.5"], "compression rate 0.5 must be above 0.5"),
        (["--rates", "0.7,1.2"], "compression rate 1.2 must be"),
        (["--rates", "a"], "--rates 'a' is not a list of numbers"),
        (["--rates", ","], "--rates names no rate"),
        (["--rates", "0.7", "--target", "error<=1"], "cannot be combined: --target determines the compression"),
        (["--target", "output-cos>=2"], "--target output-cos>=2: none of all 4 plans tried reaches the target"),
        (["--target", "metric>=1"], "needs --metric"),
        (["--target", "speed>=1"], "is not NAME>=NUMBER"),
        (["--metric", "metric.py"], "is not FILE.py:function"),
        (["--metric", "nothing.py:f"], "there is no metric file nothing.py"),
        (["--metric", "metric.py:other"], "metric.py has no function other(outputs, float_outputs)"),
        (["--metric", "bad.py:text"], "bad.py: text returned 'good', not a finite number"),
        (["--metric", "bad.py:nan"], "bad.py: nan returned 'nan', not a finite number"),
        (["--metric", "bad.py:fails"], "bad.py:8: the metric failed: KeyError"),
        (["--budget", "soon"], "--budget 'soon' is not a time"),
        (["-o", "metric.py"], "cannot write the folder metric.py: a file has that name"),
        (["--input-config", "input_config.ini", "-o", "."], "would overwrite input_config.ini"),
        (["--evaluate", "nowhere"], "nowhere"),
        (["-o", "pictures"], "cannot write pictures: this command reads or writes that file already"),
        (["-o", "held", "--validate", "held"], "cannot write held: this command reads or writes that file already"),
    ],
)
def test_one_line_errors(work, capsys, given, said):
    (work / "bad.py").write_text(
        "def text(o, f):\n    return 'good'\n\ndef nan(o, f):\n    return float('nan')\n\n"
        "def fails(o, f):\n    return o['boxes']\n"
    )
    (work / "input_config.ini").write_text(INI)
    assert main([*TUNE, "-o", "out", *given]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("sgsdump: error: ") and said in error


def test_without_scipy(work, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    assert main([*TUNE, "-o", "out"]) == 2
    captured = capsys.readouterr()
    assert "pip install scipy" in captured.err
    assert "picture" not in captured.err and not (work / "out").exists(), "said before anything is run or made"


@pytest.mark.usefixtures("no_picture")
def test_multiplications_may_steer_the_search(work, capsys):
    """The last convolution has few weights, the picture's has no choice: at half of the multiplications it is free."""
    assert main([*TUNE, "-o", "out", "--rates", "0.6", "--cost", "macs", "--quant-level", "L1"]) == 0
    document = json.loads((work / "out" / "pareto.json").read_text())
    assert document["cost"] == "macs"
    row = next(row for row in document["rows"] if row["label"] == "0.6")
    assert row["macs16"] <= 2 * 0.6 - 1 + 1e-9 and all(len(tried) == 3 for tried in document["cloud"])
    assert " of the multiplications at INT16" in capsys.readouterr().out
