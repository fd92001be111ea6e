"""Conclusions of diagnose and tune --explain: outputs first, the measured cause, what is promised or not judged."""

import contextlib
import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.comparison.metrics import Sums
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.fixedpoint.commands import demo
from sgsdump.fixedpoint.quantisation.objective import watched_by_output
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import OutputFigures, within_a_step
from sgsdump.models.model import open_model
from sgsdump.sidecars import input_config

DIAGNOSE = "diagnose -m net.onnx -i pictures".split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        noise = rng.normal(0, 40, (2, 2, 3)).repeat(4, 0).repeat(4, 1)
        array = np.clip(rng.uniform(60, 180) + noise + rng.normal(0, 20, (8, 8, 3)), 0, 255)
        Image.fromarray(array.astype(np.uint8)).save(tmp_path / "pictures" / f"{number}.png")
    return tmp_path


def small_net(*more, outputs, constants=None):
    """c1 -> r1 -> c2, and what is given."""
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), node("Relu", ["c1"], "r1"), conv("c2", "r1"), *more]
    shapes = {**weights("c1", (6, 3, 3, 3), 1), **weights("c2", (4, 6, 1, 1), 2), **(constants or {})}
    return model(nodes, shapes, {"data": (1, 3, 8, 8)}, outputs)


def diagnosed(net, capsys, *options):
    onnx.save(net.proto, "net.onnx")
    status = main([*DIAGNOSE, "-o", "d", *options])
    lines = capsys.readouterr().out.splitlines()
    with open("d/layers.json") as file:
        return status, [line for line in lines if not line.startswith(("assumed", "warning"))], json.load(file)


def sick_digits():
    """The demo's network, with its own pictures, in the folder."""
    shutil.rmtree("pictures")
    demo._lay_out(demo._digits())
    return "diagnose -m digits.onnx -i pictures --input-config input_config.ini".split()


class Sick(NamedTuple):
    """A folder in which ``diagnose`` was run on the demo's network, into ``d``.

    said  what it printed.
    line  its words, for another run in a copy of the folder.
    """

    folder: Path
    said: str
    line: list[str]

    def copied(self, folder):
        """Copy the folder into an empty one; return the words of ``diagnose`` and what it printed."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return list(self.line), self.said


def diagnosed_sick(folder, names=None):
    """``names``: other names of tensors."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        patch.chdir(folder)
        Path("pictures").mkdir()
        line = sick_digits()
        if names:
            net = onnx.load("digits.onnx")
            for made in net.graph.node:
                made.input[:] = [names.get(name, name) for name in made.input]
                made.output[:] = [names.get(name, name) for name in made.output]
            del net.graph.value_info[:]
            onnx.save(net, "digits.onnx")
        assert main([*line, "--quant-level", "L3", "-o", "d"]) == 0
    return Sick(folder, said.getvalue(), line)


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    return diagnosed_sick(tmp_path_factory.mktemp("sick"))


@pytest.fixture(scope="module")
def sick_with_one_beginning(tmp_path_factory):
    """Three inputs of convolutions have names that begin alike."""
    names = {"block2/dw/relu": "wide", "block3/dw/relu": "wide_too", "block1/dw/relu": "wide_also"}
    return diagnosed_sick(tmp_path_factory.mktemp("sick"), names)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_line_is_of_the_outputs_on_all_pictures(folder, capsys):
    _, lines, document = diagnosed(small_net(outputs=["c2"]), capsys, "--max-images", "2")
    assert re.match(
        r"PASS: output c2 RMSE 0\.0\d+, limit 0\.1 \(measured on 6 images\); all 2 layers are within", lines[0]
    )
    assert lines[2] == "Next: nothing to do."
    assert document["findings"][0]["kind"] == "output"
    assert document["findings"][0]["facts"]["verdict"] == "good"
    assert not [f for f in document["findings"] if f["kind"] in ("cause", "advice")]


def test_a_constant_does_not_hide_that_the_output_is_lost(folder, capsys):
    """y = logits + 20000: no figure over the values themselves shows that nothing is left of the logits."""
    add = {"offset": np.full((1, 4, 1, 1), 20000, np.float32), **weights("c3", (3, 4, 1, 1), 3)}
    net = small_net(node("Add", ["c2", "offset"], "y"), conv("c3", "y"), outputs=["y", "c3"], constants=add)
    _, lines, document = diagnosed(net, capsys, "--quant-level", "L1")
    y = next(f for f in document["findings"] if f["layer"] == "y")
    assert y["figures"]["cos"] > 0.999 and y["figures"]["cos_about_mean"] < 0.9
    assert y["facts"] == {"verdict": "bad", "reason": "drowned"}
    assert lines[0].startswith("FAIL: output y COS about the mean ")
    assert any("differences between images are lost" in line for line in lines)
    assert not any("No INT16 needed" in line for line in lines)


def test_an_error_within_half_a_step_is_resolution_where_the_type_resolves_what_it_reaches():
    sums = Sums(100, 1, 1, 0.5, 100 * 0.4**2, 40, 1)
    assert within_a_step(sums, 1.0, step=1.0, span=255.0)
    assert not within_a_step(sums, 1.0, step=0.7, span=0.7 * 255)  # beyond half a step
    assert within_a_step(sums, 1.0, step=0.01, span=255.0)  # of 16 bits: what 8 bits leave of what it reaches
    assert not within_a_step(sums, 2.1, step=1.0, span=255.0)  # one value is lost, however many are right
    assert not within_a_step(sums, 1.0, step=1.0, span=20.0)  # a type of 20 levels resolves nothing
    assert not within_a_step(sums, 1.0, step=0.0, span=255.0)  # stored as float
    assert OutputFigures(sums, None, 1.0, 255.0, 1.0).good(DOCUMENTED)
    assert not OutputFigures(sums, None, 0.7, 0.7 * 255, 1.0).good(DOCUMENTED)


def near_nothing(folder, capsys, largest):
    """A net whose output is a probability that is nearly 0 on all pictures but those it was calibrated on, where it
    reaches ``largest``; diagnosed with limits."""
    constants = {"low": np.full((1, 4, 1, 1), -7.5, np.float32), "most": np.array([0.99], np.float32)}
    tail = [node("Add", ["c2", "low"], "logit"), node("Sigmoid", ["logit"], "s"), node("Mul", ["s", "most"], "p")]
    net = small_net(*tail, outputs=["p"], constants=constants)
    onnx.save(net.proto, "net.onnx")
    assert main([*DIAGNOSE, "-o", "calibrated", "--quant-level", "L1"]) == 0
    path = folder / "calibrated/log/tensor_min_max.txt"
    text = re.sub(r"(?m)^Name:logit,.*$", "Name:logit, min: -10.000000, max: 3.000000;", path.read_text())
    path.write_text(re.sub(r"(?m)^Name:p,.*$", f"Name:p, min: 0.000000, max: {largest};", text))
    capsys.readouterr()
    ini = ["--input-config", "calibrated/input_config.ini", "--quant-level", "L1"]
    return diagnosed(net, capsys, *ini, "--ranges", str(path), "--max-rmse", "0.001")


def test_an_error_of_what_is_nearly_nothing_is_judged_by_what_the_tensor_reaches(folder, capsys):
    """Probabilities around 0.0005, off by a hundred thousandth, of a tensor that reaches 0.95: in the sentence, JSON,
    CSV and exit status; of one that reaches 0.001 they are bad."""
    _, lines, document = near_nothing(folder, capsys, "0.950000")
    p = next(f for f in document["findings"] if f["layer"] == "p")
    assert p["figures"]["rmse"] > 0.001 and p["facts"] == {"verdict": "good", "reason": "resolution"}
    assert p["figures"]["reaches"] == pytest.approx(0.95) and p["figures"]["largest_error"] < 0.003
    assert any(
        re.search(
            r"p COS .*: good \(its largest error is [\d.e-]+ and its range spans 0\.95\d*, so the error is within", line
        )
        for line in lines
    )
    row = next(row for row in document["rows"] if row["name"] == "p")
    assert row["resolution"] and row["reaches"] == pytest.approx(0.95, rel=0.01)
    with open("d/layers.csv", newline="") as file:
        (line,) = [line for line in csv.DictReader(file) if line["name"] == "p"]
    assert line["resolution"] == "yes" and float(line["largest_error"]) < 0.003
    _, lines, _ = near_nothing(folder, capsys, "0.001000")
    assert lines[0].startswith("FAIL: output p RMSE ")


def test_the_exit_status_is_that_of_the_verdict(folder, capsys):
    """The outputs are judged on all pictures: an output past a limit is exit 1, whatever the layers' pictures show."""
    net = small_net(outputs=["c2"])
    status, lines, _ = diagnosed(net, capsys, "--max-images", "1", "--quant-level", "L1", "--max-rmse", "0.000001")
    assert status == 1 and lines[0].startswith("FAIL: output c2 RMSE ") and lines[1].startswith("Cause: ")
    assert diagnosed(net, capsys, "--max-rmse", "0.9", "--quant-level", "L1")[0] == 0


def test_bad_layers_are_one_finding_with_the_cause_that_they_share(folder, capsys):
    line = sick_digits()
    assert main([*line, "--quant-level", "L1", "-o", "d"]) == 0
    out = capsys.readouterr().out.splitlines()
    document = json.loads((folder / "d/layers.json").read_text())
    (layers,) = [f for f in document["findings"] if f["kind"] == "layers"]
    cause = next(f for f in document["findings"] if f["kind"] == "cause")
    assert layers["facts"]["input"] == cause["facts"]["input"] and layers["layer"] == cause["layer"]
    past, after = (int(layers["figures"][name]) for name in ("past", "after"))
    assert past == len(layers["names"]) and 0 < after <= past
    (said,) = [text for text in out if " layers exceed the limits (" in text]
    which = "all" if after == past else f"{after} of them"
    assert f"; {which} come after {cause['facts']['input']} in the model." in said
    (line,) = [text for text in out if text.startswith("Cause: ")]
    assert f"removes {100 * cause['figures']['gives_back']:.0f} % of the error" in line
    assert said in (folder / "d/report.html").read_text().replace("&lt;", "<").replace("&gt;", ">")


def test_what_the_hardware_draws_of_a_sigmoid_near_nothing_is_resolution(folder, capsys):
    """Its curve ends at about 0.002: probabilities far below, off by more than themselves, are near nothing."""
    tail = [node("Add", ["c2", "offset"], "logit"), node("Sigmoid", ["logit"], "p"), node("Flatten", ["p"], "y")]
    net = small_net(*tail, outputs=["y"], constants={"offset": np.full((1, 4, 1, 1), -12, np.float32)})
    _, lines, document = diagnosed(net, capsys, "--quant-level", "L1")
    figures, facts = document["findings"][0]["figures"], document["findings"][0]["facts"]
    assert figures["rmse"] > 0.1 and facts["verdict"] == "good"
    assert any(line.startswith("No INT16 needed") for line in lines)


def test_the_promise_is_what_calibrating_and_simulating_again_gives(sick, empty_folder, capsys):
    """The figure is the integer model's own with the quant file of the folder."""
    line, out = sick.copied(empty_folder)
    promised = re.search(
        r"on new images: (\d\.\d+) → (\d\.\d+), within the limits \(measured with the chip's integer arithmetic", out
    )
    assert promised and f"{promised[1]} → {promised[2]} expected on new images" in out.splitlines()[2]
    again = given_again(line, "L3", capsys)
    rmse = float(re.search(r"RMSE (\d\.\d+), limit", again)[1])
    (advice,) = (f for f in json.loads(Path("d/layers.json").read_text())["findings"] if f["kind"] == "advice")
    assert rmse == pytest.approx(advice["figures"]["error_after"], rel=6e-3), "three digits"
    assert 0.9 * rmse < float(promised[2]) < 1.5 * rmse, "of images held out"
    assert "INT16 convolutions: 2 of 10 (raised by the fixed model: block2/dw/relu, block4/dw/relu)." in again


def given_again(line, level, capsys):
    """What ``diagnose`` says of the fixed model that ``calibrate`` makes of the folder ``d`` that it wrote."""
    ini = ["--input-config", "d/input_config.ini"]
    quant = ["--quant-level", level, "--quant-file", "d/advised.quant.json", "-o", "room.onnx"]
    assert main(["calibrate", *line[1:-2], *ini, *quant]) == 0
    capsys.readouterr()
    assert main([*line, "--fixed", "room.onnx", "-o", "again"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["diagnose", "explain"])
def test_a_promise_is_of_all_that_the_words_to_paste_raise(command, sick_with_one_beginning, empty_folder, capsys):
    """The SDK takes a word of tensor_arrays for every input whose name begins so."""
    folder = empty_folder
    line, out = sick_with_one_beginning.copied(folder)
    if command == "diagnose":
        assert (
            "tensor_arrays entry 'wide' also raises wide_also, wide_too to INT16: the SDK raises every convolution"
            in out
        )
    else:
        ranges = ["d/log/tensor_min_max.txt", "--quant-level", "L3"]
        assert main(["tune", "--explain", "--ranges", *ranges, *line[1:], "--json", "advice.json"]) == 0
        out = capsys.readouterr().out
        assert "tensor_arrays entry 'wide' also raises wide_also, wide_too to INT16" in out
    if command == "diagnose":
        (advice,) = (f for f in json.loads(Path("d/layers.json").read_text())["findings"] if f["kind"] == "advice")
        promised = advice["figures"]["error_after"]
    else:
        (figures,) = json.loads((folder / "advice.json").read_text())["outputs"]["tensor_arrays"].values()
        promised = figures["rmse"]
    words = re.search(r"tensor_arrays='(.*)'", out)[1]
    ini = (folder / "input_config.ini").read_text() + f"\n[CONV_CONFIG]\ntensor_arrays='{words}';\n"
    (folder / "again.ini").write_text(ini)
    if command == "diagnose":
        again = given_again(line, "L3", capsys)
    else:
        assert main([*line[:-1], "again.ini", "--quant-level", "L3", "-o", "again"]) == 0
        again = capsys.readouterr().out
    assert "INT16 convolutions: 4 of 10" in again
    assert float(re.search(r"RMSE (\d\.\d+), limit", again)[1]) == pytest.approx(promised, rel=0.05)


def test_the_cause_is_the_same_in_headline_advice_json_csv_and_page(sick):
    folder = sick.folder
    out = [line for line in sick.said.splitlines() if not line.startswith("warning")]
    assert out[1].startswith("Cause: tensor block4/dw/relu, input of block4/pw (CONV_2D). Measured on 32 images: ")
    (expected,) = [text for text in out if text.startswith("Expected output error on new images: ")]
    assert "32 images, held out in 2 folds" in expected
    document = json.loads((folder / "d/layers.json").read_text())
    causes = [f for f in document["findings"] if f["kind"] == "cause"]
    assert causes[0]["facts"]["input"] == "block4/dw/relu" and causes[0]["evidence"] == "measured"
    with open(folder / "d/layers.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    largest = max((row for row in rows.values() if row["gives_back"]), key=lambda row: float(row["gives_back"]))
    assert largest["name"] == "block4/pw/relu"
    assert float(largest["own"]) <= float(largest["in_all"]) * 1.5
    page = (folder / "d/report.html").read_text()
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    marked = [layer["name"] for layer in data["layers"] if layer.get("rises")]
    assert set(marked) == {"block2/add", "block4/pw/relu"}
    for head in ("Own", "Inherited", "Brings", "Gives back"):
        assert f">{head}</th>" in page


def test_nothing_is_advised_twice_or_where_it_is_so_already(folder, capsys):
    line = sick_digits()
    ini = (folder / "input_config.ini").read_text()
    (folder / "input_config.ini").write_text(ini + "\n[CONV_CONFIG]\ninput_format=ALL_INT16;\n")
    assert main([*line, "--quant-level", "L3", "-o", "d"]) == 0
    out = capsys.readouterr().out
    assert "Copy these lines into input_config.ini" not in out and "tensor_arrays" not in out
    assert "already has" in out and "at INT16." in out
    ranges = "tune --explain --ranges d/log/tensor_min_max.txt -m digits.onnx --input-config input_config.ini"
    assert main(ranges.split()) == 0
    out = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("warning")]
    assert any(line.startswith("input_config.ini has input_format=ALL_INT16: ") for line in out)
    assert out[-1] == "To raise only these, remove input_format=ALL_INT16 from input_config.ini."
    (folder / "input_config.ini").write_text(ini)
    assert main([*line, "--quant-level", "L1", "-o", "e"]) == 0
    out = capsys.readouterr().out
    advised = set(input_config.read("e/input_config.ini").tensor_arrays)
    helps = re.search(r"(?:Next|Best) candidates for INT16: (.*)\.", out)
    assert advised and not (helps and advised & set(helps[1].split(", ")))


def test_a_clipped_range_is_named_though_16_bits_do_not_help(folder, capsys):
    onnx.save(small_net(outputs=["c2"]).proto, "net.onnx")
    assert main("diagnose -m net.onnx -i pictures -o d --quant-level L1".split()) == 0
    path = folder / "d/log/tensor_min_max.txt"
    path.write_text(re.sub(r"(?m)^Name:r1,.*$", "Name:r1, min: 0.000000, max: 0.100000;", path.read_text()))
    capsys.readouterr()
    line = f"diagnose -m net.onnx -i pictures --ranges {path} --input-config d/input_config.ini -o e --quant-level L1"
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert "\nCause: the calibration range of r1 is 0 to 0.1, but the given images need 0 to " in out
    assert "\nNext: calibrate again on images that resemble the given images; this widens the range of r1." in out


def test_a_network_that_stays_in_float_gets_no_clean_bill(folder, capsys):
    """An LSTM after a convolution: its weights did not become integers."""
    rng = np.random.default_rng(0)
    lstm = {"W": rng.normal(0, 0.3, (1, 32, 4)), "R": rng.normal(0, 0.3, (1, 32, 8)), "shape": np.array([64, 1, 4])}
    constants = {name: array.astype(np.int64 if name == "shape" else np.float32) for name, array in lstm.items()}
    nodes = [
        node("Reshape", ["c2", "shape"], "steps"),
        helper.make_node("LSTM", ["steps", "W", "R"], ["y"], name="y", hidden_size=8),
    ]
    _, lines, document = diagnosed(small_net(*nodes, outputs=["y"], constants=constants), capsys)
    text = "\n".join(lines)
    assert "Judged: 33 % of the weights" in text and "1 LSTM stayed in float32. The result does not contain" in text
    assert "No INT16 needed for the operators that became integers" in text or lines[0].startswith("FAIL")
    left = next(f for f in document["findings"] if f["kind"] == "not judged")
    assert left["names"] == ["LSTM"] and 0.3 < left["figures"]["weights"] < 0.4
    bits = {row["name"]: row["bits"] for row in document["rows"] if "bits" in row}
    assert bits == {"r1": 8, "c2": 8, "y": 32}


def test_indices_are_no_objective_and_a_count_that_changes_does_not_stop_it(folder, capsys):
    """A detector with NonMaxSuppression inside is judged by what that reads."""
    constants = {
        "b.shape": np.array([1, 64, 4]),
        "most": np.array([5]),
        "iou": np.array([0.5], np.float32),
        "score": np.array([0.0], np.float32),
        **weights("s", (1, 6, 1, 1), 5),
        "s.shape": np.array([1, 1, 64]),
    }
    nodes = [
        node("Reshape", ["c2", "b.shape"], "boxes"),
        conv("s", "r1"),
        node("Reshape", ["s", "s.shape"], "scores"),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], "picked"),
    ]
    net = small_net(*nodes, outputs=["picked"], constants=constants)
    del net.proto.graph.output[:]
    net.proto.graph.output.append(helper.make_tensor_value_info("picked", TensorProto.INT64, None))
    assert watched_by_output(net.proto) == {"boxes": "boxes", "scores": "scores"}
    status, lines, document = diagnosed(net, capsys)
    assert status == 0 and lines[0].startswith("PASS: output ") and "picked" not in lines[0]
    assert any("Not judged: picked, which holds indices or values picked by index." in line for line in lines)
    assert [f["layer"] for f in document["findings"] if f["kind"] == "output"] == ["boxes", "scores"]
    assert main("calibrate -m net.onnx -i pictures --input-config d/input_config.ini -o fixed.onnx".split()) == 0
    assert "judging ignores the output picked, which holds indices or values picked by index" in capsys.readouterr().out


def test_what_is_int16_by_rule_is_not_advised(folder, capsys):
    """An average of many values is computed of INT16 whatever reads it: nothing is left to raise there."""
    constants = {**weights("c3", (3, 4, 1, 1), 3)}
    nodes = [node("GlobalAveragePool", ["c2"], "gap"), conv("c3", "gap")]
    net = small_net(*nodes, outputs=["c3"], constants=constants)
    onnx.save(net.proto, "net.onnx")
    from sgsdump.fixedpoint.quantisation.analysis import analyse

    analysis = analyse(open_model("net.onnx").proto)
    forced = [name for name in analysis.first_inputs if analysis.domain[name] in analysis.forced_domains]
    assert main([*DIAGNOSE, "-o", "d", "--max-rmse", "0.000001"]) == 1
    capsys.readouterr()
    advised = input_config.read("d/input_config.ini").tensor_arrays
    assert not set(forced) & set(advised)


def test_outputs_are_of_the_pictures_that_are_given(folder):
    """An oracle: both models run one by one."""
    import onnxruntime as ort

    onnx.save(small_net(outputs=["c2"]).proto, "net.onnx")
    assert main([*DIAGNOSE, "-o", "d", "--quant-level", "L1"]) == 0
    fixed, real = (
        ort.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in ("d/fixed.onnx", "net.onnx")
    )
    a, b = [], []
    for path in sorted((folder / "pictures").iterdir()):
        raw = np.asarray(Image.open(path), np.float32).transpose(2, 0, 1)[None]
        kind = np.float32 if fixed.get_inputs()[0].type == "tensor(float)" else np.uint8
        a.append(fixed.run(["c2"], {"data": raw.astype(kind)})[0].astype(np.float64))
        b.append(real.run(["c2"], {"data": raw / 255})[0].astype(np.float64))
    a, b = np.concatenate(a), np.concatenate(b)
    figures = json.loads((folder / "d/layers.json").read_text())["findings"][0]["figures"]
    assert figures["rmse"] == pytest.approx(np.abs(a - b).sum() / np.abs(b).sum(), rel=1e-4)
    a, b = a - b.mean(0), b - b.mean(0)
    assert figures["cos_about_mean"] == pytest.approx((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), rel=1e-4)


def test_tune_leaves_no_empty_folder_after_an_early_error(folder, capsys):
    sick_digits()
    line = "tune -m missing.onnx -i pictures --input-config input_config.ini -o tuned"
    assert main(line.split()) == 2
    assert not (folder / "tuned").exists()


def test_tune_chooses_by_the_integers_and_says_how_far_off_the_approximation_was(folder, capsys):
    sick_digits()
    line = "tune -m digits.onnx -i pictures --input-config input_config.ini --quant-level L2 --rates 0.65,0.8 -o tuned"
    assert main([*line.split(), "--budget", "20s"]) == 0
    out = capsys.readouterr().out
    assert "plan *: chosen by its error with the chip's integer arithmetic. " in out and "plans run in both" in out
    document = json.loads((folder / "tuned/pareto.json").read_text())
    rows = document["rows"]
    low, high = rows[0]["error"], rows[-1]["error"]
    enough = [row for row in rows if row["error"] <= low - 0.95 * (low - high)]
    taken = next(row for row in rows if row["taken"])
    smallest = min(row["rate"] for row in enough)
    assert taken["rate"] >= smallest and (f"*: {smallest:.3f} of the bytes would go" in out) == (
        taken["rate"] > smallest
    )
    assert all(row["error"] != row["searched"] for row in rows) and len(document["off"]) >= len(rows)


def test_a_target_by_a_metric_rests_on_the_integers(folder, capsys):
    """The metric is called with the integer model's outputs, and its limit holds for these."""
    sick_digits()
    (folder / "metric.py").write_text(
        "import numpy as np\n\n\ndef near(outputs, floats):\n"
        "    return 1 - float(np.abs(outputs['prob'] - floats['prob']).max())\n"
    )
    for path in sorted((folder / "pictures").iterdir())[10:]:
        path.unlink()
    line = "tune -m digits.onnx -i pictures --input-config input_config.ini --quant-level L2 --metric metric.py:near"
    assert main([*line.split(), "--target", "metric>=0.97", "--budget", "20s", "-o", "tuned", "--fixed-model"]) == 0
    document = json.loads((folder / "tuned/pareto.json").read_text())
    taken = next(row for row in document["rows"] if row["taken"])
    assert taken["metric"] >= 0.97
    fixed, real = (WholeGraph(onnx.load(path)) for path in ("tuned/optimized.onnx", "digits.onnx"))
    paths = sorted((folder / "pictures").iterdir())
    values = []
    for path in paths:
        raw = np.asarray(Image.open(path).convert("L"), np.float32)[None, None]
        ours, theirs = (
            graph.run({"image": x}, ["prob"])["prob"] for graph, x in ((fixed, raw), (real, (raw - 127) / 128))
        )
        values.append(1 - np.abs(ours - theirs).max())
    assert taken["metric"] == pytest.approx(np.mean(values), abs=1e-5)


def loud_first_net():
    """The first convolution has a channel of weights a hundred times as large as the others; its Relu cuts it off."""
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), node("Relu", ["c1"], "r1"), conv("c2", "r1")]
    shapes = {**weights("c1", (6, 3, 3, 3), 1), **weights("c2", (4, 6, 1, 1), 2)}
    shapes["c1.w"][0] *= 100
    shapes["c1.b"][0] = -300
    return model(nodes, shapes, {"data": (1, 3, 8, 8)}, ["c2"])


def test_weights_of_one_scale_are_measured_with_one_for_each_channel_and_said_first(folder, capsys):
    _, lines, document = diagnosed(loud_first_net(), capsys, "--quant-level", "L1")
    first = next(line for line in lines if not line.startswith(("assumed:", "warning:", "note:")))
    assert first.startswith("FAIL: output c2 ")
    said = re.search(r"^Cause: the weights of c1 .* the output error changes from ([\d.]+) to ([\d.]+)\.", lines[1])
    before, after = map(float, said.groups())
    cause = next(f for f in document["findings"] if f["kind"] == "cause")
    assert cause["facts"] == {"reason": "weights per tensor", "input": "c1"}
    assert cause["figures"]["error_after"] == pytest.approx(after, rel=6e-3)
    assert after < 0.1 * before
    assert lines[2].startswith("Next: use --quant-level L2 or above")
    assert not any("Check the calibration ranges" in line for line in lines)


def test_above_the_first_level_nothing_is_said_of_scales_per_channel(folder, capsys):
    _, lines, _ = diagnosed(loud_first_net(), capsys, "--quant-level", "L2")
    assert not any("scale per tensor" in line or "Use --quant-level" in line for line in lines)


def test_pictures_that_hardly_move_a_probability_are_said_to(folder, capsys):
    """A Sigmoid far below 0, with loud weights before it: as a detector of text on pictures without any."""
    net = loud_first_net()
    for tensor in net.proto.graph.initializer:
        if tensor.name == "c2.w":
            tensor.CopyFrom(onnx.numpy_helper.from_array(4 * onnx.numpy_helper.to_array(tensor), "c2.w"))
        elif tensor.name == "c2.b":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(4, -5, np.float32), "c2.b"))
    net.proto.graph.node.append(node("Sigmoid", ["c2"], "score"))
    net.proto.graph.output[0].name = "score"
    _, lines, document = diagnosed(net, capsys, "--quant-level", "L1")
    output = document["findings"][0]
    assert output["facts"] == {"verdict": "bad", "reason": "hardly moved"}
    assert 0 < output["figures"]["seen"] < 0.05 and output["figures"]["reaches"] == 1
    assert any("the given images barely affect this output: its values span" in line for line in lines)
    steps = [line for line in lines if line.startswith(("Use images that contain", "Use --quant", "INT16 alone"))]
    assert steps[0].startswith("Use images that contain what the model detects")
