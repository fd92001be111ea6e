"""The SDK's names of the tensors of a Caffe net (``stages.py``), against what SDK 1.1.5 called them.

``tests/golden/sigmastar/stage_names.json`` has small networks with layers in place, and the names of the variables and
constants of the SDK's float dump of each, without the numbers that the converter appends and without its own tensors.

The numbers of the SDK's MUL and ADD: variance + epsilon is a sum of float32, all else double precision.
"""

import json
import lzma
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models.caffe.layer_list import Layer, net_of, random_weights, text_of
from models.caffe.nets import save

from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models.caffe.layers.normalisation import gain_and_offset
from sgsdump.models.caffe.stages import steps
from sgsdump.models.model import open_model, read_stages
from sgsdump.sidecars import input_config, tensor_chn
from sgsdump.sidecars.tensor_min_max import read_ranges

GOLDEN = Path(__file__).resolve().parents[2] / "golden/sigmastar/stage_names.json"
NETS = {net["net"]: net for net in json.loads(GOLDEN.read_text(encoding="utf-8"))}
PROBES = (
    *("blob", "bnonly", "datainp", "dropfirst", "elt2", "layname", "mid", "midread", "midread_ta", "none", "outread"),
    *("outs", "power", "relubn", "scalenob", "scaleonly", "stage"),
)
# What the converter numbers, and what it makes for itself: Reshape, Transpose, the parts of a convolution in groups.
NUMBER = re.compile(r"#\d{2,}$")
OWN = re.compile(
    r"_reshape#\d+_output|_addn_output|_split_output#|_conv#|ShapeTensor|_output_shape$|_transpose_|^slice_|Output_tensor"
)


def names_of(folder, lines, outputs=()):
    """The stages in the order of the net, a MUL before its ADD."""
    named = [step for step in steps(net_of(folder, lines), outputs) if not step.passes]
    return [name for step in named for name in (step.product, *step.tops) if name]


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        pytest.param(
            [
                "Convolution c: data -> conv1",
                "BatchNorm b: conv1",
                "Scale s: conv1",
                "ReLU r: conv1",
                "Pooling p: conv1 -> p",
            ],
            "conv1 conv1_xx conv1_xx_xx conv1_xx_xx_xx p",
            id="the docstring's example",
        ),
        pytest.param(
            [
                "Convolution a: data -> a",
                "ReLU r: a",
                "Convolution b: a -> a_xx",
                "ReLU s: a_xx",
                "Pooling p: a_xx -> p",
            ],
            "a a_xx a_xx_xx a_xx_xx_xx p",
            id="once more while the name is taken",
        ),
        pytest.param(
            ["Convolution a: data -> a_xx", "Convolution b: a_xx -> a", "ReLU r: a", "Pooling p: a -> p"],
            "a_xx a a_xx_xx p",
            id="taken by a blob from before",
        ),
        pytest.param(
            ["Convolution a: data -> a", "BatchNorm bn: a", "ReLU r: a", "Pooling p: a -> p"],
            "a a_MUL a_xx a_xx_xx p",
            id="a BatchNorm alone",
        ),
        pytest.param(
            ["Convolution a: data -> a", "Scale+ sc: a", "ReLU r: a", "Pooling p: a -> p"],
            "a a_MUL a_xx a_xx_xx p",
            id="a Scale alone",
        ),
        pytest.param(
            ["Convolution a: data -> a", "Scale sc: a", "ReLU r: a", "Pooling p: a -> p"],
            "a a_xx a_xx_xx p",
            id="a Scale without an offset is one MUL",
        ),
        pytest.param(
            ["Convolution a: data -> a", "ReLU r: a", "BatchNorm bn: a", "Scale sc: a", "Pooling p: a -> p"],
            "a a_xx a_xx_MUL a_xx_xx_xx p",
            id="MUL is _MUL where ADD does not have _xx twice",
        ),
        pytest.param(
            [
                "Convolution a: data -> q_xx",
                "BatchNorm bn: q_xx -> y",
                "Scale sc: y -> y_xx_xx",
                "Pooling p: y_xx_xx -> p",
            ],
            "q_xx q_xx_xx y_xx_xx p",
            id="ADD's own name may have _xx twice",
        ),
        pytest.param(
            ["Convolution a: data -> a", "BatchNorm bn: a", "Pooling m: a -> m", "Scale+ sc: a", "Pooling p: a -> p"],
            "a a_MUL a_xx m a_xx_MUL a_xx_xx p",
            id="a BatchNorm that another layer reads is no part of the Scale",
        ),
        pytest.param(
            ["BatchNorm bn: data -> n", "Scale sc: n", "Convolution o: n -> o"], "data_MUL n_xx o", id="of the picture"
        ),
        pytest.param(
            ["Convolution o: data -> o", "BatchNorm bn: o", "Scale sc: o", "ReLU r: o"],
            "o#0 o#0_xx o#0_xx_xx o",
            id="an output",
        ),
        pytest.param(
            ["Convolution o: data -> o", "BatchNorm bn: o", "Scale sc: o"],
            "o#0 o#0_MUL o",
            id="an output that ends with ADD",
        ),
        pytest.param(
            ["Convolution a: data -> a#1", "ReLU r: a#1", "Convolution b: a#1 -> b#1", "Pooling p: b#1 -> p"],
            "a#1 a b p",
            id="a name with # loses it in the last stage",
        ),
        pytest.param(
            ["Convolution a: data -> a", "Dropout d: a", "ReLU r: a", "Pooling p: a -> p"],
            "a a_xx a_xx_xx p",
            id="Dropout counts",
        ),
        pytest.param(
            ["Convolution a: data -> a", "Dropout d: a", "Dropout e: a", "ReLU r: a", "Pooling p: a -> p"],
            "a a_xx_xx a_xx_xx_xx p",
            id="of two the last remains",
        ),
        pytest.param(
            ["InnerProduct f: data -> f", "Dropout d: f", "ReLU r: f", "InnerProduct g: f -> g"],
            "f_xx f_xx_xx g",
            id="a Dropout right after an InnerProduct",
        ),
        pytest.param(
            ["InnerProduct f: data -> f", "ReLU r: f", "Dropout d: f", "InnerProduct g: f -> g"],
            "f f_xx g",
            id="a Dropout right before an InnerProduct",
        ),
        pytest.param(
            ["Flatten f: data -> f", "Dropout d: f -> d", "InnerProduct g: d -> g"], "d g", id="with a top of its own"
        ),
        pytest.param(
            ["Convolution a: data -> a", "Power p: a", "ReLU r: a", "Pooling q: a -> q"],
            "a p_MUL_output a_xx a_xx_xx q",
            id="Power",
        ),
        pytest.param(["ReLU r: data", "Convolution o: data -> o"], "data_xx o", id="the input written over"),
    ],
)
def test_each_rule(lines, names, tmp_path):
    assert names_of(tmp_path, lines) == names.split()


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        pytest.param(
            ["Convolution a: data -> a_xx", "Convolution o: a_xx -> a", "ReLU r: a", "ReLU s: a"],
            "a_xx a#0 a#0_xx_xx a",
            id="an output whose next name is taken",
        ),
        pytest.param(["Convolution a: data -> a#1", "ReLU r: a#1"], "a#1#0 a#1", id="but not an output"),
        pytest.param(
            ["Convolution a: data -> #1", "Pooling p: #1 -> p"], "#1 p", id="nothing would be left of the name"
        ),
        pytest.param(
            ["Convolution a: data -> a", "BatchNorm bn: a -> b", "Scale+ sc: a -> c", "Eltwise e: b c -> e"],
            "a a_MUL b a_MUL_ c e",
            id="one product for each",
        ),
        pytest.param(
            ["Convolution a: data -> a", "Split s: a -> b c", "BatchNorm bn: b -> d", "Eltwise e: c d -> e"],
            "a a_MUL d e",
            id="of what a Split passes on",
        ),
    ],
)
def test_names_that_no_probe_shows_are_distinct(lines, names, tmp_path):
    assert names_of(tmp_path, lines) == names.split()


def test_an_output_that_another_layer_reads_hangs_on_0_too(tmp_path):
    lines = ["Convolution a: data -> a", "ReLU r: a", "Pooling p: a -> p"]
    assert names_of(tmp_path, lines, ["a", "p"]) == ["a#0", "a", "p"]
    assert names_of(tmp_path, lines) == ["a", "a_xx", "p"]


def test_a_batchnorm_that_is_an_output_is_no_part_of_the_scale(tmp_path):
    lines = ["Convolution a: data -> a", "BatchNorm bn: a -> b", "Scale+ sc: b -> s"]
    assert names_of(tmp_path, lines, ["b", "s"]) == ["a", "a_MUL", "b", "b_MUL", "s"]
    assert names_of(tmp_path, lines) == ["a", "a_MUL", "s"]


def opened(folder, name):
    """A network of the golden file, with random weights."""
    net = NETS[name]
    layers = [Layer(*layer) for layer in net["layers"]]
    files = save(folder, text_of(net["inputs"], layers), random_weights(layers))
    return open_model(*files, staged_outputs=net["outputs"])


def variables(proto, layers):
    """Inputs' and nodes' tensors, without those inside a layer."""
    made = [*(info.name for info in proto.graph.input), *(name for node in proto.graph.node for name in node.output)]
    table = {stage.name for stage in read_stages(proto)}
    inside = tuple(f"{name}/" for name in layers)
    return [name for name in made if name in table or not (name.startswith(inside) or OWN.search(name))]


@pytest.mark.parametrize("name", NETS)
def test_names_are_the_vendors(name, tmp_path):
    net, proto = NETS[name], opened(tmp_path, name).proto
    layers = [layer[1] for layer in net["layers"]]
    assert sorted(variables(proto, layers)) == sorted([*net["inputs"], *net["tensors"]])
    weights = {tensor.name for tensor in proto.graph.initializer if not OWN.search(tensor.name)}
    if name != "n_group":  # a convolution in groups is one for each there
        assert weights == set(net["constants"])


@pytest.mark.parametrize("name", NETS)
def test_the_table_says_which_stage_is_of_which_blob_and_layer(name, tmp_path):
    net, proto = NETS[name], opened(tmp_path, name).proto
    table = read_stages(proto)
    names = [stage.name for stage in table if stage.name]
    assert len(set(names)) == len(names)
    assert set(names) <= set(net["tensors"]) and {*net["tensors"]} - {*names} <= {"e_power_ADD_output"}
    tops = {(layer[1], top) for layer in net["layers"] for top in layer[3]}
    norms = {(layer[1], layer[3][0]) for layer in net["layers"] if layer[0] == "BatchNorm"}
    for stage in table:
        assert (stage.layer, stage.blob) in tops or stage.layer in {norm for norm, _ in norms}, stage


@pytest.mark.parametrize("how", ["fused", "not fused"])
def test_the_fixed_models_stages_are_the_vendors(how, tmp_path):
    """The residual block of the documentation, as the chip keeps it, in the SDK's order."""
    model = opened(tmp_path, "n_resblock")
    rng = np.random.default_rng(1)
    feed = {"data": rng.uniform(-1, 1, NETS["n_resblock"]["inputs"]["data"]).astype(np.float32)}
    fuse = how == "fused"
    fixed = make_fixed(model, measure_ranges(model, [("0", feed)], fuse), fuse=fuse).proto
    kept = [r.name for r in simulate(replace(model, proto=fixed), feed).records if r.io == "out" and not r.constant]
    assert [name for name in kept if name != "fc10/flatten"] == NETS["n_resblock"]["fixed"][how]
    assert read_stages(fixed) == read_stages(model.proto)


def test_a_batchnorm_whose_scale_has_a_top_of_its_own_has_no_stage(tmp_path):
    """The SDK has the sum of both alone: c is not the convolution's value, which its tensor c holds."""
    table = [tuple(stage) for stage in read_stages(opened(tmp_path, "n_bnin_scaleout").proto)]
    assert table[:4] == [
        ("c", "c", "c"),
        ("", "c", "c_bn"),
        ("c_MUL", "s", "c_bn"),
        ("s", "s", "s_scale"),
    ]


def genuine(folder, tmp_path):
    """The SDK's float dump."""
    (tmp_path / "float.bin").write_bytes(lzma.decompress((folder / "float.bin.xz").read_bytes()))
    return open_dump(tmp_path / "float.bin")


@pytest.mark.parametrize("name", PROBES)
def test_names_of_the_probes_are_the_vendors(shared, tmp_path, name):
    folder = shared / "sigmastar/probes_inplace" / name
    config = input_config.read(folder / "input_config.ini")
    proto = open_float_model(folder / "net.prototxt", folder / "net.caffemodel", config).proto
    dump = genuine(folder, tmp_path)
    theirs = {NUMBER.sub("", r.name) for r in dump.records if not OWN.search(r.name)}
    ours = {tensor.name for tensor in proto.graph.initializer} | set(variables(proto, ()))
    ours = {name for name in ours if not OWN.search(name)}
    assert ours == theirs
    ranges = {NUMBER.sub("", each) for each in read_ranges(folder / "tensor_min_max.txt") if not OWN.search(each)}
    assert ranges <= ours | {f"{each}_bias" for each in ours}
    channels = {NUMBER.sub("", each) for each in tensor_chn.read(folder / "tensor_chn.txt")}
    assert channels <= ours


@pytest.mark.parametrize("name", PROBES)
def test_values_of_the_probes_are_the_vendors(shared, tmp_path, name):
    """A stage's name says which value it is."""
    folder = shared / "sigmastar/probes_inplace" / name
    config = input_config.read(folder / "input_config.ini")
    model = open_float_model(folder / "net.prototxt", folder / "net.caffemodel", config)
    picture = ((np.load(folder / "input.npy") - 127) / 128).transpose(2, 0, 1)[None]
    feed = {info.name: np.ascontiguousarray(picture, np.float32) for info in model.proto.graph.input}
    ours = {r.name: r.tensor.real(layout="logical") for r in simulate(model, feed).records if r.io == "out"}
    dump = genuine(folder, tmp_path)
    checked = 0
    for record in dump.records:
        if record.io == "out" and record.name in ours:
            wanted = record.tensor.real(layout="logical")
            assert np.abs(ours[record.name].reshape(wanted.shape) - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())
            checked += 1
    assert checked >= len({stage.name for stage in read_stages(model.proto)})


def test_variance_and_epsilon_are_added_in_single_precision():
    variance = np.array([1000.0], np.float32)  # a single 1000 + 1e-5 is 1000
    one, mean = np.ones(1, np.float32), np.full(1, 3.0, np.float32)
    gain, offset = gain_and_offset(one, one, mean, variance, epsilon=1e-5)
    assert gain[0] == 1 / np.sqrt(1000.0) != 1 / np.sqrt(1000.0 + 1e-5)
    assert offset is not None and offset[0] == 1 - 3.0 * gain[0] and offset.dtype == np.float64
