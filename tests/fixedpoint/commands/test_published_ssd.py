"""An SSD as it is published, with every command: it is cut before its post-processing, and that is said."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from models.caffe.nets import by_opencv, save
from models.caffe.test_whole_nets import DETECTOR_WEIGHTS, SSD
from PIL import Image

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump
from sgsdump.sidecars import input_config

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = BGR;
input_formats = BGR;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
"""
NOTE = (
    "the model is cut before its post-processing 'detection_out' (DetectionOutput); its outputs are now loc, "
    "conf_flat; also left out: p1_prior, p2_prior, prior"
)
SECTION = ["[OUTPUT_CONFIG]", "outputs = loc,conf_flat;", "dequantizations = TRUE,TRUE;"]
NET = ["-m", "net.prototxt", "--weight-file", "net.caffemodel"]
PICTURES = [*NET, "-i", "pictures", "--input-config", "input_config.ini"]
QUANTISED = [*PICTURES, "--quant-level", "L2"]
COMMANDS = {
    "dump": ["dump", *PICTURES],
    "pipeline": ["pipeline", "full", *NET],
    "simulate": ["simulate", "-t", "Float", *PICTURES],
    "calibrate": ["calibrate", *QUANTISED],
    "diagnose": ["diagnose", *QUANTISED],
    "tune": ["tune", *QUANTISED, "-o", "tuned", "--rates", "0.8"],
    "tune --first": ["tune", "--first", *QUANTISED, "-o", "first", "--rounds", "1"],
}


@pytest.fixture
def ssd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sgsdump.fixedpoint.reports.pareto_chart.pareto_png", lambda result: b"png")
    save(tmp_path, SSD, DETECTOR_WEIGHTS)
    Path("input_config.ini").write_text(INI)
    Path("pictures").mkdir()
    rng = np.random.default_rng(0)
    for index in range(2):
        Image.fromarray(rng.integers(0, 256, (30, 34, 3), np.uint8)).save(f"pictures/{index}.png")
    return tmp_path


def said_of_cut(capsys, name):
    """The lines of stdout, where the cut was told once on the stream of the command."""
    said = capsys.readouterr()
    lines = {"out": said.out.splitlines(), "err": said.err.splitlines()}
    streams = [stream for stream in lines for line in lines[stream] if line == f"note: {NOTE}"]
    assert streams == ["err" if name == "diagnose" else "out"]
    return lines["out"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_was_cut_and_what_to_paste(ssd, capsys, name):
    assert main(COMMANDS[name]) == 0
    lines = said_of_cut(capsys, name)
    start = lines.index("for input_config.ini:")
    assert lines[start + 1 : start + 4] == SECTION
    # pasted, it is there
    Path("input_config.ini").write_text("\n".join([INI, *SECTION]))
    if name != "pipeline":
        again = [word if word not in ("tuned", "first") else f"{word}_again" for word in COMMANDS[name]]
        assert main(again) == 0
        lines = said_of_cut(capsys, name)
        assert "for input_config.ini:" not in lines


def test_explain_after_calibrate(ssd, capsys):
    assert main(COMMANDS["calibrate"]) == 0
    capsys.readouterr()
    assert main(["tune", "--explain", "--ranges", "log/tensor_min_max.txt", *QUANTISED]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(f"note: {NOTE}") == 1
    assert lines[-3:] == SECTION


def test_the_report_has_it_among_what_was_assumed(ssd, capsys):
    assert main([word for word in COMMANDS["diagnose"] if "input" not in word]) == 0
    said_of_cut(capsys, "diagnose")
    page = Path("diagnosis/report.html").read_text()
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert {"conf_flat", "loc"} <= {layer["name"] for layer in data["layers"]}
    assert "the model is cut before its post-processing" in page
    assert [output.name for output in input_config.read("diagnosis/input_config.ini").outputs] == ["loc", "conf_flat"]


def test_the_dump_holds_what_opencv_computes_of_the_whole_net(ssd):
    feed = {"data": np.random.default_rng(1).normal(0, 1, (1, 3, 30, 34)).astype(np.float32)}
    np.save("x.npy", feed["data"])
    assert main(["dump", *NET, "-i", "x.npy", "-o", "out.bin"]) == 0
    dump = open_dump("out.bin")
    assert not {"prior", "detection_out"} & {record.name for record in dump.records}
    wanted = by_opencv(SSD, DETECTOR_WEIGHTS, feed, ["loc", "conf_flat", "detection_out"])
    assert wanted["detection_out"].size  # the importer runs the post-processing too
    for name in ("loc", "conf_flat"):
        np.testing.assert_allclose(dump[name].real(), wanted[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["simulate", "calibrate", "diagnose", "tune", "tune --first"])
def test_an_output_that_was_cut_off_is_refused_before_anything_runs(ssd, capsys, name):
    Path("input_config.ini").write_text(INI + "[OUTPUT_CONFIG]\noutputs = detection_out;\n")
    assert main(COMMANDS[name]) == 2
    error = capsys.readouterr().err
    assert "outputs names 'detection_out'" in error
    assert "write outputs = loc,conf_flat;" in error
    assert not {"first", "diagnosis", "log"} & {path.name for path in ssd.iterdir()}


def test_an_input_of_the_post_processing_alone_is_named(ssd, capsys):
    proposal = 'layer { name: "rois" type: "Proposal" bottom: "loc" bottom: "im_info" top: "rois" }\n'
    info = 'layer { name: "im_info" type: "Input" top: "im_info" input_param { shape { dim: 1 dim: 3 } } }\n'
    save(ssd, SSD + info + proposal, DETECTOR_WEIGHTS)
    Path("input_config.ini").write_text(
        INI.replace("= data;", "= data,im_info;").replace("= BGR;", "= BGR,RAWDATA_F32_NHWC;")
    )
    assert main(COMMANDS["calibrate"]) == 2
    assert (
        "the key inputs contains 'im_info', but only the post-processing of net.prototxt reads"
        in capsys.readouterr().err
    )


def test_a_tensor_that_was_cut_off_is_asked_for(ssd, capsys):
    assert main(["pipeline", "once", *NET, "--name", "detection_out"]) == 2
    assert NOTE in capsys.readouterr().out
