"""``sgsdump tune --explain`` as a user types it: the demo's sick net, healthy nets, and files that do not fit."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from json_documents import checked
from quantised_nets import quantise
from small_nets import conv, model, node, residual_net, weights

from sgsdump.cli import main
from sgsdump.fixedpoint.commands import demo
from sgsdump.sidecars import input_config

ARGS = ["--ranges", "log/tensor_min_max.txt", "-m", "digits.onnx", "--input-config", "input_config.ini"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The demo's own files, and the ranges and dumps of one spoilt digit; pictures/ for all, few/ for eight."""
    path = tmp_path_factory.mktemp("explain")
    digits = demo._digits()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        demo._lay_out(digits)
        (path / "few").mkdir()
        for number in range(8):
            demo._save_picture(path / "few" / f"{number}.png", digits.calibration[number])
        config = ["--input-config", "input_config.ini"]
        calibrate = ["calibrate", "-m", "digits.onnx", "-i", "pictures", *config]
        assert main([*calibrate, "--quant-level", "L1", "-o", "fixed.onnx"]) == 0
        (path / "all16.ini").write_text(demo.INPUT_CONFIG + "[CONV_CONFIG]\ninput_format = ALL_INT16;\n")
        assert main([*calibrate[:-1], "all16.ini", "--quant-level", "L1", "-o", "all16.onnx"]) == 0
        for kind, model, more in (("Float", "digits", config), ("Fixed", "fixed", []), ("Fixed", "all16", [])):
            assert main(["simulate", "-m", f"{model}.onnx", "-t", kind, "-i", "few/0.png", *more]) == 0
            (path / "sigma_outtensor_dump.bin").rename(path / f"{model.replace('digits', 'float')}.bin")
    return path


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def sections(text):
    """The printed [CONV_CONFIG] as a list of names, [] when there is none."""
    found = re.search(r"^\[CONV_CONFIG\]\ntensor_arrays='(.*)';$", text, re.M)
    return found[1].split(",") if found else []


def verdicts(text):
    """Convolution -> verdict, from the printed table."""
    return {name: verdict for verdict, name in re.findall(r"^(yes|maybe|no) +(\S+)", text, re.M)}


def planted():
    """First inputs of the planted convolutions, from the model itself."""
    proto = onnx.load("digits.onnx")
    names = next(entry.value for entry in proto.metadata_props if entry.key == "planted").split(",")
    return [node.input[0] for node in proto.graph.node if node.output[0] in names]


def test_it_chooses_what_was_planted_and_nothing_else(capsys, tmp_path):
    assert main(["tune", "--explain", *ARGS, "-i", "few", "--json", str(tmp_path / "a.json")]) == 0
    text = capsys.readouterr().out
    assert sections(text) == planted() == ["block2/dw/relu", "block4/dw/relu"]
    assert "With block2/dw/relu, block4/dw/relu at INT16, the outputs are within the limits." in text
    found = checked(tmp_path / "a.json")
    assert found["tensor_arrays"] == planted() and found["pictures"] == 8
    assert {c["name"]: c["verdict"] for c in found["convolutions"]} == verdicts(text)
    assert sum(c["verdict"] == "no" for c in found["convolutions"]) == 8
    assert found["outputs"]["tensor_arrays"]["logits"]["rmse"] < 0.05 < found["outputs"]["all_8"]["logits"]["rmse"]


def test_one_weight_scale_blames_the_depthwise_convolutions_before_them_too(capsys):
    assert main(["tune", "--explain", *ARGS, "-i", "few", "--quant-level", "L1"]) == 0
    assert set(sections(capsys.readouterr().out)) == {*planted(), "block1/pw/relu", "block3/pw/relu"}


def test_the_rules_alone_find_them_too(capsys):
    for more in ([], ["--dump", "float.bin"]):
        assert main(["tune", "--explain", *ARGS, *more]) == 0
        assert sections(capsys.readouterr().out) == planted(), more
    assert main(["tune", "--explain", *ARGS, "--dump", "float.bin", "--fixed", "fixed.bin"]) == 0
    assert set(planted()) <= set(sections(capsys.readouterr().out)), "one picture's errors also accuse others"


def test_a_fixed_dump_that_is_int16_already_acquits_nobody(capsys):
    assert main(["tune", "--explain", *ARGS, "--dump", "float.bin", "--fixed", "all16.bin"]) == 0
    text = capsys.readouterr().out
    assert sections(text) == planted() and text.count("already INT16 in the fixed model") == 10


def test_the_block_can_be_pasted_and_the_next_result_starts_anew(capsys, tmp_path):
    assert main(["tune", "--explain", *ARGS]) == 0
    text = capsys.readouterr().out
    block = text[text.index("[CONV_CONFIG]") :]
    (tmp_path / "new.ini").write_text(demo.INPUT_CONFIG + block)
    assert list(input_config.read(tmp_path / "new.ini").tensor_arrays) == planted()
    assert main(["tune", "--explain", *ARGS[:-1], str(tmp_path / "new.ini")]) == 0
    text = capsys.readouterr().out
    assert sections(text) == planted() and "already has a [CONV_CONFIG];" in text


def test_nothing_to_raise_is_said_plainly(capsys):
    config = ["--max-rmse", "100"]
    assert main(["tune", "--explain", *ARGS, "-i", "few/0.png", *config]) == 0
    text = capsys.readouterr().out
    assert "No INT16 needed. Best candidates for a smaller error: block4/dw/relu" in text
    assert not sections(text)


def test_images_calibrate_where_no_ranges_are_given(capsys, tmp_path):
    """Results of another run are replaced; files of the user stay, and are never overwritten."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    (out / "pareto.csv").write_text("of an older search")
    explain = ["tune", "--explain", *ARGS[2:], "-i", "pictures", "--quant-level", "L2", "-o", str(out)]
    assert main(explain) == 0
    text = capsys.readouterr().out
    assert set(planted()) <= set(sections(text))
    names = {"contributions.csv", "contributions.json", "input_config.ini", "log", "mine.txt", "report.html"}
    assert {path.name for path in out.iterdir()} == names
    found = checked(out / "contributions.json")
    assert found["tensor_arrays"] == sections(text) and found["pictures"] == 4
    with open(out / "contributions.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["name"], row["verdict"]) for row in table] == [
        (each["name"], each["verdict"]) for each in found["convolutions"]
    ]
    assert list(input_config.read(out / "input_config.ini").tensor_arrays) == sections(text)
    assert main([*explain[:-4], "--evaluate", "few", "--ranges", str(out / "log" / "tensor_min_max.txt")]) == 0
    assert "8 images" in capsys.readouterr().out
    (tmp_path / "log").mkdir()
    assert main([*explain[:-1], str(tmp_path)]) == 2
    assert "log: tune did not write this file" in capsys.readouterr().err


def one_convolution(path, op=None):
    nodes = [conv("c", "image")] if op is None else [node(op, ["image"], "c")]
    made = model(nodes, weights("c", (2, 1, 1, 1)) if op is None else {}, {"image": (1, 1, 8, 8)}, ["c"])
    onnx.save(made.proto, path)
    config = demo.INPUT_CONFIG.replace("prob,logits", "c").replace("TRUE,TRUE", "TRUE")
    (path.parent / "one.ini").write_text(config)
    (path.parent / "one.txt").write_text(
        "Name:image, min: -1.000000, max: 1.000000;\nName:c, min: 0.000000, max: 1.0;\n"
    )
    return ["--ranges", str(path.parent / "one.txt"), "-m", str(path), "--input-config", str(path.parent / "one.ini")]


def test_a_model_whose_only_convolution_reads_the_picture(tmp_path, capsys):
    assert main(["tune", "--explain", *one_convolution(tmp_path / "one.onnx"), "-i", "few"]) == 0
    assert "No INT16 needed for any convolution." in capsys.readouterr().out


def test_trouble_is_one_line(tmp_path, capsys):
    (tmp_path / "other.txt").write_text("Name:zebra, min: 0.000000, max: 1.000000;\n")
    (tmp_path / "other.ini").write_text(demo.INPUT_CONFIG.replace("inputs = image", "inputs = picture"))
    from sgsdump.dumps.dump import Record
    from sgsdump.dumps.io import save_dump
    from sgsdump.tensors.tensor import Tensor

    save_dump(
        [Record("out", 0, 0, "CONV_2D", Tensor.of("zebra", np.ones(3, np.float32)))],
        tmp_path / "other.bin",
        on_loss="ignore",
    )
    for words, told in [
        ([*ARGS, "--ranges", str(tmp_path / "other.txt")], "no name in this file matches a layer of this model"),
        (
            [*ARGS[:-1], str(tmp_path / "other.ini")],
            "the key inputs names 'picture', but the inputs of the model are image",
        ),
        ([*ARGS, "--dump", str(tmp_path / "other.bin")], "Give a dump of this model"),
        ([*ARGS, "--dump", "float.bin", "--fixed", str(tmp_path / "other.bin")], "are both dumps of the same model?"),
        (one_convolution(tmp_path / "none.onnx", "Relu"), "no convolution with constant weights"),
        ([*ARGS, "--fixed", "fixed.bin"], "--dump"),
        ([*ARGS, "-n", "pre.py"], "but no images are given; give images with -i"),
        ([*ARGS, "--max-rmse", "0.1"], "give images with -i"),
        ([*ARGS, "-i", "missing.png"], "missing.png"),
        ([*ARGS, "--ranges", "missing.txt"], "missing.txt"),
        (ARGS[2:], "--explain needs ranges; give --ranges TENSOR_MIN_MAX, or images to calibrate on with -i"),
        ([*ARGS, "-o", "."], "the results would overwrite input_config.ini"),
    ]:
        assert main(["tune", "--explain", *words]) == 2, words
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if not line.startswith("warning: SDK 1.1.5 refuses")]
        assert told in error and len(lines) == 1, (words, error)


def test_a_network_that_others_quantised_gets_the_command_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    feeds = [{"data": np.random.default_rng(seed).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for seed in range(2)]
    quantise(Path("net.onnx"), Path("my q.onnx"), feeds, "QDQ")
    np.save("0.npy", feeds[0]["data"])
    assert main(["dump", "-m", "my q.onnx", "-i", "0.npy", "-o", "my q.bin"]) == 0
    explain = ["tune", "--explain", "--ranges", "ranges.txt", "-m", "net.onnx", "--dump", "float.bin", "--fixed"]
    for fixed in ("my q.bin", "my q.onnx"):
        capsys.readouterr()
        assert main([*explain, fixed, "-i", "0.npy"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        command = line.partition("keep in float, run: ")[2]
        assert command == "sgsdump diagnose -m net.onnx --fixed 'my q.onnx' -i 0.npy"
        assert main(shlex.split(command)[1:]) == 0, "the command does as it is"
    Path("my q.bin").rename("other.bin")
    Path("my q.bin.graph.onnx").rename("other.bin.graph.onnx")
    assert main([*explain, "other.bin"]) == 2
    assert "--fixed QUANTISED -i INPUTS" in capsys.readouterr().err
