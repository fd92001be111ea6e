"""What a fixed model remembers: what is written is read back, and metadata of anybody's making end in one line."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_nets import residual_net

from sgsdump.errors import ModelError
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.models.fixed_facts import (
    METADATA_KEY,
    DumpedOperator,
    StoredTensor,
    StoredWeights,
    is_fixed,
    read_facts,
)
from sgsdump.sidecars.input_config import InputConfig, ModelInput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
NET = simplify(residual_net())


@pytest.fixture(scope="module")
def fixed():
    feed = {"data": np.random.default_rng(0).uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)}
    ranges = measure_ranges(NET, [("0", feed)])
    return replace(NET, proto=make_fixed(NET, ranges, CONFIG, per_channel=True).proto)


def with_metadata(fixed, text):
    proto = type(fixed.proto)()
    proto.CopyFrom(fixed.proto)
    (entry,) = proto.metadata_props
    entry.value = text
    return replace(fixed, proto=proto)


def changed(fixed, change):
    document = json.loads(fixed.proto.metadata_props[0].value)
    change(document)
    return with_metadata(fixed, json.dumps(document))


def test_what_is_written_is_read_back(fixed):
    facts = read_facts(fixed)
    assert facts.tensors["r1"] == StoredTensor(
        np.dtype(np.uint8), facts.tensors["r1"].scale, 0, "r1#stored", None, False
    )
    assert facts.tensors["data"].picture and facts.tensors["data"].real is None
    assert facts.convolutions["c2"] == "c2.w#int8"
    weights = facts.weights["c2.w#int8"]
    assert (weights.name, weights.dtype, len(weights.scale), weights.axis) == ("c2.w", np.int8, 8, 0)
    assert facts.operators[0] == DumpedOperator("CONV_2D", "CONV_2D", ("data",), ("c1.w#int8", "c1#rows"), ("r1",))
    assert facts.biases["c1#rows"] == "c1.b" and set(facts.biases.values()) == {"c1.b", "c2.b", "c3.b", "fc.b"}

    assert facts.origin.inputs == CONFIG.inputs and {"r1", "c2.w"} <= facts.origin.ranges.keys()


def test_the_metadata_have_the_form_of_every_version_so_far(fixed):
    (entry,) = fixed.proto.metadata_props
    document = json.loads(entry.value)
    assert entry.key == METADATA_KEY == "sgsdump.fixed"
    assert list(document) == [
        *("version", "tensors", "weights", "convolutions", "biases", "operators"),
        *("inputs", "ranges", "channels", "decided", "raised_by"),
    ]
    assert document["version"] == 1
    assert list(document["tensors"]["r1"]) == ["dtype", "scale", "zero_point", "stored", "real", "picture"]
    assert list(document["weights"]["c2.w#int8"]) == ["name", "dtype", "scale", "axis"]
    assert list(document["operators"][0]) == ["in", "out", "inputs", "constants", "outputs"]
    assert [len(ends) for ends in document["ranges"]["r1"]] == [1, 1]


def test_a_float_model_has_none():
    assert read_facts(NET) is None and not is_fixed(NET)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "17", '"x"', "{}", "[" * 100_000, '{"tensors": {}}'])
def test_metadata_that_are_no_such_document_are_one_line(fixed, text):
    model = with_metadata(fixed, text)
    assert is_fixed(model)
    with pytest.raises(
        ModelError, match=r"net\.onnx: its metadata 'sgsdump\.fixed' are damaged \(.*create the fixed mo"
    ):
        simulate(model, {})


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("version",), 2, "the version is 2 instead of 1, because another version of sgsdump wrote"),
        (("version",), 0, "the version is 0 instead of 1"),
        (("tensors",), [], "dict expected"),
        (("tensors", "r1", "dtype"), "object", "the type is 'object' instead of uint8 or int16"),
        (("tensors", "r1", "dtype"), ["uint8"], "instead of uint8 or int16"),
        (("tensors", "r1", "scale"), 0, "the scale 0 is not positive"),
        (("tensors", "r1", "scale"), -1.0, "the scale -1.0 is not positive"),
        (("tensors", "r1", "scale"), float("nan"), "found 'nan' instead of a number"),
        (("tensors", "r1", "scale"), "1", "found '1' instead of a number"),
        (("tensors", "r1", "scale"), True, "found 'True' instead of a number"),
        (("tensors", "r1", "zero_point"), 256, "zero point 256 is out of range of uint8"),
        (("tensors", "r1", "zero_point"), -1, "zero point -1 is out of range of uint8"),
        (("tensors", "r1", "zero_point"), 0.5, "int expected"),
        (("tensors", "r1", "stored"), None, "str expected"),
        (("tensors", "r1", "real"), 5, "str expected"),
        (("tensors", "r1", "picture"), 1, "bool expected"),
        (("tensors", "r1"), None, "NoneType"),
        (("weights", "c2.w#int8", "dtype"), "uint8", "the type is 'uint8' instead of int8 or int16"),
        (("weights", "c2.w#int8", "scale"), 0.5, "axis 0 for the scales of 'c2.w'"),
        (("weights", "c2.w#int8", "axis"), None, "axis None for the scales of 'c2.w'"),
        (("weights", "c2.w#int8", "axis"), 4, "8 scales along axis 4 do not fit 'c2.w#int8' of shape [8, 8, 1, 1]"),
        (("weights", "c2.w#int8", "scale"), [1.0, 2.0], "2 scales along axis 0"),
        (("convolutions", "c2"), 3, "str expected"),
        (("operators",), {}, "list expected"),
        (("operators", 0, "constants"), ["nowhere"], "the model has no constant 'nowhere'"),
        (("operators", 0, "inputs"), "data", "list expected"),
        (("operators", 0, "out"), None, "str expected"),
        (("inputs", 0, "mean"), ["a"], "found 'a' instead of a number"),
        (("inputs", 0, "colour"), 1, "unexpected keyword"),
        (("inputs", 0, "training_format"), "RGBX", "training_format 'RGBX'"),
        (("inputs", 0, "input_format"), "", "input_format ''"),
        (("inputs", 0, "width_alignment"), "8", "int expected"),
        (("inputs", 0, "quantised"), 1, "bool expected"),
        (("ranges", "r1"), [[0.0], [1.0, 2.0]], "a range has 1 minima but 2 maxima"),
        (("ranges", "r1"), [[], []], "a range has 0 minima"),
        (("ranges", "r1"), [[0.0]], "not enough values"),
    ],
)
def test_a_damaged_entry_is_one_line(fixed, path, value, reason):
    def change(document):
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    with pytest.raises(ModelError) as caught:
        read_facts(changed(fixed, change))
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_that_the_graph_does_not_compute_is_skipped_and_said(fixed):
    def change(document):
        document["tensors"]["r1"]["real"] = "nowhere"

    feed = {"data": np.zeros((1, 3, 8, 8), np.float32)}
    simulation = simulate(changed(fixed, change), feed)
    assert "r1" not in [record.name for record in simulation.records]
    assert simulation.skipped == {"r1": "not computed"}


def test_stored_scales_are_exact():
    tensor = StoredTensor(np.dtype(np.uint8), 0.5, 7, "x_stored", "x").quant
    assert (tensor.dtype, tensor.scale, tensor.zero_point, tensor.axis, tensor.exact) == (np.uint8, 0.5, 7, None, True)
    assert not StoredTensor(np.dtype(np.uint8), 0.5, 7, "x_stored", "x").picture
    weights = StoredWeights("w", np.dtype(np.int8), (0.5, 0.25), 1).quant
    assert (weights.dtype, weights.zero_point, weights.axis, weights.exact) == (np.int8, 0, 1, True)
    assert weights.scale.tolist() == [0.5, 0.25] and weights.scale.dtype == np.float32
