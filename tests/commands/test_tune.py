"""`sgsdump tune` as typed, what it leaves behind, and that the other commands take it."""

import csv
import json

import numpy as np
import onnx
import pytest
from PIL import Image
from small_nets import conv, model, node, run_all, weights

from sgsdump.cli import main
from sgsdump.models.model import open_model
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.simulation import simulate
from sgsdump.sidecars import input_config, quant_param

INI = """; mine
[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean = 127:127:127;
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


TUNE = ["tune", "-m", "net.onnx", "-i", "pictures", "--input-config", "mine.ini"]


def facts(path):
    return read_facts(open_model(path))


def test_every_file_and_what_is_in_it(work, capsys):
    given = ["-o", "out", "--rates", "0.6,0.95", "--metric", "metric.py:same", "--json", "t.json"]
    assert main([*TUNE, *given, "--pickle", "--fixed-model"]) == 0
    said = capsys.readouterr().out
    assert "2 groups of convolutions; at most 6 plans on 3 pictures = 18 runs" in said
    assert "every plan there is was tried" in said and "INT16" in said
    names = {path.name for path in (work / "out").iterdir()}
    each = {f"{i}_{rate}" for i, rate in enumerate(("0.6", "0.95"))}
    assert names == {
        *(f"optimized_quant_info_{name}.{ending}" for name in each for ending in ("json", "pkl")),
        *(f"input_config_{name}.ini" for name in each),
        *(f"optimized_{name}.onnx" for name in each),
        *("optimized_quant_info.json", "optimized_quant_info.pkl"),
        *("input_config.ini", "optimized.onnx", "pareto.csv", "pareto.json", "pareto.png", "progress.json"),
    }
    document = json.loads((work / "t.json").read_text())
    assert document == json.loads((work / "out" / "pareto.json").read_text())
    assert [row["label"] for row in document["rows"]] == ["INT8", "0.6", "0.95", "INT16"]
    errors = [row["error"] for row in document["rows"]]
    assert errors == sorted(errors, reverse=True) and errors[0] > errors[-1]
    assert all(0 <= row["metric"] <= 1 for row in document["rows"])
    with open("out/pareto.csv", newline="") as file:
        assert [float(row["error"]) for row in csv.DictReader(file)] == errors
    with Image.open("out/pareto.png") as picture:
        assert picture.size == (1100, 460)
    assert json.loads((work / "out" / "progress.json").read_text())["best"].keys() == {"0.6", "0.95"}


def test_calibrate_makes_the_same_fixed_model_again(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6", "--fixed-model"]) == 0
    ini = work / "out" / "input_config_0_0.6.ini"
    assert ini.read_text().startswith(INI) and input_config.read(ini).tensor_arrays == ("rb",)
    given = ["--input-config", str(ini), "--quant-level", "L3", "-o", "again.onnx"]
    assert main(["calibrate", *TUNE[1:5], *given]) == 0
    tuned, again = facts("out/optimized_0_0.6.onnx"), facts("again.onnx")
    assert tuned.tensors == again.tensors and tuned.weights == again.weights


def test_quant_parameters_are_in_the_sdks_form(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6", "--pickle"]) == 0
    (pickled, plain) = (quant_param.read(f"out/optimized_quant_info_0_0.6.{e}") for e in ("pkl", "json"))
    convolutions = [("data", 8), ("a.w", 8), ("ra", 8), ("b.w", 8), ("rb", 16), ("c.w", 16)]
    assert [(p.name, p.bit) for p in pickled] == [*convolutions, ("c", 16), ("prob", 16)]
    assert [p.range.max.size for p in pickled] == [1, 6, 1, 6, 1, 4, 1, 1]
    assert all(a.range.same(b.range) for a, b in zip(pickled, plain))
    assert (work / "out" / "optimized_quant_info_0_0.6.pkl").read_bytes()[:2] == b"\x80\x03"


def error_of(fixed, pictures):
    """What tune prints of a plan, by the fixed model itself: sum((fixed - float)^2) / sum(float^2) before softmax."""
    differences = squares = 0.0
    for raw in pictures:
        floats = run_all(onnx.load("net.onnx"), {"data": (raw - 127) / 128})["c"].astype(np.float64)
        simulation = simulate(open_model(fixed), {"data": raw})
        stored = {r.name: r.tensor for r in simulation.records if r.io == "out"}["c"].real()
        differences += ((np.moveaxis(stored, -1, 1) - floats) ** 2).sum()
        squares += (floats**2).sum()
    return differences / squares


def test_every_file_makes_the_plan_that_was_verified(work):
    assert main([*TUNE, "-o", "out", "--rates", "0.6,0.95", "--pickle", "--json", "t.json"]) == 0
    rows = json.loads((work / "t.json").read_text())["rows"]
    files = [np.asarray(Image.open(path)) for path in sorted((work / "pictures").iterdir())]
    pictures = [np.moveaxis(array, -1, 0)[None].astype(np.float32) for array in files]
    assert rows[1]["error"] > 3 * rows[2]["error"], "two plans that can be told apart"
    plans = {"_0_0.6": rows[1], "_1_0.95": rows[2], "": next(row for row in rows if row["taken"])}
    for name, row in plans.items():
        for given in (
            ["--quant-file", f"out/optimized_quant_info{name}.json"],
            ["--quant-file", f"out/optimized_quant_info{name}.pkl", "--quant-level", "L1"],
            ["--input-config", f"out/input_config{name}.ini", "--quant-level", "L3"],
        ):
            assert main(["calibrate", *TUNE[1:], *given, "-o", "again.onnx"]) == 0
            assert error_of("again.onnx", pictures) == pytest.approx(row["error"], rel=0.02), (name, given)


def test_a_second_run_goes_on_from_the_first(work, capsys):
    assert main([*TUNE, "-o", "out", "--budget", "0s"]) == 0
    assert "the time ran out" in capsys.readouterr().out
    assert main([*TUNE, "-o", "out"]) == 0
    assert "going on" in capsys.readouterr().out
    assert main([*TUNE, "-o", "out"]) == 0
    assert "0 runs of the network" in capsys.readouterr().out


def test_a_target_and_other_pictures_to_judge_by(work, capsys):
    given = ["--target", "output-cos>=0.99", "--evaluate", "pictures/1.png"]
    assert main([*TUNE, "-o", "out", *given]) == 0
    assert "on 1 pictures" in capsys.readouterr().out
    assert len(list((work / "out").glob("optimized_quant_info_0_*.json"))) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rates", "0.5"], "compression rate 0.5 is not above 0.5"),
        (["--rates", "0.7,1.2"], "compression rate 1.2 is not"),
        (["--rates", "a"], "--rates 'a' is not a list of numbers"),
        (["--rates", ","], "--rates names no rate"),
        (["--rates", "0.7", "--target", "error<=1"], "exclude each other"),
        (["--target", "output-cos>=2"], "--target output-cos>=2: none of all 4 plans tried reaches it"),
        (["--target", "metric>=1"], "needs --metric"),
        (["--target", "speed>=1"], "is not NAME>=NUMBER"),
        (["--metric", "metric.py"], "is not FILE.py:function"),
        (["--metric", "nothing.py:f"], "there is no metric file nothing.py"),
        (["--metric", "metric.py:other"], "metric.py has no function other(outputs, float_outputs)"),
        (["--metric", "bad.py:text"], "bad.py: text gave 'good', which is no finite number"),
        (["--metric", "bad.py:nan"], "bad.py: nan gave 'nan', which is no finite number"),
        (["--metric", "bad.py:fails"], "bad.py:8: the metric failed: KeyError"),
        (["--budget", "soon"], "--budget 'soon' is no time"),
        (["-o", "metric.py"], "cannot make the folder metric.py"),
        (["--input-config", "input_config.ini", "-o", "."], "would overwrite input_config.ini"),
        (["--evaluate", "nowhere"], "nowhere"),
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
