"""tune --first as a user types it: the planted convolutions are found, nothing more; what it leaves is what it says."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from json_documents import checked
from picture_folder import write_pictures
from PIL import Image
from small_nets import conv, model, node, residual_net, weights

import sgsdump.fixedpoint.tuning.rounds
from sgsdump.cli import main
from sgsdump.comparison.compare import compare
from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.commands import demo
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import open_model
from sgsdump.sidecars import input_config

FILES = {"fixed.bin", "float.bin", "input_config.ini", "log", "optimized.onnx", "optimized_quant_info.json"}
FILES |= {"report.html", "rounds.json", "rounds.txt"}
FIRST = "tune --first -m digits.onnx -i pictures --input-config input_config.ini -o out".split()
PLANTED = ["block2/dw/relu", "block4/dw/relu"]
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
"""


def lay_out_digits(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        demo._lay_out(demo._digits())


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The digits after the rounds, with its printed text."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("digits")
    lay_out_digits(folder)
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        patch.chdir(folder)
        assert main(FIRST) == 0
    return folder, text.getvalue()


@pytest.fixture
def digits(tmp_path, monkeypatch):
    lay_out_digits(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small(tmp_path, monkeypatch):
    """net.onnx, made by the test, with three random pictures."""
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 3, INI)
    return tmp_path


def document(folder):
    return checked(folder / "rounds.json")


def test_exactly_the_planted_convolutions_are_raised(tuned):
    folder, text = tuned
    found = document(folder / "out")
    assert found["tensor_arrays"] == PLANTED and found["thresholds_hold"]
    assert [len(made["raised"]) for made in found["rounds"]] == [0, 2]
    assert found["rounds"][0]["outputs"]["logits"]["rmse"] > 0.5
    assert "weights per channel" in text and "every raised tensor is needed" in text
    for name in PLANTED:
        assert f"raised {name} (read by {name[:6]}/pw)" in text


def test_the_log_is_what_was_printed(tuned):
    folder, text = tuned
    log = (folder / "out" / "rounds.txt").read_text()
    assert set(log.splitlines()) <= set(text.splitlines()) and "\nout: " in text
    assert {path.name for path in (folder / "out").iterdir()} == FILES
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_its_report_tells_what_was_raised_and_shows_every_layer(tuned):
    folder, _ = tuned
    page = (folder / "out" / "report.html").read_text()
    assert "to INT16. Output error" in page and f"tensor_arrays=&#39;{','.join(PLANTED)}&#39;" in page
    compared = compare(folder / "out" / "fixed.bin", folder / "out" / "float.bin")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [layer["rmse"] for layer in data["layers"]] == [row.rmse for row in compared]
    wide = {layer["bits"]["by"] for layer in data["layers"] if layer.get("bits", {}).get("now") == 16}
    assert wide == {"the plan of tune"} and "to reproduce</dt><dd><bdi>sgsdump tune --first " in page


def test_the_figures_are_those_of_the_model_it_leaves(tuned):
    """Oracle: onnxruntime on the files, numpy in float64."""
    folder, _ = tuned
    found = document(folder / "out")
    options = onnxruntime.SessionOptions()
    # Optimised, onnxruntime computes some operators in integers of its own.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [
        onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
        for name in ("digits.onnx", "out/optimized.onnx")
    ]
    wanted, given = [], []
    for name in found["debug_pictures"]:
        pixels = np.asarray(Image.open(folder / name), np.float32)[None, None]
        wanted.append(sessions[0].run(["logits"], {"image": (pixels - 127) / 128})[0])
        given.append(sessions[1].run(["logits"], {"image": pixels})[0])
    r, y = (np.concatenate(arrays).astype(np.float64).ravel() for arrays in (wanted, given))
    told = found["rounds"][-1]["outputs"]["logits"]
    assert len(wanted) == 4
    assert told["rmse"] == pytest.approx(np.abs(y - r).sum() / np.abs(r).sum(), rel=1e-3)
    assert told["cos"] == pytest.approx(y @ r / np.sqrt((y @ y) * (r @ r)), rel=1e-6)
    facts = read_facts(open_model(folder / "out" / "optimized.onnx"))
    raised = [name for name in ("conv0/relu", *PLANTED, "flat") if facts.tensors[name].dtype == np.int16]
    assert raised == PLANTED
    read = sum(entry.dtype.itemsize * np.size(array) for entry, array in _weights(folder, facts))
    assert found["rounds"][-1]["weight_bytes"] == read


def _weights(folder, facts):
    constants = {t.name: t for t in onnx.load(folder / "out" / "optimized.onnx").graph.initializer}
    return [(entry, onnx.numpy_helper.to_array(constants[name])) for name, entry in facts.weights.items()]


def test_the_dumps_are_of_the_first_picture_and_pass(tuned, monkeypatch, capsys):
    folder, _ = tuned
    monkeypatch.chdir(folder)
    assert main("compare out/fixed.bin out/float.bin --min-cos 0.98 --max-rmse 0.1".split()) == 0
    first = (np.asarray(Image.open(document(folder / "out")["debug_pictures"][0]), np.float32) - 127) / 128
    np.testing.assert_allclose(open_dump("out/float.bin").inputs["image"].real().squeeze(), first, atol=1e-6)


def test_the_ini_is_the_users_and_gives_the_same_model_again(tuned, monkeypatch, tmp_path, capsys):
    folder, _ = tuned
    before, after = (folder / "input_config.ini").read_bytes(), (folder / "out" / "input_config.ini").read_bytes()
    assert after.startswith(before) and b"tensor_arrays='block2/dw/relu,block4/dw/relu';" in after[len(before) :]
    assert input_config.read(folder / "out" / "input_config.ini").tensor_arrays == tuple(PLANTED)
    monkeypatch.chdir(tmp_path)
    model, pictures, ini = folder / "digits.onnx", folder / "pictures", folder / "out" / "input_config.ini"
    command = ["calibrate", "-m", model, "-i", pictures, "--input-config", ini, "--quant-level", "L3", "-o", "f.onnx"]
    assert main([str(word) for word in command]) == 0
    ours, again = onnx.load(folder / "out" / "optimized.onnx"), onnx.load("f.onnx")
    assert ours.graph == again.graph
    quant = ["--quant-file", folder / "out" / "optimized_quant_info.json"]
    assert main([str(word) for word in [*command, *quant]]) == 0
    assert onnx.load("f.onnx").graph == ours.graph
    assert main([str(word) for word in command]) == 0
    log = Path("log")
    for path in (folder / "out" / "log").iterdir():
        assert path.read_bytes() == (log / path.name).read_bytes(), path.name


def test_what_is_raised_in_excess_is_lowered_again(digits, capsys):
    """With one scale per tensor more stands out than has to be raised."""
    assert main([*FIRST, "--quant-level", "L1", "--max-rmse", "0.4"]) == 0
    found = document(digits / "out")
    first, last = found["rounds"][1], found["rounds"][-1]
    assert last["lowered"] and last["kept"] and found["final_round"] == 2
    assert set(last["tensor_arrays"]) == set(first["tensor_arrays"]) - {change["tensor"] for change in last["lowered"]}
    assert last["weight_bytes"] < first["weight_bytes"]
    assert set(PLANTED) <= set(found["tensor_arrays"])
    assert f"with {len(found['tensor_arrays'])} of the {len(first['raised'])} raised tensors" in found["ended"]
    # both plans are named, with what they cost and give
    told = (
        f"Round 1: the weights take {first['rate']:.3f} of their INT16 size, and the output error is "
        f"{first['output_error']:.6f}. After some convolutions were lowered to INT8, the weights take "
        f"{last['rate']:.3f} of their INT16 size. The output error is then {last['output_error']:.6f}, "
        f"within the limits."
    )
    assert told in capsys.readouterr().out


def test_what_the_ini_raises_stays_raised(digits, capsys):
    with open("input_config.ini", "a") as file:
        file.write("[CONV_CONFIG]\ntensor_arrays = flat; mine\n")
    assert main(FIRST) == 0
    assert document(digits / "out")["tensor_arrays"] == ["flat", *PLANTED]
    assert "tensor_arrays = 'flat,block2/dw/relu,block4/dw/relu'; mine" in Path("out/input_config.ini").read_text()


def test_rounds_that_improve_nothing_are_undone(digits, capsys, monkeypatch):
    monkeypatch.setattr(sgsdump.fixedpoint.tuning.rounds, "WORTH_KEEPING", 1.0)
    assert main([*FIRST, "--max-rmse", "0.007"]) == 1
    found = document(digits / "out")
    assert [made["kept"] for made in found["rounds"]] == [True, False, False]
    assert found["final_round"] == 0 and found["tensor_arrays"] == []
    assert "2 rounds in a row did not improve the outputs" in capsys.readouterr().out
    assert Path("out/input_config.ini").read_bytes() == Path("input_config.ini").read_bytes()
    assert read_facts(open_model("out/optimized.onnx")).tensors["block2/dw/relu"].dtype == np.uint8
    assert open_dump("out/fixed.bin")["block2/dw/relu"].info.quant.dtype == np.uint8


def test_rounds_has_an_end(digits, capsys):
    assert main([*FIRST, "--max-rmse", "0.007", "--rounds", "1"]) == 1
    found = document(digits / "out")
    assert found["ended"] == "an output exceeds the limits after 1 round (--rounds)" and len(found["rounds"]) == 2


def test_a_model_that_int16_does_not_help_says_so(digits, capsys):
    assert main([*FIRST, "--max-rmse", "1e-6"]) == 1
    found, log = document(digits / "out"), Path("out/rounds.txt").read_text()
    assert not found["thresholds_hold"] and "even with every convolution at INT16" in found["ended"]
    assert "For comparison, every convolution at INT16:" in log
    errors = [made["output_error"] for made in found["rounds"] if made["kept"]]
    assert errors == sorted(errors, reverse=True), "every round kept is better than the one before"


def test_a_healthy_model_stops_at_round_0(small, capsys):
    onnx.save(residual_net().proto, "net.onnx")
    assert main("tune --first -m net.onnx -i pictures --input-config input_config.ini -o out".split()) == 0
    assert document(small / "out")["ended"] == "the outputs are within the limits: no INT16 needed"
    assert len(document(small / "out")["rounds"]) == 1
    assert Path("out/input_config.ini").read_text() == INI
    assert "For comparison" not in Path("out/rounds.txt").read_text()


def test_a_model_with_nothing_to_raise_says_so(small, capsys):
    net = model([conv("c1", "data")], weights("c1", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["c1"])
    onnx.save(net.proto, "net.onnx")
    command = "tune --first -m net.onnx -i pictures --input-config input_config.ini -o out".split()
    assert main([*command, "--max-rmse", "0"]) == 1
    assert "no convolution is left to raise" in capsys.readouterr().out
    Path("out/mine.txt").write_text("mine")
    assert main(command) == 0
    assert "no convolution is left to raise" not in capsys.readouterr().out
    assert [path.name for path in small.iterdir() if "out" in path.name] == ["out"], "the older results are replaced"
    assert {path.name for path in Path("out").iterdir()} == FILES | {"mine.txt"}


def test_a_name_that_the_ini_cannot_hold_is_not_raised(small, capsys):
    nodes = [conv("c1", "data"), node("Relu", ["c1"], "a,b"), conv("c2", "a,b")]
    constants = {**weights("c1", (4, 3, 1, 1)), **weights("c2", (2, 4, 1, 1), 1)}
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"]).proto, "net.onnx")
    assert main("tune --first -m net.onnx -i pictures --input-config input_config.ini -o out --max-rmse 0".split()) == 1
    assert document(small / "out")["tensor_arrays"] == []


def test_debug_pictures_of_ones_own(digits, capsys):
    assert main([*FIRST, "--debug-image", "pictures/05.png"]) == 0
    assert document(digits / "out")["debug_pictures"] == ["pictures/05.png"]
    assert document(digits / "out")["tensor_arrays"] == PLANTED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"-m": "none.onnx"}, "none.onnx"),
        ({"-i": "none"}, "none"),
        ({"--input-config": "none.ini"}, "none.ini"),
        ({"--evaluate": "none.png"}, "none.png"),
        ({"-o": "."}, "the results would overwrite input_config.ini"),
        ({"-o": "pictures"}, "cannot write pictures: this command reads or writes that file already"),
        ({"-o": "mine"}, "cannot overwrite mine/log: tune did not write this file"),
        ({"-o": "pictures", "--input-config": "pictures/input_config.ini"}, "this command reads or writes that file"),
        ({"-o": "held", "--validate": "held"}, "cannot write held: this command reads or writes that file already"),
        ({"-o": "digits.onnx"}, "reads or writes that file already"),
        ({"-n": "none.py"}, "none.py"),
    ],
)
def test_trouble_is_one_line_and_status_2(digits, capsys, change, message):
    Path("mine/log").mkdir(parents=True)
    words = dict(zip(FIRST[2::2], FIRST[3::2])) | change
    before = sorted(digits.rglob("*"))
    assert main(["tune", "--first", *(word for pair in words.items() for word in pair)]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("sgsdump")]
    assert len(lines) == 1 and message in lines[0] and "Traceback" not in captured.err
    assert sorted(digits.rglob("*")) == before, "nothing was written"


def test_an_ini_that_names_no_convolution_input_is_trouble(digits, capsys):
    with open("input_config.ini", "a") as file:
        file.write("[CONV_CONFIG]\ntensor_arrays = blok2;\n")
    assert main(FIRST) == 2
    assert "tensor_arrays names 'blok2'" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_run_that_breaks_leaves_the_older_folder(digits, capsys, monkeypatch):
    Path("out").mkdir()
    Path("out/mine.txt").write_text("kept")

    def broken(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(sgsdump.fixedpoint.tuning.rounds.RoundSearch, "_measure", broken)
    assert main(FIRST) == 130
    assert [path.name for path in Path("out").iterdir()] == ["mine.txt"]
    assert not [path.name for path in digits.iterdir() if path.name.startswith((".", "out_"))]


@pytest.mark.parametrize("bad", [["--rounds", "0"], ["--min-cos", "nan"], ["--max-rmse", "x"], ["--quant-level", "L6"]])
def test_options_out_of_range(bad, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*FIRST, *bad])
    assert stopped.value.code == 2


def test_outputs_that_no_error_can_be_measured_on_are_told(small, capsys):
    net = residual_net()
    for constant in net.proto.graph.initializer:
        if constant.name.startswith("fc"):
            array = onnx.numpy_helper.to_array(constant)
            constant.CopyFrom(onnx.numpy_helper.from_array(np.zeros_like(array), constant.name))
    onnx.save(net.proto, "net.onnx")
    assert main("tune --first -m net.onnx -i pictures --input-config input_config.ini -o out".split()) == 2
    assert "zero or empty on every image" in capsys.readouterr().err
