"""What a word of tensor_arrays raises, and which words are written: against types in fixed dumps of SDK 1.1.5.

Each network is one that the SDK was given with that word; the types are what it dumped.
"""

from dataclasses import replace

import numpy as np
import pytest
from models.caffe.layer_list import parsed, random_weights, text_of
from models.caffe.nets import save
from small_nets import conv, model, node, weights
from vendor_probes import Probe, fixed_of_log

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs, wider, with_raised_inputs
from sgsdump.fixedpoint.tuning.rules_of_thumb import convolutions
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models.fixed_facts import read_facts
from sgsdump.sidecars.input_config import InputConfig, ModelInput

RGB = ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3)
NETS = {
    "prefix": """
        Convolution c1: data -> c1
        ReLU r1: c1
        Convolution c10: c1 -> c10
        ReLU r10: c10
        Convolution e: c10 -> e
        Convolution out: e -> out""",
    "stage's name": """
        Convolution p: data -> p
        ReLU r1: p
        Convolution q: p -> p_xx
        ReLU r2: p_xx
        Convolution e: p_xx -> e
        Convolution out: e -> out""",
    "pool": """
        Convolution c: data -> c
        ReLU r1: c
        Pooling p: c -> p
        Convolution d: p -> d
        Convolution out: d -> out""",
    "inner products": """
        Convolution c: data -> c
        ReLU r1: c
        InnerProduct f: c -> f
        ReLU r2: f
        Dropout d: f
        InnerProduct g: f -> g
        PReLU r3: g
        InnerProduct h: g -> h""",
    "an inner product's top": """
        Convolution c: data -> c
        InnerProduct L: c -> t""",
    "one tensor, two inner products": """
        Convolution c: data -> c
        InnerProduct f: c -> f
        ReLU r1: f
        InnerProduct g: f -> g
        InnerProduct h: f -> h""",
}
# Network, word, and the first inputs that the SDK made INT16; the tensors that are INT16 in all are no first inputs.
RAISED = [
    ("prefix", "c1", ["c1_xx", "c10_xx"]),
    ("prefix", "c10", ["c10_xx"]),
    ("prefix", "c", ["c1_xx", "c10_xx"]),
    ("stage's name", "p_xx", ["p_xx", "p_xx_xx_xx"]),
    ("pool", "p", ["p"]),
    ("inner products", "f", ["f/flatten"]),
    ("an inner product's top", "L", ["L/flatten"]),
    ("one tensor, two inner products", "g", ["f_xx_reshape"]),
]
READ_BY = "the input of InnerProduct '{0}', but the SDK names this input after the layer. Use {0}"
RAISES_NONE = [
    ("prefix", "10", "is not the first input of a convolution; did you mean 'c10'?"),
    ("prefix", "c1_xx_xx", "is not the first input of a convolution; did you mean"),
    ("pool", "c", "is not the first input of a convolution; choose one of: data, p, d"),
    ("inner products", "c", READ_BY.format("f")),
    (
        "inner products",
        "c_xx",
        READ_BY.format("f"),
    ),
    (
        "inner products",
        "g_xx",
        READ_BY.format("h"),
    ),
    ("an inner product's top", "t", "is not the first input of a convolution"),
]


def caffe(folder, lines):
    """Every blob has four channels, of 2 x 2 pixels; convolutions have one pixel, poolings keep the size."""
    layers, flat = [], set()
    for line in lines.strip().splitlines():
        layer = parsed(line.strip())
        if layer.type == "Convolution":
            channels = 3 if layer.bottoms == ["data"] else 4
            shapes = [(4, channels, 1, 1), (4,)]
            layer = layer._replace(params="convolution_param { num_output: 4 kernel_size: 1 }", shapes=shapes)
        elif layer.type == "InnerProduct":
            shapes = [(4, 4 if layer.bottoms[0] in flat else 16), (4,)]
            layer = layer._replace(params="inner_product_param { num_output: 4 }", shapes=shapes)
            flat.add(layer.tops[0])
        elif layer.type == "Pooling":
            layer = layer._replace(params="pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }")
        elif layer.type == "PReLU":
            layer = layer._replace(shapes=[(4,)])
        layers.append(layer)
    files = save(folder, text_of({"data": (1, 3, 2, 2)}, layers), random_weights(layers))
    return open_float_model(*files, InputConfig((RGB,)))


def inputs_of(model_):
    return RaisedInputs(analyse(model_.proto, ("data",)))


@pytest.mark.parametrize(("net", "word", "names"), RAISED)
def test_a_word_raises_every_convolution_whose_inputs_name_begins_so(net, word, names, tmp_path):
    float_model = caffe(tmp_path, NETS[net])
    config, _ = with_raised_inputs(InputConfig((RGB,), tensor_arrays=(word,)), float_model.proto)
    assert list(config.tensor_arrays) == names
    feed = {"data": np.random.default_rng(0).uniform(-1, 1, (1, 3, 2, 2)).astype(np.float32)}
    fixed = make_fixed(float_model, measure_ranges(float_model, [("0", feed)]), config)
    facts = read_facts(replace(float_model, proto=fixed.proto))
    wide = {name for name in inputs_of(float_model).sdk_names if facts.tensors[name].dtype == np.int16}
    assert wide == set(names)


@pytest.mark.parametrize(("net", "word", "message"), RAISES_NONE)
def test_a_word_that_raises_nothing_is_refused(net, word, message, tmp_path):
    with pytest.raises(ConfigError) as error:
        inputs_of(caffe(tmp_path, NETS[net])).inputs_of([word])
    assert message in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).startswith(f"tensor_arrays names {word!r}, ")
    listed = str(error.value).partition(": ")[2].split(", ") if "choose one of" in message else []
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        # c1 would raise c10_xx too, so its own name.
        ("prefix", {"data": ["data"], "c1_xx": ["c1_xx"], "c10_xx": ["c10"], "e": ["e"]}),
        # No word raises p_xx alone: its own name, with a warning.
        ("stage's name", {"data": ["data"], "p_xx": ["p_xx"], "p_xx_xx_xx": ["p_xx_xx_xx"], "e": ["e"]}),
        ("inner products", {"data": ["data"], "f/flatten": ["f"], "f_xx": ["g"], "g_xx": ["h"]}),
        ("an inner product's top", {"data": ["data"], "L/flatten": ["L"]}),
        # What is not named of several reads a copy in 8 bits (the third net of MTCNN).
        (
            "one tensor, two inner products",
            {"data": ["data"], "f/flatten": ["f"], "f_xx_reshape": ["g"], "f_xx_reshape'": ["h"]},
        ),
    ],
)
def test_the_word_to_write_raises_that_input_alone_where_one_does(net, words, tmp_path):
    inputs = inputs_of(caffe(tmp_path, NETS[net]))
    assert inputs.words == {name: tuple(each) for name, each in words.items()}
    for name, word in ((name, word) for name, each in words.items() for word in each):
        assert name in inputs.raised_by(word)
        assert inputs.raised_by(word) == (name,) or (net, name) == ("stage's name", "p_xx")


def test_an_input_is_shown_as_the_words_and_the_tensor(tmp_path):
    shown = {conv.input: conv.shown_input for conv in convolutions(analysed(tmp_path, "inner products"))}
    assert shown == {"data": "data", "f/flatten": "f (f/flatten)", "f_xx": "g (f_xx)", "g_xx": "h (g_xx)"}
    shown = {
        conv.input: conv.shown_input for conv in convolutions(analysed(tmp_path, "one tensor, two inner products"))
    }
    assert shown["f_xx_reshape"] == "g (f_xx_reshape)"


def analysed(folder, net):
    return inputs_of(caffe(folder, NETS[net])).analysis


@pytest.mark.parametrize(
    ("net", "words", "beside"),
    [
        ("prefix", ["c1"], {"c1": ("c10_xx",)}),
        ("prefix", ["c1", "c10"], {}),
        ("prefix", ["c1", "c10_xx"], {}),
        ("prefix", ["c"], {"c": ("c1_xx", "c10_xx")}),
        ("prefix", ["c10"], {}),
        ("stage's name", ["p_xx"], {}),  # the user's blob, and a stage of the other: both are named
        ("inner products", ["f"], {}),
    ],
)
def test_what_a_word_raises_without_naming_it(net, words, beside, tmp_path):
    inputs = inputs_of(caffe(tmp_path, NETS[net]))
    assert inputs.beside(words) == beside
    _, notes = with_raised_inputs(InputConfig((RGB,), tensor_arrays=tuple(words)), inputs.analysis.graph.proto)
    assert notes == [wider(word, names) for word, names in beside.items()]


def test_what_is_said_of_a_word_that_raises_more():
    assert wider("c1", ["c10_xx"]) == (
        "tensor_arrays entry 'c1' also raises c10_xx to INT16: the SDK raises every convolution whose first input has "
        "a name that begins with this entry"
    )


def test_a_picture_is_raised_by_no_beginning_of_its_name(tmp_path):
    inputs = inputs_of(caffe(tmp_path, NETS["prefix"]))
    assert inputs.raised_by("d") == () and inputs.raised_by("data") == ("data",)


def chain():
    """data -> 1 -> 12 (Relu) -> c3 -> 123 (Relu) -> 1234 -> out; and 1234 -> fl (Flatten) -> gemm."""
    constants = {**weights("1", (4, 3, 1, 1)), **weights("c3", (4, 4, 1, 1)), **weights("1234", (4, 4, 1, 1))}
    constants |= {**weights("out", (4, 4, 1, 1)), **weights("gemm", (4, 16))}
    nodes = [conv("1", "data"), node("Relu", ["1"], "12"), conv("c3", "12"), node("Relu", ["c3"], "123")]
    nodes += [conv("1234", "123"), conv("out", "1234"), node("Flatten", ["1234"], "fl")]
    nodes.append(node("Gemm", ["fl", "gemm.w", "gemm.b"], "gemm", transB=1))
    return simplify(model(nodes, constants, {"data": (1, 3, 2, 2)}, ["out", "gemm"]))


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("1", ["12", "123", "1234"]),
        ("12", ["12", "123", "1234"]),
        ("123", ["123", "1234"]),
        ("1234", ["1234"]),
        ("fl", ["fl"]),
        ("gemm", None),
    ],
)
def test_words_of_an_onnx_model(word, names):
    inputs = inputs_of(chain())
    if names is None:
        with pytest.raises(
            ConfigError, match="tensor_arrays names 'gemm', which is not the first input of a convolution"
        ):
            inputs.inputs_of([word])
    else:
        assert list(inputs.inputs_of([word])) == names
    assert inputs.words["12"] == ("12",) and inputs.words["123"] == ("123",)


@pytest.mark.parametrize(
    ("name", "word", "names"),
    [
        ("none", None, []),
        ("blob", "c1", ["c1_xx_xx_xx"]),
        ("stage", "c1_xx_xx_xx", ["c1_xx_xx_xx"]),
        ("mid", "c1_xx", ["c1_xx_xx_xx"]),
        ("midread", None, []),
        ("midread_ta", "a", ["a", "a_xx"]),
    ],
)
def test_types_of_the_probes_are_the_vendors(shared, name, word, names):
    probe = Probe(shared / "sigmastar/probes_inplace" / name)
    assert list(probe.config.tensor_arrays) == ([word] if word else [])
    config, notes = with_raised_inputs(probe.config, probe.model.proto)
    assert list(config.tensor_arrays) == names and notes == []
    fixed = fixed_of_log(probe.model, probe.folder / "tensor_min_max.txt", config, above_l1=False)
    facts = read_facts(replace(probe.model, proto=fixed.proto))
    theirs = {r.name: r.tensor.info.dtype for r in probe.dump.records if r.io == "out" and not r.constant}
    common = theirs.keys() & facts.tensors.keys()
    assert len(common) >= len(facts.tensors) - 2
    assert {n: facts.tensors[n].dtype for n in common} == {n: theirs[n] for n in common}
    assert {n for n in inputs_of(probe.model).sdk_names if n in common and theirs[n] == np.int16} == set(names)
