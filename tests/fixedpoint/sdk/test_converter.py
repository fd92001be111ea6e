"""What SDK 1.1.5 refuses and changes: named before anything long, on all of the vendor's probes and on no other."""

import lzma
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.errors import ModelError
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.sdk import converter as sdk_converter
from sgsdump.fixedpoint.verbs.network import conversion_notes
from sgsdump.models.caffe.net import read_net
from sgsdump.models.model import Model
from sgsdump.sidecars import input_config

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "data" / "sigmastar" / "probes3"
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = y;
dequantizations = TRUE;
"""


def facts(*nodes, opset=11, constants=None, outputs=("y",)):
    first = [conv("c", "data", pads=[1] * 4), node("Relu", ["c"], "r")]
    values = {**weights("c", (8, 3, 3, 3), 1), **(constants or {})}
    net = model([*first, *nodes], values, {"data": (1, 3, 16, 16)}, list(outputs), opset)
    return sdk_converter.facts_of(simplify(net).proto)


def refused_of(probe: Path) -> bool:
    config = input_config.read(probe / "input_config.ini")
    if sdk_converter.config_facts((entry.name, entry.training_format) for entry in config.inputs):
        return True
    if (probe / "net.prototxt").exists():
        layers = read_net(probe / "net.prototxt").layers
        return bool(sdk_converter.caffe_facts((layer.name, layer.type, layer.message) for layer in layers).refused)
    path = probe / "net.onnx"
    data = path.read_bytes() if path.exists() else lzma.decompress((probe / "net.onnx.xz").read_bytes())
    return bool(sdk_converter.facts_of(simplify(Model(onnx.load_from_string(data), path)).proto).refused)


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data/sigmastar/probes3 is not here")
def test_exactly_the_refused_probes_are_named():
    rows = [line.split("\t") for line in (SHARED / "README.tsv").read_text().splitlines()[1:]]
    wrong = [row[0] for row in rows if (SHARED / row[0]).is_dir() and refused_of(SHARED / row[0]) != (row[2] != "ok")]
    assert len(rows) > 200
    assert wrong == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data/sigmastar/probes3 is not here")
def test_every_layer_that_a_warning_names_is_one_of_the_model():
    named = 0
    for path in sorted(SHARED.glob("*/net.onnx*")):
        data = path.read_bytes() if path.suffix == ".onnx" else lzma.decompress(path.read_bytes())
        proto = onnx.load_from_string(data)
        there = {name for one in proto.graph.node for name in (one.name, *one.output)}
        there |= {value.name for value in proto.graph.input}
        found = sdk_converter.facts_of(simplify(Model(proto, path)).proto)
        layers = [name for row in (*found.refused, *found.changed) for name in row.layers]
        assert {*layers, *found.lone_channels} <= there, path
        named += len(layers)
    assert named > 20


@pytest.mark.parametrize(
    ("nodes", "opset", "constants"),
    [
        ([node("Gather", ["r", "order"], "y", axis=1)], 11, {"order": np.array([0, 4, 1, 5, 2, 6, 3, 7])}),
        ([node("Clip", ["r", "zero", "one"], "y")], 11, {"zero": np.float32(0), "one": np.float32(1)}),
        ([node("Slice", ["r"], "y", starts=[0], ends=[4], axes=[1])], 9, {}),
        ([node("ReduceSum", ["r", "axes"], "y")], 13, {"axes": np.array([2, 3])}),
        ([node("Pow", ["r", "two"], "y")], 11, {"two": np.float32(2)}),
        ([node("MaxPool", ["r"], "y", kernel_shape=[2, 2], auto_pad="NOTSET")], 11, {}),
        (
            [node("ConvTranspose", ["r", "w", "b"], "y", strides=[2, 2], pads=[0, 0, 1, 1])],
            11,
            {"w": np.ones((8, 8, 3, 3), np.float32), "b": np.ones(8, np.float32)},
        ),
        ([node("Relu", ["c"], "n" * 247), node("Relu", ["n" * 247], "y")], 11, {}),
        ([node("Reshape", ["r", "five"], "f"), node("Sigmoid", ["f"], "y")], 11, {"five": np.array([1, 2, 4, 16, 16])}),
        (
            [node("Reshape", ["r", "five"], "f"), node("Mul", ["f", "two"], "y")],
            11,
            {"five": np.array([1, 2, 4, 16, 16]), "two": np.float32(2)},
        ),
        (
            [
                node("Reshape", ["r", "flat"], "f"),
                node("Gemm", ["f", "w", "b"], "g"),
                node("Relu", ["g"], "h"),
                node("Concat", ["h", "g"], "y", axis=1),
            ],
            11,
            {"flat": np.array([1, 2048]), "w": np.ones((2048, 8), np.float32), "b": np.ones(8, np.float32)},
        ),
    ],
    ids=[
        "channel shuffle by Gather",
        "Clip 0..1",
        "Slice of opset 9",
        "axes as an input",
        "Pow",
        "auto_pad NOTSET and no pads",
        "other pads before than after",
        "a name of 247",
        "a Sigmoid of five axes",
        "a factor on five axes",
        "a Concat of a dense layer",
    ],
)
def test_forms_met_in_public_networks_are_refused(nodes, opset, constants):
    assert len(facts(*nodes, opset=opset, constants=constants).refused) == 1


def test_names_with_a_semicolon_are_refused_above_level_l1():
    (row,) = facts(node("Relu", ["c"], "a;b"), node("Relu", ["a;b"], "y")).refused
    assert row.above_l1
    assert "names with a semicolon, above level L1 (a;b)" in str(row)
    net = simplify(
        model([node("Relu", ["data"], "a;b"), node("Relu", ["a;b"], "y")], {}, {"data": (1, 3, 4, 4)}, ["y"])
    )
    net = replace(net, converter=sdk_converter.facts_of(net.proto))
    assert [len(conversion_notes(net, level=level)) for level in ("L1", "L2", "L5")] == [0, 1, 1]


@pytest.mark.parametrize(
    ("nodes", "opset", "constants"),
    [
        ([node("Clip", ["r", "zero", "six"], "y")], 11, {"zero": np.float32(0), "six": np.float32(6)}),
        ([node("MaxPool", ["r"], "y", kernel_shape=[2, 2], auto_pad="VALID")], 11, {}),
        ([node("MaxPool", ["r"], "y", kernel_shape=[2, 2], auto_pad="NOTSET", pads=[0, 0, 0, 0])], 11, {}),
        ([node("Upsample", ["r", "scales"], "y")], 9, {"scales": np.array([1, 1, 2, 2], np.float32)}),
        ([node("Add", ["r", "each"], "y")], 11, {"each": np.ones((8, 1, 1), np.float32)}),
        ([node("Relu", ["c"], "n" * 246), node("Relu", ["n" * 246], "y")], 11, {}),
        (
            [node("Shape", ["r"], "s"), node("Gather", ["s", "i"], "g"), node("Relu", ["r"], "y")],
            11,
            {"i": np.zeros(1, int)},
        ),
        (
            [
                node("Reshape", ["r", "five"], "f"),
                node("Transpose", ["f"], "t", perm=[0, 1, 3, 4, 2]),
                node("Softmax", ["t"], "y", axis=4),
            ],
            11,
            {"five": np.array([1, 2, 4, 16, 16])},
        ),
    ],
    ids=[
        "Clip 0..6",
        "auto_pad VALID",
        "auto_pad NOTSET and pads",
        "Upsample",
        "per channel",
        "a name of 246",
        "Gather of a shape",
        "a Softmax of five axes",
    ],
)
def test_forms_that_it_takes_are_not(nodes, opset, constants):
    assert facts(*nodes, opset=opset, constants=constants).refused == ()


@pytest.mark.parametrize(
    ("nodes", "opset", "constants"),
    [
        ([node("ReduceMax", ["r"], "y", axes=[2, 3])], 11, {}),
        ([node("Softmax", ["r"], "y", axis=3)], 13, {}),
        ([node("LogSoftmax", ["r"], "y", axis=1)], 13, {}),
        ([node("AveragePool", ["r"], "y", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)], 11, {}),
        ([node("Sub", ["r", "each"], "y")], 11, {"each": np.ones((8, 1, 1), np.float32)}),
        ([node("Sub", ["one", "r"], "y")], 11, {"one": np.float32(1)}),
        ([node("ArgMin", ["r"], "y", axis=1)], 11, {}),
        (
            [node("Slice", ["data", "0", "9", "23"], "y")],
            11,
            {"0": np.array([0, 0]), "9": np.array([9, 9]), "23": np.array([2, 3])},
        ),
        (
            [node("Slice", ["r", "1", "end", "1"], "y")],
            11,
            {"end": np.array([-2]), "1": np.array([1])},
        ),
        (
            [
                node("Slice", ["t", "4", "8", "1"], "s"),
                node("Transpose", ["r"], "t", perm=[0, 1, 3, 2]),
                node("Conv", ["s", "w"], "y", kernel_shape=[1, 1], pads=[0] * 4),
            ],
            11,
            {"4": np.array([4]), "8": np.array([8]), "1": np.array([1]), "w": np.ones((2, 4, 1, 1), np.float32)},
        ),
    ],
    ids=[
        *("ReduceMax", "Softmax over W", "LogSoftmax", "count_include_pad", "Sub", "from a number", "ArgMin"),
        *("Slice of an input", "Slice from the end", "Slice of a Transpose"),
    ],
)
def test_what_becomes_another_function_is_named(nodes, opset, constants):
    found = facts(*nodes, opset=opset, constants=constants)
    assert found.refused == ()
    assert len(found.changed) == 1
    assert set(found.changed[0].layers) <= {name for one in nodes for name in (one.name, *one.output)}
    followed = nodes[0].op_type in ("Softmax", "AveragePool") or "data" in nodes[0].input
    assert ("this fixed model computes the same" if followed else "follows ONNX") in str(found.changed[0])


PLACES = {"0": np.array([0]), "1": np.array([1]), "end": np.array([-2]), "2": np.array([2])}
BOTH = {"00": np.array([0, 0]), "99": np.array([9, 9]), "9all": np.array([9, 99]), "23": np.array([2, 3])}
SAME = {"kernel_shape": [3, 3], "strides": [1, 1], "auto_pad": "SAME_UPPER"}
WEIGHTS = {"w": np.ones((8, 8, 3, 3), np.float32)}
TURNED = node("Transpose", ["r"], "t", perm=[0, 3, 1, 2])


@pytest.mark.parametrize(
    ("refused", "taken", "constants"),
    [
        (
            [node("Conv", ["r", "w"], "y", **{**SAME, "auto_pad": "SAME_LOWER"})],
            [node("Conv", ["r", "w"], "y", **SAME)],
            WEIGHTS,
        ),
        (
            [node("Conv", ["r", "w"], "y", **{**SAME, "strides": [1, 2]})],
            [node("Conv", ["r", "w"], "y", **{**SAME, "group": 1})],
            WEIGHTS,
        ),
        (
            [node("Conv", ["r", "w"], "y", kernel_shape=[3, 3], auto_pad="SAME_UPPER")],
            [node("Conv", ["r", "w"], "y", kernel_shape=[3, 3], pads=[1] * 4)],
            WEIGHTS,
        ),
        (
            [node("Conv", ["r", "w"], "y", **{**SAME, "kernel_shape": [2, 2]})],
            [node("Conv", ["r", "w3"], "y", **{**SAME, "kernel_shape": [1, 5]})],
            {"w": np.ones((8, 8, 2, 2), np.float32), "w3": np.ones((8, 8, 1, 5), np.float32)},
        ),
        (
            [node("MaxPool", ["r"], "y", **{**SAME, "auto_pad": "SAME_LOWER"})],
            [node("MaxPool", ["r"], "y", **{**SAME, "strides": [2, 2]})],
            {},
        ),
        (
            [TURNED, node("MaxPool", ["t"], "y", kernel_shape=[2, 2])],
            [TURNED, node("Relu", ["t"], "s"), node("MaxPool", ["s"], "y", kernel_shape=[2, 2])],
            {},
        ),
        (
            [TURNED, node("Identity", ["t"], "i"), node("GlobalAveragePool", ["i"], "y")],
            [node("Identity", ["r"], "i"), node("GlobalAveragePool", ["i"], "y")],
            {},
        ),
        (
            [TURNED, node("ReduceMean", ["t"], "y", axes=[2, 3])],
            [node("ReduceMean", ["r"], "y", axes=[2, 3])],
            {},
        ),
        (
            [node("Slice", ["r", "00", "99", "23"], "y")],
            [node("Slice", ["r", "00", "9all", "23"], "y")],
            BOTH,
        ),
        (
            [node("Slice", ["r", "1", "end", "2"], "y")],
            [node("Slice", ["r", "0", "end", "2"], "y")],
            PLACES,
        ),
    ],
    ids=[
        *("SAME_LOWER", "SAME_UPPER with strides", "no strides", "even kernel", "a pool with SAME_LOWER"),
        *("a pool of a Transpose", "through an Identity", "a mean of a Transpose", "several axes", "from the end"),
    ],
)
def test_the_line_between_refused_and_taken(refused, taken, constants):
    """As probes of SDK 1.1.5 showed it, one pair each."""
    assert len(facts(*refused, opset=11, constants=constants).refused) == 1
    assert facts(*taken, opset=11, constants=constants).refused == ()


def test_what_is_computed_after_a_transpose_to_channels_last_is_named():
    turned = node("Transpose", ["r"], "t", perm=[0, 2, 3, 1])
    back = node("Transpose", ["s"], "y", perm=[0, 3, 1, 2])
    sigmoid = node("Sigmoid", ["t"], "s")
    found = facts(turned, sigmoid, back)
    assert [change.what for change in found.changed] == [
        "Sigmoid after a Transpose to N, H, W, C",
        "Transpose back from N, H, W, C",
    ]
    assert facts(turned, node("Transpose", ["t"], "y", perm=[0, 3, 1, 2])).changed == ()


def test_a_softmax_over_the_channels_is_kept():
    assert facts(node("Softmax", ["r"], "y", axis=1), opset=13).changed == ()


def test_the_page_says_what_the_tables_say():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import sdk_converter_tables
    finally:
        sys.path.pop(0)
    assert sdk_converter_tables.PAGE.read_text(encoding="utf-8") == sdk_converter_tables.page()


@pytest.fixture
def net_with_elu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes = [conv("c", "data", pads=[1] * 4), node("Elu", ["c"], "e"), conv("d", "e"), node("Relu", ["d"], "y")]
    values = {**weights("c", (8, 3, 3, 3), 1), **weights("d", (8, 8, 1, 1), 2)}
    onnx.save(model(nodes, values, {"data": (1, 3, 8, 8)}, ["y"], 13).proto, "net.onnx")
    Path("in.ini").write_text(INI)
    return [*"-m net.onnx -i random --input-config in.ini".split()]


@pytest.mark.parametrize(
    "command", ["calibrate", "diagnose", "tune -o tuned", "tune --first -o tuned", "tune --explain --ranges ranges.txt"]
)
def test_strict_ends_before_anything_is_written(net_with_elu, command, capsys):
    Path("ranges.txt").write_text("Name:c, min: -1.0, max: 1.0;\n")
    before = {path.name for path in Path().iterdir()}
    assert main([*command.split(), *net_with_elu, "--strict-sdk"]) == 2
    said = capsys.readouterr().err.strip()
    assert "SDK 1.1.5 refuses Elu (" in said
    assert "Mace does not support onnx op type Elu yet" in said
    assert said.count("\n") == 0
    assert {path.name for path in Path().iterdir()} == before


def test_without_strict_it_is_a_warning(net_with_elu, capsys):
    assert main(["calibrate", *net_with_elu, "--quant-level", "L1"]) == 0
    assert capsys.readouterr().err.startswith("warning: SDK 1.1.5 refuses Elu (")


def test_many_kinds_share_a_line(tmp_path, monkeypatch, capsys):
    kinds = ["Elu", "Erf", "Floor"]
    ends = zip(kinds, ["c", "Elu", "Erf"], ["Elu", "Erf", "y"], strict=True)
    nodes = [conv("c", "data"), *(node(kind, [read], out) for kind, read, out in ends)]
    proto = model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["y"], 13).proto
    refused = sdk_converter.facts_of(proto).refused
    assert [len(sdk_converter.refusals(refused[:count])) for count in (0, 1, 2, 3)] == [0, 1, 2, 1]
    (line,) = sdk_converter.refusals(refused)
    assert line.startswith(
        "SDK 1.1.5 refuses 3 kinds of operators or settings in this model: Elu (Elu), Erf (Erf), Floor (y). See docs/"
    )


HEAD = """input: "data" input_shape { dim: 1 dim: 4 dim: 8 dim: 8 }
layer { name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param { pool: AVE global_pooling: true } }
"""


def test_a_pooled_second_bottom_scales_the_channels(tmp_path):
    from sgsdump.models.model import open_model

    net = tmp_path / "net.prototxt"
    net.write_text(
        HEAD + 'layer { name: "s" type: "Scale" bottom: "data" bottom: "p" top: "s" scale_param { axis: 0 } }'
    )
    proto = open_model(net, staged_outputs=["s"]).proto
    assert [entry.op_type for entry in proto.graph.node] == ["GlobalAveragePool", "Mul"]
    assert [size.dim_value for size in proto.graph.output[0].type.tensor_type.shape.dim] == [1, 4, 8, 8]


def test_layers_that_it_changes_or_refuses_are_named(tmp_path):
    from sgsdump.models.model import open_model

    def facts_of(layer):
        net = tmp_path / "net.prototxt"
        net.write_text(HEAD + f'layer {{ name: "x" bottom: "data" top: "x" {layer} }}')
        caffe = open_model(net, staged_outputs=["f" if "Flatten" in layer else "x"]).caffe
        return sdk_converter.caffe_facts(caffe.layers, caffe.other_weights)

    (changed,) = facts_of('type: "Threshold"').changed
    assert str(changed).startswith("SDK 1.1.5 converts Threshold (x) to a Threshold whose 1 becomes one step")
    (refused,) = facts_of('type: "Reorg" reorg_param { stride: 1 }').refused
    assert refused.what == "Reorg of another stride than 2"
    assert not facts_of('type: "Reorg" reorg_param { stride: 2 }').refused
    order = "permute_param { order: 0 order: 2 order: 3 order: 1 }"
    (refused,) = facts_of(f'type: "Permute" {order}').refused
    assert refused.what == "Permute to N, H, W, C, as an output of the model" and refused.stage == "calibrate"
    further = f'type: "Permute" {order} }} layer {{ name: "f" type: "Flatten" bottom: "x" top: "f"'
    assert not facts_of(further).refused


def test_one_mean_for_two_pictures_is_refused(tmp_path):
    """The SDK's converter took two pictures with a mean and a std for each, and ended at one for both (tp_*)."""
    head = "[INPUT_CONFIG]\ninputs = {};\ntraining_input_formats = {};\ninput_formats = {};\n"
    means = "mean_red = {0};\nmean_green = {0};\nmean_blue = {0};\nstd_value = {1};\n"

    def refused(names, formats, mean, std):
        path = tmp_path / "input_config.ini"
        path.write_text(head.format(names, formats, formats) + means.format(mean, std))
        config = input_config.read(path)
        entries = [(entry.name, entry.training_format) for entry in config.inputs]
        return [row.layers for row in sdk_converter.config_facts(entries, (), config.one_for_all)]

    assert refused("a,b", "RGB,RGB", "127", "128") == [("mean_red", "mean_green", "mean_blue", "std_value")]
    assert refused("a,b", "RGB,BGR", "127,127", "128") == [("std_value",)]
    assert refused("a,b", "RGB,RGB", "127,127", "128:128:128,128:128:128") == []
    assert refused("a,b", "RGB,RAWDATA_S16_NHWC", "127", "128") == []
    assert refused("a", "RGB", "127", "128") == []


@pytest.mark.parametrize(
    ("keys", "formats", "refused"),
    [
        ("mean = 127:127:127;", "RGB", True),
        ("mean = 127;\nstd_value = 128;", "BGR", True),
        ("std_value = 128;", "RGB", True),
        ("mean_red = 1;\nmean_green = 2;\nmean_blue = 3;", "RGB", False),
        ("", "RAWDATA_S16_NHWC", False),
    ],
)
def test_means_that_are_not_of_red_green_and_blue_are_refused(tmp_path, keys, formats, refused):
    """m_colon, m_one, cfg_mean1, cfg_nomean; m_three."""
    path = tmp_path / "input_config.ini"
    head = f"[INPUT_CONFIG]\ninputs = data;\ntraining_input_formats = {formats};\ninput_formats = {formats};\n"
    path.write_text(f"{head}{keys}\n[OUTPUT_CONFIG]\noutputs = y;\n")
    net = model([conv("y", "data", pads=[1] * 4)], weights("y", (8, 3, 3, 3), 1), {"data": (1, 3, 16, 16)}, ["y"], 11)
    notes = conversion_notes(simplify(net), input_config.read(path))
    said = [note for note in notes if "without mean_red, mean_green and mean_blue" in note]
    assert len(said) == refused and len(notes) == refused
    if refused:
        assert said[0].startswith("SDK 1.1.5 refuses an input_config.ini") and "(data): its converter" in said[0]
        with pytest.raises(ModelError, match=r"^net.onnx: SDK 1.1.5 refuses an input_config.ini"):
            conversion_notes(simplify(net), input_config.read(path), strict=True)


@pytest.mark.parametrize(
    ("shape", "form", "kind", "named"),
    [
        ((1, 1, 7, 9), "RAWDATA_S16_NHWC", "Conv", True),
        ((1, 1, 7, 9), "RAWDATA_S16_NHWC", "Relu", False),
        ((1, 2, 7, 9), "RAWDATA_S16_NHWC", "Conv", False),
    ],
)
def test_a_lone_channel_of_values_that_a_convolution_reads_becomes_three(shape, form, kind, named):
    """The SDK's ranges were those of ONNX with x, 0 and 0 for each x (raw1_7x9), and without for the others."""
    first = conv("c", "data", pads=[1] * 4) if kind == "Conv" else node(kind, ["data"], "c")
    constants = weights("c", (8, shape[1], 3, 3), 1) if kind == "Conv" else {}
    net = simplify(model([first], constants, {"data": shape}, ["c"]))
    net = replace(net, converter=sdk_converter.facts_of(net.proto))
    notes = conversion_notes(net, input_config.InputConfig((input_config.ModelInput("data", form, form),)))
    assert [("x, 0 and 0" in note and "(data)" in note) for note in notes] == [True] * named


@pytest.mark.parametrize(
    ("shape", "kind", "formats", "named"),
    [
        ((1, 1, 7, 9), "Conv", ("RGB", "GRAY"), True),
        ((1, 1, 7, 9), "Relu", ("RGB", "GRAY"), True),
        ((1, 3, 7, 9), "Conv", ("RGB", "GRAY"), False),
        ((1, 3, 7, 9), "Conv", ("RGB", "RGB"), False),
    ],
)
def test_a_grey_picture_is_three_channels_where_ranges_are_found(shape, kind, formats, named):
    """With H x W x 3 values for norm=True the SDK's ranges were the model's, with H x W others (gx_xxx, g_rgb_gray,
    gr_relu; gc_plain of Caffe); with H x W for norm=False its fixed model was near its float one (gx_both)."""
    first = conv("c", "data", pads=[1] * 4) if kind == "Conv" else node(kind, ["data"], "c")
    constants = weights("c", (8, shape[1], 3, 3), 1) if kind == "Conv" else {}
    net = simplify(model([first], constants, {"data": shape}, ["c"]))
    notes = conversion_notes(net, input_config.InputConfig((input_config.ModelInput("data", *formats),)))
    assert [("H x W x 3 values for norm=True" in note and "(data)" in note) for note in notes] == [True] * named


def test_a_lone_channel_of_caffe_stays_one():
    assert sdk_converter.caffe_facts([]).lone_channels == ()


def test_only_pictures_are_warned_about_as_pictures():
    """An input of numbers has no mean, so nothing is to be written for it."""
    formats = [("raw", "RAWDATA_S16_NHWC"), ("eye", "RGB"), ("grey", "BGR"), ("float", "RAWDATA_F32_NHWC")]
    rows = sdk_converter.config_facts(formats, means_by_colour=False)
    [colours] = [row for row in rows if "mean_red" in str(row)]
    assert colours.layers == ("eye", "grey")
    assert not sdk_converter.config_facts([("raw", "RAWDATA_S16_NHWC")], means_by_colour=False)
