"""dump_info.json and the file names: the SDAA tool's own layout, strict JSON, names that come back."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sgsdump.dumps.formats.sdaa import dump_info, file_names
from sgsdump.dumps.formats.sdaa.dump_info import DumpInfo, InputEntry, OutputEntry
from sgsdump.dumps.formats.sdaa.tensor_facts import TensorFacts, facts_of
from sgsdump.errors import FormatError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=40)


@pytest.mark.parametrize(
    "index, name, file",
    [
        (12, "relu_1.tmp_0", "topoidx_00012__relu_1.tmp_0.npy"),
        (None, "relu_3.tmp_0", "relu_3.tmp_0.npy"),
        (0, "/model/conv 1/Add", "topoidx_00000__%2Fmodel%2Fconv 1%2FAdd.npy"),
        (None, "/a/b", "%2Fa%2Fb.npy"),
        (None, "..", "%2E..npy"),
        (None, "../../etc/x", "%2E.%2F..%2Fetc%2Fx.npy"),
        (7, "100%", "topoidx_00007__100%25.npy"),
        (123456, "big", "topoidx_123456__big.npy"),
    ],
)
def test_a_file_name_says_its_tensor(index, name, file):
    assert file_names.outputs_file(index, name) == file
    assert file_names.named(file) == (index, name)


@given(st.none() | st.integers(0, 10**6), TEXT)
def test_any_name_comes_back(index, name):
    file = file_names.outputs_file(index, name)
    assert not set(file) & set('/\\:*?"<>|\0') and not file.startswith(".")
    if index is None and name.startswith("topoidx_"):
        return
    assert file_names.named(file) == (index, name) or len(name.encode()) > 70


def test_long_names_are_cut_and_stay_apart():
    names = ["x" * 400 + end for end in "ab"]
    files = [file_names.outputs_file(3, name) for name in names]
    assert files[0] != files[1] and all(len(file) <= 255 and file.endswith(".npy") for file in files)


FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(max_dims=3, max_side=5),
    elements=st.floats(width=16, allow_nan=True, allow_infinity=True),
)


@given(FLOATS)
def test_statistics_are_numpys(array):
    found = facts_of(array)
    with np.errstate(all="ignore"):
        expected = [float(figure) for figure in (np.mean(array), np.median(array), np.min(array), np.max(array))]
    np.testing.assert_array_equal([found.mean, found.median, found.min, found.max], expected)
    assert found.has_nan == np.isnan(array).any() and found.has_inf == np.isinf(array).any()
    assert (found.dtype, found.shape) == (array.dtype.name, array.shape)


def test_statistics_of_other_types():
    assert facts_of(np.array([1, 2, 4, 9])) == TensorFacts("int64", (4,), False, False, 4.0, 3.0, 1, 9)
    assert facts_of(np.array([True, False, True])) == TensorFacts("bool", (3,), False, False, 2 / 3, 1.0, False, True)
    assert facts_of(np.zeros((2, 0), np.float32)) == TensorFacts("float32", (2, 0))
    assert facts_of(np.array(3, np.uint8)) == TensorFacts("uint8", (), False, False, 3.0, 3.0, 3, 3)
    import ml_dtypes

    half = facts_of(np.array([1, 2, np.nan], ml_dtypes.bfloat16))
    assert half.dtype == "bfloat16" and half.has_nan and math.isnan(half.mean)
    small = facts_of(np.array([1, -2, 4], ml_dtypes.int4))
    assert small == TensorFacts("int4", (3,), False, False, 1.0, 1.0, -2.0, 4.0)


def example() -> DumpInfo:
    return DumpInfo(
        {"date_time": "2024-01-02 03:04:05", "default_seed": 42, "node_output_names": ["a", "b"]},
        (InputEntry("x", facts_of(np.arange(3.0)), 42, 0.0, 1.0, False, "inputs/x.npy"), InputEntry("y", None)),
        (
            OutputEntry("a", facts_of(np.array([np.nan, -np.inf, 1])), "n", "Relu", ("x",), 0, "outputs/a.npy", "NCHW"),
            OutputEntry("b", None, "m", "If", topo_index=1, error="inside a body", failed=False),
        ),
    )


def test_the_json_is_strict_and_comes_back(tmp_path):
    dump_info.write(example(), tmp_path)
    text = (tmp_path / "dump_info.json").read_text()

    def refuse(word):
        raise AssertionError(f"{word} is no strict JSON")

    document = json.loads(text, parse_constant=refuse)
    assert text.startswith('{\n    "meta_info": {')
    assert list(document) == ["meta_info", "input_info", "node_output_info"]
    assert document["input_info"][0]["tensor_info"]["shape"] == [3]
    assert set(document["input_info"][0]) >= {"input_name", "seed", "low", "high", "use_external", "tensor_info"}
    output = document["node_output_info"][0]
    assert set(output) >= {"node_output_name", "node_name", "node_type", "node_input_name", "tensor_info"}
    assert list(output["tensor_info"]) == "dtype shape has_nan has_inf mean median min max".split()
    assert output["tensor_info"]["mean"] == "nan" and output["tensor_info"]["has_nan"] is True
    assert document["node_output_info"][1]["error"] == "inside a body"
    for found in (dump_info.read(tmp_path), dump_info.read(tmp_path / "dump_info.json")):
        assert found.meta == example().meta and found.inputs == example().inputs
        assert found.outputs[1] == example().outputs[1]
        assert str(found.outputs[0]) == str(example().outputs[0])


def test_the_tools_own_json_is_read(tmp_path):
    """As the SDAA tool writes it: bare NaN and Infinity, no keys of ours."""
    (tmp_path / "dump_info.json").write_text(
        """{"meta_info": {"model_name": "m", "default_seed": 42},
        "input_info": [{"input_name": "x", "seed": 42, "low": 0, "high": 1, "use_external": false, "tensor_info":
          {"dtype": "float32", "shape": [1, 3], "has_nan": false, "has_inf": false, "mean": 0.5, "median": 0.5,
           "min": 0.1, "max": 0.9}}],
        "node_output_info": [{"node_output_name": "a", "node_name": "", "node_type": "Relu", "node_input_name": ["x"],
          "tensor_info": {"dtype": "float16", "shape": [1], "has_nan": true, "has_inf": true, "mean": NaN,
            "median": NaN, "min": -Infinity, "max": Infinity}},
          {"node_output_name": "b", "error": "boom"}]}"""
    )
    found = dump_info.read(tmp_path)
    assert found.inputs[0] == InputEntry(
        "x", TensorFacts("float32", (1, 3), False, False, 0.5, 0.5, 0.1, 0.9), 42, 0, 1
    )
    first, second = found.outputs
    assert first.facts and first.facts.max == math.inf and math.isnan(first.facts.mean) and first.file is None
    assert second.error == "boom" and second.failed


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "not JSON"),
        ("[1]", "not a dump_info.json"),
        ('{"meta_info": {}}', "not a dump_info.json"),
        ('{"meta_info": {}, "input_info": [3], "node_output_info": []}', "not a dump_info.json"),
        (
            '{"meta_info": {}, "input_info": [{"input_name": "x", "file": "../x.npy"}], "node_output_info": []}',
            "not in",
        ),
        (
            '{"meta_info": {}, "input_info": [{"input_name": "x", "file": "inputs/.."}], "node_output_info": []}',
            "not in",
        ),
        ("[" * 100000, "not JSON"),
        ('{"meta_info": {}, "node_output_info": []}', "it lacks 'input_info'"),
        (
            '{"meta_info": {}, "input_info": [{"input_name": "x", "seed": 4.7}], "node_output_info": []}',
            "the seed 4.7 is not a whole number",
        ),
    ],
)
def test_what_is_none_is_one_line(tmp_path, text, message):
    (tmp_path / "dump_info.json").write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        dump_info.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_json_is_one_line(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        dump_info.read(tmp_path)
