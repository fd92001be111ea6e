"""A Caffe net with layers in place, through the commands: stages, layers of one name."""

import onnx
import pytest
from models.caffe.layer_list import Layer, random_weights, text_of
from models.caffe.nets import save
from picture_folder import write_pictures

from sgsdump.cli import main
from sgsdump.commands.sdk.files import find
from sgsdump.comparison.compare import compare
from sgsdump.comparison.distribution import distributions, layers, pair_ranges
from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.reports.command_reports import attributes_of
from sgsdump.models.model import open_model, read_stages
from sgsdump.reports.report import Context, report_of
from sgsdump.sidecars.tensor_min_max import read_ranges

CONV = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"
LAYERS = [
    Layer("Convolution", "conv1", ["data"], ["conv1"], CONV, [(4, 3, 3, 3), (4,)]),
    Layer("BatchNorm", "bn1", ["conv1"], ["conv1"], "", [(4,), (4,), (1,)]),
    Layer("Scale", "scale1", ["conv1"], ["conv1"], "scale_param { bias_term: true }", [(4,), (4,)]),
    Layer("ReLU", "relu1", ["conv1"], ["conv1"]),
    Layer("Convolution", "conv2", ["conv1"], ["conv2"], CONV, [(4, 4, 3, 3), (4,)]),
    Layer("ReLU", "relu2", ["conv2"], ["conv2"]),
    Layer("Convolution", "out", ["conv2"], ["out"], CONV, [(4, 4, 3, 3), (4,)]),
]
DUMP = (
    "-m net.prototxt --weight-file net.caffemodel -i pictures/0.png --input-config input_config.ini -o ref.bin".split()
)
NET = "-m net.prototxt --weight-file net.caffemodel -i pictures --input-config input_config.ini".split()


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, LAYERS)


def written(folder, layers):
    save(folder, text_of({"data": (1, 3, 8, 8)}, layers), random_weights(layers))
    write_pictures(folder, 2)
    return folder


def test_the_fixed_model_carries_the_table(net):
    assert main(["calibrate", *NET, "-o", "fixed.onnx"]) == 0
    stages = [(stage.name, stage.blob, stage.layer) for stage in read_stages(onnx.load("fixed.onnx"))]
    assert stages[:4] == [
        ("conv1", "conv1", "conv1"),
        ("conv1_xx", "conv1", "bn1"),
        ("conv1_xx_xx", "conv1", "scale1"),
        ("conv1_xx_xx_xx", "conv1", "relu1"),
    ]
    assert {"conv1_xx_xx_xx", "conv2_xx", "out"} <= set(read_ranges("log/tensor_min_max.txt"))


def test_the_ranges_of_a_calibration_are_taken(net, capsys):
    assert main(["calibrate", *NET, "-o", "a.onnx"]) == 0
    assert main(["calibrate", *NET, "-o", "b.onnx", "--quant-file", "log/tensor_min_max.txt"]) == 0
    assert "not in this model" not in capsys.readouterr().out
    names = [[name for node in onnx.load(path).graph.node for name in node.output] for path in ("a.onnx", "b.onnx")]
    assert names[0] == names[1]


REPEATED = [layer._replace(name="relu") if layer.type == "ReLU" else layer for layer in LAYERS]
WARNING = "warning: two layers are called 'relu', and SDK 1.1.5 refuses such a model; rename one before you convert it"


@pytest.mark.parametrize(
    "command",
    [
        ["calibrate", *NET],
        ["diagnose", *NET, "-o", "found"],
        ["tune", *NET, "-o", "tuned"],
        ["tune", "--first", *NET, "-o", "first"],
        ["tune", "--explain", "--ranges", "log/tensor_min_max.txt", *NET[:4], *NET[6:]],
    ],
    ids=lambda command: "".join(command[:2]),
)
def test_layers_of_one_name_are_said(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, REPEATED)
    if "--explain" in command:
        assert main(["calibrate", *NET]) == 0
        capsys.readouterr()
    assert main(command) in (0, 1)
    captured = capsys.readouterr()
    assert captured.out.count(WARNING) + captured.err.count(WARNING) == 1


def test_a_dump_says_nothing_of_layers_of_one_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, REPEATED)
    assert main(["dump", *DUMP]) == 0
    assert "SDK" not in "".join(capsys.readouterr())


def test_names_used_once_are_not_said(net, capsys):
    assert main(["calibrate", *NET]) == 0
    assert "two layers" not in capsys.readouterr().out
    assert open_model(net / "net.prototxt", net / "net.caffemodel", staged_outputs=()).repeated_layers == ()


def test_a_histogram_of_a_reference_takes_the_range_of_a_blobs_last_stage(net, capsys):
    assert main(["calibrate", *NET]) == 0
    assert main(["dump", *DUMP]) == 0
    dump, ranges = open_dump("ref.bin"), read_ranges("log/tensor_min_max.txt")
    pairs = pair_ranges([record.name for record in layers(dump)], ranges)
    assert pairs == {"conv1": "conv1_xx_xx_xx", "conv2": "conv2_xx", "out": "out"}
    drawn = list(distributions(dump, {name: ranges[pairs[name]] for name in pairs}))
    assert [(each.name, each.outside, each.limits[0] >= 0) for each in drawn[:2]] == [
        ("conv1", 0, True),
        ("conv2", 0, True),
    ]
    capsys.readouterr()
    assert main(["histogram", "ref.bin", "log/tensor_min_max.txt"]) == 0
    said = capsys.readouterr().out
    assert "3 charts in Histograms" in said and "outside" not in said


def test_a_blob_that_no_tensor_is_called_is_its_last_stage(net, capsys):
    assert main(["calibrate", *NET, "-o", "fixed.onnx"]) == 0
    (net / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    assert main(["simulate", "-m", "fixed.onnx", "-t", "Fixed", "-i", "pictures/0.png"]) == 0
    dump = open_dump("sigma_outtensor_dump.bin")
    assert "conv1_xx_xx_xx" in dump and "conv1" not in dump
    capsys.readouterr()
    assert main(["show", "sigma_outtensor_dump.bin", "conv1"]) == 0
    assert "the last stage of conv1" in capsys.readouterr().out
    assert find(dump, "conv1").name == "conv1_xx_xx_xx"
    assert find(dump, "conv2_xx").name == "conv2_xx"


def test_the_verdict_names_the_blob_and_its_stage(net):
    assert main(["calibrate", *NET, "-o", "fixed.onnx"]) == 0
    (net / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    assert main(["simulate", "-m", "fixed.onnx", "-t", "Fixed", "-i", "pictures/0.png"]) == 0
    assert main(["dump", *DUMP]) == 0
    fixed, reference = open_dump("sigma_outtensor_dump.bin"), open_dump("ref.bin")
    attributes = attributes_of(open_model(net / "net.prototxt", net / "net.caffemodel"))
    context = Context(fixed, reference, attributes=attributes)
    lines = report_of(compare(fixed, reference, details=True), context=context).details
    assert any("conv1 (conv1_xx_xx_xx)" in line for line in lines), lines
